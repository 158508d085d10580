//! Maps addresses to functions, as locations of the stack model.

use hashbrown::HashMap;
use stackhound_calltree::{Builder, LocationId, LocationInfo, ModuleInfo};
use stackhound_frames::RegionKind;
use stackhound_pipeline::{Depth, EventView, FrameView, stem};
use stackhound_symbols::Origin;
use stackhound_system::{MethodId, ModuleId};
use stackhound_types::{Address, AddressKind, Mode};

use crate::SampledFrame;

/// A function, and the location to show for an address in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub identity: Option<LocationId>,
    pub location: Option<LocationId>,
    /// Whether it is a kernel function that calls into user mode.
    pub calls_back: bool,
}

/// The functions through which the kernel calls user mode.
const CALLBACKS: [&str; 2] = ["KeUserModeCallback", "KiCallUserMode"];

/// A code location whose function was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum CodeLocation {
    Module(ModuleId, u64, bool),
    Method(MethodId),
    Address(u64),
}

/// A cache of functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    locations: HashMap<CodeLocation, Function, foldhash::fast::RandomState>,
}

impl Functions {
    /// Converts a frame of an event's stack.
    pub fn frame(
        &mut self,
        view: &EventView<'_>,
        frame: &FrameView<'_>,
        builder: &mut Builder,
    ) -> SampledFrame {
        let Function { identity, location, calls_back } = self.of(view, frame, builder);
        SampledFrame { address: frame.address().0, function: identity, calls_back, location }
    }

    /// The routine that starts at a kernel address.
    pub fn routine(
        &mut self,
        view: &EventView<'_>,
        address: stackhound_types::Address,
        builder: &mut Builder,
    ) -> Option<LocationId> {
        let (system, event) = (view.trace_state().system(), view.event());
        let session = event.block().session().pointer_size;
        let mut resolver = view.resolver();
        let facts = resolver
            .at(system, view.stack_owner(), event.time(), session)
            .frame(address, AddressKind::Instruction);
        drop(resolver);
        let frame = FrameView::new(facts, system, view.depth(Mode::Kernel));
        // Even without a name, the address is known to be the start of a function.
        self.of(view, &frame, builder).location
    }

    fn of(&mut self, view: &EventView<'_>, frame: &FrameView<'_>, builder: &mut Builder) -> Function {
        let location = match (frame.module(), frame.rva(), frame.method()) {
            (Some(module), Some(rva), _) => {
                CodeLocation::Module(module.id(), rva, frame.kind == AddressKind::Return)
            }
            (_, _, Some(method)) => CodeLocation::Method(method.id()),
            _ => CodeLocation::Address(frame.address().0),
        };
        if let Some(&function) = self.locations.get(&location) {
            return function;
        }
        let function = look_up(view, frame, builder);
        self.locations.insert(location, function);
        function
    }
}

fn look_up(view: &EventView<'_>, frame: &FrameView<'_>, builder: &mut Builder) -> Function {
    let address = Address(frame.address().0);
    let nothing = LocationInfo { address: None, module: None, rva: None, symbol: None, symbol_offset: 0 };
    if let (Some(module), Some(rva)) = (frame.module(), frame.rva()) {
        let file_name = module.file_name();
        let info = ModuleInfo {
            // As debuggers show it: `ntoskrnl` for `ntoskrnl.exe`.
            name: stem(file_name).unwrap_or(file_name).to_owned(),
            path: Some(module.path().to_owned()),
            base: Some(Address(module.base().0)),
        };
        let module = Some(builder.module(info));
        let names = view.names(frame);
        // The nearest export may belong to another function.
        let name = names.as_ref().and_then(|names| names.best());
        let name = name.filter(|(origin, _)| *origin != Origin::NearestExport);
        if let Some((_, name)) = name {
            let offset = u64::from(name.offset);
            let start = LocationInfo {
                address: Some(Address(address.0.saturating_sub(offset))),
                module,
                rva: rva.checked_sub(offset),
                symbol: Some(name.text.to_string()),
                symbol_offset: 0,
            };
            let start = Some(builder.location(start));
            let calls_back = frame.mode == Mode::Kernel && CALLBACKS.contains(&&*name.text);
            return Function { identity: start, location: start, calls_back };
        }
        let whole = builder.location(LocationInfo { module, ..nothing.clone() });
        let here = LocationInfo { address: Some(address), module, rva: Some(rva), ..nothing };
        return Function { identity: Some(whole), location: Some(builder.location(here)), calls_back: false };
    }
    if let Some(method) = frame.method() {
        let text = method.to_string();
        // Named as in event stacks: `jit:clr!Program.Main`.
        let runtime = RegionKind::Jit(method.runtime()).name().to_owned();
        let start = LocationInfo {
            address: Some(Address(method.start().0)),
            module: Some(builder.module(ModuleInfo { name: runtime, path: None, base: None })),
            symbol: Some(text).filter(|text| !text.is_empty()),
            ..nothing
        };
        let start = Some(builder.location(start));
        return Function { identity: start, location: start, calls_back: false };
    }
    let here = (frame.depth() > Depth::Address || address.0 != 0)
        .then(|| builder.location(LocationInfo { address: Some(address), ..nothing }));
    Function { identity: None, location: here, calls_back: false }
}
