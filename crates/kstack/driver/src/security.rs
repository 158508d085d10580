//! The access list of the device: only the system and administrators may open it.
//!
//! As text, it is `D:P(A;;FA;;;SY)(A;;FA;;;BA)`. The rights are the file rights to which the system
//! maps `GENERIC_ALL` for devices, so another mapping does not change them. The layout is that of
//! `SECURITY_DESCRIPTOR_RELATIVE`, `ACL`, `ACCESS_ALLOWED_ACE` and `SID` in Microsoft's
//! documentation [MS-DTYP 2.4.6, 2.4.5, 2.4.4.2, 2.4.2.2].

/// A self-relative security descriptor.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Descriptor([u8; LENGTH]);

impl Descriptor {
    /// The bytes of the descriptor.
    pub const fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

/// The descriptor of the device.
pub static DEVICE: Descriptor = Descriptor(descriptor());

const LENGTH: usize = HEADER + ACL + ACE + SID_HEADER + 4 + ACE + SID_HEADER + 8;
const HEADER: usize = 20;
const ACL: usize = 8;
/// The length of an entry up to its SID.
const ACE: usize = 8;
/// The length of a SID up to its sub-authorities.
const SID_HEADER: usize = 8;

/// The descriptor has an access list that inherits nothing, and is self-relative.
const CONTROL: u16 = SE_DACL_PRESENT | SE_DACL_PROTECTED | SE_SELF_RELATIVE;
const SE_DACL_PRESENT: u16 = 0x0004;
const SE_DACL_PROTECTED: u16 = 0x1000;
const SE_SELF_RELATIVE: u16 = 0x8000;
const FILE_ALL_ACCESS: u32 = 0x001f_01ff;
/// The last byte of the identifier authority of the SIDs below: "NT Authority".
const NT_AUTHORITY: u8 = 5;
const LOCAL_SYSTEM: [u32; 1] = [18];
const ADMINISTRATORS: [u32; 2] = [32, 544];

const fn descriptor() -> [u8; LENGTH] {
    let bytes = [0; LENGTH];
    let bytes = put(bytes, 0, &[1, 0]);
    let bytes = put(bytes, 2, &CONTROL.to_le_bytes());
    // No owner, group or audit list: those of the device are not changed.
    let bytes = put(bytes, 16, &(HEADER as u32).to_le_bytes());
    let bytes = put(bytes, HEADER, &[2, 0]);
    let bytes = put(bytes, HEADER + 2, &((LENGTH - HEADER) as u16).to_le_bytes());
    let bytes = put(bytes, HEADER + 4, &2_u16.to_le_bytes());
    let first = HEADER + ACL;
    let bytes = allow(bytes, first, &LOCAL_SYSTEM);
    allow(bytes, first + ACE + SID_HEADER + 4 * LOCAL_SYSTEM.len(), &ADMINISTRATORS)
}

/// Writes an entry that grants all rights to the account with these sub-authorities.
const fn allow(bytes: [u8; LENGTH], at: usize, authorities: &[u32]) -> [u8; LENGTH] {
    let length = ACE + SID_HEADER + 4 * authorities.len();
    let bytes = put(bytes, at, &[0, 0]);
    let bytes = put(bytes, at + 2, &(length as u16).to_le_bytes());
    let bytes = put(bytes, at + 4, &FILE_ALL_ACCESS.to_le_bytes());
    let sid = at + ACE;
    let mut bytes = put(bytes, sid, &[1, authorities.len() as u8, 0, 0, 0, 0, 0, NT_AUTHORITY]);
    let mut index = 0;
    while index < authorities.len() {
        bytes = put(bytes, sid + SID_HEADER + 4 * index, &authorities[index].to_le_bytes());
        index += 1;
    }
    bytes
}

const fn put(mut bytes: [u8; LENGTH], at: usize, values: &[u8]) -> [u8; LENGTH] {
    let mut index = 0;
    while index < values.len() {
        bytes[at + index] = values[index];
        index += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// The text of an access list, in the order of its entries.
    fn text_of(list: &[u8]) -> String {
        assert_eq!((list[0], list[1], list[6], list[7]), (2, 0, 0, 0), "revision and padding");
        assert_eq!(number(&list[2..4]), list.len() as u64);
        let mut rest = &list[8..];
        let mut text = String::new();
        for _ in 0..number(&list[4..6]) {
            let (entry, remaining) = rest.split_at(number(&rest[2..4]) as usize);
            rest = remaining;
            let sid = &entry[8..];
            let authority = sid[2..8].iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
            let parts: Vec<String> = sid[8..].chunks(4).map(|part| number(part).to_string()).collect();
            assert_eq!((sid[0], usize::from(sid[1])), (1, parts.len()));
            let kind = if (entry[0], entry[1]) == (0, 0) { "A;" } else { "other" };
            let rights = number(&entry[4..8]);
            text += &format!("({kind};{rights:#x};;;S-1-{authority}-{})", parts.join("-"));
        }
        assert!(rest.is_empty());
        text
    }

    #[test]
    fn only_the_system_and_administrators_have_rights() {
        let bytes = DEVICE.bytes();
        assert_eq!((bytes[0], bytes[1]), (1, 0), "revision and padding");
        assert_eq!(number(&bytes[2..4]), 0x9004, "present, protected, self-relative");
        let offsets: Vec<u64> = bytes[4..20].chunks(4).map(number).collect();
        assert_eq!(offsets, [0, 0, 0, 20], "owner, group, audit list, access list");
        assert_eq!(text_of(&bytes[20..]), "(A;;0x1f01ff;;;S-1-5-18)(A;;0x1f01ff;;;S-1-5-32-544)");
    }
}
