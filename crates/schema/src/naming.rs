//! How event names are put together from tasks and opcodes.

/// The name of an opcode that means the same for every provider; `None` for the informational opcode 0, which does not
/// show in event names, and for numbers that providers define themselves.
pub(crate) fn standard_opcode(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        1 => "Start",
        2 => "Stop",
        3 => "DC_Start",
        4 => "DC_Stop",
        5 => "Extension",
        6 => "Reply",
        7 => "Resume",
        8 => "Suspend",
        9 => "Send",
        240 => "Receive",
        _ => return None,
    })
}

/// `Task/Opcode`, or the one of them that is there. Opcode names lose a `win:` prefix; `Info` counts as none.
pub(crate) fn event_name(task: &str, opcode: &str) -> String {
    let opcode = opcode.strip_prefix("win:").unwrap_or(opcode);
    match (task, opcode) {
        (task, "" | "Info") => task.to_owned(),
        ("", opcode) => opcode.to_owned(),
        (task, opcode) => format!("{task}/{opcode}"),
    }
}
