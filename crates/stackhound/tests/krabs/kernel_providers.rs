//! `test_kernel_providers`: 4 cases. Parts of the kernel are providers, and receive the events of
//! their class.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::Provider;
use stackhound::live::{KernelGroups, KernelProvider};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{IMAGE, IMAGE_LOAD_V3};

fn named(name: &str) -> KernelProvider {
    let found = KernelProvider::ALL.into_iter().find(|provider| provider.name == name);
    found.unwrap_or_else(|| panic!("{name}"))
}

/// The number of calls of the handler of each provider for the load of an image.
fn called(providers: &[KernelProvider]) -> Vec<u64> {
    let counters: Vec<Arc<AtomicU64>> = providers.iter().map(|_| Arc::default()).collect();
    let event = incomplete(&builder(IMAGE_LOAD_V3));
    let trace = providers.iter().zip(&counters).fold(rows::trace(&event), |trace, (provider, counter)| {
        let counter = counter.clone();
        trace.enable(Provider::kernel(*provider).on_event(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }))
    });
    trace.run(|_| {}).expect("a trace");
    counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect()
}

pub fn rows() -> Rows {
    let own = KernelProvider { name: "own", groups: KernelGroups::ALPC, class: IMAGE, hook_ids: &[] };
    let rows = [
        ("one of the list can be enabled", vec![named("thread_dispatch")], vec![0]),
        ("a custom one can be enabled, by groups and class", vec![own], vec![1]),
        ("loads of images are delivered to their provider", vec![named("image_load")], vec![1]),
        ("and not to other providers", vec![named("image_load"), named("alpc")], vec![1, 0]),
        // In krabs, only the first provider of a class is called.
        ("every provider of a class is called", vec![named("image_load"), own], vec![1, 1]),
    ];
    rows::check(rows.map(|(name, providers, expected)| (name, called(&providers), expected)))
}
