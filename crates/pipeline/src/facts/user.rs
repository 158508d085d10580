//! Names of security identifiers that are the same on all machines.

/// The English name of a well-known user, from its SID as text. Traces contain no other names of
/// users.
pub(super) fn well_known_name(sid: &str) -> Option<&'static str> {
    // "Well-known SIDs" on Microsoft Learn.
    Some(match sid {
        "S-1-0-0" => "Nobody",
        "S-1-1-0" => "Everyone",
        "S-1-5-7" => r"NT AUTHORITY\ANONYMOUS LOGON",
        "S-1-5-18" => r"NT AUTHORITY\SYSTEM",
        "S-1-5-19" => r"NT AUTHORITY\LOCAL SERVICE",
        "S-1-5-20" => r"NT AUTHORITY\NETWORK SERVICE",
        _ => return None,
    })
}

/// The name of an integrity level. Levels between the named ones have no name.
pub(super) fn integrity_name(level: u32) -> Option<&'static str> {
    // "Mandatory Integrity Control" on Microsoft Learn, and SECURITY_MANDATORY_*_RID.
    Some(match level {
        0 => "untrusted",
        0x1000 => "low",
        0x2000 => "medium",
        0x2100 => "medium-plus",
        0x3000 => "high",
        0x4000 => "system",
        0x5000 => "protected",
        _ => return None,
    })
}
