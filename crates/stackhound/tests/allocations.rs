//! Evaluating a predicate on an event allocates nothing.

#[path = "predicate/etl_file.rs"]
mod etl_file;

use std::alloc::System;

use stackhound::{Predicate, Trace};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use etl_file::{PROVIDER, etl_file, schemas};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of allocations of `work`, including those of other threads in the meantime.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(GLOBAL);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

/// Whether `work` can be done without an allocation. It is tried repeatedly, because other threads
/// allocate too.
fn allocates_nothing(mut work: impl FnMut()) -> bool {
    (0..1_000).any(|_| allocations(&mut work) == 0)
}

#[test]
fn comparisons_allocate_nothing() {
    let predicates = [
        "id = 7 and opcode = 3 and version = 2 and level = 4 and keyword hasany 0x10",
        "provider_guid = '5d1ef9a0-0b1c-4c1f-8e21-3a6f904e7701' and activity ~ '01*'",
        "pid = 812 and tid = 900 and time startswith 2024 and event = 'Fetch' and provider = 'Stackhound-Test'",
        "fields.Url = 'https://Example.org/ä' and fields.Url != 'https://example.org/ä'",
        "fields.Url i= 'HTTPS://example.org/Ä' and fields.Url contains 'Ex' and fields.Url icontains 'eX'",
        "fields.Url icontains 'ORG/Ä' and fields.Url startswith 'http' and fields.Url istartswith 'HTTP'",
        "fields.Url endswith 'ä' and fields.Url iendswith 'ORG/Ä' and fields.Url ~ 'h*' and fields.Url i~ '*Ä'",
        "fields.Url > 'http' and not fields.Url < 7",
        "fields.Verb = 'GET' and fields.Verb icontains 'e' and fields.Narrow = 'Zoë' and fields.Narrow icontains 'OË'",
        "fields.Counted = 'two' and fields.Counted iendswith 'WO'",
        "fields.ProcessId = 4242 and fields.Port in (80, 443) and fields.Ratio > 0.2 and fields.Flag = true",
        "fields.Address = '10.0.0.1' and fields.Color = 'green' and fields.When startswith 2024 and fields.User = 'S-1-5-18'",
        "fields.Id = '03030303-0303-0303-0303-030303030303'",
    ]
    .map(|text| (text, Predicate::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)))));
    let file = etl_file();
    let mut evaluated = 0;
    let trace = Trace::file(file.path()).schemas(schemas());
    let stats = trace.run(|view| {
        if view.provider_guid() != Some(PROVIDER) {
            return;
        }
        for (text, predicate) in &predicates {
            // The first evaluation computes and caches the facts of the event.
            assert!(predicate.matches(view), "{text}");
            assert!(allocates_nothing(|| assert!(predicate.matches(view))), "{text}");
            evaluated += 1;
        }
    });
    assert!(stats.is_ok() && evaluated == predicates.len());
    // The counter works.
    assert!(allocations(|| drop(std::hint::black_box(vec![1_u8]))) > 0);
}
