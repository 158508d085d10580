//! TCP and UDP: groups 0x06 and 0x08. Addresses and ports are in network byte order, and nothing is aligned.

use std::net::IpAddr;

use stackhound_etl::{Pid, PointerSize};
use zerocopy::byteorder::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Wire, Word, pid, port};
use crate::error::Error;

/// What a hook of the two groups tells. Layouts differ by protocol, address family and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferShape {
    /// UDP, else TCP.
    pub udp: bool,
    /// IPv6, else IPv4.
    pub v6: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// TCP only: with the time it took.
    Send,
    /// TCP only: with the options of a new connection.
    Setup,
    Other,
}

impl TransferShape {
    /// `None` for other hooks, and for those of the groups whose payload is not known or has no addresses.
    #[inline]
    pub fn of(hook: u16) -> Option<TransferShape> {
        let udp = hook >> 8 == 0x08;
        let (v6, kind) = match (hook >> 8, hook & 0xFF) {
            (0x06, 0x0A) => (false, Kind::Send),
            (0x06, 0x1A) => (true, Kind::Send),
            (0x06, 0x0C | 0x0F) => (false, Kind::Setup),
            (0x06, 0x1C | 0x1F) => (true, Kind::Setup),
            (0x06, 0x0B | 0x0D | 0x0E | 0x10 | 0x12) | (0x08, 0x0A | 0x0B) => (false, Kind::Other),
            (0x06, 0x1B | 0x1D | 0x1E | 0x20 | 0x22) | (0x08, 0x1A | 0x1B) => (true, Kind::Other),
            _ => return None,
        };
        Some(TransferShape { udp, v6, kind })
    }
}

/// Both ends of a connection, or of a datagram's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The other machine.
    pub destination: IpAddr,
    /// Its port.
    pub destination_port: u16,
    /// This machine.
    pub source: IpAddr,
    /// Its port.
    pub source_port: u16,
}

/// Something is sent or received, or a connection is made or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkTransfer {
    /// Who owns the connection. UDP has it from version 1 on.
    pub process_id: Option<Pid>,
    /// Bytes.
    pub size: u32,
    /// Between which addresses.
    pub endpoints: Endpoints,
    /// When sending began and ended, in milliseconds. Sent TCP from version 1 on.
    pub send_times: Option<(u32, u32)>,
    /// Connect and Accept from version 1 on.
    pub setup: Option<ConnectionSetup>,
    /// TCP from version 1, UDP from version 2 on.
    pub sequence: Option<u32>,
    /// Names the connection. TCP from version 1, UDP from version 2 on; not in all builds.
    pub connection_id: Option<u64>,
}

