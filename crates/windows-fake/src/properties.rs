//! EVENT_TRACE_PROPERTIES: the memory block that describes a session, including its names.
//!
//! Offsets are those of 64-bit Windows. Sources: Microsoft's pages EVENT_TRACE_PROPERTIES,
//! WNODE_HEADER, StartTrace and ControlTrace.

use stackhound_types::Guid;

/// Size of the fixed part, which precedes the names, in bytes.
pub const FIXED_SIZE: usize = 120;

/// `WNODE_FLAG_TRACED_GUID`, without which a block is invalid.
const TRACED_GUID: u32 = 0x0002_0000;
/// `WNODE_FLAG_VERSIONED_PROPERTIES`: the longer, second version of the block.
const VERSIONED: u32 = 0x0080_0000;

/// `EVENT_TRACE_REAL_TIME_MODE`.
pub const REAL_TIME: u32 = 0x100;
/// `EVENT_TRACE_SYSTEM_LOGGER_MODE`.
const SYSTEM_LOGGER: u32 = 0x0200_0000;
/// `EVENT_TRACE_USE_MS_FLUSH_TIMER`.
const MS_FLUSH_TIMER: u32 = 0x10;

/// The control GUID of kernel events.
const SYSTEM_TRACE_CONTROL: Guid =
    Guid::new(0x9e81_4aad, 0x3204, 0x11d2, [0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39]);

/// The session that exists once per system.
pub const KERNEL_LOGGER: &str = "NT Kernel Logger";

/// Win32 error codes that are returned by this module.
pub mod code {
    /// ERROR_BAD_LENGTH
    pub const BAD_LENGTH: u32 = 24;
    /// ERROR_INVALID_PARAMETER
    pub const INVALID_PARAMETER: u32 = 87;
}

/// The requested or actual properties of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Name of the session.
    pub name: String,
    /// Path of its file; empty if it has none.
    pub file: String,
    /// GUID of the session.
    pub guid: Option<Guid>,
    /// Clock: 1 performance counter, 2 system time, 3 processor cycles.
    pub clock: u32,
    /// Size of a buffer, in KiB.
    pub buffer_size: u32,
    /// Minimum number of buffers.
    pub minimum_buffers: u32,
    /// Maximum number of buffers.
    pub maximum_buffers: u32,
    /// Maximum size of the file, in MiB.
    pub maximum_file_size: u32,
    /// EVENT_TRACE_*_MODE bits.
    pub mode: u32,
    /// Flush interval in seconds, or in milliseconds with a mode bit.
    pub flush_timer: u32,
    /// Enabled kernel groups that have flags.
    pub flags: u32,
    /// The words of the group mask. The first one contains the flags.
    pub groups: [u32; 8],
}

impl Session {
    /// All properties in one line, for the log.
    pub fn line(&self) -> String {
        let unit = if self.mode & MS_FLUSH_TIMER == 0 { "s" } else { "ms" };
        let guid = self.guid.map_or("none".to_owned(), |guid| format!("{{{guid}}}"));
        format!(
            "name={:?} file={:?} guid={guid} clock={} buffer_kib={} minimum={} maximum={} flush={}{unit} mode={:#x} \
             flags={:#x}",
            self.name,
            self.file,
            self.clock,
            self.buffer_size,
            self.minimum_buffers,
            self.maximum_buffers,
            self.flush_timer,
            self.mode,
            self.flags,
        )
    }
}

/// The state of a running session, as returned by a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Handle of the session.
    pub handle: u64,
    /// Number of buffers.
    pub buffers: u32,
    /// Number of free buffers.
    pub free: u32,
    /// Number of lost events.
    pub events_lost: u32,
    /// Number of buffers that were written or delivered.
    pub buffers_written: u32,
    /// Number of buffers that could not be delivered to a consumer.
    pub real_time_buffers_lost: u32,
}

