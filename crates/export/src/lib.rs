//! Profiles for several viewers, call trees, and findings.
//!
//! One module per format writes a [`Profile`](stackhound_profile::Profile):
//!
//! | module | viewer |
//! |---|---|
//! | [`firefox`] | profiler.firefox.com |
//! | [`flamegraph`] | any browser, as an SVG image |
//! | [`folded`] | scripts and flame graph tools |
//! | [`perfetto`] | ui.perfetto.dev and its trace processor |
//! | [`speedscope`] | speedscope.app |
//!
//! [`tree`] writes the call tree of a frame and other results of the stack model. [`findings`]
//! writes the findings of detections.
//!
//! Names are untrusted input. [`escape`] makes them safe for each kind of output, and every format
//! uses it.
//!
//! Every format contains the weight of every sample; they add up to [`Profile::weight`](stackhound_profile::Profile::weight).
//! Only flame graphs may leave out idle processors. The same profile always gives the same bytes.
//!
//! This crate does not read traces, does not resolve names, and opens no files.
#![forbid(unsafe_code)]

pub mod escape;
pub mod findings;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub mod json;
pub mod numbers;
pub mod pcapng;
pub mod perfetto;
pub mod speedscope;
pub mod tree;
