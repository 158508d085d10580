//! Names of events, from tasks and opcodes.

/// The name of an opcode that has the same meaning for every provider. `None` for the informational
/// opcode 0, which is not part of event names, and for opcodes that providers define themselves.
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

/// `Task/Opcode`, or only one of them if the other is empty. The prefix `win:` of opcode names is
/// removed; the opcode `Info` counts as empty.
pub(crate) fn event_name(task: &str, opcode: &str) -> String {
    let opcode = opcode.strip_prefix("win:").unwrap_or(opcode);
    match (task, opcode) {
        (task, "" | "Info") => task.to_owned(),
        ("", opcode) => opcode.to_owned(),
        (task, opcode) => format!("{task}/{opcode}"),
    }
}
