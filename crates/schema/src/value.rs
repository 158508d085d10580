//! Conversion of values to numbers and text.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::model::Value;

impl<'a> Value<'a> {
    /// The value as an unsigned number, if it is a nonnegative integer or a Boolean.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Bool(value) => Some(value.into()),
            Value::Signed(value) => value.try_into().ok(),
            Value::Unsigned(value) | Value::Hex(value) | Value::Pointer(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a signed number, if it is an integer that fits or a Boolean.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Signed(value) => Some(value),
            _ => self.as_u64().and_then(|value| value.try_into().ok()),
        }
    }

    /// The text, if the value is a text. Borrows if it is 8-bit text in UTF-8; allocates otherwise.
    ///
    /// Invalid UTF-16 units are replaced by U+FFFD. 8-bit text that is not valid UTF-8 is read as
    /// Latin-1, because traces do not specify its code page.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match *self {
            Value::Utf16(bytes) => Some(Cow::Owned(utf16_text(bytes))),
            Value::Ansi(bytes) => Some(match std::str::from_utf8(bytes) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect()),
            }),
            _ => None,
        }
    }
}

/// The characters of UTF-16LE text. An odd last byte is ignored.
pub(crate) fn utf16_chars(bytes: &[u8]) -> impl Iterator<Item = char> {
    let (units, _) = bytes.as_chunks::<2>();
    char::decode_utf16(units.iter().map(|&unit| u16::from_le_bytes(unit)))
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// UTF-16LE text as a string.
pub(crate) fn utf16_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 2);
    append_utf16(&mut text, bytes);
    text
}

/// Appends UTF-16LE text. Nearly all texts in traces are ASCII, which is copied several characters
/// at a time.
pub(crate) fn append_utf16(text: &mut String, bytes: &[u8]) {
    const CHUNK: usize = 64;
    let mut rest = bytes.as_chunks::<2>().0;
    let mut ascii = [0; CHUNK];
    while !rest.is_empty() {
        let (units, remaining) = rest.split_at(rest.len().min(CHUNK));
        let mut all = 0;
        for (byte, unit) in ascii.iter_mut().zip(units) {
            let unit = u16::from_le_bytes(*unit);
            all |= unit;
            *byte = unit as u8;
        }
        match std::str::from_utf8(&ascii[..units.len()]) {
            Ok(chunk) if all < 0x80 => text.push_str(chunk),
            _ => return text.extend(utf16_chars(rest.as_flattened())),
        }
        rest = remaining;
    }
}

/// A `SOCKADDR_IN` or `SOCKADDR_IN6` (ws2def.h, ws2ipdef.h). The family and the scope are
/// little-endian, the other fields are in network byte order. A missing scope is read as zero.
pub(crate) fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let ([f0, f1, p0, p1], rest) = bytes.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes([*p0, *p1]);
    match u16::from_le_bytes([*f0, *f1]) {
        AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(*rest.first_chunk::<4>()?), port).into()),
        AF_INET6 => {
            let (flow, rest) = rest.split_first_chunk::<4>()?;
            let (octets, rest) = rest.split_first_chunk::<16>()?;
            let scope = rest.first_chunk::<4>().map_or(0, |scope| u32::from_le_bytes(*scope));
            let flow = u32::from_be_bytes(*flow);
            Some(SocketAddrV6::new(Ipv6Addr::from(*octets), port, flow, scope).into())
        }
        _ => None,
    }
}

/// The inverse of [`socket_address`]: 16 or 28 bytes.
pub(crate) fn socket_bytes(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(address) => {
            [&AF_INET.to_le_bytes()[..], &port, &address.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(address) => {
            let (flow, scope) = (address.flowinfo().to_be_bytes(), address.scope_id().to_le_bytes());
            [&AF_INET6.to_le_bytes()[..], &port, &flow, &address.ip().octets(), &scope].concat()
        }
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 23;
