//! Texts from events, such as names of files, as numbers.

use rustc_hash::FxHashMap;

/// Maximum number of different texts.
const LABELS_MAX: usize = 1 << 20;

/// The text that stands for all further ones after the limit.
const OTHERS: &str = "(others)";

/// The number of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Label(pub u32);

/// The texts so far.
#[derive(Debug)]
pub(crate) struct Labels(FxHashMap<String, Label>);

impl Default for Labels {
    fn default() -> Labels {
        Labels(FxHashMap::from_iter([(OTHERS.to_owned(), Labels::OTHERS)]))
    }
}

impl Labels {
    /// The label of everything after the limit of labels.
    pub const OTHERS: Label = Label(0);

    /// The label of a text. Costs a look-up by text: callers keep the labels of what they see often.
    pub fn label(&mut self, text: &str) -> Label {
        if let Some(&label) = self.0.get(text) {
            return label;
        }
        if self.0.len() >= LABELS_MAX {
            return Labels::OTHERS;
        }
        let label = Label(self.0.len() as u32);
        self.0.insert(text.to_owned(), label);
        label
    }

    /// The texts, by number.
    pub fn into_texts(self) -> Vec<String> {
        let mut texts = vec![String::new(); self.0.len()];
        self.0.into_iter().for_each(|(text, label)| texts[label.0 as usize] = text);
        texts
    }
}
