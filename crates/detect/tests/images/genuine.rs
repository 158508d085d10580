//! Real images: the rate of false positives on genuine calls, and of detections on other addresses.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use serde_json::Value;
use stackhound_detect::{DetectionId, Entry, Evaluation, Services, Verdict};
use stackhound_frames::{Code, Frame};
use stackhound_symbols::image::{Image, Machine};
use stackhound_symbols::stubs;
use stackhound_types::Rva;

use crate::made::{Pe, Target, X64, hex};
use crate::world::{World, binaries, files, path};

/// Images from compilers of Microsoft, LLVM and GNU.
const IMAGES: [&str; 11] = [
    "symbols/wine/ntdll.dll",
    "symbols/wine/kernel32.dll",
    "symbols/wine/win32u.dll",
    "symbols/pairs/samply/softokn3.dll",
    "symbols/pairs/samply/mozglue.dll",
    "symbols/pairs/samply/WriteArgument.exe",
    "symbols/pairs/symbolic/CrashWithException.exe",
    "symbols/pairs/dump_syms/dump_syms_regtest64.exe",
    "symbols/pairs/breakpad/pe_only_symbol_test.dll",
    "symbols/pe/goblin/debug_directories-msvc.exe.bin",
    "symbols/pe/goblin/debug_directories-clang_lld.exe.bin",
];

fn is_yes(evaluation: &Evaluation, id: &str) -> bool {
    let id = DetectionId::parse(id).expect("a detection");
    evaluation.outcome(id).verdict == Verdict::Yes
}

/// All files of the tests, with another file for one module.
fn world_with(name: &str, bytes: Vec<u8>) -> World {
    let mut files = files();
    files.insert(path(name), bytes);
    World::of(binaries(files))
}

/// A call, found by decoding its function from the start.
struct Call {
    after: u32,
    /// The target, if the call is direct.
    target: Option<u32>,
    /// The start of the function that contains it.
    function: u32,
}

/// All calls in functions that can be decoded completely, and the ends of other instructions.
fn calls(image: &Image<'_>) -> (Vec<Call>, Vec<u32>) {
    let (mut calls, mut others) = (Vec::new(), Vec::new());
    let mut instruction = Instruction::default();
    for function in image.functions().entries {
        let size = (function.end.0 - function.start.0) as usize;
        let (Some(bytes), Some(primary)) = (image.bytes_at(function.start, size), function.primary) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, bytes, function.start.0.into(), DecoderOptions::NONE);
        let (from, from_others) = (calls.len(), others.len());
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let after = instruction.next_ip() as u32;
            match instruction.flow_control() {
                FlowControl::Call if !instruction.is_call_near() => {}
                FlowControl::Call => {
                    let target = u32::try_from(instruction.near_branch_target()).ok();
                    calls.push(Call { after, target, function: primary.0 });
                }
                FlowControl::IndirectCall => calls.push(Call { after, target: None, function: primary.0 }),
                _ if after < function.end.0 => others.push(after),
                _ => {}
            }
            if instruction.is_invalid() {
                calls.truncate(from);
                others.truncate(from_others);
                break;
            }
        }
    }
    (calls, others)
}

#[test]
fn real_calls_are_not_findings_and_other_addresses_are() {
    println!(
        "{:40} {:>8} {:>6} | {:>8} {:>8} {:>8}",
        "image", "calls", "wrong", "others", "no call", "gadget"
    );
    for name in IMAGES {
        let Some(bytes) = stackhound_corpus::bytes(name) else { return };
        let image = Image::parse(&bytes).expect(name);
        assert_eq!(image.machine(), Machine::X64, "{name}");
        let (calls, others) = calls(&image);
        let mut world = world_with("other", bytes.clone());
        let mut frames = world.frames("ntdll+1014 base+100a other+0 root");
        let module = frames[2].code.module().expect("a module");
        let mut evaluate = |rva: u32| {
            frames[2] = Frame::user(Code::Image(module, rva.into()));
            world.evaluate(&frames, Entry::SystemCall, Services::Unknown)
        };
        let wrong: Vec<u32> = calls
            .iter()
            .map(|call| call.after)
            .filter(|rva| {
                let evaluation = evaluate(*rva);
                ["CS11", "CS12", "CS13"].iter().any(|id| is_yes(&evaluation, id))
            })
            .collect();
        // A sample, to limit the time for each image.
        let others: Vec<u32> = others.iter().copied().step_by(1 + others.len() / 5000).collect();
        let (mut no_call, mut gadgets) = (0, 0);
        for rva in &others {
            let evaluation = evaluate(*rva);
            no_call += usize::from(is_yes(&evaluation, "CS11"));
            gadgets += usize::from(is_yes(&evaluation, "CS12"));
        }
        println!(
            "{name:40} {:>8} {:>6} | {:>8} {no_call:>8} {gadgets:>8}",
            calls.len(),
            wrong.len(),
            others.len()
        );
        assert!(wrong.is_empty(), "{name}: {wrong:x?}");
        assert!(no_call * 100 >= others.len() * 80, "{name}: {no_call} of {}", others.len());
    }
}

