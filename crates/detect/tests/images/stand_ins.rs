//! Stacks of direct and indirect system calls under Wine. `scripts/windows-check.sh` runs the
//! program that makes the calls (`crates/windows/tests/fixture/stand_ins.c`) and passes its stacks
//! and files to this test.

use std::path::{Path, PathBuf};

use stackhound_detect::{Binaries, DetectionId, Entry, Evaluation, LiveFrame, Services, SiteBytes, Verdict};
use stackhound_frames::{Code, Frame, Module, ModuleFacts};
use stackhound_symbols::Loaded;
use stackhound_symbols::image::Image;
use stackhound_symbols::table::SymbolTableBuilder;
use stackhound_types::ModuleIdentity;

use crate::made::hex;
use crate::world::{World, line};

fn load(folder: &Path, module: &Module) -> Loaded {
    let Ok(bytes) = std::fs::read(folder.join(module.name())) else { return Loaded::default() };
    let mut names = SymbolTableBuilder::new();
    let image = Image::parse(&bytes).expect("an image");
    names.add_image(&image).expect("exports");
    Loaded { symbols: Some(Box::new(names.build())), image: Some(bytes), failures: Vec::new() }
}

/// A line `offset bytes path`, where `-` is the path for no module.
fn frame(world: &mut World, text: &str) -> (Frame, LiveFrame) {
    let mut parts = text.splitn(3, ' ');
    let mut part = || parts.next().expect("three parts");
    let (offset, bytes, path) = (part(), hex(part()), part());
    let offset = u64::from_str_radix(offset, 16).expect("hexadecimal");
    let code = match path {
        "-" => Code::Unbacked,
        path => {
            let name = path.rsplit('\\').next().unwrap_or_default().to_owned();
            let identity = ModuleIdentity { name, ..ModuleIdentity::default() };
            let facts = ModuleFacts { path: path.into(), identity, ..ModuleFacts::default() };
            Code::Image(world.detector.module(&facts, None), offset)
        }
    };
    let bytes: [u8; 32] = bytes.try_into().expect("32 bytes");
    let (before, after) = bytes.split_at(16);
    let bytes = SiteBytes { before: before.try_into().unwrap(), after: after.try_into().unwrap() };
    (Frame::user(code), LiveFrame { bytes: Some(bytes), ..LiveFrame::default() })
}

fn found(evaluation: &Evaluation) -> Vec<&'static str> {
    evaluation.findings().map(|(id, _)| id.name()).collect()
}

#[test]
fn direct_and_indirect_calls_are_found() {
    let Some(folder) = std::env::var_os("STACKHOUND_STAND_INS").map(PathBuf::from) else {
        eprintln!("skipped: STACKHOUND_STAND_INS is not set, see scripts/windows-check.sh");
        return;
    };
    let text = std::fs::read_to_string(folder.join("stacks.txt")).expect("stacks").replace('\r', "");
    let mut seen = 0;
    for case in text.split("\n\n").map(str::trim).filter(|case| !case.is_empty()) {
        let (head, stack) = case.split_once('\n').expect("a stack");
        let (way, service) = head.split_once(' ').expect("a service");
        let files = folder.clone();
        let mut world = World::of(Binaries::new(Box::new(move |module: &Module| load(&files, module))));
        let (frames, live): (Vec<Frame>, _) = stack.lines().map(|text| frame(&mut world, text)).unzip();
        world.live = live;
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Entered(service));
        let answer = |id: &str| line(evaluation.outcome(DetectionId::parse(id).expect("a detection")));
        println!("{way}: {}", found(&evaluation).join(" "));
        for id in ["CS01", "CS02", "CS03", "CS04", "CS05", "CS11", "CS12", "CS13", "CS16", "CS18"] {
            println!("    {id} {}", answer(id));
        }
        // These detections find nothing in any of the calls.
        for id in ["CS02", "CS04", "CS11", "CS12", "CS13", "CS16", "CS18"] {
            let outcome = evaluation.outcome(DetectionId::parse(id).expect("a detection"));
            assert_ne!(outcome.verdict, Verdict::Yes, "{way} {id}");
        }
        let expected = match way {
            "ordinary" => ["no top-system-call", "no stub-matches", "no callee-matches"],
            "direct" => {
                ["yes high top-unbacked+system-call-before @0", "no no-stub-frame", "no no-stub-frame"]
            }
            "indirect" => ["no top-system-call", "yes high stub-differs @0", "yes high callee-differs @1"],
            other => panic!("{other}"),
        };
        assert_eq!(["CS01", "CS03", "CS05"].map(answer), expected, "{way}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}
