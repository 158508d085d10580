//! Reads single values from payload bytes by their storage type.
//!
//! Each [`InType`] is handled here; fields, arrays and structures are not.

use stackhound_types::{FileTime, Guid, PointerSize, RawTime};

use crate::error::Expected;
use crate::model::{InType, Value};

/// Windows limits security identifiers to this number of sub-authorities.
const MAX_SUB_AUTHORITIES: u8 = 15;

/// The length of a text or binary value, after references are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The length that the storage type implies.
    Natural,
    /// A number of UTF-16 units for [`InType::Utf16`], of bytes otherwise. Text ends at the first
    /// zero.
    Padded(usize),
    /// As `Padded`, but text can contain zeros.
    Counted(usize),
    /// Everything to the end of the payload.
    Rest,
}

/// A position in a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub payload: &'a [u8],
    /// At most the length of the payload.
    pub offset: usize,
    pub pointer: PointerSize,
}

impl<'a> Cursor<'a> {
    pub fn rest(&self) -> &'a [u8] {
        self.payload.get(self.offset..).unwrap_or_default()
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Expected> {
        let bytes = self.rest().get(..length).ok_or(Expected::Bytes(length))?;
        self.offset += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Expected> {
        let bytes = *self.rest().first_chunk::<N>().ok_or(Expected::Bytes(N))?;
        self.offset += N;
        Ok(bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Expected> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads one value. On an error, the position is that of the missing or invalid bytes.
    pub fn value(&mut self, in_type: InType, extent: Extent) -> Result<Value<'a>, Expected> {
        Ok(match in_type {
            InType::Null | InType::Struct { .. } => Value::Null,
            InType::I8 => Value::Signed(i8::from_le_bytes(self.array()?).into()),
            InType::U8 => Value::Unsigned(u8::from_le_bytes(self.array()?).into()),
            InType::I16 => Value::Signed(i16::from_le_bytes(self.array()?).into()),
            InType::U16 => Value::Unsigned(self.u16()?.into()),
            InType::I32 => Value::Signed(i32::from_le_bytes(self.array()?).into()),
            InType::U32 => Value::Unsigned(u32::from_le_bytes(self.array()?).into()),
            InType::I64 => Value::Signed(i64::from_le_bytes(self.array()?)),
            InType::U64 => Value::Unsigned(u64::from_le_bytes(self.array()?)),
            InType::F32 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            InType::F64 => Value::Float(f64::from_le_bytes(self.array()?)),
            InType::Bool32 => Value::Bool(self.array()? != [0; 4]),
            InType::Bool8 => Value::Bool(self.array()? != [0; 1]),
            InType::HexInt32 => Value::Hex(u32::from_le_bytes(self.array()?).into()),
            InType::HexInt64 => Value::Hex(u64::from_le_bytes(self.array()?)),
            InType::Pointer => Value::Pointer(match self.pointer {
                PointerSize::Four => u32::from_le_bytes(self.array()?).into(),
                PointerSize::Eight => u64::from_le_bytes(self.array()?),
            }),
            InType::Guid => Value::Guid(Guid(self.array()?)),
            InType::FileTime => Value::FileTime(FileTime(i64::from_le_bytes(self.array()?))),
            InType::RawTime => Value::RawTime(RawTime(i64::from_le_bytes(self.array()?))),
            InType::SystemTime => {
                let bytes: [u8; 16] = self.array()?;
                Value::SystemTime(std::array::from_fn(|i| {
                    u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
                }))
            }
            InType::Utf16Char => Value::Utf16(self.take(2)?),
            InType::AnsiChar => Value::Ansi(self.take(1)?),
            InType::Utf16 => Value::Utf16(self.utf16(extent)?),
            InType::Ansi => Value::Ansi(self.ansi(extent)?),
            InType::Binary => Value::Binary(match extent {
                Extent::Padded(length) | Extent::Counted(length) => self.take(length)?,
                Extent::Natural | Extent::Rest => self.take(self.rest().len())?,
            }),
            InType::CountedBinary => Value::Binary(self.counted()?),
            InType::CountedUtf16 => Value::Utf16(self.counted()?),
            InType::CountedAnsi => Value::Ansi(self.counted()?),
            InType::Sid => Value::Sid(self.sid()?),
            InType::WbemSid => self.wbem_sid()?,
        })
    }

    fn counted(&mut self) -> Result<&'a [u8], Expected> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn utf16(&mut self, extent: Extent) -> Result<&'a [u8], Expected> {
        match extent {
            Extent::Natural => {
                let rest = self.rest();
                // A truncated text is accepted, but not one without any bytes.
                if rest.len() < 2 {
                    return Err(Expected::Bytes(2));
                }
                let text = utf16_to_zero(rest);
                // Skip the terminator, if there is one.
                self.offset += (text.len() + 2).min(rest.len() & !1);
                Ok(text)
            }
            Extent::Padded(units) => Ok(utf16_to_zero(self.take(units.saturating_mul(2))?)),
            Extent::Counted(units) => Ok(without_trailing_zero_units(self.take(units.saturating_mul(2))?)),
            Extent::Rest => Ok(without_trailing_zero_units(self.take(self.rest().len() & !1)?)),
        }
    }

    fn ansi(&mut self, extent: Extent) -> Result<&'a [u8], Expected> {
        match extent {
            Extent::Natural => {
                let rest = self.rest();
                if rest.is_empty() {
                    return Err(Expected::Bytes(1));
                }
                let text = ansi_to_zero(rest);
                self.offset += (text.len() + 1).min(rest.len());
                Ok(text)
            }
            Extent::Padded(length) => Ok(ansi_to_zero(self.take(length)?)),
            Extent::Counted(length) => Ok(without_trailing_zeros(self.take(length)?)),
            Extent::Rest => Ok(without_trailing_zeros(self.take(self.rest().len())?)),
        }
    }

    fn sid(&mut self) -> Result<&'a [u8], Expected> {
        let sub_authorities = *self.rest().get(1).ok_or(Expected::Bytes(8))?;
        if sub_authorities > MAX_SUB_AUTHORITIES {
            return Err(Expected::Sid);
        }
        self.take(8 + 4 * usize::from(sub_authorities))
    }

