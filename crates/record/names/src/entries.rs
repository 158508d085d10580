//! Frames that were called at an entry of a procedure linkage table, and have not reached their
//! function yet.
//!
//! The entry jumps to the function. If the function is not bound yet, the entry jumps to the dynamic
//! linker, which finds the function, calling functions of its own, and then jumps to it. In both
//! cases, the first jump from the frame's return address out of all linkage tables leads to the
//! function: the dynamic linker's code keeps its registers on the stack until then.

use stackhound_calltree::StackId;

/// Calls of stubs, innermost last.
#[derive(Debug, Default)]
pub struct Entries {
    open: Vec<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    stack: StackId,
    /// The address of the frame's return address.
    slot: u64,
    stub: u64,
}

/// A function that a frame entered through a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The stack of the frame, which is its top frame.
    pub stack: StackId,
    /// The address of the stub.
    pub stub: u64,
    /// The address of the function.
    pub function: u64,
}

impl Entries {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Records a call, with the address of its stub if it is one. Calls whose return address was at
    /// or below this one have ended without a jump.
    pub fn called(&mut self, stack: StackId, slot: u64, stub: Option<u64>) {
        if !self.open.is_empty() {
            self.open.retain(|call| call.stack != stack || call.slot > slot);
        }
        self.open.extend(stub.map(|stub| Call { stack, slot, stub }));
    }

    /// Records a jump at the return address of the top frame of a stack. Returns the call of a stub
    /// that it ends.
    pub fn jumped(&mut self, stack: StackId, slot: u64, function: u64) -> Option<Entered> {
        let found = self.open.iter().rposition(|call| (call.stack, call.slot) == (stack, slot))?;
        let Call { stub, .. } = self.open.remove(found);
        Some(Entered { stack, stub, function })
    }

    /// Forgets the calls on a stack that ended.
    pub fn ended(&mut self, stack: StackId) {
        self.open.retain(|call| call.stack != stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: StackId = StackId(0);

    #[test]
    fn a_jump_at_the_return_address_ends_the_call_of_a_stub() {
        let mut entries = Entries::default();
        entries.called(STACK, 0x1000, Some(0x10));
        // The dynamic linker calls a function, also through a stub, on the same stack.
        entries.called(STACK, 0xf00, None);
        entries.called(STACK, 0xe00, Some(0x20));
        let entered = |stub, function| Some(Entered { stack: STACK, stub, function });
        assert_eq!(entries.jumped(STACK, 0xf00, 0x7000), None);
        assert_eq!(entries.jumped(StackId(1), 0x1000, 0x7000), None);
        assert_eq!(entries.jumped(STACK, 0xe00, 0x2000), entered(0x20, 0x2000));
        assert_eq!(entries.jumped(STACK, 0x1000, 0x3000), entered(0x10, 0x3000));
        assert!(entries.is_empty());
    }

    #[test]
    fn calls_that_end_without_a_jump_are_forgotten() {
        let mut entries = Entries::default();
        entries.called(STACK, 0x1000, Some(0x10));
        entries.called(STACK, 0x1000, None);
        assert_eq!(entries.jumped(STACK, 0x1000, 0x3000), None);
        entries.called(STACK, 0x1000, Some(0x10));
        entries.called(StackId(1), 0x9000, Some(0x10));
        entries.ended(STACK);
        assert_eq!(entries.jumped(STACK, 0x1000, 0x3000), None);
        assert!(!entries.is_empty());
    }
}
