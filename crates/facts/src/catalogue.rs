//! The rows of all facts.
//!
//! To add a fact, add a row here. The compiler then asks for a getter for each input, and the tests say which generated
//! pages to write again.

use crate::row::{FactId, FactRow, FactType};

/// Declares an enum of facts with a row for each: the variant, its documentation, its path and type, and its names in
/// other schemas.
macro_rules! facts {
    (
        $(#[doc = $about:literal])+
        $name:ident {
            $($(#[doc = $doc:literal])+ $fact:ident = $path:literal $type:ident $(. $method:ident($argument:expr))*,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[doc = $doc])+ $fact,)+
        }

        impl FactId for $name {
            const ALL: &'static [$name] = &[$($name::$fact),+];

            fn index(self) -> usize {
                self as usize
            }

            fn row(self) -> &'static FactRow {
                const ROWS: &[FactRow] = &[
                    $(FactRow::new($path, FactType::$type, concat!($($doc),+))$(.$method($argument))*,)+
                ];
                &ROWS[self as usize]
            }
        }
    };
}

facts! {
    /// A fact about a process.
    ProcessFact {
        /// File name of the program.
        Name = "name" Text .fibratus("name") .ecs("name").ocsf("name"),
        /// Path of the program; it begins with a drive if the trace states the drives.
        Path = "path" Text .fibratus("exe") .ecs("executable").ocsf("file.path")
            .sigma(&["Image", "SourceImage", "NewProcessName", "ProcessName"]),
        /// The command line.
        CommandLine = "command_line" Text .fibratus("cmdline") .ecs("command_line").ocsf("cmd_line").sigma(&["CommandLine"]),
        /// Id of the process that it inherits from.
        ParentPid = "parent.pid" Number .fibratus("ppid") .column("parent_pid").ecs("parent.pid").ocsf("parent_process.pid").sigma(&["ParentProcessId"]),
        /// File name of the program of that process.
        ParentName = "parent.name" Text .column("parent_name").ecs("parent.name").ocsf("parent_process.name"),
        /// Path of the program of that process.
        ParentPath = "parent.path" Text .column("parent_path").ecs("parent.executable").ocsf("parent_process.file.path")
            .sigma(&["ParentImage", "ParentProcessName"]),
        /// Security identifier of the user.
        UserSid = "user.sid" Text .fibratus("sid") .column("user_sid").ecs("user.id").ocsf("user.uid"),
        /// Name of the user, such as `CONTOSO\user`; from traces, the English name of identifiers that are the same on all machines.
        UserName = "user.name" Text .fibratus("username") .column("user_name").ecs("user.name").ocsf("user.name").sigma(&["User", "SourceUser"]),
        /// Terminal session; absent for processes that belong to none.
        Session = "session" Number .fibratus("sessionid") .ocsf("session.uid").sigma(&["TerminalSessionId"]),
        /// Integrity level: `untrusted`, `low`, `medium`, `medium-plus`, `high`, `system` or `protected`.
        Integrity = "integrity" Text .fibratus("token.integrity_level") .ecs("Ext.token.integrity_level_name").ocsf("integrity").sigma(&["IntegrityLevel"]),
        /// Start time; in traces as Microsoft-Windows-Kernel-Process states it, otherwise that of the event that reports the start.
        StartTime = "start_time" Time .ecs("start").ocsf("created_time").column("created"),
        /// Identifies the process among all that had its id: `PID@START` in traces, a GUID in Sysmon's data.
        Entity = "entity" Text .fibratus("uuid") .sigma(&["ProcessGuid", "SourceProcessGUID", "SourceProcessGuid"]),
        /// Time stamp in the header of the program's image.
        TimeDateStamp = "image.time_date_stamp" Number .column("image_time_date_stamp"),
        /// Size of the program's image in memory, in bytes.
        ImageSize = "image.size" Number .column("image_size"),
        /// File name of the program's PDB.
        PdbName = "image.pdb.name" Text .column("image_pdb_name"),
        /// GUID of the program's PDB.
        PdbGuid = "image.pdb.guid" Text .column("image_pdb_guid"),
        /// Age of the program's PDB.
        PdbAge = "image.pdb.age" Number .column("image_pdb_age"),
    }
}

facts! {
    /// A fact about a thread.
    ThreadFact {
        /// Address of the function that the thread was created for.
        StartAddress = "start_address" Hex .ecs("Ext.start_address"),
        /// File name of the module that contains that function.
        StartModule = "start_module" Text .ecs("Ext.start_address_module"),
        /// Offset of the function in that module.
        StartRva = "start_rva" Hex,
    }
}

facts! {
    /// A fact about an object of an event: its path begins with the object.
    EventFact {
        /// Path of the file that the event is about.
        FilePath = "file.path" Text,
        /// Name of the file that the event is about; of a folder, the folder's name.
        FileName = "file.name" Text,
        /// Path of the registry key that the event is about.
        RegistryPath = "registry.path" Text,
        /// Name of the registry value that the event is about; empty for the default value of the key.
        RegistryValue = "registry.value" Text,
        /// Id of the process that the event acts on, if it is not its own.
        TargetPid = "target.pid" Number,
        /// Id of the thread that the event acts on, if it is not its own.
        TargetTid = "target.tid" Number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The part before the last dot.
    fn parent(path: &str) -> &str {
        path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }

    fn check<F: FactId>() {
        let mut paths = BTreeSet::new();
        let mut finished = BTreeSet::new();
        let mut last = "";
        for (index, fact) in F::ALL.iter().enumerate() {
            let row = fact.row();
            assert_eq!(fact.index(), index);
            assert!(paths.insert(row.path), "{}: two facts have this path", row.path);
            assert!(row.doc.ends_with('.'), "{}: expected a sentence", row.path);
            // Objects of JSON are written without looking back.
            if parent(row.path) != last {
                if !parent(row.path).starts_with(last) {
                    finished.insert(last);
                }
                last = parent(row.path);
                assert!(!finished.contains(last), "{}: not adjacent to the facts with this prefix", row.path);
            }
        }
        for path in &paths {
            assert!(!paths.contains(parent(path)), "{path}: below another fact");
        }
    }

    /// The path is the column. The lifetime of a process has a column with the name of the exception.
    #[test]
    fn columns_are_paths() {
        let processes = ProcessFact::ALL.iter().map(|fact| fact.row());
        for row in processes.chain(ThreadFact::ALL.iter().map(|fact| fact.row())) {
            let is_renamed = row.path == "start_time";
            let column = if is_renamed { "created".to_owned() } else { row.path.replace('.', "_") };
            assert_eq!(row.column, column);
        }
    }

    #[test]
    fn facts_with_a_common_prefix_are_neighbors() {
        check::<ProcessFact>();
        check::<ThreadFact>();
        check::<EventFact>();
    }
}
