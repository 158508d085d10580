//! `describe_Proxy`: 10 cases. Events run through a configured trace without a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::testing::OwnedEvent;
use stackhound::{EventFilter, EventView, Provider, Trace, pred};

use crate::rows::{Rows, builder, check, incomplete, trace};
use crate::schemas::{IMAGE, IMAGE_LOAD_V3, POWERSHELL, POWERSHELL_7937, WININET};

/// The number of calls of a handler that `set_up` adds to the trace of an event.
fn calls(
    event: &OwnedEvent,
    set_up: impl FnOnce(Trace, Box<dyn FnMut(&EventView<'_>) + Send>) -> Trace,
) -> u64 {
    let counter = Arc::new(AtomicU64::new(0));
    let counted = counter.clone();
    let handler = Box::new(move |_: &EventView<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    set_up(trace(event), handler).run(|_| ()).expect("a trace");
    counter.load(Ordering::Relaxed)
}

pub fn rows() -> Rows {
    let values = ["UserData", "ContextInfo", "Payload"];
    let user = values.into_iter().fold(builder(POWERSHELL_7937), |builder, name| builder.with(name, "text"));
    let user = incomplete(&user);
    let image = incomplete(&builder(IMAGE_LOAD_V3).with("ProcessId", 123).with("FileName", "file.exe"));
    let of_provider = |provider, event| {
        calls(event, |trace, handler| trace.enable(Provider::guid(provider).on_event(handler)))
    };
    // A handler that reads only headers never decodes a payload.
    let header = |provider, event| {
        calls(event, |trace, mut handler| {
            trace.enable(Provider::guid(provider).on_event(move |view| {
                if view.provider_guid() == Some(provider) {
                    handler(view);
                }
            }))
        })
    };
    let unclaimed =
        |event| calls(event, |trace, handler| trace.enable(Provider::guid(WININET)).on_unclaimed(handler));
    let by_default = |event: &OwnedEvent| {
        let mut calls = 0;
        trace(event).run(|_| calls += 1).expect("a trace");
        calls
    };
    let filtered = |filter| {
        calls(&user, |trace, handler| {
            let filter = EventFilter::new(filter).on_event(handler);
            trace.enable(Provider::guid(POWERSHELL).filter(filter))
        })
    };
    check([
        ("a provider's handler is called", of_provider(POWERSHELL, &user), 1),
        ("a handler that reads the header only", header(POWERSHELL, &user), 1),
        ("the handler of unclaimed events", unclaimed(&user), 1),
        ("without providers, the handler of all events", by_default(&user), 1),
        ("the handler of another provider is not called", of_provider(WININET, &user), 0),
        ("a kernel provider's handler is called", of_provider(IMAGE, &image), 1),
        ("a kernel provider's handler that reads the header only", header(IMAGE, &image), 1),
        ("the handler of unclaimed events gets kernel events", unclaimed(&image), 1),
        ("without providers, all kernel events", by_default(&image), 1),
        ("a filter that matches all events", filtered(pred::any_event()), 1),
        ("a filter that matches no event", filtered(!pred::any_event()), 0),
        (
            "a claimed event is not unclaimed",
            calls(&user, |trace, handler| trace.enable(Provider::guid(POWERSHELL)).on_unclaimed(handler)),
            0,
        ),
    ])
}
