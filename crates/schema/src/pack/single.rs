//! Writes single values.

use std::net::IpAddr;

use super::value::number_order;
use super::{Packer, content, too_long, wrong};
use crate::error::Error;
use crate::model::{Field, InType, Length, OutType};
use crate::pack::OwnedValue;
use stackhound_types::{FileTime, Guid, RawTime};

/// The null SID, S-1-0-0.
const NULL_SID: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Packer<'_> {
    /// Appends a value that is not a structure.
    pub(super) fn single(&mut self, index: usize, value: &OwnedValue) -> Result<(), Error> {
        use OwnedValue as Given;
        let field = &self.schema.fields[index];
        match (field.in_type, value) {
            (InType::Null, Given::Null) => {}
            (InType::F32, Given::Float(number)) => self.out.extend((*number as f32).to_le_bytes()),
            (InType::F64, Given::Float(number)) => self.out.extend(number.to_le_bytes()),
            (InType::Bool32, Given::Bool(truth)) => self.out.extend(u32::from(*truth).to_le_bytes()),
            (InType::Bool8, Given::Bool(truth)) => self.out.push((*truth).into()),
            (InType::Guid, Given::Guid(guid)) => self.out.extend(guid.0),
            (InType::FileTime, Given::FileTime(time)) => self.out.extend(time.0.to_le_bytes()),
            (InType::RawTime, Given::RawTime(time)) => self.out.extend(time.0.to_le_bytes()),
            (InType::SystemTime, Given::SystemTime(time)) => {
                let parts: [u16; 8] = (*time).into();
                self.out.extend(parts.iter().flat_map(|part| part.to_le_bytes()));
            }
            (InType::Sid, Given::Sid(sid)) => {
                check_sid(field, sid)?;
                self.out.extend(sid);
            }
            (InType::WbemSid, Given::Null) => self.out.extend([0; 4]),
            (InType::WbemSid, Given::Sid(sid)) => {
                check_sid(field, sid)?;
                // A `TOKEN_USER`: a pointer, which can be any number except zero, and attributes.
                let token = 2 * self.pointer.bytes();
                self.out.push(token as u8);
                self.zeros(field, token - 1)?;
                self.out.extend(sid);
            }
            (
                InType::Utf16
                | InType::Ansi
                | InType::Binary
                | InType::CountedUtf16
                | InType::CountedAnsi
                | InType::CountedBinary,
                _,
            ) => return self.text(index, value),
            (InType::U32, Given::Ip(IpAddr::V4(address))) if field.out_type == OutType::Ipv4 => {
                self.out.extend(address.octets());
            }
            _ => return self.integer(index, value),
        }
        Ok(())
    }

    fn integer(&mut self, index: usize, value: &OwnedValue) -> Result<(), Error> {
        let field = &self.schema.fields[index];
        let (bytes, signed) = match field.in_type {
            InType::U8 | InType::AnsiChar => (1, false),
            InType::U16 | InType::Utf16Char => (2, false),
            InType::U32 | InType::HexInt32 => (4, false),
            InType::U64 | InType::HexInt64 => (8, false),
            InType::Pointer => (self.pointer.bytes(), false),
            InType::I8 => (1, true),
            InType::I16 => (2, true),
            InType::I32 => (4, true),
            InType::I64 => (8, true),
            _ => return Err(wrong(field, value)),
        };
        let number = match value {
            OwnedValue::Signed(number) => i128::from(*number),
            OwnedValue::Unsigned(number) => i128::from(*number),
            OwnedValue::Bool(truth) if field.out_type == OutType::Boolean => i128::from(*truth),
            OwnedValue::FileTime(time) if field.out_type == OutType::DateTime => i128::from(time.0),
            OwnedValue::Text(text) if is_char(field) => {
                one_unit(field.in_type, text).ok_or_else(|| content(field, "a single unit of text"))?
            }
            OwnedValue::Bytes(unit) if is_char(field) && unit.len() == bytes => {
                unit.iter().rev().fold(0, |number, &byte| number << 8 | i128::from(byte))
            }
            _ => return Err(wrong(field, value)),
        };
        let bits = 8 * bytes as u32;
        let whole = 1_i128 << bits;
        // Codes can be given as signed or unsigned numbers.
        let is_code = matches!(field.out_type, OutType::NtStatus | OutType::HResult | OutType::Win32Error);
        let least = if signed || is_code { -(whole >> 1) } else { 0 };
        let most = if signed && !is_code { whole >> 1 } else { whole };
        if !(least..most).contains(&number) {
            return Err(content(field, "a number that fits its type"));
        }
        let number = number_order(field, number as u64);
        self.out.extend(&number.to_le_bytes()[..bytes]);
        self.numbers[index] = (i128::from(number) < most).then_some(number);
        Ok(())
    }

    fn text(&mut self, index: usize, value: &OwnedValue) -> Result<(), Error> {
        let field = &self.schema.fields[index];
        let text = value.text_bytes(field.in_type).or_else(|| shown_as_text(field, value));
        let text = text.ok_or_else(|| wrong(field, value))?;
        let unit = if matches!(field.in_type, InType::Utf16 | InType::CountedUtf16) { 2 } else { 1 };
        let ends = text.chunks_exact(unit).any(|unit| unit.iter().all(|&byte| byte == 0));
        match (field.in_type, field.length) {
            (InType::CountedUtf16 | InType::CountedAnsi | InType::CountedBinary, _) => {
                let length = u16::try_from(text.len()).map_err(|_| too_long(field))?;
                self.out.extend(length.to_le_bytes());
                self.out.extend(&*text);
            }
            (InType::Binary, Length::Natural) | (_, Length::Rest) => self.out.extend(&*text),
            (_, Length::Natural) if ends => return Err(content(field, "text without a zero character")),
            (_, Length::Natural) => {
                self.out.extend(&*text);
                self.out.extend(&[0, 0][..unit]);
            }
            (in_type, Length::Fixed(length)) => {
                let capacity = unit * usize::from(length);
                let free = capacity.checked_sub(text.len());
                let fits = if in_type == InType::Binary { free == Some(0) } else { free.is_some() && !ends };
                let Some(free) = free.filter(|_| fits) else {
                    return Err(content(field, "the number of bytes that its length states"));
                };
                self.out.extend(&*text);
                self.zeros(field, free)?;
            }
            (_, Length::Field(length)) => {
                if self.referenced(field, length)?.checked_mul(unit) != Some(text.len()) {
                    return Err(content(field, "the number of bytes that its length states"));
                }
                self.out.extend(&*text);
            }
        }
        Ok(())
    }

    /// The value to write for a field without a value.
    pub(super) fn zero(&self, field: &Field) -> Result<OwnedValue, Error> {
        Ok(match field.in_type {
            InType::Null | InType::WbemSid => OwnedValue::Null,
            InType::F32 | InType::F64 => OwnedValue::Float(0.0),
            InType::Bool32 | InType::Bool8 => OwnedValue::Bool(false),
            InType::Guid => OwnedValue::Guid(Guid::ZERO),
            InType::FileTime => OwnedValue::FileTime(FileTime(0)),
            InType::RawTime => OwnedValue::RawTime(RawTime(0)),
            InType::SystemTime => OwnedValue::SystemTime([0; 8].into()),
            InType::Sid => OwnedValue::Sid(NULL_SID.to_vec()),
            InType::Utf16
            | InType::Ansi
            | InType::Binary
            | InType::CountedUtf16
            | InType::CountedAnsi
            | InType::CountedBinary => {
                let units = match (field.in_type, field.length) {
                    (InType::Binary, Length::Fixed(length)) => length.into(),
                    (InType::Utf16 | InType::Ansi | InType::Binary, Length::Field(length)) => {
                        self.referenced(field, length)?
                    }
                    _ => 0,
                };
                let unit = if field.in_type == InType::Utf16 { 2 } else { 1 };
                if units > super::MAX_PAYLOAD {
                    return Err(too_long(field));
                }
                OwnedValue::Bytes(vec![0; unit * units])
            }
            _ => OwnedValue::Unsigned(0),
        })
    }
}

fn is_char(field: &Field) -> bool {
    matches!(field.in_type, InType::AnsiChar | InType::Utf16Char)
}

fn one_unit(in_type: InType, text: &str) -> Option<i128> {
    let mut units = text.encode_utf16();
    let (unit, rest) = (units.next()?, units.next());
    (rest.is_none() && (in_type == InType::Utf16Char || text.len() == 1)).then_some(unit.into())
}

/// The bytes of text for binary data that is shown as text.
fn shown_as_text<'v>(field: &Field, value: &'v OwnedValue) -> Option<std::borrow::Cow<'v, [u8]>> {
    match (field.out_type, value) {
        (OutType::String | OutType::Utf8 | OutType::Xml | OutType::Json, OwnedValue::Text(text)) => {
            Some(text.as_bytes().into())
        }
        _ => None,
    }
}

fn check_sid(field: &Field, sid: &[u8]) -> Result<(), Error> {
    match sid {
        [_, count @ ..=15, ..] if sid.len() == 8 + 4 * usize::from(*count) => Ok(()),
        _ => Err(content(field, "a security identifier")),
    }
}
