//! Resolution of the frames of real traces.

use stackhound_frames::{FrameResolver, RegionKind};
use stackhound_stacks::Window;
use stackhound_system::Evidence;
use stackhound_trace::TraceFiles;
use stackhound_types::Mode;

use crate::read::{ReadStep, read};

/// User frames of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    all: u64,
    in_modules: u64,
    /// In no module, but in a JIT-compiled method.
    jit: u64,
    /// In a method with a name, in a module or not.
    named: u64,
    unknown: u64,
    /// Methods that were compiled during the trace.
    methods: usize,
}

fn counts(name: &str) -> Option<Counts> {
    let trace = TraceFiles::file(stackhound_corpus::path(name)?).open().expect("a trace of the corpus");
    let mut counts = Counts::default();
    let (mut resolver, mut cached) = (FrameResolver::default(), FrameResolver::default());
    cached.keep_frames(true);
    let mut count = |step: ReadStep<'_, '_>| {
        let ReadStep::Popped(delivered, system) = step else { return };
        let all = resolver.of(system, delivered).all(delivered);
        // The cache does not change the result.
        assert_eq!(cached.of(system, delivered).all(delivered), all);
        for frame in all.iter().filter(|frame| frame.mode == Mode::User) {
            counts.all += 1;
            counts.in_modules += u64::from(frame.loaded.is_some());
            counts.jit += u64::from(matches!(frame.region.kind, RegionKind::Jit(_)));
            let is_named = |method| !system.method(method).name().is_empty();
            counts.named += u64::from(frame.method.is_some_and(is_named));
            counts.unknown += u64::from(frame.region.kind == RegionKind::Unknown);
        }
    };
    let (system, _) = read(&trace, 2, Window::of(&trace.clock()), &mut count);
    counts.methods = system.methods().filter(|method| method.evidence() == Evidence::Observed).count();
    Some(counts)
}

/// According to PerfView, 290 methods were compiled during this trace.
#[test]
fn jit_code_is_named() {
    let Some(counts) = counts("perfview-net452-x64.etl") else { return };
    assert_eq!(counts.methods, 290);
    assert_eq!(counts.jit, counts.named, "{counts:?}");
    // The remaining frames are in code that the runtime generates for itself and does not report.
    assert!(counts.jit * 6 > counts.all - counts.jit && counts.unknown * 400 < counts.all, "{counts:?}");
}

/// The methods are in this trace, the modules in another session of the same capture.
#[test]
fn jit_code_is_named_without_modules() {
    let Some(counts) = counts("perfview-diaghub.user_paged.1.etl") else { return };
    assert!(counts.in_modules == 0 && counts.jit > 2000, "{counts:?}");
}
