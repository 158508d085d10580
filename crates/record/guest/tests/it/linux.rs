//! A kernel that consists of its table of symbols, its types and a few structures, which this test writes as
//! the kernel's sources define them.

use proptest::prelude::*;
use stackhound_record_guest::{Event, Function, Linux, System, Task};
use stackhound_types::Address;

use crate::ranges::Ranges;

const TEXT: u64 = 0xffff_ffff_8100_0000;
const IMAGE: usize = 2 << 20;
const TABLE: usize = 0x10_0000;
const TYPES: usize = 0x18_0000;
/// The variables of the processor, and their offset in the symbols.
const PROCESSOR: u64 = 0xffff_8880_0000_0000;
const HEAP: u64 = 0xffff_8881_0000_0000;

/// The order of the parts of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    OffsetsFirst,
    OffsetsLast,
}

/// The symbols of the test's kernel: distance from its start, type and name.
fn symbols() -> Vec<(i64, String)> {
    let mut symbols: Vec<(i64, String)> = [
        (0, "T_text"),
        (0, "Tstartup_64"),
        (0x100, "T__switch_to_asm"),
        (0x200, "Tperf_event_init"),
        (0x300, "Tperf_event_fork"),
        (0x400, "Tperf_event_comm"),
        (0x500, "Tperf_event_mmap"),
        (0x600, "Tdo_task_dead"),
        (0x700, "Tsignal_setup_done"),
        (0x800, "tlocal.isra.0"),
        (0x900, "T__x86_indirect_thunk_rax"),
        (0x920, "T__x86_indirect_thunk_r10"),
        (0x940, "T__x86_return_thunk"),
        (0x960, "D__x86_indirect_thunks"),
        (0x980, "T__SCT__local"),
        (0x9a0, "tlocal.isra.0.cold"),
        (0x4_0000, "D__start_init_task"),
        (0x4_0000, "Dinit_stack"),
        (0x4_4000, "D__end_init_task"),
        (0x4_4000, "Dinit_task"),
        (0x4_5000, "D__per_cpu_offset"),
        (0x1f_ffff, "B_end"),
        // Absolute: variables of each processor.
        (-1, "A__per_cpu_start"),
        (-0x6001, "Acpu_tss_rw"),
        (-0x7001, "Dhardirq_stack_ptr"),
    ]
    .map(|(at, name)| (at, name.to_owned()))
    .to_vec();
    // All digits occur in the names of a kernel, and there are more than 256 of them.
    symbols.extend((0..300).map(|number| (0x1_0000 + 16 * number, format!("tfunction_{number}"))));
    // A name of more than 127 compressed bytes.
    symbols.push((0x2_0000, format!("tlong_{}", "ab".repeat(100))));
    symbols
}

/// Writes the table.
fn table(order: Order, base: u64) -> Vec<u8> {
    let align = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut tokens: Vec<String> = (0..=255).map(|number: u8| char::from(number).to_string()).collect();
    for token in tokens.iter_mut().filter(|token| !token.as_bytes()[0].is_ascii_graphic() || token.len() > 1)
    {
        *token = "unused".to_owned();
    }
    (tokens[1], tokens[200]) = ("perf_event_".to_owned(), "function".to_owned());
    let symbols = symbols();
    let (mut offsets, mut names, mut markers) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (offset, name)) in symbols.iter().enumerate() {
        if number % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        let mut compressed = name.clone().into_bytes();
        for token in [1_u8, 200] {
            let text = tokens[usize::from(token)].as_bytes();
            if let Some(at) = compressed.windows(text.len()).position(|part| part == text) {
                compressed.splice(at..at + text.len(), [token]);
            }
        }
        match compressed.len() {
            length @ 0..128 => names.push(length as u8),
            length => names.extend([length as u8 & 0x7f | 0x80, (length >> 7) as u8]),
        }
        names.extend(compressed);
        // Distances are stored as -1 - distance, and absolute addresses as they are.
        offsets.extend(((-1 - offset) as i32).to_le_bytes());
    }
    align(&mut offsets);
    let (mut strings, mut index) = (Vec::new(), Vec::new());
    for token in tokens {
        index.extend((strings.len() as u16).to_le_bytes());
        strings.extend(token.bytes().chain([0]));
    }
    let offsets = [offsets, base.to_le_bytes().to_vec()].concat();
    let names = [(symbols.len() as u64).to_le_bytes().to_vec(), names].concat();
    let sequence = vec![7; 3 * symbols.len()];
    let parts = match order {
        Order::OffsetsFirst => [offsets, names, markers, sequence, strings, index],
        Order::OffsetsLast => [names, markers, strings, index, offsets, sequence],
    };
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend(part);
        align(&mut bytes);
    }
    bytes
}

