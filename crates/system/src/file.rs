//! Names of files.

use stackhound_trace::TraceTime;

use crate::name_history::NameHistory;
use crate::text::Text;

/// The control block that all opens of one file or stream share. Most events call it `FileObject`,
/// some `FileKey`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileKey(pub u64);

/// One open of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileObject(pub u64);

/// The statement of an event about the name of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileNameEvent {
    /// The key refers to the file from now on.
    Create(FileKey),
    /// The key referred to the file until now.
    Delete(FileKey),
    /// The key refers to the file when the trace ends.
    Rundown(FileKey),
    /// The file is opened. The name may be relative, or empty for opens by file id.
    Open(FileObject),
    /// The open ends. This statement has no name.
    Close(FileObject),
    /// The file gets another name, which no later event has to state. This statement has no name.
    Rename(FileKey),
}

#[derive(Debug, Default)]
pub(crate) struct FileNames {
    by_key: NameHistory,
    by_object: NameHistory,
}

impl FileNames {
    /// The number of stored statements.
    pub fn len(&self) -> usize {
        self.by_key.len() + self.by_object.len()
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.by_key.forget_before(time);
        self.by_object.forget_before(time);
    }

    /// Forgets the oldest statements until `left` remain. Returns the number of forgotten
    /// statements.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        // Each of the two histories keeps at least half of the limit if it needs it.
        let of_keys = left.saturating_sub(self.by_object.len()).max(left / 2);
        let forgotten = self.by_key.forget_oldest(of_keys);
        forgotten + self.by_object.forget_oldest(left.saturating_sub(self.by_key.len()))
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.by_key.texts_mut().chain(self.by_object.texts_mut())
    }

    pub fn note(&mut self, time: TraceTime, event: FileNameEvent, name: Text) {
        match event {
            FileNameEvent::Create(key) => self.by_key.give(time, key.0, name),
            FileNameEvent::Delete(key) => self.by_key.end(time, key.0, name),
            FileNameEvent::Rundown(key) => self.by_key.list(time, key.0, name),
            FileNameEvent::Open(object) => self.by_object.give(time, object.0, name),
            FileNameEvent::Close(object) => {
                if let Some((name, _)) = self.by_object.covering(object.0, time) {
                    self.by_object.end(time, object.0, name);
                }
            }
            // The event itself still refers to the old name.
            FileNameEvent::Rename(key) => {
                self.by_key.give(TraceTime(time.0.saturating_add(1)), key.0, Text::EMPTY);
            }
        }
    }

    /// The names that statements give, with the times of the statements. An earlier statement takes
    /// precedence over a later rundown or deletion.
    pub fn at(
        &self,
        key: Option<FileKey>,
        object: Option<FileObject>,
        time: TraceTime,
    ) -> impl Iterator<Item = (Text, TraceTime)> {
        let key = key.map(|FileKey(key)| key);
        let renamed = key.and_then(|key| self.by_key.unknown_since(key, time));
        let by_key = key.and_then(|key| self.by_key.covering(key, time));
        let by_object = object.and_then(|object| self.by_object.covering(object.0, time));
        let by_object = by_object.filter(|&(_, stated)| renamed.is_none_or(|renamed| renamed <= stated));
        let later = key.and_then(|key| self.by_key.later(key, time));
        [by_key, by_object, later].into_iter().flatten()
    }
}
