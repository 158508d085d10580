//! What the frames of real recordings become.

use stackhound_frames::{FrameResolver, RegionKind};
use stackhound_stacks::Window;
use stackhound_system::Evidence;
use stackhound_trace::TraceFiles;
use stackhound_types::Mode;

use crate::read::{EventView, read};

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
    /// Methods that were compiled during the recording.
    methods: usize,
}

fn counts(name: &str) -> Option<Counts> {
    let trace = TraceFiles::file(stackhound_corpus::path(name)?).open().expect("a recording of the corpus");
    let mut counts = Counts::default();
    let (mut resolver, mut cached) = (FrameResolver::default(), FrameResolver::default());
    cached.keep_frames(true);
    let mut count = |seen: EventView<'_, '_>| {
        let EventView::Popped(delivered, system) = seen else { return };
        let all = resolver.of(system, delivered).all(delivered);
        // The cache changes nothing.
        assert_eq!(cached.of(system, delivered).all(delivered), all);
        for frame in all.iter().filter(|frame| frame.mode == Mode::User) {
            counts.all += 1;
            counts.in_modules += u64::from(frame.loaded.is_some());
            counts.compiled += u64::from(matches!(frame.region.kind, RegionKind::Jit(_)));
            let is_named = |method| !system.method(method).name().is_empty();
            counts.named += u64::from(frame.method.is_some_and(is_named));
            counts.unknown += u64::from(frame.region.kind == RegionKind::Unknown);
        }
    };
    let (system, _) = read(&trace, 2, Window::of(&trace.clock()), &mut count);
    counts.methods = system.methods().filter(|method| method.evidence() == Evidence::Observed).count();
    Some(counts)
}

/// By PerfView's own reading, 290 methods were compiled during this recording.
#[test]
fn compiled_code_is_named() {
    let Some(counts) = counts("perfview-net452-x64.etl") else { return };
    assert_eq!(counts.methods, 290);
    assert_eq!(counts.compiled, counts.named, "{counts:?}");
    // What is left over is code that the runtime makes for itself and tells nothing of.
    assert!(
        counts.compiled * 6 > counts.all - counts.compiled && counts.unknown * 400 < counts.all,
        "{counts:?}"
    );
}

/// Methods are known from another session of the same capture than the modules.
#[test]
fn compiled_code_is_named_without_modules() {
    let Some(counts) = counts("perfview-diaghub.user_paged.1.etl") else { return };
    assert!(counts.in_modules == 0 && counts.compiled > 2000, "{counts:?}");
}
