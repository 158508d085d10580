//! The fields that others use as count or length, with the values last read for them.

use crate::model::{Count, Length, Schema, Value};

/// How many different fields of a schema may serve as counts or lengths.
const MAX_REFERENCES: usize = 16;

/// Stands for "no value yet" and for every value too large to be a count.
const UNKNOWN: u32 = u32::MAX;

/// A small map from field index to value, stored in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References {
    fields: [u16; MAX_REFERENCES],
    values: [u32; MAX_REFERENCES],
    used: u8,
}

impl References {
    /// Collects what the schema's counts and lengths refer to. References beyond the limit fail when they are used.
    pub fn of(schema: &Schema) -> References {
        let mut references =
            References { fields: [0; MAX_REFERENCES], values: [UNKNOWN; MAX_REFERENCES], used: 0 };
        for field in &schema.fields {
            if let Count::Field(index) = field.count {
                references.add(index);
            }
            if let Length::Field(index) = field.length {
                references.add(index);
            }
        }
        references
    }

    fn add(&mut self, index: u16) {
        let used = usize::from(self.used);
        if used < MAX_REFERENCES && !self.fields[..used].contains(&index) {
            self.fields[used] = index;
            self.used += 1;
        }
    }

    fn slot(&self, index: usize) -> Option<usize> {
        self.fields[..self.used.into()].iter().position(|&field| usize::from(field) == index)
    }

    /// Remembers the value of a field if any other field refers to it.
    pub fn note(&mut self, index: usize, value: &Value<'_>) {
        if let Some(slot) = self.slot(index) {
            self.values[slot] = value.as_u64().and_then(|value| u32::try_from(value).ok()).unwrap_or(UNKNOWN);
        }
    }

    /// The value last read for a field.
    pub fn value(&self, index: usize) -> Option<usize> {
        let value = self.values[self.slot(index)?];
        if value == UNKNOWN { None } else { usize::try_from(value).ok() }
    }

    /// The referenced fields, in the order in which they are referred to.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.fields[..self.used.into()].iter().map(|&field| usize::from(field))
    }
}
