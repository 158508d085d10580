//! The outer end of stacks: truncated stacks (CS14), and stack roots that do not match the thread's
//! start address (CS15).

use crate::Answer::No;
use crate::case_builder::{AGENT, BOTH, CaseBuilder, ETL, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::event_spec::{Actor, EventSpec};

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    cut(builder);
    starts(builder);
}

fn cut(builder: &mut CaseBuilder<'_>) {
    builder.about("CS14", BOTH);
    for (actor, code) in PROGRAMS {
        builder.yes(format!("the root is cut off below {code}"), builder.open((actor, code)).cut(2));
    }
    let benign = builder.open(PROGRAMS[0]);
    builder.yes("more frames are cut off", benign.clone().cut(4));
    builder.yes("the outermost function is in ntdll.dll but is not a thread root", {
        benign.clone().cut(1).insert(6, builder.world.at("ntdll!RtlpPlain", 9))
    });
    builder.all_open(No);
    builder.no("a thread that is being initialized", {
        let inner = ["ntdll!NtOpenProcess", "ntdll!LdrpInitialize", "ntdll!LdrInitializeThunk"];
        EventSpec::open(AGENT, builder.world.stack(&inner))
    });
    let csrss = |builder: &CaseBuilder<'_>, root| {
        let inner = ["ntdll!NtOpenProcess", "csrsrv!CsrOpen", "csrsrv!CsrApiRequestThread", root];
        EventSpec::open(Actor::Native("csrss", &["csrsrv"]), builder.world.stack(&inner))
    };
    builder.no("the Windows subsystem's own threads", csrss(builder, "ntdll!RtlUserThreadStart"));
    builder.no("a 32-bit program", EventSpec::open(Actor::Bits32, builder.stack_32_bit()));
    builder.missing(&benign);
    builder.undetermined("the stack has the greatest possible length", benign.clone().grow(3));
    builder.undetermined("the stack ends in unbacked code", benign.clone().cut(2).insert(5, private(1)));
    builder.without("ntdll", |builder| {
        builder.no("the thread root has no name, but its module is known", benign.clone());
        let event_spec = benign.clone().cut(2).insert(5, builder.world.at("ntdll!RtlpPlain", 9));
        builder.undetermined("the outermost function has no name", event_spec);
    });
}

fn starts(builder: &mut CaseBuilder<'_>) {
    builder.about("CS15", ETL);
    let benign = builder.open(PROGRAMS[0]);
    let plugin = Actor::Program("agent", &["plugin"]);
    let start = |builder: &CaseBuilder<'_>, name: &str| builder.world.at(name, 0);
    for code in ["agent", "tool", "temp"] {
        let actor = match code {
            "agent" => plugin,
            "tool" => Actor::Program("tool", &["plugin"]),
            _ => Actor::Program("temp", &["plugin"]),
        };
        let other = start(builder, "plugin!entry");
        builder.yes(format!("a thread of plugin.dll shows the stack of {code}"), {
            EventSpec::open(actor, builder.stack(OPEN, code)).start(other)
        });
    }
    builder.yes("a thread of the program shows the stack of a library", {
        EventSpec::open(plugin, builder.stack(OPEN, "plugin")).start(start(builder, "agent!entry"))
    });
    builder.yes("a thread of shellcode shows the stack of the program", benign.clone().start(private(1)));
    builder.yes("a thread of the program ends in shellcode", benign.clone().insert(5, private(2)));
    for (actor, code) in PROGRAMS {
        let event_spec =
            EventSpec::open(actor, builder.stack(OPEN, code)).start(start(builder, &format!("{code}!entry")));
        builder.no(format!("a thread of {code}"), event_spec);
    }
    builder.no("a thread of the pool", benign.clone().start(start(builder, "ntdll!TppWorkerThread")));
    builder.missing(&benign);
    builder.undetermined("the stack has the greatest possible length", benign.clone().grow(3));
    builder.undetermined("the start address of the thread is not known", benign.clone().without_start());
    // Sysmon does not report the start address of the acting thread.
    builder.about("CS15", ROWS);
    builder.undetermined("the start address of the thread is not known", benign.clone());
    builder.undetermined(
        "the start address is not known, for another program",
        EventSpec::open(TOOL, builder.stack(OPEN, "tool")),
    );
    builder.missing(&benign);
}
