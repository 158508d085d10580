//! Classifies the memory that contains an address of a process.
//!
//! Four kinds of records describe memory: loads of modules, mapped sections, allocations of private
//! memory, and JIT-compiled methods. A record is valid from its time until another record describes
//! the same addresses. If records overlap, the later one applies: memory can be reused only after
//! it was freed, even if the trace does not contain the free.

use stackhound_system::{Evidence, MethodRef, ModuleId, ProcessId, Protection, Runtime, Span, System};
use stackhound_trace::TraceTime;
use stackhound_types::Address;

/// The kind of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// A loaded image.
    Image,
    /// A mapped section that is not a loaded image.
    Mapped,
    /// Private memory of the process.
    Private,
    /// Memory with JIT-compiled code of this runtime.
    Jit(Runtime),
    /// No record describes it.
    Unknown,
}

impl RegionKind {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            RegionKind::Jit(Runtime::Clr) => "jit:clr",
            RegionKind::Jit(Runtime::Script) => "jit:script",
            RegionKind::Image => "image",
            RegionKind::Mapped => "mapped",
            RegionKind::Private => "private",
            RegionKind::Unknown => "unknown",
        }
    }
}

/// The kind of records that describe a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionSource {
    /// Loads and rundowns of modules.
    Modules,
    /// Mapped sections.
    Views,
    /// Allocations of memory.
    Allocations,
    /// Loads and rundowns of JIT-compiled methods.
    Methods,
}

impl RegionSource {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            RegionSource::Modules => "modules",
            RegionSource::Views => "views",
            RegionSource::Allocations => "allocations",
            RegionSource::Methods => "methods",
        }
    }
}

/// The memory region that contains an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// Kind of the memory.
    pub kind: RegionKind,
    /// Base address, and size in bytes.
    pub extent: Option<(Address, u64)>,
    /// Protection when the section was mapped. Pages may have been changed since. Allocations do
    /// not record it.
    pub protection: Option<Protection>,
    /// The records that describe the region, and the certainty of its start.
    pub evidence: Option<(RegionSource, Evidence)>,
}

impl Region {
    /// The region of an address that no record describes.
    pub const UNKNOWN: Region =
        Region { kind: RegionKind::Unknown, extent: None, protection: None, evidence: None };

    /// The memory of the module at an address, the module, and the offset of the address in it.
    /// `None` if no module is loaded there.
    pub(crate) fn of_module(
        system: &System,
        process: ProcessId,
        address: Address,
        time: TraceTime,
    ) -> Option<(Region, ModuleId, u64)> {
        let (module, rva) = system.module_in(process, address, time)?;
        let span = module.span();
        let view = system.view_in(process, address, time);
        let is_own = |base: Address| base == module.base();
        // The unload was not recorded, but another section was mapped at the address later.
        if view.is_some_and(|view| !is_own(view.base) && view.since > span.from) {
            return None;
        }
        let reserved = system.reserved_in(process, address, time);
        if reserved.is_some_and(|memory| memory.since > span.from) {
            return None;
        }
        let region = Region {
            kind: RegionKind::Image,
            extent: Some((module.base(), module.size())),
            protection: view.filter(|view| is_own(view.base)).map(|view| view.protection),
            evidence: Some((RegionSource::Modules, span.start)),
        };
        Some((region, module.id(), rva))
    }

    /// The memory of a method that is in no module.
    pub(crate) fn of_method(
        system: &System,
        process: ProcessId,
        method: MethodRef<'_>,
        time: TraceTime,
    ) -> Region {
        let around = Region::without_module(system, process, method.start(), time);
        Region {
            kind: RegionKind::Jit(method.runtime()),
            extent: around.extent.or(Some((method.start(), method.size()))),
            protection: around.protection,
            evidence: Some((RegionSource::Methods, method.evidence())),
        }
    }

    /// The memory at an address where no module is loaded. Not known in a loss interval.
    pub(crate) fn without_module(
        system: &System,
        process: ProcessId,
        address: Address,
        time: TraceTime,
    ) -> Region {
        if system.is_in_loss(time) {
            return Region::UNKNOWN;
        }
        let view = system.view_in(process, address, time);
        let memory = system.region_in(process, address, time);
        let memory = memory.and_then(|region| region.reserved.or(region.committed));
        match (view, memory) {
            (Some(view), memory) if memory.is_none_or(|memory| memory.since <= view.since) => Region {
                kind: RegionKind::Mapped,
                extent: Some((view.base, view.size)),
                protection: Some(view.protection),
                evidence: Some((RegionSource::Views, view.evidence)),
            },
            (_, Some(memory)) => {
                let is_old = memory.since == Span::BEGINNING;
                Region {
                    kind: RegionKind::Private,
                    extent: Some((memory.base, memory.size)),
                    protection: None,
                    evidence: Some((
                        RegionSource::Allocations,
                        if is_old { Evidence::Unknown } else { Evidence::Observed },
                    )),
                }
            }
            _ => Region::UNKNOWN,
        }
    }
}
