//! What a rule needs from its input.

/// Something that an input may or may not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Need {
    /// Starts and ends of processes.
    ProcessEvents,
    /// Starts and ends of threads.
    ThreadEvents,
    /// Loads and unloads of images.
    ImageEvents,
    /// File operations.
    FileEvents,
    /// Registry operations.
    RegistryEvents,
    /// Network operations.
    NetworkEvents,
    /// Handles.
    HandleEvents,
    /// Allocations of memory.
    MemoryEvents,
    /// Mapped and unmapped sections: the keyword VAMAP of the kernel logger.
    SectionEvents,
    /// Microsoft-Windows-Kernel-Audit-API-Calls.
    AuditEvents,
    /// Microsoft-Windows-DNS-Client.
    DnsEvents,
    /// Thread pools.
    ThreadPoolEvents,
    /// Microsoft-Windows-Kernel-Process: integrity levels and protection.
    ProcessDetails,
    /// Microsoft-Windows-Kernel-Registry with captured data.
    RegistryData,
    /// Call stacks.
    Stacks,
    /// Names of functions, from files of images or symbols.
    FunctionNames,
    /// Signatures of images: from events, files or a side-car file.
    Signatures,
    /// Other facts about files of images, such as their version resource.
    ImageFiles,
    /// Memory of running processes.
    LiveMemory,
    /// The running system: its files, registry and environment.
    LiveSystem,
}

/// A set of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs(u32);

const NEEDS: [(Need, &str); 20] = [
    (Need::ProcessEvents, "process-events"),
    (Need::ThreadEvents, "thread-events"),
    (Need::ImageEvents, "image-events"),
    (Need::FileEvents, "file-events"),
    (Need::RegistryEvents, "registry-events"),
    (Need::NetworkEvents, "network-events"),
    (Need::HandleEvents, "handle-events"),
    (Need::MemoryEvents, "memory-events"),
    (Need::SectionEvents, "section-events"),
    (Need::AuditEvents, "audit-events"),
    (Need::DnsEvents, "dns-events"),
    (Need::ThreadPoolEvents, "thread-pool-events"),
    (Need::ProcessDetails, "process-details"),
    (Need::RegistryData, "registry-data"),
    (Need::Stacks, "stacks"),
    (Need::FunctionNames, "function-names"),
    (Need::Signatures, "signatures"),
    (Need::ImageFiles, "image-files"),
    (Need::LiveMemory, "live-memory"),
    (Need::LiveSystem, "live-system"),
];

impl Need {
    /// The name in output.
    pub fn name(self) -> &'static str {
        NEEDS[self as usize].1
    }

    /// The need with a name in output.
    pub fn of(name: &str) -> Option<Need> {
        NEEDS.iter().find(|(_, known)| *known == name).map(|(need, _)| *need)
    }
}

impl Needs {
    /// Nothing.
    pub const NONE: Needs = Needs(0);

    /// One need.
    pub const fn of(need: Need) -> Needs {
        Needs(1 << need as u8)
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Whether a need is in the set.
    pub const fn has(self, need: Need) -> bool {
        self.0 & 1 << need as u8 != 0
    }

    /// All needs in the set.
    pub fn iter(self) -> impl Iterator<Item = Need> {
        NEEDS.iter().map(|(need, _)| *need).filter(move |need| self.has(*need))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_needs() {
        for (index, (need, name)) in NEEDS.iter().enumerate() {
            assert_eq!((*need as usize, need.name(), Need::of(name)), (index, *name, Some(*need)));
        }
        let both = Needs::of(Need::Stacks).with(Needs::of(Need::FileEvents));
        assert_eq!(both.iter().collect::<Vec<_>>(), [Need::FileEvents, Need::Stacks]);
    }
}
