//! Processes: group 0x03.

use stackhound_types::{Address, FileTime, Pid, PointerSize, Sid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use crate::error::Error;
use crate::text::{Ansi, Utf16};

/// A process that starts, ends, exists at the start or the end of a trace, or remains only as an
/// object (`Defunct`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process<'a> {
    /// The address of the process object, which identifies the process during its lifetime. Present
    /// from version 2 on.
    pub unique_process_key: Option<Address>,
    /// The process. It may differ from the process in the record's header.
    pub process_id: Pid,
    /// The process that it inherits from.
    pub parent_id: Pid,
    /// The terminal session; 0xFFFFFFFF for system processes. Present from version 1 on.
    pub session_id: Option<u32>,
    /// An NTSTATUS; 0x103 while the process runs. Present from version 1 on.
    pub exit_status: Option<u32>,
    /// The physical address of the top-level page table. Present in version 1 and from version 3
    /// on.
    pub directory_table_base: Option<u64>,
    /// 1 has an application id, 2 WOW64, 4 protected, 8 packaged. Present from version 4 on.
    pub flags: Option<u32>,
    /// The user of the process; the first processes of the system have none.
    pub user_sid: Option<Sid<'a>>,
    /// The file name without its directory.
    pub image_file_name: Ansi<'a>,
    /// The command line; empty for some processes that have ended. Present from version 2 on.
    pub command_line: Option<Utf16<'a>>,
    /// Present from version 4 on.
    pub package_full_name: Option<Utf16<'a>>,
    /// Present from version 4 on.
    pub application_id: Option<Utf16<'a>>,
    /// The end of the process. Present in version 5, which only `Defunct` has.
    pub exit_time: Option<FileTime>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct IdsV0<P> {
    process_id: P,
    parent_id: P,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV1<P> {
    /// The page directory in version 1, the process object in later versions.
    key: P,
    process_id: U32,
    parent_id: U32,
    session_id: U32,
    exit_status: U32,
}

impl<'a> Process<'a> {
    /// Reads the payload of Start, End, DCStart, DCEnd or Defunct.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload ends before the image's name, or if the SID is invalid.
    pub fn parse(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<Process<'a>, Error> {
        match pointer {
            PointerSize::Four => Process::with::<U32>(payload, version, pointer),
            PointerSize::Eight => Process::with::<U64>(payload, version, pointer),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<Process<'a>, Error> {
        let mut reader = Reader::new("Process", payload);
        let mut process = Process {
            unique_process_key: None,
            process_id: Pid::IDLE,
            parent_id: Pid::IDLE,
            session_id: None,
            exit_status: None,
            directory_table_base: None,
            flags: None,
            user_sid: None,
            image_file_name: Ansi::default(),
            command_line: None,
            package_full_name: None,
            application_id: None,
            exit_time: None,
        };
        if version == 0 {
            let ids = reader.fixed::<IdsV0<P>>()?;
            // Process ids have 32 bits, even if they are stored pointer-sized.
            process.process_id = Pid(ids.process_id.value() as u32);
            process.parent_id = Pid(ids.parent_id.value() as u32);
        } else {
            let fixed = reader.fixed::<FixedV1<P>>()?;
            process.process_id = pid(fixed.process_id);
            process.parent_id = pid(fixed.parent_id);
            process.session_id = Some(fixed.session_id.get());
            process.exit_status = Some(fixed.exit_status.get());
            if version == 1 {
                process.directory_table_base = Some(fixed.key.value());
            } else {
                process.unique_process_key = Some(fixed.key.address());
            }
        }
        if version >= 3 {
            process.directory_table_base = Some(reader.fixed::<P>()?.value());
        }
        if version >= 4 {
            process.flags = Some(reader.fixed::<U32>()?.get());
        }
        process.user_sid = reader.sid(pointer)?;
        process.image_file_name = reader.ansi().unwrap_or_default();
        if version >= 2 {
            process.command_line = reader.utf16();
        }
        if version >= 4 {
            process.package_full_name = reader.utf16();
            process.application_id = reader.utf16();
        }
        if version >= 5 {
            process.exit_time = reader.optional::<I64>().map(|time| FileTime(time.get()));
        }
        Ok(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_sid_or_not() {
        const SYSTEM: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];
        #[track_caller]
        fn check(token: &[u8], pointer: PointerSize, has_sid: bool) {
            let payload = [&vec![0; 16 + pointer.bytes()], token, b"smss.exe\0"].concat();
            let process = Process::parse(&payload, 2, pointer).unwrap();
            assert_eq!(process.user_sid, has_sid.then_some(Sid(&SYSTEM)));
            assert_eq!(process.image_file_name, "smss.exe");
        }
        for pointer in [PointerSize::Four, PointerSize::Eight] {
            let token = vec![0; 2 * pointer.bytes()];
            check(&[0; 4], pointer, false);
            check(&[&token[..], &SYSTEM].concat(), pointer, true);
            check(&[&[7][..], &token[1..], &SYSTEM].concat(), pointer, true);
        }
    }
}
