//! Downloads over HTTP, with limits.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::PoisonError;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::{Agent, Error};

use super::wanted::Wanted;
use super::{DownloadLimits, Refusal};
use crate::failure::Cause;
use crate::path::ServerUrl;

/// Number of consecutive failures after which a server is not queried any more.
const FAILURES_MAX: u32 = 3;

/// Characters that are not encoded in a URL, in addition to letters and digits.
const UNENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// Queries servers for files.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    limits: DownloadLimits,
    /// The number of consecutive failures of each server.
    failures: Mutex<HashMap<ServerUrl, u32>>,
}

impl Client {
    pub fn new(limits: DownloadLimits) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(limits.redirects)
            .timeout_resolve(Some(limits.connect))
            .timeout_connect(Some(limits.connect))
            .timeout_recv_response(Some(limits.stall))
            .timeout_per_read(Some(limits.stall))
            .timeout_global(Some(limits.file))
            .user_agent(concat!("stackhound/", env!("CARGO_PKG_VERSION")));
        Client { agent: config.build().new_agent(), limits, failures: Mutex::default() }
    }

    /// Writes a file of a server to `out`. Returns its size.
    pub fn download(
        &self,
        server: &ServerUrl,
        wanted: &Wanted,
        out: &mut impl Write,
    ) -> Result<u64, Refusal> {
        if self.count(server, |failures| *failures) >= FAILURES_MAX {
            return Err((
                Cause::Unreachable,
                format!("not queried after {FAILURES_MAX} consecutive failures"),
            ));
        }
        let result = self.query(server, wanted, out);
        match &result {
            Ok(bytes) => {
                tracing::debug!(server = server.as_str(), file = wanted.name.as_str(), bytes, "downloaded")
            }
            Err((cause, reason)) => {
                tracing::debug!(
                    server = server.as_str(),
                    file = wanted.name.as_str(),
                    ?cause,
                    reason,
                    "not downloaded"
                );
            }
        }
        let is_failure = matches!(result, Err((Cause::Unreachable, _)));
        self.count(server, |failures| *failures = if is_failure { *failures + 1 } else { 0 });
        result
    }

    fn count<T>(&self, server: &ServerUrl, change: impl FnOnce(&mut u32) -> T) -> T {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        change(failures.entry(server.clone()).or_default())
    }

    fn query(&self, server: &ServerUrl, wanted: &Wanted, out: &mut impl Write) -> Result<u64, Refusal> {
        let name = utf8_percent_encode(wanted.name.as_str(), UNENCODED);
        let url = format!("{server}/{name}/{}/{name}", wanted.key);
        // A server that is queried over HTTPS must not redirect to an unencrypted address.
        let is_https = server.as_str().starts_with("https:");
        let request = self.agent.get(&url).config().https_only(is_https);
        // A proxy from the environment is for external servers.
        let request = if is_loopback(&url) { request.proxy(None) } else { request };
        let mut response = request.build().call().map_err(unreachable)?;
        match response.status().as_u16() {
            200 => {}
            404 | 410 => return Err((Cause::NotOnServer, "does not have it".to_owned())),
            status => return Err((Cause::Unreachable, format!("responded with status {status}"))),
        }
        let limit = self.limits.file_size;
        let too_large = || (Cause::TooLarge, format!("offers more than {limit} bytes"));
        let stated = response.body().content_length();
        if stated.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        // One byte more than the limit distinguishes a file that is too large from one that just
        // fits.
        let mut body =
            response.body_mut().with_config().limit(u64::MAX).reader().take(limit.saturating_add(1));
        let length = copy(&mut body, out)?;
        if length > limit {
            return Err(too_large());
        }
        if stated.is_some_and(|stated| stated != length) {
            return Err((Cause::Unreachable, format!("connection lost after {length} bytes")));
        }
        Ok(length)
    }
}

fn is_loopback(url: &str) -> bool {
    let url: Option<http::Uri> = url.parse().ok();
    url.and_then(|url| url.host().map(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]")))
        .unwrap_or(false)
}

fn unreachable(error: Error) -> Refusal {
    (Cause::Unreachable, error.to_string())
}

/// Like [`io::copy`], but with different causes for errors of the two sides.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<u64, Refusal> {
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(length),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err((Cause::Unreachable, format!("connection lost after {length} bytes: {error}")));
            }
        };
        to.write_all(&buffer[..read]).map_err(|error| (Cause::NotKept, error.to_string()))?;
        length += read as u64;
    }
}