/// The name, the size and the members of a structure.
type Structure<'t> = (&'t str, u32, &'t [(&'t str, u32)]);

/// Writes types: structures with their sizes, and members with offsets in bytes. A member `(` begins a
/// structure without a name in a union without a name, which ends with `)`.
fn types(structures: &[Structure]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut text = |name: &str| {
        strings.extend(name.bytes().chain([0]));
        (strings.len() - name.len() - 1) as u32
    };
    let put =
        |bytes: &mut Vec<u8>, words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let mut types = Vec::new();
    // Number 1: an integer.
    put(&mut types, &[text("int"), 1 << 24, 4, 32]);
    let mut number = 1;
    for &(name, size, members) in structures {
        let mut own = Vec::new();
        let mut rest = members.iter();
        while let Some(&(member, offset)) = rest.next() {
            if member != "(" {
                own.push((text(member), 1, 8 * offset));
                continue;
            }
            let inner: Vec<_> = rest.by_ref().take_while(|(member, _)| *member != ")").collect();
            put(&mut types, &[0, 4 << 24 | inner.len() as u32, 16]);
            for (member, offset) in inner {
                let name = text(member);
                put(&mut types, &[name, 1, 8 * offset]);
            }
            put(&mut types, &[0, 5 << 24 | 1, 16, 0, number + 1, 0]);
            number += 2;
            own.push((0, number, 8 * offset));
        }
        let name = text(name);
        put(&mut types, &[name, 4 << 24 | own.len() as u32, size]);
        for (member, kind, bits) in own {
            put(&mut types, &[member, kind, bits]);
        }
        number += 1;
    }
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    put(&mut bytes, &[24, 0, types.len() as u32, types.len() as u32, strings.len() as u32]);
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}

fn kernel(order: Order) -> Ranges {
    let types = types(&[
        ("list_head", 16, &[("next", 0), ("prev", 8)]),
        ("task_struct", 512, &[("stack", 32), ("pid", 100), ("tgid", 104), ("comm", 200)]),
        (
            "vm_area_struct",
            128,
            &[
                ("(", 0),
                ("vm_start", 0),
                ("vm_end", 8),
                (")", 0),
                ("vm_flags", 24),
                ("vm_pgoff", 32),
                ("vm_file", 40),
            ],
        ),
        ("file", 64, &[("f_path", 16)]),
        ("path", 16, &[("mnt", 0), ("dentry", 8)]),
        ("dentry", 64, &[("d_parent", 8), ("d_name", 16)]),
        ("qstr", 16, &[("(", 0), ("hash", 0), ("len", 4), (")", 0), ("name", 8)]),
        ("ksignal", 64, &[("ka", 0), ("info", 32)]),
        ("k_sigaction", 32, &[("sa", 0)]),
        ("sigaction", 32, &[("sa_handler", 0), ("sa_flags", 8), ("sa_restorer", 16)]),
        ("entry_stack", 4096, &[("stack", 0)]),
        ("irq_stack", 0x4000, &[("stack", 0)]),
        (
            "cea_exception_stacks",
            0x4000,
            &[("DF_stack_guard", 0), ("DF_stack", 0x1000), ("NMI_stack_guard", 0x3000)],
        ),
    ]);
    let mut memory = Ranges::default();
    memory.0.insert(TEXT, vec![0; IMAGE]);
    memory.0.insert(PROCESSOR, vec![0; 0x1_0000]);
    memory.0.insert(HEAP, vec![0; 0x1_0000]);
    memory.put(TEXT + TABLE as u64, &table(order, TEXT));
    memory.put(TEXT + TYPES as u64, &types);
    memory.word(TEXT + 0x4_5000, PROCESSOR);
    memory
}

