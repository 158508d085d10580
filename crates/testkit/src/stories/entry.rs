//! Who entered the kernel: direct system calls (CS01, CS02), the native API (CS06), a second `ntdll.dll` (CS10), 64-bit
//! calls of 32-bit programs (CS20).

use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, CALLS, ETL, MANAGED, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::images::OWN_SYSCALL_RETURN;
use crate::scene::{Scene, Spot, What, Who};

pub(super) fn tell(book: &mut Book<'_>) {
    from_private_memory(book);
    from_images(book);
    native_api(book);
    second_ntdll(book);
    gates(book);
}

fn from_private_memory(book: &mut Book<'_>) {
    book.about("CS01", BOTH);
    let honest = book.open(PROGRAMS[0]);
    // The stub and its caller give way to code of which no file knows.
    let direct =
        |scene: &Scene, number| scene.clone().replace(0, private(number)).replace(1, private(number));
    book.yes("shellcode alone", Scene::open(TOOL, vec![private(0)]));
    book.yes("shellcode as a thread", {
        let mut stack = vec![private(1)];
        stack.extend(book.root(""));
        Scene::open(TOOL, stack)
    });
    for ((_, code), number) in PROGRAMS.into_iter().zip(2..) {
        let scene = book.open((PROGRAMS[number as usize - 2].0, code));
        book.yes(format!("shellcode below {code}"), direct(&scene, number));
    }
    book.yes("shellcode in a process with a runtime", direct(&book.open((MANAGED, "tool")), 8));
    book.yes("shellcode between libraries", honest.clone().replace(0, Spot::At(0x7ff8_4400_0123)));
    book.all_open(No);
    book.no("a program of 32 bits", Scene::open(Who::Narrow, book.narrow()));
    book.missing(&honest);
    book.undetermined("shellcode without a stack", direct(&honest, 9).without_user());

    book.about("CS01", ETL);
    for ((service, _), number) in CALLS.into_iter().zip(20..) {
        book.yes(format!("{service} from shellcode"), direct(&honest, number).what(What::Call(service)));
    }
    book.no("shellcode is interrupted", direct(&honest, 10).what(What::Sample));
    book.undetermined("how the kernel was entered is not known", direct(&honest, 11).what(What::Wait));
}

/// The stack of a program that has a `syscall` of its own.
fn direct(book: &Book<'_>, code: &str) -> Vec<Spot> {
    let mut stack = vec![book.world.at(&format!("{code}!own_syscall"), OWN_SYSCALL_RETURN)];
    stack.extend(book.stack_from(OPEN, code, &["direct>own_syscall", "main", "entry"]).split_off(2));
    stack
}

fn from_images(book: &mut Book<'_>) {
    book.about("CS02", BOTH);
    for (who, code) in PROGRAMS {
        book.yes(format!("{code} has its own syscall"), Scene::open(who, direct(book, code)));
    }
    book.all_open(No);
    // The walk began at a frame that did not enter the kernel.
    let honest = book.open(PROGRAMS[0]);
    book.no("the innermost frame is behind no syscall", {
        let mut scene = honest.clone();
        scene.stack.drain(..2);
        scene
    });
    book.no("a program of 32 bits", Scene::open(Who::Narrow, book.narrow()));
    book.missing(&honest);
    book.without("agent", |book| {
        book.yes("the file of the program is not at hand", Scene::open(AGENT, direct(book, "agent")));
    });
    book.about("CS02", ETL);
    for ((service, _), (who, code)) in CALLS.into_iter().zip(PROGRAMS) {
        book.yes(
            format!("{service} by {code} itself"),
            Scene::new(who, What::Call(service), direct(book, code)),
        );
    }
    book.all_call(No);
    book.no("the program is interrupted", Scene::new(AGENT, What::Sample, direct(book, "agent")));
    book.undetermined(
        "how the kernel was entered is not known",
        Scene::new(AGENT, What::Wait, direct(book, "agent")),
    );
}

const NATIVE: &[&str] = &["ntdll!NtOpenProcess"];

fn native_api(book: &mut Book<'_>) {
    book.about("CS06", BOTH);
    for (who, code) in PROGRAMS {
        let native = Scene::open(who, book.stack(NATIVE, code));
        if code == "svclib" {
            book.undetermined("a library in System32 of which nothing is known", native.clone());
            book.knowing_windows(|book| {
                book.yes("a library in System32 that is no part of Windows", native);
            });
            continue;
        }
        book.yes(format!("{code} calls the native API"), native);
    }
    book.yes("through an import thunk", {
        Scene::open(TOOL, book.stack_from(NATIVE, "tool", &["via_thunk>thunk_open", "main", "entry"]))
    });
    book.yes("by a handle to lsass.exe", {
        Scene::open(TOOL, book.stack(NATIVE, "tool")).what(What::Open("lsass", Some(0x1410)))
    });
    book.knowing_windows(|book| {
        let inbox = Who::Program("inbox", &[]);
        book.no("a known part of Windows", Scene::open(inbox, book.stack(NATIVE, "inbox")));
    });
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
    book.about("CS06", ETL);
    for service in ["NtClose", "NtDelayExecution"] {
        let stub = format!("ntdll!{service}");
        let stack = book.stack(&[&stub], "agent");
        book.yes(format!("{service} called directly"), Scene::new(AGENT, What::Call(service), stack));
    }
    book.all_call(No);
}

