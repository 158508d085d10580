//! The behaviours that krabsetw's tests describe, as far as they need no Windows, one module for each of its files.
//!
//! Each module is a table of named cases. Where Stackhound means to behave otherwise, the case says how, and
//! `docs/krabs.md` says why.

mod asserts;
mod collection_view;
mod event_callbacks;
mod event_record;
mod filter;
mod fluent;
mod guid;
mod invalid_parsing;
mod kernel_providers;
mod managed_predicate;
mod managed_text;
mod on_error;
mod parser;
mod proxy;
mod record_builder;
mod record_property_thunk;
mod rows;
mod schema_key;
mod schemas;
mod synth_record;
mod user_providers;
