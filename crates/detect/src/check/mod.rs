//! The detections' questions, one function each. They look at the evidence and at nothing else, so the order of events
//! plays no part.

pub(crate) mod dispatch;
pub(crate) mod entry;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod root;
pub(crate) mod sites;
pub(crate) mod start;
pub(crate) mod stubs;
pub(crate) mod target;
pub(crate) mod twin;
pub(crate) mod unbacked;
pub(crate) mod wow64;

use crate::judge::Evidence;
use crate::verdict::Outcome;

/// Answers one question.
pub(crate) type Check = fn(&mut Evidence<'_, '_>) -> Outcome;