fn function_at(linux: &Linux, address: Address) -> Option<Function<'_>> {
    linux.kernel_code_at(address)?.function
}

fn find(memory: &mut Ranges) -> Linux {
    Linux::find(Address(TEXT + 0x1234), memory).expect("a kernel")
}

#[test]
fn functions_are_found_in_both_orders_of_the_table() {
    for order in [Order::OffsetsFirst, Order::OffsetsLast] {
        let linux = find(&mut kernel(order));
        assert_eq!(linux.symbols(), symbols().len(), "{order:?}");
        assert_eq!(
            linux.kernel_code_at(Address(TEXT + 5)).map(|code| (code.module, code.base)),
            Some(("vmlinux", Address(TEXT)))
        );
        for (offset, name) in symbols() {
            let is_function = name.starts_with(['T', 't']);
            if offset < 0 || !is_function || name == "Tstartup_64" {
                continue;
            }
            let found = function_at(&linux, Address(TEXT + offset as u64 + 3))
                .map(|found| (found.name, found.offset));
            assert_eq!(found, Some((&name[1..], 3)), "{order:?}");
        }
        for address in [0, TEXT - 1, TEXT + 0x4_0008, TEXT + 0x1f_ffff, u64::MAX] {
            assert_eq!(function_at(&linux, Address(address)), None, "{address:x}");
        }
        let hooks: Vec<_> =
            linux.hooks().iter().map(|hook| (hook.address.0 - TEXT, hook.reads_memory)).collect();
        let expected = [
            (0x100, false),
            (0x200, true),
            (0x300, true),
            (0x400, true),
            (0x500, true),
            (0x600, false),
            (0x700, true),
        ];
        assert_eq!(hooks, expected);
        assert_eq!(linux.thunks(), [0x900, 0x920, 0x980].map(|offset| Address(TEXT + offset)));
        let expected = [0, 0x100, 0x200, 0x300, 0x400, 0x500, 0x600, 0x700, 0x800].into_iter();
        let expected = expected.chain((0..300).map(|number| 0x1_0000 + 16 * number)).chain([0x2_0000]);
        let functions: Vec<u64> = linux.functions().iter().map(|function| function.0 - TEXT).collect();
        assert_eq!(functions, expected.collect::<Vec<u64>>());
    }
}

/// A kernel whose structures the test fills.
struct Running {
    linux: Linux,
    memory: Ranges,
}

impl Running {
    fn new() -> Running {
        let mut memory = kernel(Order::OffsetsLast);
        Running { linux: find(&mut memory), memory }
    }

    fn call(&mut self, offset: u64, arguments: [u64; 2]) -> Vec<Event> {
        let hook =
            self.linux.hooks().iter().position(|hook| hook.address.0 == TEXT + offset).expect("a hook");
        let mut events = Vec::new();
        self.linux.called(hook, arguments, &mut self.memory, &mut |event| events.push(event));
        events
    }

    fn task(&mut self, at: u64, thread: u32, process: u32, name: &str) {
        self.memory.put(at + 100, &thread.to_le_bytes());
        self.memory.put(at + 104, &process.to_le_bytes());
        self.memory.put(at + 200, format!("{name}\0").as_bytes());
        self.memory.word(at + 32, 0xffff_c900_0000_0000 + 0x8000 * u64::from(thread));
    }

    fn area(&mut self, (start, end): (u64, u64), flags: u64, page: u64, path: &[&str]) -> Vec<Event> {
        let (area, file, mut entry) = (HEAP + 0x8000, HEAP + 0x8100, HEAP + 0x8200);
        let is_file = u64::from(!path.is_empty());
        for (at, value) in [(0, start), (8, end), (24, flags), (32, page), (40, is_file * file)] {
            self.memory.word(area + at, value);
        }
        self.memory.word(file + 24, entry);
        for part in path.iter().rev() {
            self.memory.put(entry + 64, format!("{part}\0").as_bytes());
            self.memory.word(entry + 24, entry + 64);
            self.memory.word(entry + 8, entry + 0x100);
            entry += 0x100;
        }
        self.memory.word(entry + 8, entry);
        self.call(0x500, [area, 0])
    }

