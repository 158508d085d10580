//! Turns the records of the plugin into steps of the tracker.

use stackhound_calltree::tracker::{Class, Point, Ring, Space, Step, Thread};
use stackhound_qemu_plugin::protocol::{Kind, Record};
use stackhound_types::Address;

/// The lowest address of the kernel's half of an address space.
pub(crate) const KERNEL: u64 = 1 << 63;
/// The bits of CR3 that identify an address space: the physical address of the page table. Not the
/// process-context identifier, the lowest 12 bits; not bit 12, which with separate page tables selects
/// the half for user mode; and not bit 63, which keeps cached translations.
const PAGE_TABLE: u64 = 0x000f_ffff_ffff_e000;

/// The state of the processor that records do not repeat.
#[derive(Debug)]
pub(crate) struct Steps {
    space: Space,
    ring: Ring,
    /// The thread whose stack pointer the kernel will load.
    switching: Option<Thread>,
}

/// The meaning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A step of the tracker.
    Step(Step),
    /// A change of the state.
    State,
    /// The ring of an interrupt is not that of the step before. A transition between rings was not
    /// recognized.
    Lost(Step),
}

impl Steps {
    pub fn new() -> Steps {
        Steps { space: Space(0), ring: Ring::Kernel, switching: None }
    }

    /// The next value that the kernel loads into the stack pointer is that of a thread.
    pub fn switch(&mut self, thread: Thread) {
        self.switching = Some(thread);
    }

    pub fn meaning(&mut self, record: &Record) -> Meaning {
        let before = match record.kind {
            Kind::Interrupt => ring(record.ring_before),
            _ => self.ring,
        };
        let class = match record.kind {
            Kind::Call => {
                let return_address = record.pc_before.wrapping_add(u64::from(record.length));
                Class::Call { return_address: Address(return_address) }
            }
            // Kernels return far to an address that they pushed.
            Kind::Return | Kind::FarReturn => Class::Return,
            Kind::Jump => Class::Jump,
            Kind::Load => match self.switching.take() {
                Some(to) => Class::Switch { to },
                None => Class::Dynamic,
            },
            Kind::SystemCall | Kind::SystemReturn => Class::System,
            Kind::Interrupt => {
                Class::Interrupt { slot: Address(record.sp_after.wrapping_add(u64::from(record.extra))) }
            }
            Kind::InterruptReturn => Class::InterruptReturn,
            Kind::Space => {
                self.space = Space(record.sp_after & PAGE_TABLE);
                return Meaning::State;
            }
            // The others are those of programs.
            _ => return Meaning::State,
        };
        let after = match record.kind {
            Kind::SystemCall | Kind::Interrupt => Ring::Kernel,
            Kind::SystemReturn => Ring::User,
            Kind::InterruptReturn => ring(record.ring_after),
            _ => before,
        };
        let is_kernel = after == Ring::Kernel && record.sp_after >= KERNEL;
        let point = |pc, sp, ring| Point { pc: Address(pc), sp: Address(sp), ring };
        let step = Step {
            class,
            before: point(record.pc_before, record.sp_before, before),
            after: point(record.pc_after, record.sp_after, after),
            space: if is_kernel { Space::KERNEL } else { self.space },
        };
        let lost = before != self.ring;
        self.ring = after;
        if lost { Meaning::Lost(step) } else { Meaning::Step(step) }
    }
}

fn ring(number: u8) -> Ring {
    if number == 0 { Ring::Kernel } else { Ring::User }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, pc: (u64, u64), sp: (u64, u64)) -> Record {
        Record {
            length: 5,
            extra: 8,
            pc_before: pc.0,
            sp_before: sp.0,
            pc_after: pc.1,
            sp_after: sp.1,
            ..Record::new(kind, 0)
        }
    }

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const STACK: u64 = 0xffff_c900_0000_4000;

    #[test]
    fn rings_and_spaces_follow_from_the_records() {
        let mut steps = Steps::new();
        let next = |steps: &mut Steps, record: Record| match steps.meaning(&record) {
            Meaning::Step(step) => (step.class, step.before.ring, step.after.ring, step.space),
            other => panic!("{other:?}"),
        };
        use Ring::{Kernel, User};
        let user = Record { ring_after: 3, ..record(Kind::InterruptReturn, (TEXT, 0x100), (STACK, 0x1000)) };
        assert_eq!(next(&mut steps, user), (Class::InterruptReturn, Kernel, User, Space(0)));
        let call = Class::Call { return_address: Address(0x105) };
        let call_record = record(Kind::Call, (0x100, 0x500), (0x1000, 0xff8));
        assert_eq!(next(&mut steps, call_record), (call, User, User, Space(0)));
        let system = record(Kind::SystemCall, (0x500, TEXT), (0xff8, 0xff8));
        assert_eq!(next(&mut steps, system), (Class::System, User, Kernel, Space(0)));
        let load = record(Kind::Load, (TEXT, TEXT + 9), (0xff8, STACK));
        assert_eq!(next(&mut steps, load), (Class::Dynamic, Kernel, Kernel, Space::KERNEL));
        steps.switch(Thread(7));
        for class in [Class::Switch { to: Thread(7) }, Class::Dynamic] {
            assert_eq!(next(&mut steps, load), (class, Kernel, Kernel, Space::KERNEL));
        }
        let jump = record(Kind::Jump, (TEXT, TEXT + 0x500), (STACK, STACK));
        assert_eq!(next(&mut steps, jump), (Class::Jump, Kernel, Kernel, Space::KERNEL));
        let class = Class::Interrupt { slot: Address(STACK - 0x28) };
        let interrupt = record(Kind::Interrupt, (TEXT, TEXT + 64), (STACK, STACK - 0x30));
        assert_eq!(next(&mut steps, interrupt), (class, Kernel, Kernel, Space::KERNEL));
    }

    /// The first process-context identifiers of a kernel with separate page tables.
    #[test]
    fn an_address_space_is_its_page_table() {
        let mut steps = Steps::new();
        for value in [0x1234_4000_u64, 0x1234_4001, 0x1234_5801, 1 << 63 | 0x1234_5802] {
            assert_eq!(steps.meaning(&record(Kind::Space, (TEXT, 0), (STACK, value))), Meaning::State);
            let Meaning::Step(step) = steps.meaning(&record(Kind::Load, (TEXT, TEXT), (STACK, 0x1000)))
            else {
                panic!("a step")
            };
            assert_eq!(step.space, Space(0x1234_4000), "{value:x}");
        }
    }

    #[test]
    fn an_interrupt_in_another_ring_shows_a_loss() {
        let mut steps = Steps::new();
        let user = Record { ring_before: 3, ..record(Kind::Interrupt, (0x100, TEXT), (0x1000, STACK)) };
        assert!(matches!(steps.meaning(&user), Meaning::Lost(step) if step.before.ring == Ring::User));
    }
}
