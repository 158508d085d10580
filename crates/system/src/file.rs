//! Names of files.

use stackhound_trace::TraceTime;

use crate::name_history::NameHistory;
use crate::text::Text;

/// The control block that all opens of one file or stream share. Most events call it `FileObject`, some `FileKey`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileKey(pub u64);

/// One open of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileObject(pub u64);

/// What an event says of a file's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileNameEvent {
    /// The key stands for the file from now on.
    Create(FileKey),
    /// The key stood for the file until now.
    Delete(FileKey),
    /// The key stands for the file when the recording ends.
    Rundown(FileKey),
    /// The file is opened. The name may be relative, or empty for opens by number.
    Open(FileObject),
    /// The open is over. Has no name.
    Close(FileObject),
}

/// All names of files.
#[derive(Debug, Default)]
pub(crate) struct FileNames {
    by_key: NameHistory,
    by_object: NameHistory,
}

impl FileNames {
    /// How many statements are remembered.
    pub fn len(&self) -> usize {
        self.by_key.len() + self.by_object.len()
    }

    /// Forgets what no answer about this time or a later one rests on.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.by_key.forget_before(time);
        self.by_object.forget_before(time);
    }

    /// Forgets what was said first, until so many statements are left. Gives how many were forgotten.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        // Both have their share.
        let of_keys = left.saturating_sub(self.by_object.len()).max(left / 2);
        let forgotten = self.by_key.forget_oldest(of_keys);
        forgotten + self.by_object.forget_oldest(left.saturating_sub(self.by_key.len()))
    }

    /// All texts that are referred to.
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
                if let Some(name) = self.by_object.covering(object.0, time) {
                    self.by_object.end(time, object.0, name);
                }
            }
        }
    }

    /// What was said before outweighs what a rundown or deletion says later.
    pub fn at(&self, key: Option<FileKey>, object: Option<FileObject>, time: TraceTime) -> Option<Text> {
        let by_key = key.and_then(|key| self.by_key.covering(key.0, time));
        let by_object = || self.by_object.covering(object?.0, time);
        let later = || self.by_key.told_later(key?.0, time);
        by_key.or_else(by_object).or_else(later)
    }
}
