//! Systems in memory that the tests write.

mod linux;
mod ranges;
mod windows;
