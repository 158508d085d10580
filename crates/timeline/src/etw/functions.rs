//! Maps addresses to functions, as locations of the stack model.

use hashbrown::HashMap;
use stackhound_calltree::{Builder, LocationId, LocationInfo, ModuleInfo};
use stackhound_frames::RegionKind;
use stackhound_pipeline::{Depth, EventView, FrameView, stem};
use stackhound_symbols::Origin;
use stackhound_system::{MethodId, MethodRef, ModuleId, ModuleRef, ValidityRange};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Mode, file_name};

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
    Address(u64),
}

/// A cache of functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    locations: HashMap<CodeLocation, Function, foldhash::fast::RandomState>,
    /// With the times at which a method has this module.
    methods: HashMap<MethodId, (ValidityRange, Function), foldhash::fast::RandomState>,
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
        // Nameless methods of native images are known better by the image.
        let method = frame.method().filter(|method| frame.module().is_none() || !method.name().is_empty());
        if let Some(method) = method {
            let (id, time) = (method.id(), view.time());
            if let Some(&(_, function)) = self.methods.get(&id).filter(|(valid, _)| valid.has(time)) {
                return function;
            }
            let known = look_up_method(method, frame.module(), time, builder);
            self.methods.insert(id, known);
            return known.1;
        }
        let location = match (frame.module(), frame.rva()) {
            (Some(module), Some(rva)) => {
                CodeLocation::Module(module.id(), rva, frame.kind == AddressKind::Return)
            }
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
        let module = Some(builder.module(image_info(module)));
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
    let here = (frame.depth() > Depth::Address || address.0 != 0)
        .then(|| builder.location(LocationInfo { address: Some(address), ..nothing }));
    Function { identity: None, location: here, calls_back: false }
}

/// The function of a JIT-compiled or precompiled method, with the times at which it has this module:
/// the one that contains its intermediate language, so that code of both kinds has the same name.
fn look_up_method(
    method: MethodRef<'_>,
    image: Option<ModuleRef<'_>>,
    time: TraceTime,
    builder: &mut Builder,
) -> (ValidityRange, Function) {
    let (path, validity) = method.il_module(time);
    let module = match (path, image) {
        ("", Some(image)) => image_info(image),
        // Named as in event stacks: `jit:clr!Program.Main`.
        ("", None) => {
            let name = RegionKind::Jit(method.runtime()).name().to_owned();
            ModuleInfo { name, path: None, base: None }
        }
        (path, _) => ModuleInfo { name: short(file_name(path)), path: Some(path.to_owned()), base: None },
    };
    let text = method.to_string();
    let start = LocationInfo {
        address: Some(Address(method.start().0)),
        module: Some(builder.module(module)),
        rva: None,
        symbol: Some(text).filter(|text| !text.is_empty()),
        symbol_offset: 0,
    };
    let start = Some(builder.location(start));
    (validity, Function { identity: start, location: start, calls_back: false })
}

fn image_info(image: ModuleRef<'_>) -> ModuleInfo {
    ModuleInfo {
        name: short(image.file_name()),
        path: Some(image.path().to_owned()),
        base: Some(Address(image.base().0)),
    }
}

/// The name of a module as debuggers show it: `ntoskrnl` for `ntoskrnl.exe`.
fn short(file_name: &str) -> String {
    stem(file_name).unwrap_or(file_name).to_owned()
}
