//! Local procedure calls: group 0x1A.

use stackhound_etl::PointerSize;
use zerocopy::byteorder::little_endian::U32;

use super::read::Reader;
use super::text::Ansi;
use crate::error::Error;

/// A message is sent or received, or its answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlpcMessage {
    /// The receipt has the number of the sending before it; numbers are used again.
    pub message_id: u32,
}

impl AlpcMessage {
    /// Reads the payload of SendMessage, ReceiveMessage or WaitForReply.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<AlpcMessage, Error> {
        Ok(AlpcMessage { message_id: Reader::new("AlpcMessage", payload).fixed::<U32>()?.get() })
    }
}

/// A thread waits at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlpcPortWait<'a> {
    /// Not zero for the port of a server.
    pub is_server_port: u32,
    /// The port.
    pub port_name: Ansi<'a>,
}

impl<'a> AlpcPortWait<'a> {
    /// Reads the payload of WaitForNewMessage.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<AlpcPortWait<'a>, Error> {
        let mut reader = Reader::new("AlpcPortWait", payload);
        let is_server_port = reader.fixed::<U32>()?.get();
        Ok(AlpcPortWait { is_server_port, port_name: reader.ansi().unwrap_or_default() })
    }
}

/// A wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlpcUnwait {
    /// An NTSTATUS.
    pub status: u32,
}

impl AlpcUnwait {
    /// Reads the payload of Unwait.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<AlpcUnwait, Error> {
        Ok(AlpcUnwait { status: Reader::new("AlpcUnwait", payload).fixed::<U32>()?.get() })
    }
}
