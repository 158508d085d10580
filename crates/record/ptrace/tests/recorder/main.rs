//! The recorder on real programs.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod recording;
mod support;
mod tools;
mod truth;
