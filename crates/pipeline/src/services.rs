//! The services of system calls, by the addresses of their routines.

use std::cell::RefCell;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_frames::ServiceKind;
use stackhound_symbols::{Origin, ResolvedFrame};
use stackhound_system::{ModuleRef, System, ValidityId};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind};

use crate::naming::Naming;

/// Maximum number of cached services. Windows has about two thousand.
const SERVICES_MAX: usize = 1 << 14;

/// Prefix of the file names of the window manager, in all versions of Windows.
const WINDOW_MANAGER: &str = "win32k";

/// The service that ends a callback.
const CALLBACK_RETURN: [&str; 2] = ["NtCallbackReturn", "ZwCallbackReturn"];

/// A service whose module is known.
#[derive(Clone, Debug)]
struct Service {
    /// The validity range of the kernel's modules at the look-up.
    validity_id: ValidityId,
    kind: ServiceKind,
    name: Option<Arc<str>>,
}

/// The services that occurred.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// By the address of their routine. `None` if no module is known there.
    known: HashMap<u64, Option<Service>, foldhash::fast::RandomState>,
}

/// The state that a look-up needs: the machine, and the names of functions if they are available.
pub(crate) type Sources<'a> = (&'a System, Option<&'a RefCell<Naming>>);

impl Services {
    /// Whether the service with this routine can be `NtCallbackReturn`. The first look-up of each
    /// routine waits for its name.
    pub fn kind(&mut self, sources: Sources<'_>, routine: Address, time: TraceTime) -> ServiceKind {
        self.get(sources, routine, time).map_or(ServiceKind::Unknown, |service| service.kind)
    }

    /// The name of the service with this routine. `None` if no file names it.
    pub fn name(&mut self, sources: Sources<'_>, routine: Address, time: TraceTime) -> Option<Arc<str>> {
        self.get(sources, routine, time)?.name.clone()
    }

    fn get(&mut self, (system, naming): Sources<'_>, routine: Address, time: TraceTime) -> Option<&Service> {
        let validity_id = system.validity_id(None, time);
        if self.known.len() >= SERVICES_MAX && !self.known.contains_key(&routine.0) {
            self.known.clear();
        }
        let known = self.known.entry(routine.0).or_default();
        if known.as_ref().is_none_or(|known| known.validity_id != validity_id) {
            *known = system.kernel_module_at(routine, time).map(|(module, rva)| {
                let (kind, name) = look_up(naming, module, rva);
                Service { validity_id, kind, name }
            });
        }
        known.as_ref()
    }
}

/// The kind and the name of the service at an offset in a module.
fn look_up(
    naming: Option<&RefCell<Naming>>,
    module: ModuleRef<'_>,
    rva: u64,
) -> (ServiceKind, Option<Arc<str>>) {
    let name = naming.and_then(|naming| {
        let mut naming = naming.borrow_mut();
        let number = naming.request(module, rva, AddressKind::Instruction)?;
        naming.wait(number);
        start_name(naming.frame(number)?)
    });
    let prefix = module.file_name().get(..WINDOW_MANAGER.len());
    let kind = match &name {
        _ if prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(WINDOW_MANAGER)) => {
            ServiceKind::Graphics
        }
        Some(name) if CALLBACK_RETURN.contains(&&**name) => ServiceKind::CallbackReturn,
        Some(_) => ServiceKind::Other,
        None => ServiceKind::Unknown,
    };
    (kind, name)
}

/// The name of the function that starts at an address.
fn start_name(names: &ResolvedFrame) -> Option<Arc<str>> {
    let (origin, name) = names.best()?;
    (origin != Origin::NearestExport && name.offset == 0).then(|| Arc::clone(&name.text))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use stackhound_etl::EtlFile;
    use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
    use stackhound_schema::kernel::hook_id::{IMAGE_LOAD, IMAGE_UNLOAD};
    use stackhound_trace::{OpenTrace, Source};
    use stackhound_types::{Pid, PointerSize, RawTime, Tid};

    use super::*;

    const BASE: u64 = 0xffff_f800_0000_0000;

    /// The payload of an image event of the kernel, version 2.
    fn image(path: &str) -> Vec<u8> {
        let name: Vec<u8> = path.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        let range = [BASE.to_le_bytes(), 0x1_0000_u64.to_le_bytes()].concat();
        [range, vec![0; 16], BASE.to_le_bytes().to_vec(), vec![0; 16], name].concat()
    }

    /// A machine on which a driver is replaced by another one at the same address.
    fn system() -> System {
        let session = Session { start: RawTime(1000), ..Session::default() };
        let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
        let (first, second) = (r"\Windows\win32kfull.sys", r"\Windows\other.sys");
        let images = [(1010, IMAGE_LOAD, first), (1020, IMAGE_UNLOAD, first), (1030, IMAGE_LOAD, second)];
        for (time, hook_id, path) in images {
            let header = HeaderSpec::System { hook_id, version: 2, issuer: Issuer::new(Pid(4), Tid(8)) };
            let (payload, pointer_size) = (image(path), PointerSize::Eight);
            let payload = Payload::Bytes(&payload);
            writer.write(0, &RecordSpec { time: RawTime(time), pointer_size, header, payload }).unwrap();
        }
        let (file, _) = writer.finish().unwrap();
        let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
        let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap();
        let mut system = System::of(&trace);
        let mut events = trace.selected(System::selection());
        while let Some(event) = events.next() {
            system.observe(&event);
        }
        system
    }

    #[test]
    fn a_service_belongs_to_the_driver_that_is_loaded_at_the_time() {
        let (system, mut services) = (system(), Services::default());
        let kinds = [1015, 1035, 1025, 1015].map(|time| {
            let routine = Address(BASE + 0x100);
            let module = system.kernel_module_at(routine, TraceTime(time));
            (
                module.map(|(module, _)| module.file_name()),
                services.kind((&system, None), routine, TraceTime(time)),
            )
        });
        let (first, second) = (Some("win32kfull.sys"), Some("other.sys"));
        let expected = [
            (first, ServiceKind::Graphics),
            (second, ServiceKind::Unknown),
            (None, ServiceKind::Unknown),
            (first, ServiceKind::Graphics),
        ];
        assert_eq!(kinds, expected);
    }
}
