//! The block of properties that session functions read and write.

use std::mem::{offset_of, size_of};

use windows_sys::Win32::System::Diagnostics::Etw::{EVENT_TRACE_PROPERTIES, WNODE_FLAG_TRACED_GUID};

use crate::Error;
use crate::text::from_wide;

/// The maximum length of session and file names in units, including the terminating zero.
const NAME_SIZE: usize = 1024;

/// One aligned block, with both names after the structure, at its offsets.
#[repr(C)]
pub(super) struct Properties {
    pub fixed: EVENT_TRACE_PROPERTIES,
    session: [u16; NAME_SIZE],
    file: [u16; NAME_SIZE],
}

impl Properties {
    /// An empty block with space for both names.
    pub fn new() -> Box<Properties> {
        let mut properties = Box::new(Properties {
            fixed: EVENT_TRACE_PROPERTIES::default(),
            session: [0; NAME_SIZE],
            file: [0; NAME_SIZE],
        });
        properties.fixed.Wnode.BufferSize = size_of::<Properties>() as u32;
        properties.fixed.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        properties.fixed.LoggerNameOffset = offset_of!(Properties, session) as u32;
        properties.fixed.LogFileNameOffset = offset_of!(Properties, file) as u32;
        properties
    }

    /// Sets the file to write, or none.
    pub fn set_file(&mut self, file: Option<&[u16]>) -> Result<(), Error> {
        match file {
            Some(file) if file.len() > NAME_SIZE => {
                Err(Error::TextTooLong { found: file.len() - 1, limit: NAME_SIZE - 1 })
            }
            Some(file) => {
                self.file[..file.len()].copy_from_slice(file);
                Ok(())
            }
            None => {
                self.fixed.LogFileNameOffset = 0;
                Ok(())
            }
        }
    }

    /// A pointer for functions that use the whole block. Valid as long as the block.
    pub fn as_mut_ptr(&mut self) -> *mut EVENT_TRACE_PROPERTIES {
        (self as *mut Properties).cast()
    }

    pub fn session(&self) -> String {
        from_wide(&self.session)
    }

    pub fn file(&self) -> String {
        from_wide(&self.file)
    }
}
