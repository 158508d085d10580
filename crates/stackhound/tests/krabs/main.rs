//! The behavior that krabsetw's tests describe, as far as it does not need Windows, with one module
//! for each of its files.
//!
//! Each module is a table of named cases. Intentional differences are described in the cases, and
//! their reasons in `docs/krabs.md`.

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