fn second_ntdll(book: &mut Book<'_>) {
    book.about("CS10", BOTH);
    for copy in ["copy", "copy2"] {
        let stub = format!("{copy}!NtOpenProcess");
        for (who, code) in [PROGRAMS[0], PROGRAMS[1]] {
            let who = match copy {
                "copy" => Who::Program(who.program(), &["copy"]),
                _ => Who::Program(who.program(), &["copy2"]),
            };
            let stack = book.stack_from(&[&stub], code, &["work>*", "main", "entry"]);
            book.yes(format!("{code} calls a stub of {copy}"), Scene::open(who, stack));
        }
    }
    book.yes("a copy of ntdll.dll is further out in the stack", {
        let stack = book.stack(OPEN, "agent");
        let inner = book.world.at("copy!RtlpPlain", 9);
        Scene::open(Who::Program("agent", &["copy"]), stack).insert(2, inner)
    });
    book.all_open(No);
    book.no("a program of 32 bits has two by right", Scene::open(Who::Narrow, book.narrow()));
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
    book.undetermined("the stack is as long as stacks can be", honest.clone().grow(3));
    book.about("CS10", ETL);
    let load = book.stack(LOAD, "agent");
    book.yes("a copy of ntdll.dll is mapped", Scene::new(AGENT, What::Load("copy"), load.clone()));
    book.no("a library is mapped", Scene::new(AGENT, What::Load("plugin"), load));
}

/// The loader at work for a program.
pub(super) const LOAD: &[&str] =
    &["ntdll!NtMapViewOfSection", "ntdll!LdrpMapView", "ntdll!LdrLoadDll", "kernelbase!LoadLibraryExW"];

fn gates(book: &mut Book<'_>) {
    book.about("CS20", BOTH);
    let narrow = book.narrow();
    // A 64-bit stub is called by something else than the layer.
    let gate = |caller: &[Spot]| {
        let mut stack = vec![narrow[0]];
        stack.extend(caller);
        // What is left of the layer: the thread came into 32-bit code through it.
        stack.extend(&narrow[2..]);
        Scene::open(Who::Narrow, stack)
    };
    let program = book.world.at("host32!gate", 9);
    book.yes("the program calls a 64-bit stub", gate(&[program]));
    for number in 0..2 {
        let address = 0x0123_0040 + number * 0x1_0000;
        book.yes("shellcode calls a 64-bit stub", gate(&[Spot::At(address)]));
    }
    book.yes("shellcode, called by the program", gate(&[Spot::At(0x0456_0040), program]));
    book.yes(
        "through two frames of ntdll.dll",
        gate(&[book.world.at("ntdll!RtlpPlain", 9), Spot::At(0x0789_0040)]),
    );
    let (stub, inner) = (book.world.stub_return("ntdll!NtDelayExecution"), &narrow[1..]);
    book.no("the program opens a process", Scene::open(Who::Narrow, narrow.clone()));
    book.no("by another function", Scene::open(Who::Narrow, narrow.clone()).replace(8, program));
    book.no(
        "shellcode of 32 bits",
        Scene::open(Who::Narrow, narrow.clone()).replace(9, Spot::NarrowAt(0x0321_0040)),
    );
    book.no("the layer enters the kernel itself", {
        let mut stack = vec![book.world.at("wow64cpu!ServiceNoTurbo", 13)];
        stack.extend(&narrow[3..]);
        Scene::open(Who::Narrow, stack)
    });
    book.no("without the 32-bit root", Scene::open(Who::Narrow, narrow.clone()).cut(1));
    book.undetermined(
        "the user part of the stack is missing",
        Scene::open(Who::Narrow, narrow.clone()).without_user(),
    );
    book.about("CS20", ETL);
    book.yes("a wait through a gate", {
        let scene = gate(&[Spot::At(0x0a00_0040)]).replace(0, stub);
        scene.what(What::Call("NtDelayExecution"))
    });
    book.no("a wait as all do", {
        let mut stack = vec![stub];
        stack.extend(inner);
        Scene::new(Who::Narrow, What::Call("NtDelayExecution"), stack)
    });
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
    book.about("CS20", ROWS);
    book.no("64-bit libraries that 32-bit processes do not have", honest);
    book.undetermined("nothing tells how wide the process is", {
        Scene::open(AGENT, vec![narrow[0], private(3)])
    });
}
