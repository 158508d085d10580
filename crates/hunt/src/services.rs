//! The system service that ran, from the address of its routine or from the kernel stack.

use hashbrown::HashMap;
use stackhound_detect::{Binaries, FunctionName};
use stackhound_frames::{Code, Frame, FrameResolver, ModuleIndex, Modules, Operation};
use stackhound_system::{System, ValidityId};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Mode};

/// Index of a service name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Service(u32);

impl Service {
    /// The index.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Maximum number of cached addresses. Windows has about two thousand services.
const ADDRESSES_MAX: usize = 1 << 14;

/// The names of services.
#[derive(Debug, Default)]
pub(super) struct Services {
    names: Vec<(Box<str>, Operation)>,
    numbers: HashMap<Box<str>, Service, foldhash::fast::RandomState>,
    /// Services by the address of their routine, with the validity range of the kernel's modules at
    /// the look-up.
    addresses: HashMap<u64, (ValidityId, Option<Service>), foldhash::fast::RandomState>,
}

impl Services {
    /// The name of a service and its operation.
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

    /// The service whose routine starts at an address in this validity range of the kernel's
    /// modules. `None` if no file names it.
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

    /// The service in a kernel stack: the function that the system-call dispatcher has called.
    /// `None` if no file names both.
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

/// Prefixes of the functions that dispatch system calls: `KiSystemServiceCopyEnd`,
/// `KiSystemServiceExitPico`, and `KiFastCallEntry` of 32-bit systems.
const DISPATCHERS: [&str; 2] = ["KiSystemService", "KiFastCallEntry"];

/// Modules and their image files.
pub(super) type Files<'a> = (&'a Modules, &'a mut Binaries);

/// The function of a frame.
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

/// The function at a code location.
pub(super) fn location_name(files: Files<'_>, code: Code) -> Option<Box<str>> {
    let Code::Image(module, rva) = code else { return None };
    Some(function(files, (module, rva), AddressKind::Instruction)?.text.clone())
}
