//! `describe_OnError`: 2 cases. An event that nobody describes is told as an error where something asks for its fields.
//!
//! In krabs every handler of an event asks for its description, so it is always told and the handler not called. Here the
//! header alone can be enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::schema::Error;
use stackhound::testing::OwnedEvent;
use stackhound::{EventFilter, EventView, Filter, Provider, pred};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{Kind, POWERSHELL, POWERSHELL_7937};

/// What the handler does with the event.
type Handler = fn(&EventView<'_>) -> Result<(), Error>;

const HEADER: Handler = |_| Ok(());
const FIELDS: Handler = |view| {
    let text: String = view.parser()?.parse("UserData")?;
    assert_eq!(text, "Apple");
    Ok(())
};

/// How often the handler succeeds and how many errors are told, for a provider with a filter or without.
fn told(event: &OwnedEvent, filter: Option<Filter>, handler: Handler) -> (u64, u64) {
    let (succeeded, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (success, error) = (succeeded.clone(), told.clone());
    let handler = move |view: &EventView<'_>| {
        handler(view)?;
        success.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let provider = match filter {
        Some(filter) => Provider::guid(POWERSHELL).filter(EventFilter::new(filter).on_event(handler)),
        None => Provider::guid(POWERSHELL).on_event(handler),
    };
    let trace = rows::trace(event).enable(provider).on_error(move |_| {
        error.fetch_add(1, Ordering::Relaxed);
    });
    let stats = trace.run(|_| {}).expect("a trace");
    let told = told.load(Ordering::Relaxed);
    assert_eq!(stats.errors, told);
    (succeeded.load(Ordering::Relaxed), told)
}

pub fn rows() -> Rows {
    let known = &incomplete(&builder(POWERSHELL_7937).with("UserData", "Apple"));
    // The same under an id that nobody describes.
    let unknown = &builder(Kind { id: 1234, ..POWERSHELL_7937 })
        .with_payload(known.payload())
        .expect("a small payload");
    let property = || pred::property("UserData").is("Apple");
    let rows: [(_, _, _, Handler, _); 8] = [
        ("a provider's handler that asks for fields", unknown, None, FIELDS, (0, 1)),
        ("a provider's handler that does not", unknown, None, HEADER, (1, 0)),
        ("a filter's handler that asks for fields", unknown, Some(pred::any_event()), FIELDS, (0, 1)),
        ("a filter's handler that does not", unknown, Some(pred::any_event()), HEADER, (1, 0)),
        ("a filter that asks for fields", unknown, Some(property()), HEADER, (0, 1)),
        ("a filter that need not", unknown, Some(pred::id_is(1) & property()), HEADER, (0, 0)),
        ("described, a provider's handler", known, None, FIELDS, (1, 0)),
        ("described, a filter that asks for fields", known, Some(property()), FIELDS, (1, 0)),
    ];
    rows::check(
        rows.map(|(name, event, filter, handler, expected)| (name, told(event, filter, handler), expected)),
    )
}
