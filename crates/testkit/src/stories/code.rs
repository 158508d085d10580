//! Where return addresses point: behind no call (CS11), at gadgets (CS12), outside of functions (CS13), to other functions
//! than those above them (CS16); and code that was changed in memory (CS18).

use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, ETL, OPEN, PROGRAMS, TOOL};
use crate::code::DATA_AT;
use crate::images::GADGET;
use crate::scene::{Scene, Spot};

pub(super) fn tell(book: &mut Book<'_>) {
    without_call(book);
    gadgets(book);
    outside(book);
    links(book);
    changed(book);
}

/// The bytes before each call of a function: its first instruction, and the one that sets a parameter.
const BEFORE_FIRST_CALL: u32 = 7;

fn without_call(book: &mut Book<'_>) {
    book.about("CS11", BOTH);
    let honest = book.open(PROGRAMS[0]);
    for (who, code) in PROGRAMS {
        let at = book.world.at(&format!("{code}!work"), BEFORE_FIRST_CALL);
        book.yes(format!("{code} is returned to before a call"), book.open((who, code)).replace(2, at));
    }
    let (one, other) = (book.world.at("kernelbase!OpenProcess", 4), book.world.at("agent!main", 4));
    book.yes("a library is returned to before a call", honest.clone().replace(1, one));
    book.yes("twice", honest.clone().replace(1, one).replace(3, other));
    book.all_open(No);
    book.missing(&honest);
    book.without("agent", |book| {
        book.undetermined("the file of the program is not at hand", honest.clone().replace(3, other));
        book.undetermined("the same where all is well", honest.clone());
    });
    book.about("CS11", ETL);
    book.all_call(No);
}

fn gadgets(book: &mut Book<'_>) {
    book.about("CS12", BOTH);
    let honest = book.open(PROGRAMS[0]);
    let all = [
        "ntdll!GadgetJumpRbx",
        "ntdll!GadgetJumpR13",
        "ntdll!GadgetPivot",
        "kernelbase!GadgetJumpRdi",
        "kernelbase!GadgetJumpRsi",
        "kernelbase!GadgetPop",
    ];
    for (gadget, place) in all.into_iter().zip([1, 2, 3, 1, 2, 3]) {
        let at = book.world.at(gadget, GADGET);
        book.yes(format!("{gadget} is returned to"), honest.clone().insert(place, at));
    }
    let jump = book.world.at("agent!jump_rbx", GADGET);
    book.yes("a jump through rbx behind a call", honest.clone().insert(2, jump));
    book.all_open(No);
    let end = book.world.at("agent!after_call", GADGET);
    book.no("the end of a function behind its last call", honest.clone().insert(3, end));
    book.missing(&honest);
    book.without("kernelbase", |book| {
        let at = book.world.at("kernelbase!GadgetJumpRdi", GADGET);
        book.undetermined("the file of the library is not at hand", honest.clone().insert(1, at));
    });
    book.about("CS12", ETL);
    book.all_call(No);
}

fn outside(book: &mut Book<'_>) {
    book.about("CS13", BOTH);
    let honest = book.open(PROGRAMS[0]);
    let gap = |name: &str| {
        let (key, function) = name.split_once('!').expect("library!function");
        let size = book.world.units[book.world.index(key)].function(function).size;
        book.world.at(name, size + 6)
    };
    let data = |key: &str| Spot::In(book.world.index(key), DATA_AT + 0x40);
    let places = [
        ("between two functions of the program", 2, gap("agent!work")),
        ("between two others", 3, gap("agent!main")),
        ("between two functions of a library", 1, gap("kernelbase!OpenProcess")),
        ("at the start of a function", 2, book.world.at("agent!main", 0)),
        ("at the start of a function of a library", 1, book.world.at("kernelbase!SleepEx", 0)),
        ("in the data of the program", 2, data("agent")),
        ("in the data of a library", 1, data("kernelbase")),
    ];
    for (title, place, spot) in places {
        book.yes(title, honest.clone().replace(place, spot));
    }
    book.all_open(No);
    book.missing(&honest);
    let wrong = honest.clone().replace(2, book.world.at("agent!main", 0));
    book.without("agent", |book| {
        book.undetermined("the file of the program is not at hand", wrong);
    });
    book.about("CS13", ETL);
    book.all_call(No);
}

fn links(book: &mut Book<'_>) {
    book.about("CS16", BOTH);
    let honest = book.open(PROGRAMS[0]);
    for (who, code) in PROGRAMS {
        let stack = book.stack_from(OPEN, code, &["work>helper", "main", "entry"]);
        book.yes(format!("{code} calls a helper, and the Win32 base is above it"), Scene::open(who, stack));
    }
    let stack = book.stack_from(OPEN, "agent", &["work", "main>callback", "entry"]);
    book.yes("another function of the program is above the call", Scene::open(AGENT, stack));
    book.all_open(No);
    let tail = book.stack_from(OPEN, "tool", &["work", "via_tail>tail", "main", "entry"]);
    book.no("a tail call", Scene::open(TOOL, tail));
    let thunk = book.stack_from(&["ntdll!NtOpenProcess"], "tool", &["via_thunk>thunk_open", "main", "entry"]);
    book.no("an import thunk", Scene::open(TOOL, thunk));
    book.missing(&honest);
    let wrong = book.stack_from(OPEN, "agent", &["work>helper", "main", "entry"]);
    book.without("agent", |book| {
        book.undetermined("the file of the program is not at hand", Scene::open(AGENT, wrong));
    });
    book.about("CS16", ETL);
    book.all_call(No);
}

fn changed(book: &mut Book<'_>) {
    // Neither form tells what stands in memory.
    book.about("CS18", BOTH);
    let honest = book.open(PROGRAMS[0]);
    book.undetermined("what stands in memory is not told", honest.clone());
    book.undetermined("the same of another program", book.open(PROGRAMS[1]));
    book.missing(&honest);
    book.without("agent", |book| {
        book.undetermined("nor is the file of the program at hand", honest.clone());
    });
}
