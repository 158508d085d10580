//! What kind of memory an address of a process lies in, as far as a recording tells.
//!
//! Four kinds of records tell: loads of modules, mapped sections, allocations of private memory, and compiled methods,
//! which make private memory that of a runtime. Each statement
//! holds from its time until another one about the same addresses; where statements overlap, the later one counts,
//! since a place can be taken again only after it was given up, whether the recording tells of that or not.

use stackhound_system::{Evidence, MethodRef, ModuleId, ProcessId, Protection, Runtime, Span, System};
use stackhound_trace::TraceTime;
use stackhound_types::Address;

/// What memory is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// A loaded image.
    Image,
    /// A mapped section that is no loaded image.
    Mapped,
    /// Allocated for this process alone.
    Private,
    /// Private too, with code that a runtime compiled into it.
    Jit(Runtime),
    /// Nothing in the recording tells.
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

/// Which records tell of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionSource {
    /// Loads and rundowns of modules.
    Modules,
    /// Mapped sections.
    Views,
    /// Allocations of memory.
    Allocations,
    /// Loads and rundowns of compiled methods.
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

/// The memory around an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// What it is.
    pub kind: RegionKind,
    /// Where the allocation starts, and its bytes.
    pub extent: Option<(Address, u64)>,
    /// What it was mapped with; pages can have been changed since. Allocations do not tell.
    pub protection: Option<Protection>,
    /// Which records tell, and how they know since when.
    pub evidence: Option<(RegionSource, Evidence)>,
}

impl Region {
    /// Nothing tells.
    pub const UNKNOWN: Region =
        Region { kind: RegionKind::Unknown, extent: None, protection: None, evidence: None };

    /// Memory of a module, and the module with the address' offset in it; `None` where none is loaded.
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
        // The unload was not recorded: the place is taken by something else since.
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

    /// Memory of a method that is in no module.
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

    /// Memory in which no module is loaded.
    pub(crate) fn without_module(
        system: &System,
        process: ProcessId,
        address: Address,
        time: TraceTime,
    ) -> Region {
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