    fn wbem_sid(&mut self) -> Result<Value<'a>, Expected> {
        let first: [u8; 4] = *self.rest().first_chunk().ok_or(Expected::Bytes(4))?;
        // A pointer and pointer-sized attributes, which are meaningless outside their process.
        let token = 2 * self.pointer.bytes();
        if first == [0; 4] && !self.sid_after_zeros(token) {
            self.offset += 4;
            return Ok(Value::Null);
        }
        self.take(token)?;
        self.sid().map(Value::Sid)
    }

    /// Whether a security identifier follows this number of zero bytes. Some writers have no
    /// pointer to write into the token. If there is no identifier, a text or the end of the payload
    /// follows.
    fn sid_after_zeros(&self, zeros: usize) -> bool {
        let rest = self.rest();
        let Some((token, [1, sub_authorities @ 1..=MAX_SUB_AUTHORITIES, sid @ ..])) =
            rest.split_at_checked(zeros)
        else {
            return false;
        };
        token.iter().all(|&byte| byte == 0) && sid.len() >= 6 + 4 * usize::from(*sub_authorities)
    }
}

pub(crate) fn utf16_to_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..first_zero::<2>(bytes)]
}

pub(super) fn ansi_to_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..first_zero::<1>(bytes)]
}

/// The offset of the first zero unit of `UNIT` bytes (1 or 2), or the end of the last complete unit
/// if there is none. Compares eight bytes at once, because the offsets of all fields after a text
/// depend on this search.
fn first_zero<const UNIT: usize>(bytes: &[u8]) -> usize {
    const { assert!(UNIT == 1 || UNIT == 2) };
    let ones = if UNIT == 1 { 0x0101_0101_0101_0101_u64 } else { 0x0001_0001_0001_0001 };
    let (words, _) = bytes.as_chunks::<8>();
    for (index, &word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(word);
        // The highest bit of each zero unit, and possibly of some units after the first one.
        let zeros = word.wrapping_sub(ones) & !word & (ones << (8 * UNIT as u32 - 1));
        if zeros != 0 {
            let unit = zeros.trailing_zeros() as usize / (8 * UNIT);
            return 8 * index + UNIT * unit;
        }
    }
    let (units, _) = bytes.as_chunks::<UNIT>();
    let passed = 8 / UNIT * words.len();
    let rest = units[passed..].iter().position(|unit| *unit == [0; UNIT]);
    UNIT * rest.map_or(units.len(), |unit| passed + unit)
}

fn without_trailing_zero_units(mut bytes: &[u8]) -> &[u8] {
    while let Some(shorter) = bytes.strip_suffix(&[0, 0]) {
        bytes = shorter;
    }
    bytes
}

fn without_trailing_zeros(mut bytes: &[u8]) -> &[u8] {
    while let Some(shorter) = bytes.strip_suffix(&[0]) {
        bytes = shorter;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes with many zeros and ones, which a search by words can confuse.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![2 => 0_u8..2, 3 => any::<u8>(), 3 => 1_u8..=255], 0..80)
    }

    proptest! {
        #[test]
        fn the_first_zero_is_found(bytes in text()) {
            let first_byte = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            prop_assert_eq!(first_zero::<1>(&bytes), first_byte);
            let first_unit = bytes.chunks_exact(2).position(|unit| unit == [0, 0]).unwrap_or(bytes.len() / 2);
            prop_assert_eq!(first_zero::<2>(&bytes), 2 * first_unit);
        }
    }
}