/// The options of a new TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSetup {
    /// Maximum segment size in bytes.
    pub mss: u16,
    /// Selective acknowledgements.
    pub sack_option: u16,
    /// Time stamps.
    pub timestamp_option: u16,
    /// Window scaling.
    pub window_scale_option: u16,
    /// Receive window in bytes.
    pub receive_window: u32,
    /// Scale of the receive window.
    pub receive_window_scale: i16,
    /// Scale of the send window.
    pub send_window_scale: i16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedOwner {
    process_id: U32,
    size: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedEndpoints<A> {
    destination: A,
    source: A,
    destination_port: U16,
    source_port: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedUdpV0<P> {
    context: P,
    source: [u8; 4],
    source_port: U16,
    size: U16,
    destination: [u8; 4],
    destination_port: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTcpV0 {
    endpoints: FixedEndpoints<[u8; 4]>,
    size: U32,
    process_id: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTimes {
    start: U32,
    end: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSetup {
    mss: U16,
    sack_option: U16,
    timestamp_option: U16,
    window_scale_option: U16,
    receive_window: U32,
    receive_window_scale: I16,
    send_window_scale: I16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTailV1<P> {
    connection_id: P,
    sequence: U32,
}

impl<A: Copy + Into<IpAddr>> FixedEndpoints<A> {
    fn value(&self) -> Endpoints {
        Endpoints {
            destination: self.destination.into(),
            destination_port: port(self.destination_port),
            source: self.source.into(),
            source_port: port(self.source_port),
        }
    }
}

impl NetworkTransfer {
    /// Reads the payload of a hook of the given shape.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(
        payload: &[u8],
        shape: TransferShape,
        version: u8,
        pointer: PointerSize,
    ) -> Result<NetworkTransfer, Error> {
        match (pointer, shape.v6) {
            (PointerSize::Four, false) => NetworkTransfer::with::<U32, [u8; 4]>(payload, shape, version),
            (PointerSize::Four, true) => NetworkTransfer::with::<U32, [u8; 16]>(payload, shape, version),
            (PointerSize::Eight, false) => NetworkTransfer::with::<U64, [u8; 4]>(payload, shape, version),
            (PointerSize::Eight, true) => NetworkTransfer::with::<U64, [u8; 16]>(payload, shape, version),
        }
    }

    fn with<P: Word, A: Wire + Copy + Into<IpAddr>>(
        payload: &[u8],
        shape: TransferShape,
        version: u8,
    ) -> Result<NetworkTransfer, Error> {
        let mut reader = Reader::new("NetworkTransfer", payload);
        // Version 0 is older than IPv6 in these classes.
        if version == 0 && !shape.v6 {
            return NetworkTransfer::v0::<P>(reader, shape);
        }
        let owner = reader.fixed::<FixedOwner>()?;
        let mut transfer = NetworkTransfer {
            process_id: Some(pid(owner.process_id)),
            size: owner.size.get(),
            endpoints: reader.fixed::<FixedEndpoints<A>>()?.value(),
            send_times: None,
            setup: None,
            sequence: None,
            connection_id: None,
        };
        match shape.kind {
            Kind::Send => {
                let times = reader.fixed::<FixedTimes>()?;
                transfer.send_times = Some((times.start.get(), times.end.get()));
            }
            Kind::Setup => transfer.setup = Some(ConnectionSetup::read(&mut reader)?),
            Kind::Other => {}
        }
        if version >= 2 {
            transfer.sequence = Some(reader.fixed::<U32>()?.get());
            transfer.connection_id = reader.optional::<P>().map(|id| id.value());
        } else if !shape.udp {
            let tail = reader.fixed::<FixedTailV1<P>>()?;
            transfer.sequence = Some(tail.sequence.get());
            transfer.connection_id = Some(tail.connection_id.value());
        }
        Ok(transfer)
    }

    fn v0<P: Word>(mut reader: Reader<'_>, shape: TransferShape) -> Result<NetworkTransfer, Error> {
        let (process_id, size, endpoints) = if shape.udp {
            let fixed = reader.fixed::<FixedUdpV0<P>>()?;
            let endpoints = Endpoints {
                destination: fixed.destination.into(),
                destination_port: port(fixed.destination_port),
                source: fixed.source.into(),
                source_port: port(fixed.source_port),
            };
            (None, fixed.size.get().into(), endpoints)
        } else {
            let fixed = reader.fixed::<FixedTcpV0>()?;
            (Some(pid(fixed.process_id)), fixed.size.get(), fixed.endpoints.value())
        };
        Ok(NetworkTransfer {
            process_id,
            size,
            endpoints,
            send_times: None,
            setup: None,
            sequence: None,
            connection_id: None,
        })
    }
}

impl ConnectionSetup {
    fn read(reader: &mut Reader<'_>) -> Result<ConnectionSetup, Error> {
        let fixed = reader.fixed::<FixedSetup>()?;
        Ok(ConnectionSetup {
            mss: fixed.mss.get(),
            sack_option: fixed.sack_option.get(),
            timestamp_option: fixed.timestamp_option.get(),
            window_scale_option: fixed.window_scale_option.get(),
            receive_window: fixed.receive_window.get(),
            receive_window_scale: fixed.receive_window_scale.get(),
            send_window_scale: fixed.send_window_scale.get(),
        })
    }
}

/// An attempt to send, receive or connect has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFailure {
    /// The protocol; 32 bits wide before version 2.
    pub protocol: u32,
    /// From version 2 on.
    pub failure_code: Option<u16>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedFailure {
    protocol: U16,
    failure_code: U16,
}

impl NetworkFailure {
    /// Reads the payload of Fail.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], version: u8, _pointer: PointerSize) -> Result<NetworkFailure, Error> {
        let mut reader = Reader::new("NetworkFailure", payload);
        if version >= 2 {
            let fixed = reader.fixed::<FixedFailure>()?;
            let failure_code = Some(fixed.failure_code.get());
            return Ok(NetworkFailure { protocol: fixed.protocol.get().into(), failure_code });
        }
        Ok(NetworkFailure { protocol: reader.fixed::<U32>()?.get(), failure_code: None })
    }
}