    fn path_at(&self, address: u64) -> Option<(&str, u64)> {
        let mapping = self.linux.mapping_at(Address(address))?;
        Some((&mapping.path, address - mapping.start.0 + mapping.offset))
    }
}

#[test]
fn stacks_of_the_processor_are_reported_before_the_first_interrupt() {
    let mut system = Running::new();
    system.memory.word(PROCESSOR + 0x6000 + 4, 0xffff_fe00_0000_3000);
    system.memory.word(PROCESSOR + 0x6000 + 36, 0xffff_fe00_0000_9000);
    system.memory.word(PROCESSOR + 0x7000, 0xffff_c900_0000_3ff8);
    let stack = |low, high, name| Event::Stack { memory: (Address(low), Address(high)), name };
    assert_eq!(
        system.call(0x200, [0, 0]),
        [
            stack(0xffff_fe00_0000_2000, 0xffff_fe00_0000_3000, "entry stack"),
            stack(0xffff_fe00_0000_7000, 0xffff_fe00_0000_9000, "double fault stack"),
            stack(0xffff_c900_0000_0000, 0xffff_c900_0000_4000, "interrupt stack"),
            Event::Created { thread: 0, stack: Some((Address(TEXT + 0x4_0000), Address(TEXT + 0x4_4000))) },
        ]
    );
}

#[test]
fn threads_are_created_named_switched_to_and_ended() {
    let (init, child, second) = (HEAP, HEAP + 0x400, HEAP + 0x800);
    let mut system = Running::new();
    let idle = Task { thread: 0, process: 0, name: "swapper/0".to_owned() };
    assert_eq!(system.linux.current(), Some(&idle));
    system.task(init, 1, 1, "swapper/0");
    let stack = |low| Some((Address(low), Address(low + 0x4000)));
    assert_eq!(
        system.call(0x300, [init, 0]),
        [Event::Created { thread: 1, stack: stack(0xffff_c900_0000_8000) }]
    );
    assert_eq!(system.call(0x100, [TEXT + 0x4_4000, init]), [Event::Switched { to: 1 }]);
    system.task(init, 1, 1, "a name of 16 byte");
    // Only the lowest byte states whether the program is a new one.
    assert_eq!(system.call(0x400, [init, 0xff00]), [Event::Named { thread: 1 }]);
    assert_eq!(system.linux.thread(1).map(|task| task.name.as_str()), Some("a name of 16 byt"));
    assert_eq!(system.call(0x400, [init, 1]), [Event::Executed { process: 1 }, Event::Named { thread: 1 }]);

    assert!(system.area((0x40_0000, 0x40_4000), 4, 1, &["bin", "sh"]).is_empty());
    system.task(child, 7, 7, "child");
    system.task(second, 8, 7, "second");
    system.call(0x300, [child, 0]);
    system.call(0x300, [second, 0]);
    assert_eq!(system.call(0x100, [0, child]), [Event::Switched { to: 7 }]);
    // A forked process has the mappings of its parent.
    assert_eq!(system.path_at(0x40_0123), Some(("/bin/sh", 0x1123)));
    // A thread runs until it is switched from, and its process until its last thread ends.
    assert!(system.call(0x600, [0, 0]).is_empty());
    let ended = |thread, is_last| Event::Ended { thread, process: 7, is_last };
    assert_eq!(system.call(0x100, [child, second]), [Event::Switched { to: 8 }, ended(7, false)]);
    assert_eq!(system.path_at(0x40_0123), Some(("/bin/sh", 0x1123)));
    system.call(0x600, [0, 0]);
    assert_eq!(system.call(0x100, [second, init]), [Event::Switched { to: 1 }, ended(8, true)]);
    assert_eq!((system.linux.thread(7), system.linux.thread(8)), (None, None));
    assert_eq!(system.path_at(0x40_0123), Some(("/bin/sh", 0x1123)));
    // A thread in the structure of one whose end was not reported.
    system.task(child, 9, 9, "other");
    system.call(0x300, [child, 0]);
    system.task(child, 10, 10, "another");
    system.call(0x300, [child, 0]);
    assert_eq!(system.linux.thread(9), None);
    assert_eq!(system.linux.thread(10).map(|task| task.name.as_str()), Some("another"));
    // A thread that was not reported.
    assert!(system.call(0x100, [init, HEAP + 0xc00]).is_empty());
    assert_eq!((system.linux.current(), system.path_at(0x40_0123)), (None, None));
}

