//! The fields that others use as counts or lengths, with the values last read for them.

use crate::model::{Count, Length, Schema, Value};

/// The maximum number of fields of a schema that can serve as counts or lengths.
const MAX_REFERENCES: usize = 16;

/// Marks a field without a value, and a value that is too large to be a count.
const UNKNOWN: u32 = u32::MAX;

/// A small inline map from field indices to values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References {
    fields: [u16; MAX_REFERENCES],
    values: [u32; MAX_REFERENCES],
    used: u8,
}

impl References {
    /// Collects the fields that the counts and lengths of a schema refer to. References beyond the
    /// limit cause an error when they are used.
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

    /// Whether no field refers to another one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn slot(&self, index: usize) -> Option<usize> {
        self.fields[..self.used.into()].iter().position(|&field| usize::from(field) == index)
    }

    /// Stores the value of a field if another field refers to it.
    pub fn note(&mut self, index: usize, value: &Value<'_>) {
        if let Some(slot) = self.slot(index) {
            self.values[slot] = value.as_u64().and_then(|value| u32::try_from(value).ok()).unwrap_or(UNKNOWN);
        }
    }

    /// The value that was last read for a field.
    pub fn value(&self, index: usize) -> Option<usize> {
        let value = self.values[self.slot(index)?];
        if value == UNKNOWN { None } else { usize::try_from(value).ok() }
    }

    /// The indices of the referenced fields, in the order of the first reference.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.fields[..self.used.into()].iter().map(|&field| usize::from(field))
    }
}
