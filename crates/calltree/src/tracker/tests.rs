use super::*;

#[test]
fn a_call_and_its_return() {
    let mut tracker = Tracker::new(Thread(1));
    let mut found = Vec::new();
    let at = |pc, sp| Point { pc: Address(pc), sp: Address(sp) };
    let call = Class::Call { return_address: Address(0x105) };
    for (class, before, after) in [
        (Class::Other, at(0xff, 0x1000), at(0x100, 0x1000)),
        (call, at(0x100, 0x1000), at(0x500, 0xff8)),
        (Class::Other, at(0x500, 0xff8), at(0x501, 0xff8)),
        (Class::Return, at(0x501, 0xff8), at(0x105, 0x1000)),
    ] {
        let step = Step { class, before, after, space: Space(0) };
        tracker.step(&step, |_| None, |item| found.push(item));
    }
    let stack = StackId(0);
    assert_eq!(
        found[1..],
        [
            Tracked::Enter { stack, first: ContextId(0) },
            Tracked::Open {
                stack,
                first: ContextId(0),
                start: StartType::Unknown,
                function: Some(Address(0xff))
            },
            Tracked::Open {
                stack,
                first: ContextId(2),
                start: StartType::Call,
                function: Some(Address(0x500))
            },
            Tracked::Close { stack, last: ContextId(3), end: EndType::Return },
        ]
    );
}
