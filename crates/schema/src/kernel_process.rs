//! The statements of Microsoft-Windows-Kernel-Process about whole processes, read without a schema.
//!
//! The layouts are those of the provider's manifest. A later version adds fields in the middle, so
//! versions that are not listed are not read.

use stackhound_types::{FileTime, Pid, Sid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};

use crate::error::Error;
use crate::event_id::kernel_process::{PROCESS_RUNDOWN, PROCESS_START};
use crate::kernel::view::read::{Reader, pid};
use crate::text::Utf16;

/// The start of a process, or its mention in a rundown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatement<'a> {
    /// The process id.
    pub process_id: Pid,
    /// The time at which the process was created.
    pub create_time: FileTime,
    /// The process that this one inherits from.
    pub parent_id: Pid,
    /// The terminal session.
    pub session_id: u32,
    /// The mandatory label, `S-1-16-` and the integrity level. Only in the newest versions.
    pub mandatory_label: Option<Sid<'a>>,
    /// The path of the program as NT path.
    pub image_name: Utf16<'a>,
    /// From the header of the image. Not in the oldest versions.
    pub time_date_stamp: Option<u32>,
}

// Each layout has what the one before it has.
const WITH_FLAGS: u8 = 1;
const WITH_IMAGE: u8 = 2;
const WITH_TOKEN: u8 = 3;

/// The layout: the version of `ProcessStart` that has it.
fn layout(id: u16, version: u8) -> Option<u8> {
    let layout = match id {
        PROCESS_START => version,
        PROCESS_RUNDOWN => version.checked_add(WITH_IMAGE)?,
        _ => return None,
    };
    (layout <= WITH_TOKEN).then_some(layout)
}

impl<'a> ProcessStatement<'a> {
    /// Reads the payload of `ProcessStart` or `ProcessRundown`; `None` for other ids and for
    /// versions with an unknown layout.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(id: u16, version: u8, payload: &'a [u8]) -> Option<Result<ProcessStatement<'a>, Error>> {
        Some(ProcessStatement::read(layout(id, version)?, payload))
    }

    fn read(layout: u8, payload: &'a [u8]) -> Result<ProcessStatement<'a>, Error> {
        let mut reader = Reader::new("ProcessStart", payload);
        let process_id = pid(*reader.fixed()?);
        // The sequence number of the process.
        if layout >= WITH_TOKEN {
            reader.skip(size_of::<U64>())?;
        }
        let create_time = FileTime(reader.fixed::<I64>()?.get());
        let parent_id = pid(*reader.fixed()?);
        if layout >= WITH_TOKEN {
            reader.skip(size_of::<U64>())?;
        }
        let session_id = reader.fixed::<U32>()?.get();
        if layout >= WITH_FLAGS {
            reader.skip(size_of::<U32>())?;
        }
        let mut mandatory_label = None;
        if layout >= WITH_TOKEN {
            // The type of the token, and whether it is elevated.
            reader.skip(2 * size_of::<U32>())?;
            mandatory_label = Some(reader.bare_sid()?);
        }
        let image_name = reader.utf16().unwrap_or_default();
        let mut time_date_stamp = None;
        if layout >= WITH_IMAGE {
            // After the checksum.
            time_date_stamp = reader.optional::<[U32; 2]>().map(|[_, stamp]| stamp.get());
        }
        Ok(ProcessStatement {
            process_id,
            create_time,
            parent_id,
            session_id,
            mandatory_label,
            image_name,
            time_date_stamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
    }

    /// The payload of `ProcessStart`, version 3, after the manifest.
    fn newest() -> Vec<u8> {
        let label = [1, 1, 0, 0, 0, 0, 0, 16, 0, 0x30, 0, 0];
        [
            &4_242_u32.to_le_bytes()[..],
            &77_u64.to_le_bytes(),
            &133_512_192_000_000_000_u64.to_le_bytes(),
            &812_u32.to_le_bytes(),
            &76_u64.to_le_bytes(),
            &1_u32.to_le_bytes(),
            &0_u32.to_le_bytes(),
            &2_u32.to_le_bytes(),
            &1_u32.to_le_bytes(),
            &label,
            &utf16(r"\Device\HarddiskVolume3\a.exe"),
            &0x1_2345_u32.to_le_bytes(),
            &0x5f5e_1000_u32.to_le_bytes(),
            &utf16(""),
            &utf16(""),
        ]
        .concat()
    }

    #[test]
    fn every_version_is_read() {
        let newest = newest();
        let read = ProcessStatement::parse(PROCESS_START, 3, &newest).unwrap().unwrap();
        assert_eq!(read.mandatory_label.unwrap().to_string(), "S-1-16-12288");
        assert_eq!((read.process_id, read.parent_id, read.session_id), (Pid(4_242), Pid(812), 1));
        assert_eq!(read.time_date_stamp, Some(0x5f5e_1000));
        assert_eq!(read.create_time, FileTime(133_512_192_000_000_000));
        let older = [&newest[..4], &newest[12..24], &newest[32..40], &newest[60..]].concat();
        let of_older = ProcessStatement::parse(PROCESS_START, 2, &older).unwrap().unwrap();
        assert_eq!(of_older, ProcessStatement { mandatory_label: None, ..read });
        assert_eq!(ProcessStatement::parse(PROCESS_RUNDOWN, 0, &older).unwrap().unwrap(), of_older);
        let oldest = [&older[..20], &older[24..]].concat();
        let of_oldest = ProcessStatement::parse(PROCESS_START, 0, &oldest).unwrap().unwrap();
        let without = ProcessStatement { time_date_stamp: None, ..of_older };
        assert_eq!(of_oldest, without);
        assert!(ProcessStatement::parse(PROCESS_START, 4, &newest).is_none());
    }

    #[test]
    fn a_truncated_payload_is_an_error_or_lacks_its_last_fields() {
        let newest = newest();
        for length in 0..newest.len() {
            let read = ProcessStatement::parse(PROCESS_START, 3, &newest[..length]).unwrap();
            assert_eq!(read.is_ok(), length >= 60, "{length}: {read:?}");
        }
    }
}
