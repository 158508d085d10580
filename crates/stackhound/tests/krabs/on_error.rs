//! `describe_OnError`: 2 cases. An event without a known schema is reported as an error if its
//! fields are requested.
//!
//! In krabs, every handler of an event requests its schema, so the event is always reported and the
//! handler is not called. Here the header alone can be sufficient.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::schema::Error;
use stackhound::testing::OwnedEvent;
use stackhound::{EventFilter, EventView, Filter, Provider, pred};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{Kind, POWERSHELL, POWERSHELL_7937};

/// The use of the event by the handler.
type Handler = fn(&EventView<'_>) -> Result<(), Error>;

const HEADER: Handler = |_| Ok(());
const FIELDS: Handler = |view| {
    let text: String = view.parser()?.parse("UserData")?;
    assert_eq!(text, "Apple");
    Ok(())
};

/// The numbers of successful calls of the handler and of reported errors, for a provider with or
/// without a filter.
fn counts(event: &OwnedEvent, filter: Option<Filter>, handler: Handler) -> (u64, u64) {
    let (succeeded, reported) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (success, error) = (succeeded.clone(), reported.clone());
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
    let reported = reported.load(Ordering::Relaxed);
    assert_eq!(stats.errors, reported);
    (succeeded.load(Ordering::Relaxed), reported)
}

pub fn rows() -> Rows {
    let known = &incomplete(&builder(POWERSHELL_7937).with("UserData", "Apple"));
    // The same event under an id without a known schema.
    let unknown = &builder(Kind { id: 1234, ..POWERSHELL_7937 })
        .with_payload(known.payload())
        .expect("a small payload");
    let property = || pred::property("UserData").is("Apple");
    let rows: [(_, _, _, Handler, _); 8] = [
        ("a provider's handler that requests fields", unknown, None, FIELDS, (0, 1)),
        ("a provider's handler that does not", unknown, None, HEADER, (1, 0)),
        ("a filter's handler that requests fields", unknown, Some(pred::any_event()), FIELDS, (0, 1)),
        ("a filter's handler that does not", unknown, Some(pred::any_event()), HEADER, (1, 0)),
        ("a filter that requests fields", unknown, Some(property()), HEADER, (0, 1)),
        ("a filter that does not need fields", unknown, Some(pred::id_is(1) & property()), HEADER, (0, 0)),
        ("known schema, a provider's handler", known, None, FIELDS, (1, 0)),
        ("known schema, a filter that requests fields", known, Some(property()), FIELDS, (1, 0)),
    ];
    rows::check(
        rows.map(|(name, event, filter, handler, expected)| (name, counts(event, filter, handler), expected)),
    )
}
