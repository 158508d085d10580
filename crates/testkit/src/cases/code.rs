//! Return addresses that are not preceded by a call (CS11), that are ROP gadgets (CS12), that are
//! outside of any function (CS13), or whose call has another callee (CS16); and code that was
//! changed in memory (CS18).

use crate::Answer::No;
use crate::case_builder::{AGENT, BOTH, CaseBuilder, ETL, OPEN, PROGRAMS, TOOL};
use crate::code::DATA_AT;
use crate::event_spec::{EventSpec, FrameSpec};
use crate::images::GADGET;

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    without_call(builder);
    gadgets(builder);
    outside(builder);
    links(builder);
    changed(builder);
}

/// The bytes before the first call of a function: its prologue, and the setup of a parameter.
const BEFORE_FIRST_CALL: u32 = 7;

fn without_call(builder: &mut CaseBuilder<'_>) {
    builder.about("CS11", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    for (actor, code) in PROGRAMS {
        let at = builder.world.at(&format!("{code}!work"), BEFORE_FIRST_CALL);
        builder.yes(
            format!("a return address in {code} is before a call"),
            builder.open((actor, code)).replace(2, at),
        );
    }
    let (one, other) = (builder.world.at("kernelbase!OpenProcess", 4), builder.world.at("agent!main", 4));
    builder.yes("a return address in a library is before a call", benign.clone().replace(1, one));
    builder.yes("two return addresses are before a call", benign.clone().replace(1, one).replace(3, other));
    builder.all_open(No);
    builder.missing(&benign);
    builder.without("agent", |builder| {
        builder.undetermined("the file of the program is not available", benign.clone().replace(3, other));
        builder.undetermined("the file of the program is not available, for a benign stack", benign.clone());
    });
    builder.about("CS11", ETL);
    builder.all_call(No);
}

fn gadgets(builder: &mut CaseBuilder<'_>) {
    builder.about("CS12", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    let all = [
        "ntdll!GadgetJumpRbx",
        "ntdll!GadgetJumpR13",
        "ntdll!GadgetPivot",
        "kernelbase!GadgetJumpRdi",
        "kernelbase!GadgetJumpRsi",
        "kernelbase!GadgetPop",
    ];
    for (gadget, location) in all.into_iter().zip([1, 2, 3, 1, 2, 3]) {
        let at = builder.world.at(gadget, GADGET);
        builder.yes(format!("a return address is {gadget}"), benign.clone().insert(location, at));
    }
    let jump = builder.world.at("agent!jump_rbx", GADGET);
    builder.yes("a jump through rbx after a call", benign.clone().insert(2, jump));
    builder.all_open(No);
    let end = builder.world.at("agent!after_call", GADGET);
    builder.no("the end of a function after its last call", benign.clone().insert(3, end));
    builder.missing(&benign);
    builder.without("kernelbase", |builder| {
        let at = builder.world.at("kernelbase!GadgetJumpRdi", GADGET);
        builder.undetermined("the file of the library is not available", benign.clone().insert(1, at));
    });
    builder.about("CS12", ETL);
    builder.all_call(No);
}

fn outside(builder: &mut CaseBuilder<'_>) {
    builder.about("CS13", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    let gap = |name: &str| {
        let (key, function) = name.split_once('!').expect("library!function");
        let size = builder.world.units[builder.world.index(key)].function(function).size;
        builder.world.at(name, size + 6)
    };
    let data = |key: &str| FrameSpec::In(builder.world.index(key), DATA_AT + 0x40);
    let locations = [
        ("between two functions of the program", 2, gap("agent!work")),
        ("between two others", 3, gap("agent!main")),
        ("between two functions of a library", 1, gap("kernelbase!OpenProcess")),
        ("at the start of a function", 2, builder.world.at("agent!main", 0)),
        ("at the start of a function of a library", 1, builder.world.at("kernelbase!SleepEx", 0)),
        ("in the data of the program", 2, data("agent")),
        ("in the data of a library", 1, data("kernelbase")),
    ];
    for (title, location, frame) in locations {
        builder.yes(title, benign.clone().replace(location, frame));
    }
    builder.all_open(No);
    builder.missing(&benign);
    let wrong = benign.clone().replace(2, builder.world.at("agent!main", 0));
    builder.without("agent", |builder| {
        builder.undetermined("the file of the program is not available", wrong);
    });
    builder.about("CS13", ETL);
    builder.all_call(No);
}

fn links(builder: &mut CaseBuilder<'_>) {
    builder.about("CS16", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    for (actor, code) in PROGRAMS {
        let stack = builder.stack_from(OPEN, code, &["work>helper", "main", "entry"]);
        builder.yes(
            format!("{code} calls a helper, and the Win32 base is above it"),
            EventSpec::open(actor, stack),
        );
    }
    let stack = builder.stack_from(OPEN, "agent", &["work", "main>callback", "entry"]);
    builder.yes("another function of the program is above the call", EventSpec::open(AGENT, stack));
    builder.all_open(No);
    let tail = builder.stack_from(OPEN, "tool", &["work", "via_tail>tail", "main", "entry"]);
    builder.no("a tail call", EventSpec::open(TOOL, tail));
    let thunk =
        builder.stack_from(&["ntdll!NtOpenProcess"], "tool", &["via_thunk>thunk_open", "main", "entry"]);
    builder.no("an import thunk", EventSpec::open(TOOL, thunk));
    builder.missing(&benign);
    let wrong = builder.stack_from(OPEN, "agent", &["work>helper", "main", "entry"]);
    builder.without("agent", |builder| {
        builder.undetermined("the file of the program is not available", EventSpec::open(AGENT, wrong));
    });
    builder.about("CS16", ETL);
    builder.all_call(No);
}

fn changed(builder: &mut CaseBuilder<'_>) {
    // Neither traces nor rows of Sysmon contain memory.
    builder.about("CS18", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    builder.undetermined("the contents of memory are not known", benign.clone());
    builder
        .undetermined("the contents of memory are not known, for another program", builder.open(PROGRAMS[1]));
    builder.missing(&benign);
    builder.without("agent", |builder| {
        builder.undetermined(
            "neither the contents of memory nor the file of the program is available",
            benign.clone(),
        );
    });
}
