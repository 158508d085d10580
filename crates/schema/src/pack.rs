//! Creates payloads from values: the inverse of decoding, for synthetic events.
//!
//! ```
//! # use stackhound_schema::{Plan, providers_of_manifest};
//! use stackhound_types::PointerSize;
//! # let xml = br#"<provider name="P" guid="{9e814aad-3204-11d2-9a82-006008a86939}"><events>
//! #   <event value="1" template="T"/></events><templates><template tid="T">
//! #   <data name="Count" inType="win:UInt16"/><data name="Ids" inType="win:UInt32" count="Count"/>
//! #   <data name="Verb" inType="win:AnsiString"/>
//! #   </template></templates></provider>"#;
//! # let schema = providers_of_manifest(xml, None)?.remove(0).events.remove(0).schema;
//! use stackhound_schema::OwnedValue;
//!
//! // `Count` is the number of `Ids` and is computed from them.
//! let values = [("Verb", OwnedValue::from("GET")), ("Ids", OwnedValue::list([7, 8]))];
//! let payload = schema.pack(&values, PointerSize::Eight)?;
//! assert_eq!(payload, b"\x02\0\x07\0\0\0\x08\0\0\0GET\0");
//! # Ok::<(), stackhound_schema::Error>(())
//! ```

mod single;
#[cfg(test)]
mod tests;
mod value;

use stackhound_types::PointerSize;

use crate::error::{Error, FieldType};
use crate::limits::MAX_NESTING;
use crate::model::{Count, Field, InType, Length, Schema};

pub use value::OwnedValue;

/// The maximum size of a payload: the size field of a record has 16 bits.
const MAX_PAYLOAD: usize = 0xffff;

/// The values for the fields of an event or of a structure, by name.
type Values<'v> = [(&'v str, &'v OwnedValue)];

impl Schema {
    /// Creates the payload with these values, given by name in any order. Every property needs a
    /// value of its type, except for counts and lengths of other properties, which are computed. If
    /// several properties have the same name, each takes the next value of that name.
    ///
    /// 8-bit texts are written as UTF-8. For other code pages, pass the text as bytes.
    ///
    /// # Errors
    /// All errors contain the name of the property: [`Error::NotGiven`], [`Error::NoProperty`] if
    /// no property has the name of a value, [`Error::WrongType`], and [`Error::Content`] for a
    /// value that the property cannot store, or that contradicts its count or length.
    pub fn pack<S: AsRef<str>>(
        &self,
        values: &[(S, OwnedValue)],
        pointer: PointerSize,
    ) -> Result<Vec<u8>, Error> {
        Packer::new(self, pointer, true).pack(values)
    }

    /// As [`pack`](Schema::pack), but writes zeros for properties without a value: zero numbers,
    /// empty texts and the null SID.
    ///
    /// # Errors
    /// As [`pack`](Schema::pack), except for [`Error::NotGiven`].
    pub fn pack_incomplete<S: AsRef<str>>(
        &self,
        values: &[(S, OwnedValue)],
        pointer: PointerSize,
    ) -> Result<Vec<u8>, Error> {
        Packer::new(self, pointer, false).pack(values)
    }

    /// Removes the terminator of the last text from a payload that this schema has packed, because
    /// some providers omit it. Does nothing if the last property is not a terminated text.
    pub fn trim_last_nul(&self, payload: &mut Vec<u8>) {
        let Some(last) = self.top_level().last().map(|index| &self.fields[index]) else { return };
        let end: &[u8] = match (last.in_type, last.count, last.length) {
            (InType::Utf16, Count::One, Length::Natural) => &[0, 0],
            (InType::Ansi, Count::One, Length::Natural) => &[0],
            _ => return,
        };
        if payload.ends_with(end) {
            payload.truncate(payload.len() - end.len());
        }
    }
}

