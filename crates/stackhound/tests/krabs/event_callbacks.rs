//! `test_event_callbacks`: 6 cases. All callables can be handlers: a function, a closure, a closure
//! that owns its state, a temporary, a method of a shared value. All handlers of a provider are
//! called.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stackhound::{EventView, Provider};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{POWERSHELL, POWERSHELL_7942};

static FUNCTION: AtomicU64 = AtomicU64::new(0);

fn function(view: &EventView<'_>) {
    if view.id() == 7942 {
        FUNCTION.fetch_add(1, Ordering::Relaxed);
    }
}

/// A value with a method.
#[derive(Default)]
struct Counter {
    calls: AtomicU64,
}

impl Counter {
    fn called(&self, _: &EventView<'_>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn handler(self: Arc<Self>) -> impl FnMut(&EventView<'_>) + Send + 'static {
        move |view| self.called(view)
    }
}

pub fn rows() -> Rows {
    let [closure, temporary, method] = [(); 3].map(|()| Arc::new(Counter::default()));
    let by_closure = closure.clone();
    let by_method = method.clone();
    // State of the handler, which is read at the end.
    let owned = Arc::new(Mutex::new(Vec::new()));
    let copy = owned.clone();
    let mut ids = Vec::new();

    let provider = Provider::guid(POWERSHELL)
        .on_event(function)
        .on_event(move |_| {
            by_closure.calls.fetch_add(1, Ordering::Relaxed);
        })
        .on_event(temporary.clone().handler())
        .on_event(move |view| by_method.called(view))
        .on_event(move |view| {
            ids.push(view.id());
            copy.lock().unwrap().clone_from(&ids);
        });
    let event = builder(POWERSHELL_7942).with("ClassName", "Made").with("Message", "a made-up message");
    let stats = rows::trace(&incomplete(&event)).enable(provider).run(|_| {}).expect("a trace");

    assert_eq!(*owned.lock().unwrap(), [7942]);
    let calls = [
        ("a function", FUNCTION.load(Ordering::Relaxed)),
        ("a closure", closure.calls.load(Ordering::Relaxed)),
        ("a temporary handler", temporary.calls.load(Ordering::Relaxed)),
        ("a method", method.calls.load(Ordering::Relaxed)),
        ("a closure with state", owned.lock().unwrap().len() as u64),
        ("all of them for one event", stats.delivered),
    ];
    rows::check(calls.map(|(name, calls)| (name, calls, 1)))
}
