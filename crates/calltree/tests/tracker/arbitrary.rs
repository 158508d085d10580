//! The output of the tracker is well-formed for any input.

use crate::execution::Event;
use proptest::prelude::*;
use stackhound_calltree::ContextId;
use stackhound_calltree::StackKind;
use stackhound_calltree::tracker::{Class, Point, Ring, Space, Step, Thread, Tracked};
use stackhound_types::Address;

use super::found::{Found, built, feed, tracker};

/// A few addresses, so that they coincide, and extreme values.
fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        8 => (0..40_u64).prop_map(|word| Address(0x10_0000 + 8 * word)),
        2 => (0..8_u64).prop_map(|page| Address(0x10_0000 + 0x9000 * page)),
        1 => (0..4_u64).prop_map(Address),
        1 => (0..4_u64).prop_map(|word| Address(u64::MAX - word)),
        1 => any::<u64>().prop_map(Address),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        4 => address().prop_map(|return_address| Class::Call { return_address }),
        4 => Just(Class::Return),
        1 => Just(Class::Jump),
        2 => Just(Class::Static),
        2 => Just(Class::Dynamic),
        1 => Just(Class::System),
        1 => address().prop_map(|slot| Class::Interrupt { slot }),
        1 => address().prop_map(|slot| Class::Signal { slot }),
        1 => Just(Class::InterruptReturn),
        1 => (0..4_u32).prop_map(|thread| Class::Switch { to: Thread(thread) }),
        2 => Just(Class::Other),
    ]
}

fn space() -> impl Strategy<Value = Space> {
    prop_oneof![4 => Just(Space(0)), 1 => Just(Space(1)), 2 => Just(Space::KERNEL)]
}

fn ring() -> impl Strategy<Value = Ring> {
    prop_oneof![2 => Just(Ring::User), 1 => Just(Ring::Kernel)]
}

fn event() -> impl Strategy<Value = Event> {
    let point = || (address(), address(), ring()).prop_map(|(pc, sp, ring)| Point { pc, sp, ring });
    prop_oneof![
        16 => (class(), point(), point(), space())
            .prop_map(|(class, before, after, space)| Event::Step(Step { class, before, after, space })),
        1 => any::<u32>().prop_map(Event::Skip),
        1 => (space(), address(), address())
            .prop_map(|(space, low, high)| Event::Declare { space, low, high, kind: StackKind::User }),
        1 => (space(), address(), address()).prop_map(|(space, low, high)| Event::Release { space, low, high }),
        1 => (0..4_u32).prop_map(|thread| Event::Exit(Thread(thread))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_steps_give_well_formed_changes(
        events in prop::collection::vec((event(), any::<bool>()), 0..200),
        connected: bool,
    ) {
        let mut tracker = tracker();
        let mut found = Found::default();
        let mut items = Vec::new();
        let mut last = None;
        for (mut event, readable) in events {
            if let (Event::Step(step), Some(before), true) = (&mut event, last, connected) {
                step.before = before;
            }
            // Half of the memory contains unexpected values.
            let memory = |address: Address| readable.then_some(Address(address.0 >> 1 & !7));
            let transition = tracker.transition().0;
            feed(&mut tracker, event, &memory, |item| {
                if let Tracked::Close { last, .. } | Tracked::Leave { last } = item {
                    assert_eq!(last.0, transition, "ends with the context before the transition");
                }
                found.take(item);
                items.push(item);
            });
            if let Event::Step(step) = event {
                last = Some(step.after);
                // Doubtful calls do not make a stack empty.
                if let Some((_, Some(stack))) = found.active.last() {
                    assert!(found.depth(*stack) > 0, "an active stack has an open frame");
                }
            }
        }
        let end = ContextId(tracker.transition().0);
        tracker.finish(|item| {
            found.take(item);
            items.push(item);
        });
        found.end(end);
        // Skipped transitions can exceed the numbers of a trace.
        if end.0 < 1 << 40 {
            built(&items, end.0);
        }
    }
}
