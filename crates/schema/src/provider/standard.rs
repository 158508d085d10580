//! Levels, opcodes, keywords and channels that have the same meaning for every provider. The
//! numbers are those of `winmeta.h` in the Windows SDK. Manifests refer to them with the prefix
//! `win:`.

/// Levels 6 to 15 are reserved and have no meaningful names.
const LEVELS: [(u8, &str); 6] = [
    (0, "win:LogAlways"),
    (1, "win:Critical"),
    (2, "win:Error"),
    (3, "win:Warning"),
    (4, "win:Informational"),
    (5, "win:Verbose"),
];

const OPCODES: [(u8, &str); 11] = [
    (0, "win:Info"),
    (1, "win:Start"),
    (2, "win:Stop"),
    (3, "win:DC_Start"),
    (4, "win:DC_Stop"),
    (5, "win:Extension"),
    (6, "win:Reply"),
    (7, "win:Resume"),
    (8, "win:Suspend"),
    (9, "win:Send"),
    (240, "win:Receive"),
];

pub(super) const KEYWORDS: [(u64, &str); 8] = [
    (0x0001_0000_0000_0000, "win:ResponseTime"),
    (0x0002_0000_0000_0000, "win:WDIContext"),
    (0x0004_0000_0000_0000, "win:WDIDiag"),
    (0x0008_0000_0000_0000, "win:SQM"),
    (0x0010_0000_0000_0000, "win:AuditFailure"),
    (0x0020_0000_0000_0000, "win:AuditSuccess"),
    (0x0040_0000_0000_0000, "win:CorrelationHint"),
    (0x0080_0000_0000_0000, "win:EventlogClassic"),
];

/// The channels that manifests can import.
const CHANNELS: [(u8, &str); 4] = [(0, "TraceClassic"), (8, "System"), (9, "Application"), (10, "Security")];

fn name<V: Copy + PartialEq>(names: &[(V, &'static str)], value: V) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == value).map(|(_, name)| *name)
}

fn number<V: Copy>(names: &[(V, &str)], name: &str) -> Option<V> {
    names.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(value, _)| *value)
}

pub(super) fn level(level: u8) -> Option<&'static str> {
    name(&LEVELS, level)
}

pub(super) fn opcode(opcode: u8) -> Option<&'static str> {
    name(&OPCODES, opcode)
}

/// For manifest events, channel 0 means that there is no channel.
pub(super) fn channel(channel: u8) -> Option<&'static str> {
    name(&CHANNELS[1..], channel)
}

/// The number of the level with this standard name.
pub(crate) fn level_number(name: &str) -> Option<u8> {
    number(&LEVELS, name)
}

/// The number of the opcode with this standard name.
pub(crate) fn opcode_number(name: &str) -> Option<u8> {
    number(&OPCODES, name)
}

/// The mask of the keyword with this standard name.
pub(crate) fn keyword_mask(name: &str) -> Option<u64> {
    if name.eq_ignore_ascii_case("win:AnyKeyword") { Some(0) } else { number(&KEYWORDS, name) }
}

/// The number of the imported channel with this name.
pub(crate) fn channel_number(name: &str) -> Option<u8> {
    number(&CHANNELS, name)
}
