//! The facts about an event that the state of the trace provides.

use std::borrow::Cow;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_pipeline::{EventView, Missing, ProcessView, RegistrySubject, Target, ThreadStart};

use super::value::{Hex, Text, Time};

/// The known facts about a process. Its id is a separate key, `pid`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventProcess<'c> {
    /// File name of the program.
    name: Option<&'c str>,
    /// Path of the program.
    path: Option<Cow<'c, str>>,
    command_line: Option<&'c str>,
    parent: Option<Parent<'c>>,
    user: Option<User>,
    /// Terminal session; null for processes that belong to none.
    session: Option<u32>,
    /// Integrity level.
    #[cfg_attr(test, schemars(extend("enum" = ["untrusted", "low", "medium", "medium-plus", "high", "system", "protected", null])))]
    integrity: Option<&'static str>,
    start_time: Option<Time>,
    /// Identifies the process among all that had its id.
    entity: Text<String>,
    image: Option<Image<'c>>,
}

/// The process that another one inherits from.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Parent<'c> {
    pid: u32,
    /// File name of its program.
    name: Option<&'c str>,
    /// Path of its program.
    path: Option<Cow<'c, str>>,
}

/// The user of a process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct User {
    /// Security identifier.
    sid: Text<String>,
    /// English name, if the identifier is the same on all machines.
    name: Option<&'static str>,
}

/// The identity of a program's files on symbol servers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Image<'c> {
    /// Time stamp in the header of the image.
    time_date_stamp: u32,
    /// Size of the image in memory, in bytes.
    size: u32,
    pdb: Option<Pdb<'c>>,
}

/// The identity of a PDB.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Pdb<'c> {
    /// File name.
    name: Cow<'c, str>,
    guid: Text<String>,
    age: u32,
}

/// The known facts about a thread. Its id is a separate key, `tid`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventThread<'c> {
    /// The function that the thread was created for.
    start_address: Hex,
    /// File name of the module that contains it.
    start_module: Option<&'c str>,
    /// Its offset in the module.
    start_rva: Option<Hex>,
}

/// The file that an event is about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventFile<'s> {
    path: Option<Cow<'s, str>>,
}

/// The registry key that an event is about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventRegistry<'c> {
    /// Path of the key.
    path: Option<Cow<'c, str>>,
    /// Name of the value, for events about a value; empty for the default value of the key.
    value: Option<Cow<'c, str>>,
}

/// The process and thread that an event acts on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventTarget<'c> {
    /// Id of the process, if it is not the event's own.
    pid: Option<u32>,
    /// Id of the thread, if it is not the event's own.
    tid: Option<u32>,
    process: Option<EventProcess<'c>>,
    thread: Option<EventThread<'c>>,
}

impl<'c> EventProcess<'c> {
    /// A process; `None` if it is not known.
    pub fn new(process: Result<ProcessView<'c>, Missing>) -> Option<EventProcess<'c>> {
        let process = process.ok()?;
        Some(EventProcess {
            name: process.name().ok(),
            path: process.path().ok(),
            command_line: process.command_line().ok(),
            parent: process.parent_pid().ok().map(|pid| Parent::new(pid.0, process.parent())),
            user: process
                .user_sid()
                .ok()
                .map(|sid| User { sid: Text(sid.to_string()), name: process.user_name().ok() }),
            session: process.session().ok(),
            integrity: process.integrity().ok(),
            start_time: process.start_time().ok().map(Time),
            entity: Text(process.entity().to_string()),
            image: Image::new(&process),
        })
    }
}

impl<'c> Parent<'c> {
    fn new(pid: u32, parent: Result<ProcessView<'c>, Missing>) -> Parent<'c> {
        let parent = parent.ok();
        Parent {
            pid,
            name: parent.and_then(|parent| parent.name().ok()),
            path: parent.and_then(|parent| parent.path().ok()),
        }
    }
}

impl<'c> Image<'c> {
    fn new(process: &ProcessView<'c>) -> Option<Image<'c>> {
        let image = process.image().ok()?;
        let pdb = process.pdb().ok().map(|pdb| Pdb {
            name: Cow::Owned(pdb.file_name().to_owned()),
            guid: Text(pdb.guid.to_string()),
            age: pdb.age,
        });
        Some(Image { time_date_stamp: image.time_date_stamp, size: image.size, pdb })
    }
}

impl<'c> EventThread<'c> {
    /// The start of a thread; `None` if it is not known.
    pub fn new(start: Result<ThreadStart<'c>, Missing>) -> Option<EventThread<'c>> {
        let start = start.ok()?;
        let module = start.module.ok();
        Some(EventThread {
            start_address: Hex(start.address.0),
            start_module: module.map(|(module, _)| module.file_name()),
            start_rva: module.map(|(_, rva)| Hex(rva)),
        })
    }
}

impl<'s> EventFile<'s> {
    /// The file of an event; `None` if events of its kind are about none.
    pub fn new(view: &'s EventView<'_>) -> Option<EventFile<'s>> {
        view.is_about_file().then(|| EventFile::at(view.file_path().ok()))
    }

    /// A file with this path, if it is known.
    pub fn at(path: Option<Cow<'s, str>>) -> EventFile<'s> {
        EventFile { path }
    }
}

impl<'c> EventRegistry<'c> {
    /// The key of an event.
    pub fn new(subject: RegistrySubject<'c>) -> EventRegistry<'c> {
        EventRegistry { path: subject.path.ok(), value: subject.value.ok().map(Cow::Owned) }
    }
}

impl<'c> EventTarget<'c> {
    /// The target of an event.
    pub fn new(target: Target<'_, 'c>) -> EventTarget<'c> {
        EventTarget {
            pid: target.pid().map(|pid| pid.0),
            tid: target.tid().map(|tid| tid.0),
            process: EventProcess::new(target.process()),
            thread: EventThread::new(target.thread_start()),
        }
    }
}