/// A properties block.
#[derive(Debug)]
pub struct Properties<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Properties<'a> {
    /// Makes the checks that are common to all calls: the size, the flags, and the offsets of the
    /// names.
    pub fn new(bytes: &'a mut [u8]) -> Result<Properties<'a>, u32> {
        if bytes.len() < FIXED_SIZE {
            return Err(code::BAD_LENGTH);
        }
        let properties = Properties { bytes };
        if properties.u32_at(44) & (TRACED_GUID | VERSIONED) == 0 {
            return Err(code::INVALID_PARAMETER);
        }
        let outside = |offset: usize| offset != 0 && !(FIXED_SIZE..properties.bytes.len()).contains(&offset);
        if outside(properties.file_offset()) || outside(properties.name_offset()) {
            return Err(code::INVALID_PARAMETER);
        }
        Ok(properties)
    }

    /// Makes the additional checks of StartTrace, and returns the requested properties. The name is
    /// a separate argument of StartTrace.
    pub fn read(&self, name: &str) -> Result<Session, u32> {
        let guid: [u8; 16] = self.bytes[24..40].try_into().expect("sixteen bytes");
        let guid = Guid(guid);
        let session = Session {
            name: name.to_owned(),
            file: self.text_at(self.file_offset()),
            guid: Some(guid).filter(|guid| guid.0 != [0; 16]),
            clock: self.u32_at(40),
            buffer_size: self.u32_at(48),
            minimum_buffers: self.u32_at(52),
            maximum_buffers: self.u32_at(56),
            maximum_file_size: self.u32_at(60),
            mode: self.u32_at(64),
            flush_timer: self.u32_at(68),
            flags: self.u32_at(72),
            groups: [0; 8],
        };
        if self.name_offset() == 0 || name.is_empty() || session.clock > 3 {
            return Err(code::INVALID_PARAMETER);
        }
        if name.len() + 1 > 1024 || self.room(self.name_offset()) < name.encode_utf16().count() + 1 {
            return Err(code::BAD_LENGTH);
        }
        let real_time = session.mode & REAL_TIME != 0;
        if !real_time && session.file.is_empty() {
            return Err(code::INVALID_PARAMETER);
        }
        // Kernel events are delivered to the kernel logger and to sessions with the system logger
        // mode.
        let of_system = name == KERNEL_LOGGER || session.mode & SYSTEM_LOGGER != 0;
        let system_guid = session.guid == Some(SYSTEM_TRACE_CONTROL);
        if (session.flags != 0 && !of_system) || (system_guid && name != KERNEL_LOGGER) {
            return Err(code::INVALID_PARAMETER);
        }
        Ok(session)
    }

    /// Fills in the properties and the state of a running session, and the names that have an
    /// offset. The flags are cleared, so that a caller must set them again before UPDATE, as
    /// Microsoft's page requires.
    pub fn write(&mut self, session: &Session, state: &State) -> Result<(), u32> {
        let (file_offset, name_offset) = (self.file_offset(), self.name_offset());
        let guid = if session.name == KERNEL_LOGGER { Some(SYSTEM_TRACE_CONTROL) } else { session.guid };
        self.put(8, &state.handle.to_le_bytes());
        self.put(24, &guid.unwrap_or(Guid([0; 16])).0);
        let values = [
            (40, session.clock),
            (44, 0),
            (48, session.buffer_size),
            (52, session.minimum_buffers),
            (56, session.maximum_buffers),
            (60, session.maximum_file_size),
            (64, session.mode),
            (68, session.flush_timer),
            (72, session.flags),
            (80, state.buffers),
            (84, state.free),
            (88, state.events_lost),
            (92, state.buffers_written),
            (96, 0),
            (100, state.real_time_buffers_lost),
        ];
        for (at, value) in values {
            self.put(at, &value.to_le_bytes());
        }
        for (offset, text) in [(file_offset, &session.file), (name_offset, &session.name)] {
            if offset != 0 {
                self.put_text(offset, text)?;
            }
        }
        Ok(())
    }

    /// Applies UPDATE to a session. A zero does not change the maximum number of buffers or the
    /// flush timer. The flags replace all kernel groups. The real-time mode is replaced, and the
    /// file name if it has an offset.
    pub fn update(&self, session: &mut Session) {
        let change = |value: &mut u32, at: usize| {
            let wanted = self.u32_at(at);
            if wanted != 0 {
                *value = wanted;
            }
        };
        change(&mut session.maximum_buffers, 56);
        change(&mut session.flush_timer, 68);
        session.flags = self.u32_at(72);
        session.groups = [session.flags, 0, 0, 0, 0, 0, 0, 0];
        session.mode = session.mode & !REAL_TIME | self.u32_at(64) & REAL_TIME;
        if self.file_offset() != 0 {
            session.file = self.text_at(self.file_offset());
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn file_offset(&self) -> usize {
        self.u32_at(112) as usize
    }

    fn name_offset(&self) -> usize {
        self.u32_at(116) as usize
    }

    /// Number of UTF-16 code units from `offset` to the other name, if that follows, or to the end.
    fn room(&self, offset: usize) -> usize {
        let others = [self.file_offset(), self.name_offset()];
        let end = others.into_iter().filter(|&other| other > offset).min().unwrap_or(self.bytes.len());
        end.saturating_sub(offset) / 2
    }

    fn text_at(&self, offset: usize) -> String {
        if offset == 0 {
            return String::new();
        }
        let units = self.bytes[offset..].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        String::from_utf16_lossy(
            &units.take(self.room(offset)).take_while(|&unit| unit != 0).collect::<Vec<_>>(),
        )
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn put_text(&mut self, offset: usize, text: &str) -> Result<(), u32> {
        let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        if self.room(offset) * 2 < units.len() {
            return Err(code::BAD_LENGTH);
        }
        self.put(offset, &units);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with room for two names of 8 code units each, modified by `change`.
    fn block(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_SIZE + 32];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        for (at, value) in [
            (0, FIXED_SIZE as u32 + 32),
            (40, 1),
            (44, TRACED_GUID),
            (48, 64),
            (52, 20),
            (56, 128),
            (64, REAL_TIME),
        ] {
            put(at, value);
        }
        put(112, FIXED_SIZE as u32 + 16);
        put(116, FIXED_SIZE as u32);
        change(&mut bytes);
        bytes
    }

    fn read(name: &str, change: impl Fn(&mut Vec<u8>)) -> Result<Session, u32> {
        Properties::new(&mut block(change)).and_then(|properties| properties.read(name))
    }

    #[test]
    fn start_trace_refuses_invalid_properties() {
        let set = |at: usize, value: u32| {
            move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
        };
        assert_eq!(read("mine", |_| ()).unwrap().maximum_buffers, 128);
        for (case, name, change, expected) in [
            ("no flags", "mine", set(44, 0), 87),
            ("an unknown clock", "mine", set(40, 4), 87),
            ("no offset of the name", "mine", set(116, 0), 87),
            ("a name outside the block", "mine", set(116, 4000), 87),
            ("a name inside the fixed part", "mine", set(116, 8), 87),
            ("a name that is too long", "much longer", set(40, 1), 24),
            ("neither a file nor real-time mode", "mine", set(64, 0), 87),
            ("kernel groups without the system logger mode", "mine", set(72, 1), 87),
            ("no name", "", set(40, 1), 87),
        ] {
            assert_eq!(read(name, change), Err(expected), "{case}");
        }
        assert_eq!(read("mine", |bytes| bytes.truncate(64)), Err(24));
        let system = read("mine", |bytes| {
            bytes[64..68].copy_from_slice(&(REAL_TIME | SYSTEM_LOGGER).to_le_bytes());
            bytes[72] = 1;
        });
        assert_eq!(system.unwrap().flags, 1);
    }

    #[test]
    fn written_properties_are_read_back() {
        let session = Session {
            name: "mine".to_owned(),
            file: "x.etl".to_owned(),
            guid: Some(Guid([7; 16])),
            clock: 2,
            buffer_size: 32,
            minimum_buffers: 4,
            maximum_buffers: 8,
            maximum_file_size: 1,
            mode: REAL_TIME,
            flush_timer: 1,
            flags: 0,
            groups: [0; 8],
        };
        let mut bytes = block(|_| ());
        let state = State { handle: 9, events_lost: 77, real_time_buffers_lost: 3, ..State::default() };
        let mut properties = Properties::new(&mut bytes).unwrap();
        properties.write(&session, &state).unwrap();
        assert_eq!(properties.read("mine"), Ok(session));
        assert_eq!(properties.u32_at(44), 0);
        assert_eq!((properties.u32_at(8), properties.u32_at(88), properties.u32_at(100)), (9, 77, 3));
        assert_eq!(properties.text_at(FIXED_SIZE), "mine");
    }

    #[test]
    fn an_update_replaces_groups_and_mode() {
        let mut session = Session {
            name: "mine".to_owned(),
            mode: REAL_TIME | SYSTEM_LOGGER,
            maximum_buffers: 8,
            flush_timer: 1,
            flags: 0x87,
            groups: [0x87, 0x8000, 0, 0, 0, 0, 0, 0],
            ..Session::default()
        };
        let mut bytes = block(|bytes| bytes[72] = 0x87);
        Properties::new(&mut bytes).unwrap().update(&mut session);
        assert_eq!((session.maximum_buffers, session.flush_timer, session.flags), (128, 1, 0x87));
        assert_eq!((session.groups, session.mode), ([0x87, 0, 0, 0, 0, 0, 0, 0], REAL_TIME | SYSTEM_LOGGER));
        let mut bytes = block(|bytes| bytes[64..68].fill(0));
        Properties::new(&mut bytes).unwrap().update(&mut session);
        assert_eq!((session.flags, session.groups, session.mode), (0, [0; 8], SYSTEM_LOGGER));
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let mut bytes = block(|_| ());
        let session = Session { name: "much longer".to_owned(), ..Session::default() };
        let written = Properties::new(&mut bytes).unwrap().write(&session, &State::default());
        assert_eq!(written, Err(code::BAD_LENGTH));
    }
}
