//! Compares random traces with a naive model.

mod agreement;
mod damage;
mod fold;
mod naive;
#[path = "../stepping/oracle.rs"]
mod oracle;
