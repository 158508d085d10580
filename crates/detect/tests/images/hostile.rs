//! Damaged images and low memory limits: no answer depends on cached data.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stackhound_detect::{Binaries, Detector, Entry, Evaluation, Lookup, Services};
use stackhound_frames::{Code, Frame, Module};
use stackhound_symbols::Loaded;
use stackhound_types::AddressKind;

use crate::world::{World, binaries, files, path};

const NAMES: [&str; 9] = ["ntdll", "base", "app", "other", "gone", "bad", "runtime", "app32", "tableless"];

/// The answers for stacks of these modules and offsets.
fn answers(mut world: World, stacks: &[Vec<(usize, u32)>]) -> Vec<Evaluation> {
    let modules = NAMES.map(|name| world.module(name));
    let detector = |stack: &Vec<(usize, u32)>| {
        let frame =
            |(module, rva): &(usize, u32)| Frame::user(Code::Image(modules[*module], u64::from(*rva)));
        let frames: Vec<Frame> = stack.iter().map(frame).collect();
        world.evaluate(&frames, Entry::SystemCall, Services::Entered("NtOpenProcess"))
    };
    stacks.iter().map(detector).collect()
}

fn stacks() -> impl Strategy<Value = Vec<Vec<(usize, u32)>>> {
    let location = (0..NAMES.len(), 0x1000_u32..0x1a40);
    prop::collection::vec(prop::collection::vec(location, 1..8), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unloading_files_changes_no_answer(stacks in stacks(), memory in 0_usize..60_000) {
        let all = answers(World::of(binaries(files())), &stacks);
        let few = answers(World::of(binaries(files()).with_memory_max(memory)), &stacks);
        prop_assert_eq!(&all, &few);
        // Nor does the order of look-ups.
        let backwards: Vec<_> = stacks.iter().rev().cloned().collect();
        let mut turned = answers(World::of(binaries(files())), &backwards);
        turned.reverse();
        prop_assert_eq!(&all, &turned);
    }

    #[test]
    fn damaged_images_do_not_panic(
        stacks in stacks(),
        damage in prop::collection::vec((0_usize..0x2800, any::<u8>()), 1..60),
        length in 0_usize..0x8000,
    ) {
        let damaged: BTreeMap<_, _> = files()
            .into_iter()
            .map(|(path, mut bytes)| {
                for (at, value) in &damage {
                    if let Some(byte) = bytes.get_mut(*at) {
                        *byte = *value;
                    }
                }
                bytes.truncate(length.max(0x200));
                (path, bytes)
            })
            .collect();
        answers(World::of(binaries(damaged)), &stacks);
    }
}

/// Loops of jumps, unterminated functions, and imports and relocations outside of the image.
#[test]
fn hostile_code_terminates() {
    use crate::made::X64;
    use crate::program::Program;
    let jumps = |mut program: Program| {
        for index in 0..0x100 {
            let (at, next) = (0x1100 + 8 * index, 0x1100 + 8 * ((index * 37 + 11) % 0x100));
            program = program.code(at, &format!("0f84 >{next:x}"));
        }
        program
    };
    let program = jumps(Program::new(X64).function(0x1000, 0x1020, "e8 >1100 90"));
    let mut all = files();
    all.insert(path("app"), program.file());
    let mut world = World::of(binaries(all));
    let frames = world.frames("ntdll+1014 app+1005 app+1005 root");
    world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
}

#[test]
fn files_are_loaded_on_demand_and_unloaded_at_the_limit() {
    let names = ["ntdll", "base", "app", "other"];
    let size = files()[path("app")].len();
    let binaries: Binaries = binaries(files()).with_memory_max(4 * size);
    let mut world = World::of(binaries);
    let modules = names.map(|name| world.module(name));
    let Detector { binaries, modules: known } = &mut world.detector;
    assert_eq!(binaries.memory(), 0);
    for _ in 0..3 {
        for module in modules {
            let name = binaries.function(known, (module, 0x100a), AddressKind::Return);
            let name = name.map(|name| (name.text.to_string(), name.offset));
            let expected = match module {
                module if module == modules[1] => Some(("OpenProcess".to_owned(), 0xa)),
                _ => None,
            };
            assert_eq!(name, expected);
            assert!(binaries.memory() <= 4 * size);
        }
    }
}

#[test]
fn bytes_around_an_address_are_available_for_outputs() {
    let mut world = World::without(&[]);
    let [app, gone, bad] = ["app", "gone", "bad"].map(|name| world.module(name));
    let Detector { binaries, modules } = &mut world.detector;
    let Lookup::Found(around) = binaries.bytes_around(modules, (app, 0x1006)) else { panic!("bytes") };
    assert_eq!(around.before[..4], [0x48, 0x83, 0xec, 0x28]);
    assert_eq!(around.before.len(), 6);
    assert_eq!(around.after.len(), 16);
    assert_eq!(binaries.bytes_around(modules, (gone, 0x1006)), Lookup::NoFile);
    assert_eq!(binaries.bytes_around(modules, (bad, 0x1006)), Lookup::Unreadable);
    assert_eq!(binaries.bytes_around(modules, (app, 1 << 40)), Lookup::Unreadable);
    let none = Binaries::new(Box::new(|_: &Module| Loaded::default()));
    assert_eq!(none.memory(), 0);
}
