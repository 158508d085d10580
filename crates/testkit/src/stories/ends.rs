//! Where stacks end: cut ones (CS14), and roots that are not where the thread started (CS15).

use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, ETL, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::scene::{Scene, Who};

pub(super) fn tell(book: &mut Book<'_>) {
    cut(book);
    starts(book);
}

fn cut(book: &mut Book<'_>) {
    book.about("CS14", BOTH);
    for (who, code) in PROGRAMS {
        book.yes(format!("the root is cut off below {code}"), book.open((who, code)).cut(2));
    }
    let honest = book.open(PROGRAMS[0]);
    book.yes("more is cut off", honest.clone().cut(4));
    book.yes("a function of ntdll.dll that is no root is at the end", {
        honest.clone().cut(1).insert(6, book.world.at("ntdll!RtlpPlain", 9))
    });
    book.all_open(No);
    book.no("a thread that is being made", {
        let inner = ["ntdll!NtOpenProcess", "ntdll!LdrpInitialize", "ntdll!LdrInitializeThunk"];
        Scene::open(AGENT, book.world.stack(&inner))
    });
    let csrss = |book: &Book<'_>, root| {
        let inner = ["ntdll!NtOpenProcess", "csrsrv!CsrOpen", "csrsrv!CsrApiRequestThread", root];
        Scene::open(Who::Native("csrss", &["csrsrv"]), book.world.stack(&inner))
    };
    book.no("the Windows subsystem's own threads", csrss(book, "ntdll!RtlUserThreadStart"));
    book.no("a program of 32 bits", Scene::open(Who::Narrow, book.narrow()));
    book.missing(&honest);
    book.undetermined("the stack is as long as stacks can be", honest.clone().grow(3));
    book.undetermined("it ends in code that no file backs", honest.clone().cut(2).insert(5, private(1)));
    book.without("ntdll", |book| {
        book.no("the root has no name, but the module of roots is above it", honest.clone());
        let scene = honest.clone().cut(2).insert(5, book.world.at("ntdll!RtlpPlain", 9));
        book.undetermined("the outermost function has no name", scene);
    });
}

fn starts(book: &mut Book<'_>) {
    book.about("CS15", ETL);
    let honest = book.open(PROGRAMS[0]);
    let plugin = Who::Program("agent", &["plugin"]);
    let start = |book: &Book<'_>, name: &str| book.world.at(name, 0);
    for code in ["agent", "tool", "temp"] {
        let who = match code {
            "agent" => plugin,
            "tool" => Who::Program("tool", &["plugin"]),
            _ => Who::Program("temp", &["plugin"]),
        };
        let other = start(book, "plugin!entry");
        book.yes(format!("a thread of plugin.dll shows the stack of {code}"), {
            Scene::open(who, book.stack(OPEN, code)).start(other)
        });
    }
    book.yes("a thread of the program shows the stack of a library", {
        Scene::open(plugin, book.stack(OPEN, "plugin")).start(start(book, "agent!entry"))
    });
    book.yes("a thread of shellcode shows the stack of the program", honest.clone().start(private(1)));
    book.yes("a thread of the program ends in shellcode", honest.clone().insert(5, private(2)));
    for (who, code) in PROGRAMS {
        let scene = Scene::open(who, book.stack(OPEN, code)).start(start(book, &format!("{code}!entry")));
        book.no(format!("a thread of {code}"), scene);
    }
    book.no("a thread of the pool", honest.clone().start(start(book, "ntdll!TppWorkerThread")));
    book.missing(&honest);
    book.undetermined("the stack is as long as stacks can be", honest.clone().grow(3));
    book.undetermined("where the thread started is not told", honest.clone().without_start());
    // Sysmon does not tell where the acting thread started.
    book.about("CS15", ROWS);
    book.undetermined("where the thread started is not told", honest.clone());
    book.undetermined("the same of another program", Scene::open(TOOL, book.stack(OPEN, "tool")));
    book.missing(&honest);
}
