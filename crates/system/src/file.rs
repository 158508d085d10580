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
