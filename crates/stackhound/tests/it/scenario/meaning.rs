//! The complete pipeline decodes a scenario: names, fields, processes and modules.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackhound::{Mode, Passes, Pipeline};
use stackhound_scenario::{Mix, State};

use super::{Written, kind_of, record_key, written};

#[test]
fn every_payload_is_decoded_completely() {
    for mix in [Mix::Default, Mix::Profile] {
        let Written { trace, .. } = written(30_000, 2, mix);
        let mut pipeline = Pipeline::new(&trace, Passes::Two);
        let mut opaque: BTreeMap<String, u64> = BTreeMap::new();
        pipeline.run(|view| {
            let kind = kind_of(view.event());
            let Some(mut fields) = view.fields() else {
                *opaque.entry(kind.name().to_owned()).or_default() += 1;
                return ControlFlow::Continue(());
            };
            for field in &mut fields {
                assert!(field.is_ok(), "{kind:?}: {field:?}");
            }
            assert!(fields.rest().is_empty(), "{kind:?}: {} bytes are left", fields.rest().len());
            ControlFlow::Continue(())
        });
        // The reader has no schema for this event.
        opaque.remove("Microsoft-Windows-Kernel-Audit-API-Calls/OpenProcess");
        assert!(opaque.is_empty(), "{opaque:?}");
    }
}

#[test]
fn names_are_those_of_the_reader() {
    let Written { trace, .. } = written(20_000, 3, Mix::Default);
    Pipeline::new(&trace, Passes::Two).run(|view| {
        if view.event().hook_id().is_some() {
            assert_eq!(view.name(), kind_of(view.event()).name());
        }
        ControlFlow::Continue(())
    });
}

/// The frames of the scenario are in the modules that the reader finds, and the processes of events
/// match the ground truth.
#[test]
fn frames_are_in_the_modules_of_their_processes() {
    let Written { trace, truth, expected, .. } = written(40_000, 4, Mix::Default);
    let (mut inside, mut outside, mut early) = (0, 0, 0);
    Pipeline::new(&trace, Passes::Two).run(|view| {
        let Some(expected) = expected.get(&record_key(view.event())) else {
            return ControlFlow::Continue(());
        };
        if matches!(expected.state, State::Damaged | State::Lost) || expected.tid.0 == 0 {
            return ControlFlow::Continue(());
        }
        let has_thread =
            |process: &&stackhound_scenario::Process| process.threads.iter().any(|t| t.tid == expected.tid);
        let process = truth.processes.iter().find(has_thread).unwrap();
        assert_eq!(
            (view.pid(), view.process_name()),
            (Some(process.pid), Some(&*process.name)),
            "{:?} {} {:?}",
            record_key(view.event()),
            view.name(),
            process
        );
        for frame in view.frames() {
            match (frame.module(), truth.image_at(process, frame.address())) {
                (Some(module), Some(image)) => {
                    inside += 1;
                    assert_eq!((module.path(), module.base()), (&*image.path, image.base));
                }
                (None, None) => outside += 1,
                // While a process starts, its stacks pass through images whose load is recorded
                // later.
                (None, Some(image)) => {
                    early += 1;
                    assert!(process.started.is_some() && frame.mode == Mode::User, "{}", image.path);
                }
                (Some(module), None) => panic!("{} in {}", frame.address(), module.path()),
            }
        }
        ControlFlow::Continue(())
    });
    assert!(inside > 50_000 && outside > 50 && early < 2_000, "{inside} {outside} {early}");
}
