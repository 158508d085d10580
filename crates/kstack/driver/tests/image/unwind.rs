//! Unwind data. Without it, stacks through the driver could not be walked, and faults could not be
//! handled.

use crate::{Function, Image, image};

const UNW_FLAG_EHANDLER: u8 = 1;
const UNW_FLAG_UHANDLER: u8 = 2;

impl Image {
    /// The flags of a function's `UNWIND_INFO`.
    fn flags(&self, function: &Function) -> u8 {
        self.at(function.unwind)[0] >> 3
    }

    /// The address of a function's handler field, after its unwind codes.
    fn handler(&self, function: &Function) -> u32 {
        let codes = u32::from(self.at(function.unwind)[2]);
        function.unwind + 4 + 2 * codes.next_multiple_of(2)
    }

    /// The import address table entry through which a jump goes, if there is such a jump at an
    /// address.
    pub fn jump_over_import(&self, rva: u32) -> Option<u32> {
        let bytes = self.at(rva);
        let offset = i32::from_le_bytes(bytes[2..6].try_into().expect("four bytes"));
        (bytes[..2] == [0xff, 0x25]).then(|| rva.wrapping_add(6).wrapping_add_signed(offset))
    }
}

#[test]
fn the_table_of_functions_is_in_order() {
    let Some(image) = image() else { return };
    let functions = image.functions();
    assert!(functions.iter().all(|function| function.begin < function.end), "{functions:#x?}");
    assert!(functions.is_sorted_by(|one, next| one.end <= next.begin), "{functions:#x?}");
    assert!(functions.iter().all(|function| image.at(function.unwind)[0] & 7 == 1), "version 1");
}

#[test]
fn only_the_walk_is_guarded_and_a_fault_continues_after_it() {
    let Some(image) = image() else { return };
    let handled: Vec<Function> = image.functions().into_iter().filter(|it| image.flags(it) != 0).collect();
    let [walk] = handled[..] else { panic!("{handled:#x?}") };
    assert_eq!(image.flags(&walk) & (UNW_FLAG_EHANDLER | UNW_FLAG_UHANDLER), UNW_FLAG_EHANDLER);

    let handler = image.handler(&walk);
    let called = image.jump_over_import(image.u32(handler));
    assert_eq!(called, Some(image.import("__C_specific_handler")));
    // The scope table: its length, then the begin, end, filter and target of its entry.
    let table: Vec<u32> = (1..6).map(|index| image.u32(handler + 4 * index)).collect();
    let [1, begin, end, filter, target] = table[..] else { panic!("{table:#x?}") };
    assert_eq!(filter, 1, "EXCEPTION_EXECUTE_HANDLER");
    let inside = walk.begin..walk.end;
    assert!(inside.contains(&begin) && inside.contains(&target) && begin < end && end <= target);

    // The guarded range contains the call and its return address.
    let call = image.at(begin);
    assert_eq!(call[0], 0xe8, "a call");
    let back = begin + 5;
    assert!((begin..end).contains(&back));
    let offset = i32::from_le_bytes(call[1..5].try_into().unwrap());
    let walked = image.jump_over_import(back.wrapping_add_signed(offset));
    assert_eq!(walked, Some(image.import("RtlWalkFrameChain")));
}
