//! The device, asked in every way there is, on a system that is only played.

mod access;
mod bounds;
mod busy;
mod requests;
mod served;
mod support;
