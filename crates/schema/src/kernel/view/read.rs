//! Reads the payloads of all views: fixed parts as structs, followed by texts and SIDs.

use stackhound_types::{Address, Pid, PointerSize, Sid, Tid};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Error, Expected};
use crate::text::{Ansi, Utf16, terminator};

/// Windows limits security identifiers to this number of sub-authorities.
const MAX_SUB_AUTHORITIES: u8 = 15;

/// A struct that can be read in place.
pub(crate) trait Wire: FromBytes + KnownLayout + Immutable + Unaligned + 'static {}
impl<T: FromBytes + KnownLayout + Immutable + Unaligned + 'static> Wire for T {}

/// A pointer-sized number: [`U32`] or [`U64`].
pub(crate) trait Word: Wire + Copy {
    fn value(self) -> u64;

    #[inline]
    fn address(self) -> Address {
        Address(self.value())
    }
}

impl Word for U32 {
    #[inline]
    fn value(self) -> u64 {
        self.get().into()
    }
}

impl Word for U64 {
    #[inline]
    fn value(self) -> u64 {
        self.get()
    }
}

/// A process id in a payload.
#[inline]
pub(crate) fn pid(id: U32) -> Pid {
    Pid(id.get())
}

/// A thread id in a payload.
#[inline]
pub(crate) fn tid(id: U32) -> Tid {
    Tid(id.get())
}

/// A payload that is read from start to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    class: &'static str,
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(class: &'static str, payload: &'a [u8]) -> Reader<'a> {
        Reader { class, rest: payload, length: payload.len() }
    }

    /// Reads the next bytes as a struct.
    #[inline]
    pub fn fixed<T: Wire>(&mut self) -> Result<&'a T, Error> {
        match T::ref_from_prefix(self.rest) {
            Ok((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(_) => Err(self.error(Expected::Bytes(size_of::<T>()))),
        }
    }

    /// Reads the next bytes as a struct, if there are enough.
    #[inline]
    pub fn optional<T: Wire>(&mut self) -> Option<&'a T> {
        let (value, rest) = T::ref_from_prefix(self.rest).ok()?;
        self.rest = rest;
        Some(value)
    }

    /// All remaining bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn skip(&mut self, length: usize) -> Result<(), Error> {
        self.rest = self.rest.get(length..).ok_or_else(|| self.error(Expected::Bytes(length)))?;
        Ok(())
    }

    /// Reads a terminated text. `None` if no bytes remain. A truncated text is returned as far as
    /// it goes.
    pub fn utf16(&mut self) -> Option<Utf16<'a>> {
        let units = self.rest.len() / 2;
        if units == 0 {
            return None;
        }
        let n = terminator(self.rest);
        let (text, rest) = self.rest.split_at(2 * n.unwrap_or(units));
        self.rest = if n.is_some() { &rest[2..] } else { rest };
        Some(Utf16(text))
    }

    /// As [`Reader::utf16`], for 8-bit text.
    pub fn ansi(&mut self) -> Option<Ansi<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let n = self.rest.iter().position(|&byte| byte == 0);
        let (text, rest) = self.rest.split_at(n.unwrap_or(self.rest.len()));
        self.rest = if n.is_some() { &rest[1..] } else { rest };
        Some(Ansi(text))
    }

    /// Reads a text in an array of fixed size that is padded with zeros.
    pub fn padded_utf16(&mut self, units: usize) -> Result<Utf16<'a>, Error> {
        let mut field = Reader { rest: self.rest.get(..2 * units).unwrap_or_default(), ..*self };
        self.skip(2 * units)?;
        Ok(field.utf16().unwrap_or_default())
    }

    /// Reads a `TOKEN_USER` structure and the SID that follows it. `None` if the process has no
    /// SID; the payload then contains four zero bytes instead of both. Some writers write a zero
    /// token before a SID.
    pub fn sid(&mut self, pointer: PointerSize) -> Result<Option<Sid<'a>>, Error> {
        let token = 2 * pointer.bytes();
        let first = *self.rest.first_chunk::<4>().ok_or_else(|| self.error(Expected::Bytes(4)))?;
        if first == [0; 4] {
            let zeros = self.rest.iter().take_while(|&&byte| byte == 0).count();
            let is_sid = match self.rest.get(token..) {
                Some(&[1, n, ..]) => {
                    (1..=MAX_SUB_AUTHORITIES).contains(&n) && self.rest.len() >= token + sid_size(n)
                }
                _ => false,
            };
            if zeros != token || !is_sid {
                self.skip(4)?;
                return Ok(None);
            }
        }
        self.skip(token)?;
        self.bare_sid().map(Some)
    }

    /// Reads a SID without a token before it.
    pub fn bare_sid(&mut self) -> Result<Sid<'a>, Error> {
        let n = *self.rest.get(1).ok_or_else(|| self.error(Expected::Bytes(8)))?;
        if n > MAX_SUB_AUTHORITIES {
            return Err(self.error(Expected::Sid));
        }
        let start = self.rest;
        self.skip(sid_size(n))?;
        Ok(Sid(&start[..sid_size(n)]))
    }

    #[cold]
    fn error(&self, expected: Expected) -> Error {
        Error::Class { class: self.class, offset: self.length - self.rest.len(), expected }
    }
}

fn sid_size(n_sub_authorities: u8) -> usize {
    8 + 4 * usize::from(n_sub_authorities)
}
