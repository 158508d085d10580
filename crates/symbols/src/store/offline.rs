//! A replacement for downloads in builds without them.

use std::io::Write;

use super::wanted::Wanted;
use super::{DownloadLimits, Refusal};
use crate::failure::Cause;
use crate::path::ServerUrl;

/// Queries no server.
#[derive(Debug)]
pub(super) struct Client;

impl Client {
    pub fn new(_: DownloadLimits) -> Client {
        Client
    }

    pub fn download(&self, _: &ServerUrl, _: &Wanted, _: &mut impl Write) -> Result<u64, Refusal> {
        Err((Cause::NotBuilt, "downloads need the feature `download`".to_owned()))
    }
}
