//! Random traces, of which everything is also written down plainly.

mod agreement;
mod damage;
mod naive;
