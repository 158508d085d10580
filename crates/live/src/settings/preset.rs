//! Presets: kernel sessions by their use, one row each. `docs/live.md` describes them.

use super::{Buffers, ClassicEvent, KernelGroups, Session};

/// Declares the presets with a row for each: the variant, its documentation, its name, and what it records.
macro_rules! presets {
    ($($(#[doc = $doc:literal])+ $preset:ident = $name:literal $row:expr,)+) => {
        /// A kernel session by its use.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Preset {
            $($(#[doc = $doc])+ $preset,)+
        }

        impl Preset {
            /// All presets.
            pub const ALL: [Preset; [$($name),+].len()] = [$(Preset::$preset),+];

            /// The name in arguments.
            pub fn name(self) -> &'static str {
                [$($name),+][self as usize]
            }

            /// What it records, as a line of help.
            pub fn about(self) -> &'static str {
                [$(concat!($($doc),+)),+][self as usize].trim_start()
            }

            fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$($row),+];
                &ROWS[self as usize]
            }
        }
    };
}

/// The settings of a preset.
struct Row {
    groups: &'static [KernelGroups],
    /// The events with stacks, by name.
    stacks: &'static [&'static str],
    buffers: fn() -> Buffers,
    /// Whether names of open files and keys are logged at the start.
    has_names: bool,
}

presets! {
    /// All system calls with their stacks
    Syscalls = "syscalls" Row {
        // Context switches, without stacks, show the thread of each exit, which has no other evidence of it.
        groups: &[
            KernelGroups::SYSTEM_CALL,
            KernelGroups::CONTEXT_SWITCH,
            KernelGroups::PROCESS,
            KernelGroups::THREAD,
            KernelGroups::IMAGE_LOAD,
        ],
        stacks: &["PerfInfo/SysCallEnter"],
        buffers: Buffers::syscalls,
        has_names: false,
    },
    /// Processes, threads, images, registry, files and memory, with the stacks that are resolved by default
    Enrichment = "enrichment" Row {
        groups: &[
            KernelGroups::PROCESS,
            KernelGroups::THREAD,
            KernelGroups::IMAGE_LOAD,
            KernelGroups::REGISTRY,
            KernelGroups::FILE_IO,
            KernelGroups::FILE_IO_INIT,
            KernelGroups::VIRTUAL_ALLOC,
        ],
        stacks: &[
            "Process/Start",
            "Thread/Start",
            "Thread/End",
            "Image/Load",
            "Registry/Create",
            "Registry/Delete",
            "Registry/SetValue",
            "Registry/DeleteValue",
            "FileIo/Create",
            "FileIo/CreateNew",
            "FileIo/Delete",
            "FileIo/DeletePath",
            "FileIo/Rename",
            "FileIo/RenamePath",
            "PageFault/VirtualAlloc",
        ],
        buffers: Buffers::throughput,
        has_names: true,
    },
    /// Processes, threads, images, and context switches with their stacks, for `kstack`
    Switches = "switches" Row {
        groups: &[
            KernelGroups::CONTEXT_SWITCH,
            KernelGroups::DISPATCHER,
            KernelGroups::PROCESS,
            KernelGroups::THREAD,
            KernelGroups::IMAGE_LOAD,
        ],
        stacks: &["Thread/CSwitch"],
        buffers: Buffers::syscalls,
        has_names: false,
    },
}

impl Preset {
    /// The preset with a name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// A session with its events. An empty name is replaced with a unique one.
    pub fn session(self, name: impl Into<String>) -> Session {
        let Row { groups, stacks, buffers, has_names } = self.row();
        let groups = groups.iter().fold(KernelGroups::NONE, |groups, group| groups | *group);
        // A test asks for each.
        let stacks = stacks.iter().filter_map(|name| ClassicEvent::named(name).ok());
        let session = Session::kernel(name, groups).buffers(buffers()).kernel_stacks(stacks);
        if *has_names { session.names_at_start() } else { session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_events_and_are_described() {
        let page = include_str!("../../../../docs/live.md");
        for preset in Preset::ALL {
            let (name, Row { groups, stacks, .. }) = (preset.name(), preset.row());
            assert_eq!(Preset::named(name), Some(preset));
            assert!(!groups.is_empty() && !preset.about().is_empty(), "{name}");
            for event in *stacks {
                assert!(ClassicEvent::named(event).is_ok(), "{name}: {event}");
            }
            assert_eq!(preset.session("").numbers().unwrap().stacks.len(), stacks.len(), "{name}");
            assert!(page.contains(&format!("\n| `{name}` | ")), "docs/live.md does not describe {name}");
        }
    }
}
