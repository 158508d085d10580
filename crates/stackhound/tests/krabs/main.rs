//! The behaviours that krabsetw's tests describe, as far as they need no Windows, one module for each of its files.
//!
//! Each module is a table of named cases. Where Stackhound means to behave otherwise, the case says how, and
//! `docs/krabs.md` says why.

mod event_callbacks;
mod filter;
mod kernel_providers;
mod managed_predicate;
mod managed_text;
mod on_error;
mod one_event;
mod schemas;
mod user_providers;
