//! Which service of the kernel ran: by the address of its routine, or by the kernel's part of the stack.

use hashbrown::HashMap;
use stackhound_detect::{Binaries, FunctionName};
use stackhound_frames::{Code, Frame, FrameResolver, ModuleIndex, Modules, Operation};
use stackhound_system::{System, ValidityId};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Mode};

/// Number of a service's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Service(u32);

impl Service {
    /// Its number, from 0.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Addresses whose services are remembered, at most: there are some two thousand services.
const ADDRESSES_MAX: usize = 1 << 14;

/// Names of services.
#[derive(Debug, Default)]
pub(super) struct Services {
    names: Vec<(Box<str>, Operation)>,
    numbers: HashMap<Box<str>, Service, foldhash::fast::RandomState>,
    /// By the address of a routine, with the stretch of the kernel's modules that it was looked up in.
    addresses: HashMap<u64, (ValidityId, Option<Service>), foldhash::fast::RandomState>,
}

impl Services {
    /// The name of a service, and what it does.
    pub fn get(&self, service: Service) -> (&str, Operation) {
        let (name, operation) = &self.names[service.0 as usize];
        (name, *operation)
    }

    fn number(&mut self, modules: &Modules, name: &str) -> Service {
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        let number = Service(self.names.len() as u32);
        self.names.push((name.into(), modules.lists().operation(name)));
        self.numbers.insert(name.into(), number);
        number
    }

    /// The service whose routine begins at an address, in this stretch of the kernel's modules. `None` if no file names it.
    pub fn at(
        &mut self,
        system: &System,
        (resolver, binaries): (&mut FrameResolver, &mut Binaries),
        address: Address,
        (validity_id, time): (ValidityId, TraceTime),
    ) -> Option<Service> {
        if let Some((known, service)) = self.addresses.get(&address.0)
            && *known == validity_id
        {
            return *service;
        }
        let location = system.kernel_module_at(address, time);
        let location = location.map(|(module, rva)| (resolver.loaded(system, module.id()).index, rva));
        let modules = resolver.modules();
        let name =
            location.and_then(|location| function((modules, binaries), location, AddressKind::Instruction));
        let service = name.filter(|name| name.offset == 0).map(|name| self.number(modules, &name.text));
        if self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.clear();
        }
        self.addresses.insert(address.0, (validity_id, service));
        service
    }

    /// The service that the kernel's part of a stack shows: what the dispatcher of system calls has called. `None` if no
    /// file names both.
    pub fn in_stack(&mut self, (modules, binaries): Files<'_>, frames: &[Frame]) -> Option<Service> {
        let user = frames.iter().position(|frame| frame.mode == Mode::User)?;
        let [.., routine, dispatcher] = &frames[..user] else { return None };
        let name = named((modules, binaries), dispatcher)?;
        if !DISPATCHERS.iter().any(|dispatcher| name.text.starts_with(dispatcher)) {
            return None;
        }
        let name = named((modules, binaries), routine).filter(|name| name.text.starts_with("Nt"))?;
        Some(self.number(modules, &name.text))
    }
}

/// Where names of the functions begin that dispatch system calls: `KiSystemServiceCopyEnd`, `KiSystemServiceExitPico`,
/// `KiFastCallEntry` of 32-bit systems.
const DISPATCHERS: [&str; 2] = ["KiSystemService", "KiFastCallEntry"];

/// Modules and their image files.
pub(super) type Files<'a> = (&'a Modules, &'a mut Binaries);

/// The function that a frame is in.
pub(super) fn named<'a>(files: Files<'a>, frame: &Frame) -> Option<&'a FunctionName> {
    let Code::Image(module, rva) = frame.code else { return None };
    function(files, (module, rva), frame.kind)
}

fn function<'a>(
    (modules, binaries): Files<'a>,
    location: (ModuleIndex, u64),
    kind: AddressKind,
) -> Option<&'a FunctionName> {
    binaries.function(modules, location, kind)
}

/// The function that is at a place.
pub(super) fn location_name(files: Files<'_>, code: Code) -> Option<Box<str>> {
    let Code::Image(module, rva) = code else { return None };
    Some(function(files, (module, rva), AddressKind::Instruction)?.text.clone())
}
