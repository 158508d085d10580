//! What the frames of real recordings become.

use stackhound_enrich::{Frames, Mode, RegionKind};
use stackhound_trace::Trace;

use crate::read::read;

/// User frames of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    all: u64,
    in_modules: u64,
    /// In no module, but in a compiled method.
    compiled: u64,
    /// In a compiled method with a name, in a module or not.
    named: u64,
    unknown: u64,
}

fn counts(name: &str) -> Option<Counts> {
    let trace = Trace::file(stackhound_corpus::path(name)?).open().expect("a recording of the corpus");
    let mut counts = Counts::default();
    read(&trace, 2, |delivered, system| {
        for frame in Frames::of(system, delivered).all(delivered).filter(|frame| frame.mode == Mode::User) {
            counts.all += 1;
            counts.in_modules += u64::from(frame.module.is_some());
            counts.compiled += u64::from(matches!(frame.region.kind, RegionKind::Jit(_)));
            counts.named +=
                u64::from(frame.method.is_some_and(|method| !system.method(method).name().is_empty()));
            counts.unknown += u64::from(frame.region.kind == RegionKind::Unknown);
        }
    });
    Some(counts)
}

#[test]
fn survey() {
    for (name, _) in stackhound_corpus::recordings() {
        let counts = counts(&name).unwrap();
        if counts.all > 0 {
            println!("{name} {counts:?}");
        }
    }
}