#[test]
fn real_links_are_not_findings_and_forged_links_are() {
    println!("{:40} {:>8} {:>6} | {:>8} {:>8}", "image", "links", "wrong", "forged", "broken");
    for name in IMAGES {
        let Some(bytes) = stackhound_corpus::bytes(name) else { return };
        let image = Image::parse(&bytes).expect(name);
        let (calls, _) = calls(&image);
        // The calls by function. One of them is the frame above a call of the function.
        let mut inner: BTreeMap<u32, u32> = BTreeMap::new();
        for call in &calls {
            inner.entry(call.function).or_insert(call.after);
        }
        let all: Vec<(u32, u32)> = inner.iter().map(|(function, after)| (*function, *after)).collect();
        let mut world = world_with("other", bytes.clone());
        let mut frames = world.frames("ntdll+1014 other+0 other+0 root");
        let module = frames[1].code.module().expect("a module");
        let mut is_broken = |above: u32, call: u32| {
            frames[1] = Frame::user(Code::Image(module, above.into()));
            frames[2] = Frame::user(Code::Image(module, call.into()));
            let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
            let id = DetectionId::parse("CS16").expect("a detection");
            let outcome = evaluation.outcome(id);
            outcome.verdict == Verdict::Yes && outcome.frame == Some(2)
        };
        let (mut links, mut wrong, mut forged, mut broken) = (0, Vec::new(), 0, 0);
        let step = 1 + calls.len() / 5000;
        for (index, call) in calls.iter().enumerate().step_by(step) {
            let Some(target) = call.target else { continue };
            if let Some(above) = inner.get(&target) {
                links += 1;
                if is_broken(*above, call.after) {
                    wrong.push(call.after);
                }
            }
            let (function, above) = all[index * 7919 % all.len()];
            if function != target {
                forged += 1;
                broken += usize::from(is_broken(above, call.after));
            }
        }
        println!("{name:40} {links:>8} {:>6} | {forged:>8} {broken:>8}", wrong.len());
        assert!(wrong.is_empty(), "{name}: {wrong:x?}");
    }
}

#[test]
fn all_stubs_of_wine_are_known() {
    for name in ["symbols/wine/ntdll.dll", "symbols/wine/win32u.dll"] {
        let Some(bytes) = stackhound_corpus::bytes(name) else { return };
        let stubs = stubs::read(&Image::parse(&bytes).expect(name)).expect(name);
        let stubs: Vec<(String, Rva)> =
            stubs.iter().filter_map(|stub| Some((stub.name.clone(), stub.path()?.return_address))).collect();
        assert!(stubs.len() > 200, "{name}");
        hold(bytes, &stubs);
    }
}

/// Each stub matches its own service and not that of the next stub.
fn hold(ntdll: Vec<u8>, stubs: &[(String, Rva)]) {
    let mut world = world_with("ntdll", ntdll);
    let mut frames = world.frames("ntdll+0 base+100a root");
    let module = frames[0].code.module().expect("a module");
    for (index, (name, rva)) in stubs.iter().enumerate() {
        frames[0] = Frame::user(Code::Image(module, rva.0.into()));
        let own = world.evaluate(&frames, Entry::SystemCall, Services::Entered(name));
        for id in ["CS03", "CS04"] {
            let outcome = own.outcome(DetectionId::parse(id).expect("a detection"));
            assert_eq!(outcome.verdict, Verdict::No, "{id} {name} at {rva}: {outcome:?}");
        }
        let (next, _) = &stubs[(index + 1) % stubs.len()];
        let other = world.evaluate(&frames, Entry::SystemCall, Services::Entered(next));
        assert!(is_yes(&other, "CS03"), "{name} at {rva} for {next}");
        frames[0] = Frame::user(Code::Image(module, u64::from(rva.0) + 1));
        let next_byte = world.evaluate(&frames, Entry::SystemCall, Services::Entered(name));
        assert!(is_yes(&next_byte, "CS04"), "{name} after {rva}");
    }
}

/// The tables in the corpus were read from genuine images. Equivalent images are generated from
/// them.
#[test]
fn all_stubs_of_genuine_images_are_known() {
    let Some(bytes) = stackhound_corpus::bytes("symbols/syscalls/stubs-from-pe.json") else { return };
    let tables: BTreeMap<String, Value> = serde_json::from_slice(&bytes).expect("JSON");
    let mut count = 0;
    for (version, table) in &tables {
        if table["machine"] != "0x8664" || version == "wine8" || version.ends_with("win32u") {
            continue;
        }
        let is_old = ["7601.17514", "9600.16384"].contains(&version.as_str());
        let tail = if is_old { "0f05 c3" } else { "f604250803fe7f01 7503 0f05 c3 cd2e c3" };
        let rows = table["stubs"].as_object().expect("stubs");
        let rows: Vec<(&str, u32, u32)> = rows
            .iter()
            .map(|(name, stub)| {
                let field = |key: &str| stub[key].as_u64().expect("a number") as u32;
                (name.as_str(), field("rva"), field("ssn"))
            })
            .collect();
        let first = rows.iter().map(|row| row.1).min().expect("stubs") & !0xfff;
        let last = rows.iter().map(|row| row.1).max().expect("stubs");
        let mut code = vec![0xcc; (last - first) as usize + 64];
        let mut stubs = BTreeMap::new();
        for (name, rva, number) in &rows {
            let bytes = [hex("4c8bd1 b8"), number.to_le_bytes().to_vec(), hex(tail)].concat();
            code[(rva - first) as usize..][..bytes.len()].copy_from_slice(&bytes);
            if name.starts_with("Nt") {
                stubs.insert(*rva, (name.to_string(), Rva(rva + if is_old { 10 } else { 0x14 })));
            }
        }
        let exports: Vec<_> = rows.iter().map(|(name, rva, _)| (Some(*name), Target::Rva(*rva))).collect();
        let file = Pe::new(X64).code(first, code).exports(&exports).file();
        let stubs: Vec<(String, Rva)> = stubs.into_values().collect();
        count += stubs.len();
        hold(file, &stubs);
    }
    println!("{count} stubs");
    assert!(count > 3000);
}