/// A payload under construction.
struct Packer<'s> {
    schema: &'s Schema,
    pointer: PointerSize,
    /// Whether every property needs a value.
    complete: bool,
    out: Vec<u8>,
    /// The numbers in fields that may be counts or lengths of later fields.
    numbers: Vec<Option<u64>>,
}

impl<'s> Packer<'s> {
    fn new(schema: &'s Schema, pointer: PointerSize, complete: bool) -> Packer<'s> {
        let numbers = vec![None; schema.fields.len()];
        Packer { schema, pointer, complete, out: Vec::new(), numbers }
    }

    fn pack<S: AsRef<str>>(mut self, values: &[(S, OwnedValue)]) -> Result<Vec<u8>, Error> {
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_ref(), value)).collect();
        let fields: Vec<usize> = self.schema.top_level().collect();
        self.level(&fields, &values, 0)?;
        Ok(self.out)
    }

    /// Writes the fields of the event, or the members of a structure.
    fn level(&mut self, fields: &[usize], values: &Values<'_>, depth: usize) -> Result<(), Error> {
        let names = || fields.iter().map(|&index| &*self.schema.fields[index].name);
        if let Some((name, _)) = values.iter().find(|(given, _)| !names().any(|name| name == *given)) {
            return Err(Error::NoProperty((*name).into()));
        }
        for (position, &index) in fields.iter().enumerate() {
            let field = &self.schema.fields[index];
            if field.is_padding() {
                self.zeros(field, length_of_padding(field))?;
                continue;
            }
            match given(self.schema, &fields[..position], index, values) {
                Some(value) => self.field(index, value, depth)?,
                None => match self.implied(index, &fields[position + 1..], fields, values) {
                    Some(number) => self.field(index, &OwnedValue::Unsigned(number), depth)?,
                    None if self.complete => return Err(Error::NotGiven(field.name.clone())),
                    None => self.missing_value(index, depth)?,
                },
            }
        }
        Ok(())
    }

    /// The number that a field must contain because of the values for later fields.
    fn implied(&self, wanted: usize, later: &[usize], level: &[usize], values: &Values<'_>) -> Option<u64> {
        later.iter().find_map(|&index| {
            let field = &self.schema.fields[index];
            let before = &level[..level.iter().position(|&other| other == index)?];
            let value = given(self.schema, before, index, values)?;
            if field.count == Count::Field(wanted as u16) {
                return value.count(field.in_type);
            }
            let one = if field.count == Count::One { value } else { value.first()? };
            if field.length == Length::Field(wanted as u16) && field.in_type.takes_length() {
                return one.length(field.in_type);
            }
            let (InType::Struct { .. }, OwnedValue::Struct(members)) = (field.in_type, one) else {
                return None;
            };
            let fields = self.members(index);
            let members: Vec<_> = members.iter().map(|(name, value)| (&**name, value)).collect();
            self.implied(wanted, &fields, &fields, &members)
        })
    }

    /// The direct members of a structure.
    fn members(&self, index: usize) -> Vec<usize> {
        let InType::Struct { members } = self.schema.fields[index].in_type else { return Vec::new() };
        let next = |&at: &usize| Some(self.schema.after(at));
        let all = std::iter::successors(Some(index + 1), next);
        all.take(members.into()).take_while(|&at| at < self.schema.fields.len()).collect()
    }

    /// Writes a field that has a value.
    fn field(&mut self, index: usize, value: &OwnedValue, depth: usize) -> Result<(), Error> {
        let field = &self.schema.fields[index];
        if field.count == Count::One {
            return self.element(index, value, depth);
        }
        let (elements, padding) = self.elements(field, value)?;
        if field.count == Count::Prefixed {
            let count = u16::try_from(elements.len()).map_err(|_| too_long(field))?;
            self.out.extend(count.to_le_bytes());
        }
        for element in elements.iter() {
            self.element(index, element, depth)?;
        }
        self.zeros(field, padding)
    }

    /// Any other character keeps its percent sign.
    fn elements<'v>(
        &self,
        field: &Field,
        value: &'v OwnedValue,
    ) -> Result<(std::borrow::Cow<'v, [OwnedValue]>, usize), Error> {
        let elements = value.elements(field.in_type).ok_or_else(|| wrong(field, value))?;
        let expected = match field.count {
            Count::Fixed(count) => usize::from(count),
            Count::Field(index) => self.referenced(field, index)?,
            Count::One | Count::Prefixed | Count::Rest => elements.len(),
        };
        match expected.checked_sub(elements.len()) {
            Some(0) => Ok((elements, 0)),
            // A text in a field of fixed size.
            Some(free) if matches!((field.count, value), (Count::Fixed(_), OwnedValue::Text(_))) => {
                Ok((elements, free * field.in_type.size(self.pointer).unwrap_or(0)))
            }
            _ => Err(content(field, "the number of elements that its count states")),
        }
    }

    /// Writes one value or structure.
    fn element(&mut self, index: usize, value: &OwnedValue, depth: usize) -> Result<(), Error> {
        let field = &self.schema.fields[index];
        match (field.in_type, value) {
            (InType::Struct { .. }, OwnedValue::Struct(members)) => {
                if depth >= MAX_NESTING {
                    return Err(content(field, "at most 8 levels of nested structures"));
                }
                let members: Vec<_> = members.iter().map(|(name, value)| (&**name, value)).collect();
                self.level(&self.members(index), &members, depth + 1)
            }
            (InType::Struct { .. }, _) => Err(wrong(field, value)),
            _ => self.single(index, value),
        }?;
        if self.out.len() > MAX_PAYLOAD { Err(too_long(&self.schema.fields[index])) } else { Ok(()) }
    }

    /// Writes a field without a value.
    fn missing_value(&mut self, index: usize, depth: usize) -> Result<(), Error> {
        let field = &self.schema.fields[index];
        let count = match field.count {
            Count::One => 1,
            Count::Fixed(count) => count.into(),
            Count::Field(count) => self.referenced(field, count)?,
            Count::Rest => 0,
            Count::Prefixed => {
                self.out.extend([0, 0]);
                0
            }
        };
        for _ in 0..count {
            match field.in_type {
                InType::Struct { .. } => self.element(index, &OwnedValue::Struct(Vec::new()), depth)?,
                _ => {
                    let zero = self.zero(field)?;
                    self.element(index, &zero, depth)?;
                }
            }
        }
        Ok(())
    }

    fn zeros(&mut self, field: &Field, count: usize) -> Result<(), Error> {
        let end = self.out.len() + count;
        if end > MAX_PAYLOAD {
            return Err(too_long(field));
        }
        self.out.resize(end, 0);
        Ok(())
    }

    /// The count or length in the field with this index.
    fn referenced(&self, field: &Field, index: u16) -> Result<usize, Error> {
        let number = self.numbers.get(usize::from(index)).copied().flatten();
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| content(field, "a count or length in an earlier field"))
    }
}

/// The value for a field. `before` are the preceding fields of the same level.
fn given<'v>(schema: &Schema, before: &[usize], index: usize, values: &Values<'v>) -> Option<&'v OwnedValue> {
    let name = &schema.fields[index].name;
    let namesakes = before.iter().filter(|&&other| schema.fields[other].name == *name).count();
    values.iter().filter(|(given, _)| *given == &**name).nth(namesakes).map(|(_, value)| *value)
}

fn length_of_padding(field: &Field) -> usize {
    if let Length::Fixed(length) = field.length { length.into() } else { 0 }
}

fn wrong(field: &Field, value: &OwnedValue) -> Error {
    Error::WrongType { property: field.name.clone(), actual: FieldType::of(field), requested: value.kind() }
}

fn content(field: &Field, expected: &'static str) -> Error {
    Error::Content { property: field.name.clone(), expected }
}

fn too_long(field: &Field) -> Error {
    content(field, "a payload of less than 64 KiB")
}
