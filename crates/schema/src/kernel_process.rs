//! The statements of Microsoft-Windows-Kernel-Process about whole processes, read without a schema.
//!
//! The layouts are those of the provider's manifest. A later version adds fields in the middle, so
//! versions that are not listed are not read.

use stackhound_types::{FileTime, Pid};

use crate::error::{Error, Expected};
use crate::kernel::view::Utf16;
use crate::value::Sid;

/// The id of `ProcessStart`.
pub const PROCESS_START: u16 = 1;
/// The id of `ProcessStop`.
pub const PROCESS_STOP: u16 = 2;
/// The id of `ProcessRundown`.
pub const PROCESS_RUNDOWN: u16 = 15;

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
    pub image_checksum: Option<u32>,
    /// From the header of the image. Not in the oldest versions.
    pub time_date_stamp: Option<u32>,
}

/// The form of a version: which of the fields that not all versions have it has.
#[derive(Clone, Copy)]
struct Form {
    has_flags: bool,
    has_token: bool,
    has_image: bool,
}

impl Form {
    fn of(id: u16, version: u8) -> Option<Form> {
        let form = |has_flags, has_token, has_image| Some(Form { has_flags, has_token, has_image });
        match (id, version) {
            (PROCESS_START, 0) => form(false, false, false),
            (PROCESS_START, 1) => form(true, false, false),
            (PROCESS_START, 2) | (PROCESS_RUNDOWN, 0) => form(true, false, true),
            (PROCESS_START, 3) | (PROCESS_RUNDOWN, 1) => form(true, true, true),
            _ => None,
        }
    }
}

impl<'a> ProcessStatement<'a> {
    /// Reads the payload of `ProcessStart` or `ProcessRundown`; `None` for other ids and for
    /// versions with an unknown layout.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(id: u16, version: u8, payload: &'a [u8]) -> Option<Result<ProcessStatement<'a>, Error>> {
        Some(ProcessStatement::read(Form::of(id, version)?, payload))
    }

    fn read(form: Form, payload: &'a [u8]) -> Result<ProcessStatement<'a>, Error> {
        let mut reader = Reader { rest: payload, length: payload.len() };
        let process_id = Pid(reader.u32()?);
        if form.has_token {
            reader.take(8)?;
        }
        let create_time = FileTime(reader.u64()? as i64);
        let parent_id = Pid(reader.u32()?);
        if form.has_token {
            reader.take(8)?;
        }
        let session_id = reader.u32()?;
        if form.has_flags {
            reader.u32()?;
        }
        let mandatory_label = match form.has_token {
            true => {
                // The type of the token, and whether it is elevated.
                reader.take(8)?;
                Some(reader.sid()?)
            }
            false => None,
        };
        let image_name = reader.text();
        let (image_checksum, time_date_stamp) = match form.has_image {
            true => (reader.u32().ok(), reader.u32().ok()),
            false => (None, None),
        };
        Ok(ProcessStatement {
            process_id,
            create_time,
            parent_id,
            session_id,
            mandatory_label,
            image_name,
            image_checksum,
            time_date_stamp,
        })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let offset = self.length - self.rest.len();
        let error = Error::Class { class: "ProcessStart", offset, expected: Expected::Bytes(count) };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(error)?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.take(4).map(|bytes| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.take(8).map(|bytes| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn sid(&mut self) -> Result<Sid<'a>, Error> {
        let count = self.rest.get(1).copied().unwrap_or_default();
        self.take(8 + 4 * usize::from(count)).map(Sid)
    }

    /// A text up to its terminator, or to the end of the payload.
    fn text(&mut self) -> Utf16<'a> {
        let (units, _) = self.rest.as_chunks::<2>();
        let end = units.iter().position(|unit| *unit == [0, 0]);
        let text = &self.rest[..2 * end.unwrap_or(units.len())];
        self.rest = end.map_or(&[], |end| &self.rest[2 * end + 2..]);
        Utf16(text)
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
        assert_eq!((read.image_checksum, read.time_date_stamp), (Some(0x1_2345), Some(0x5f5e_1000)));
        assert_eq!(read.create_time, FileTime(133_512_192_000_000_000));
        let older = [&newest[..4], &newest[12..24], &newest[32..40], &newest[60..]].concat();
        let of_older = ProcessStatement::parse(PROCESS_START, 2, &older).unwrap().unwrap();
        assert_eq!(of_older, ProcessStatement { mandatory_label: None, ..read });
        assert_eq!(ProcessStatement::parse(PROCESS_RUNDOWN, 0, &older).unwrap().unwrap(), of_older);
        let oldest = [&older[..20], &older[24..]].concat();
        let of_oldest = ProcessStatement::parse(PROCESS_START, 0, &oldest).unwrap().unwrap();
        let without = ProcessStatement { image_checksum: None, time_date_stamp: None, ..of_older };
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
