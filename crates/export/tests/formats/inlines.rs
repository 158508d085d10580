//! Inlined functions, which are frames of a stack without addresses of their own.

use serde_json::Value;
use stackhound_export::firefox::{self, Names};
use stackhound_export::folded;
use stackhound_profile::{
    CodeKind, Frame, FrameName, InlineName, Module, ModuleOffset, Nanos, Origin, Process, Profile,
    ProfileBuilder, Sample, Thread,
};
use stackhound_types::{AddressKind, Mode};

/// `caller` calls `outer`, into which `middle` and `inner` are inlined. `outer` also occurs without
/// them, at another address.
fn profile() -> Profile {
    let mut builder = ProfileBuilder::new("a trace.etl", 0);
    let process = builder.process(Process { name: "app.exe".into(), ..Process::default() }).unwrap();
    let thread = Thread { process, tid: Some(12), name: String::new(), start: None, end: None };
    let thread = builder.thread(thread).unwrap();
    let module = Module { name: "m.dll".into(), path: String::new(), pdb: None, image: None };
    let module = builder.module(module).unwrap();
    let [caller, inlined, plain] = [0x1010, 0x2010, 0x2020].map(|rva| {
        let location = ModuleOffset { module, rva, kind: AddressKind::Return, offset: None };
        let frame = Frame {
            name: format!("m.dll+{rva:#x}"),
            origin: Origin::Module,
            mode: Some(Mode::User),
            code: CodeKind::User,
            location: Some(location),
            source: None,
            inlines: Box::default(),
        };
        builder.frame(frame).unwrap()
    });
    for (frame, name, offset, inlines) in [
        (caller, "m!caller", 0x10, &[][..]),
        (inlined, "m!outer", 0x10, &["m!inner", "m!middle"]),
        (plain, "m!outer", 0x20, &[]),
    ] {
        let inlines = inlines.iter().map(|name| InlineName { text: (*name).to_owned(), source: None });
        let (origin, inlines) = (Origin::Pdb, inlines.collect());
        builder.name_frame(frame, FrameName { text: name.to_owned(), origin, offset, source: None, inlines });
    }
    for frame in [inlined, plain] {
        let stack = builder.stack(None, caller).unwrap();
        let stack = builder.stack(Some(stack), frame).unwrap();
        builder.sample(Sample { time: Nanos(0), thread, stack, weight: 1, cpu: None });
    }
    builder.finish()
}

#[test]
fn they_are_called_by_the_frame_that_contains_them() {
    let mut text = Vec::new();
    folded::write(&profile(), &mut text).unwrap();
    let expected = "app.exe;m!caller;m!outer 1\napp.exe;m!caller;m!outer;m!middle;m!inner 1\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn the_symbol_server_adds_them_itself() {
    let functions = |names| {
        let mut text = Vec::new();
        firefox::write(&profile(), names, &mut text).unwrap();
        let profile: Value = serde_json::from_slice(&text).unwrap();
        let thread = &profile["threads"][0];
        let names = thread["funcTable"]["name"].as_array().unwrap().iter();
        let names =
            names.map(|name| thread["stringArray"][name.as_u64().unwrap() as usize].as_str().unwrap());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(functions(Names::Profile), ["m!caller", "m!inner", "m!middle", "m!outer"]);
    assert_eq!(functions(Names::SymbolServer), ["m!caller", "m!outer"]);
}
