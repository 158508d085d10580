//! Distinct texts, accessed by number.

use std::collections::HashMap;

/// Finished texts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NameTable {
    text: Box<str>,
    /// The end of each text in all texts. Each text starts at the end of the previous one.
    ends: Box<[u32]>,
}

impl NameTable {
    /// Returns `None` if the ends do not divide the text.
    pub fn new(text: Box<str>, ends: Box<[u32]>) -> Option<NameTable> {
        let divide = ends.is_sorted()
            && ends.last().copied().unwrap_or(0) as usize == text.len()
            && ends.iter().all(|end| text.is_char_boundary(*end as usize));
        divide.then_some(NameTable { text, ends })
    }

    pub fn get(&self, name: u32) -> Option<&str> {
        let name = name as usize;
        let end = *self.ends.get(name)?;
        let start = name.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..end as usize)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn ends(&self) -> &[u32] {
        &self.ends
    }
}

/// Texts under construction.
#[derive(Debug, Default)]
pub(super) struct Interner {
    text: String,
    ends: Vec<u32>,
    numbers: HashMap<Box<str>, u32>,
}

impl Interner {
    /// Maximum size of all texts together. Further texts are dropped.
    const TEXT_SIZE_MAX: usize = 1 << 31;

    /// Returns the number of a text, or `None` if the maximum size is reached.
    pub fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        if self.text.len() + text.len() > Self::TEXT_SIZE_MAX {
            return None;
        }
        let number = self.ends.len() as u32;
        self.text.push_str(text);
        self.ends.push(self.text.len() as u32);
        self.numbers.insert(text.into(), number);
        Some(number)
    }

    /// Returns a text by its number.
    ///
    /// # Panics
    /// The number belongs to another interner.
    pub fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[number] as usize]
    }

    pub fn finish(self) -> NameTable {
        NameTable { text: self.text.into(), ends: self.ends.into() }
    }
}
