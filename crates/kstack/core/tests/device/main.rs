//! Requests of every kind to the device, on a simulated system.

mod access;
mod bounds;
mod busy;
mod requests;
mod served;
mod support;
