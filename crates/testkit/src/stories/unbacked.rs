//! Code that no file backs: as the caller of the native layer (CS07), elsewhere (CS08), and in what memory (CS09).

use crate::Answer::No;
use crate::book::{
    AGENT, BOTH, Book, CALLS, ETL, HOOKED, MANAGED, OPEN, PROGRAMS, ROWS, TOOL, allocation, private,
};
use crate::scene::{Memory, Scene, Spot, What};

pub(super) fn tell(book: &mut Book<'_>) {
    callers(book);
    elsewhere(book);
    regions(book);
}

/// In memory that a runtime has compiled code into.
const COMPILED: u64 = 0x7ff8_6123_0000;

/// A window procedure called back by the kernel, as Sysmon shows it: kernel frames in the middle.
fn callback(book: &Book<'_>) -> Vec<Spot> {
    let mut stack = book.stack_from(OPEN, "tool", &["callback"]);
    stack.truncate(3);
    stack.extend(
        book.world.callers("tool!callback", &["user32!ClientCallback", "ntdll!KiUserCallbackDispatcher"]),
    );
    let kernel =
        ["ntoskrnl!KeUserModeCallback", "ntoskrnl!NtUserGetMessage", "ntoskrnl!KiSystemServiceCopyEnd"];
    stack.extend(book.world.callers("", &kernel).into_iter().map(|spot| Spot::At(book.world.address(spot))));
    stack.extend(book.stack(&["win32u!NtUserGetMessage", "user32!GetMessageW"], "tool"));
    stack
}

/// A method of managed code that calls the native layer, and the runtime around it.
fn managed(book: &Book<'_>, inner: &[&str]) -> Vec<Spot> {
    let mut stack = book.stack(inner, "tool");
    stack.truncate(inner.len());
    stack.extend([Spot::At(COMPILED + 0x44), Spot::At(COMPILED + 0x1a0)]);
    stack.extend(book.world.callers("", &["clr!CallDescrWorker", "clr!ThreadStart"]));
    stack.extend(book.root(""));
    stack
}

fn callers(book: &mut Book<'_>) {
    book.about("CS07", BOTH);
    let honest = book.open(PROGRAMS[0]);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let scene = book.open(PROGRAMS[number as usize]).insert(2, private(number));
        book.yes(format!("shellcode between {code} and the Win32 base"), scene);
    }
    book.yes("shellcode calls the native API", honest.clone().replace(1, private(6)).insert(2, private(6)));
    book.yes("a thread of shellcode", {
        let mut stack = book.world.stack(OPEN);
        stack.push(private(7));
        stack.extend(book.root(""));
        Scene::open(TOOL, stack)
    });
    book.yes("where stacks cannot be walked any more", {
        let mut stack = book.world.stack(OPEN);
        stack.push(private(8));
        Scene::open(TOOL, stack)
    });
    book.all_open(No);
    book.no("shellcode is further out", honest.clone().insert(3, private(9)));
    book.no("the kernel called back", Scene::open(TOOL, callback(book)));
    book.yes_at_most("low", "the trampoline of a hook, between the stub and the Win32 base", {
        book.open((HOOKED, "tool")).insert(1, private(10))
    });
    book.missing(&honest);
    book.about("CS07", ROWS);
    book.yes_at_most("low", "managed code", Scene::open(MANAGED, managed(book, OPEN)));
    book.about("CS07", ETL);
    book.undetermined("a value that is no address", honest.clone().insert(2, Spot::At(0)));
    book.undetermined("a value below all that can be mapped", honest.clone().insert(2, Spot::At(0xffff)));
    book.no("managed code that the runtime told of", {
        Scene::open(MANAGED, managed(book, OPEN)).memory(Memory::Compiled(COMPILED))
    });
    for ((service, inner), number) in CALLS.into_iter().zip(11..) {
        let stack = book.stack(inner, "agent");
        let scene = Scene::new(AGENT, What::Call(service), stack).insert(2, private(number));
        book.yes(format!("{service} for shellcode"), scene);
    }
    book.all_call(No);
}

fn elsewhere(book: &mut Book<'_>) {
    book.about("CS08", BOTH);
    let honest = book.open(PROGRAMS[0]);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let scene = book.open(PROGRAMS[number as usize]);
        let place = 3 + number as usize % 3;
        book.yes(format!("shellcode below {code}"), scene.insert(place, private(number)));
    }
    book.yes("at the end", honest.clone().cut(2).insert(5, private(6)));
    book.all_open(No);
    book.no("the kernel called back", Scene::open(TOOL, callback(book)));
    book.missing(&honest);
    book.undetermined("the stack is as long as stacks can be", honest.clone().grow(3));
    let below = |book: &Book<'_>| {
        let mut stack = managed(book, OPEN);
        stack.insert(2, book.world.callers("", &["tool!work"])[0]);
        Scene::open(MANAGED, stack)
    };
    book.about("CS08", ROWS);
    book.yes_at_most("low", "managed code", below(book));
    book.about("CS08", ETL);
    book.no("managed code that the runtime told of", below(book).memory(Memory::Compiled(COMPILED)));
    book.all_call(No);
}

fn regions(book: &mut Book<'_>) {
    book.about("CS09", ETL);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let scene = book.open(PROGRAMS[number as usize]).insert(2 + number as usize % 3, private(number));
        book.yes(format!("code in private memory below {code}"), scene.memory(allocation(number)));
    }
    book.yes("a system call from private memory", {
        Scene::new(TOOL, What::Call("NtClose"), vec![private(6)]).memory(allocation(6))
    });
    book.no("managed code that the runtime told of", {
        Scene::open(MANAGED, managed(book, OPEN)).memory(Memory::Compiled(COMPILED))
    });
    book.about("CS09", BOTH);
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
    book.undetermined("nothing tells what memory it is", honest.insert(2, private(7)));
}