#[test]
fn mappings_replace_each_other() {
    let mut system = Running::new();
    system.area((0x1000, 0x9000), 4, 0, &["lib", "x86", "a.so"]);
    let program = system.linux.program();
    system.area((0x3000, 0x5000), 4, 0x10, &["b"]);
    assert_ne!(system.linux.program(), program);
    let expected = [
        (0xfff, None),
        (0x1000, Some(("/lib/x86/a.so", 0))),
        (0x2fff, Some(("/lib/x86/a.so", 0x1fff))),
        (0x3000, Some(("/b", 0x1_0000))),
        (0x5000, Some(("/lib/x86/a.so", 0x4000))),
        (0x9000, None),
    ];
    for (address, path) in expected {
        assert_eq!(system.path_at(address), path, "{address:x}");
    }
    // Data, and memory without a file.
    system.area((0x2000, 0x4000), 2, 0, &["b"]);
    system.area((0x8000, 0x9000), 4, 0, &[]);
    let expected =
        [0x1fff, 0x2000, 0x3fff, 0x4000, 0x7fff, 0x8000].map(|address| system.path_at(address).is_some());
    assert_eq!(expected, [true, false, false, true, true, false]);
}

#[test]
fn signals_are_reported_with_the_address_to_return_to() {
    let mut system = Running::new();
    system.memory.word(HEAP + 16, 0x40_1000);
    assert_eq!(system.call(0x700, [0, HEAP]), [Event::Signal { restorer: Some(Address(0x40_1000)) }]);
    // The frame could not be written.
    assert!(system.call(0x700, [1, HEAP]).is_empty());
    assert_eq!(system.call(0x700, [0, 0]), [Event::Signal { restorer: None }]);
}

#[test]
fn other_memory_is_no_kernel() {
    let mut memory = kernel(Order::OffsetsFirst);
    assert!(Linux::find(Address(0x1000), &mut memory).is_none());
    memory.put(TEXT + TABLE as u64, &[0; 0x4000]);
    assert!(Linux::find(Address(TEXT), &mut memory).is_none());
    // Without types, there are functions only.
    let mut memory = kernel(Order::OffsetsFirst);
    memory.put(TEXT + TYPES as u64, &[0; 4]);
    let linux = find(&mut memory);
    assert!(linux.hooks().is_empty() && function_at(&linux, Address(TEXT)).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_kernels_do_not_panic(
        is_first in any::<bool>(),
        changes in prop::collection::vec((0..0x4000_usize, prop::sample::select(vec![0, 1, 0x7f, 0x80, 0xff])), 1..8),
        in_types in any::<bool>(),
        arguments in any::<[u64; 2]>(),
    ) {
        let mut memory = kernel(if is_first { Order::OffsetsFirst } else { Order::OffsetsLast });
        for (at, byte) in changes {
            memory.put(TEXT + (if in_types { TYPES } else { TABLE } + at) as u64, &[byte]);
        }
        if let Some(mut linux) = Linux::find(Address(TEXT), &mut memory) {
            for hook in (0..linux.hooks().len()).chain(0..linux.hooks().len()) {
                let arguments = arguments.map(|argument| if argument % 2 == 0 { argument } else { HEAP + argument % 0x1_0000 });
                linux.called(hook, arguments, &mut memory, &mut |_| {});
            }
            let _ = (function_at(&linux, Address(TEXT + 5)), linux.mapping_at(Address(5)));
        }
    }
}
