//! The tracker at its limits.

use stackhound_calltree::tracker::{
    Class, FRAMES_MAX, Point, Ring, STACKS_MAX, Space, Step, THREADS_MAX, Thread, Tracked, Tracker,
};
use stackhound_calltree::{EndType, StackKind};
use stackhound_types::Address;

struct Run {
    tracker: Tracker,
    at: Point,
    items: Vec<Tracked>,
}

impl Run {
    fn new(sp: u64) -> Run {
        let at = Point { pc: Address(0x1000), sp: Address(sp), ring: Ring::User };
        Run { tracker: Tracker::new(Thread(0)), at, items: Vec::new() }
    }

    fn step(&mut self, class: Class, sp: u64) {
        let after = Point { pc: Address(0x9000), sp: Address(sp), ring: Ring::User };
        let step = Step { class, before: self.at, after, space: Space(0) };
        self.items.clear();
        self.tracker.step(&step, |_| None, |item| self.items.push(item));
        self.at = after;
    }
}

#[test]
fn calls_beyond_the_limit_are_counted() {
    let calls = FRAMES_MAX as u64 + 3;
    let top = 0x1000_0000_0000;
    let mut run = Run::new(top);
    run.step(Class::Other, top);
    let mut opened = 0;
    for call in 1..=calls {
        run.step(Class::Call { return_address: Address(0x9000 - 0x100) }, top - 8 * call);
        opened += run.items.len();
    }
    assert_eq!(opened, FRAMES_MAX);
    assert_eq!(run.tracker.counts().frames_refused, 3);
    // Their returns belong to no frame.
    let mut closed = 0;
    for call in (1..=calls).rev() {
        run.step(Class::Return, top - 8 * (call - 1));
        closed += run
            .items
            .iter()
            .filter(|item| matches!(item, Tracked::Close { end: EndType::ReturnElsewhere, .. }))
            .count();
    }
    assert_eq!(closed, FRAMES_MAX);
    assert_eq!(run.tracker.counts().returns_as_jumps, 3);
    // Released capacity is available again.
    run.step(Class::Call { return_address: Address(0) }, top - 8);
    assert_eq!(run.items.len(), 1);
}

#[test]
fn no_stack_is_active_beyond_the_limit_of_stacks() {
    let mut run = Run::new(0x1000);
    let far = |number: u64| 0x100_0000 * (number + 1);
    run.step(Class::Other, 0x1000);
    for number in 1..STACKS_MAX as u64 {
        let (low, high) = (Address(far(number) - 64), Address(far(number)));
        run.tracker.declare(Space(0), low, high, StackKind::User, |_| {});
    }
    let most = STACKS_MAX as u64;
    run.step(Class::Dynamic, far(most));
    assert!(matches!(run.items[..], [Tracked::Leave { .. }]), "{:?}", run.items);
    assert_eq!(run.tracker.counts().stacks_refused, 1);
    run.step(Class::Call { return_address: Address(0) }, far(most) - 8);
    run.step(Class::Return, far(most));
    assert_eq!(run.items, []);
    let (low, high) = (Address(far(most) - 64), Address(far(most)));
    run.tracker.declare(Space(0), low, high, StackKind::User, |_| {});
    assert_eq!(run.tracker.counts().stacks_refused, 2);
    run.step(Class::Dynamic, 0x1000);
    assert!(matches!(run.items[..], [Tracked::Enter { .. }]), "{:?}", run.items);
    run.tracker.release(Space(0), Address(far(1) - 64), Address(far(1)), |_| {});
    run.step(Class::Dynamic, far(most));
    assert!(matches!(run.items[..], [Tracked::Stack { .. }, Tracked::Enter { .. }, Tracked::Open { .. }]));
}

#[test]
fn threads_beyond_the_limit_are_tracked_by_their_stack_pointers() {
    let mut run = Run::new(0x1000);
    for thread in 1..THREADS_MAX as u32 + 4 {
        run.step(Class::Switch { to: Thread(thread) }, 0x1000 + 8 * u64::from(thread % 2));
    }
    assert_eq!(run.tracker.counts().stacks_refused, 3);
    run.tracker.exit(Thread(1), |_| {});
    run.step(Class::Switch { to: Thread(0) }, 0x1000);
    assert_eq!(run.tracker.counts().stacks_refused, 3);
}
