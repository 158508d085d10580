//! The services of system calls, by the addresses of their routines.

use std::cell::RefCell;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_frames::ServiceKind;
use stackhound_symbols::{Origin, ResolvedFrame};
use stackhound_system::System;
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
    kind: ServiceKind,
    name: Option<Arc<str>>,
}

/// The services that occurred.
#[derive(Debug, Default)]
pub(crate) struct Services {
    known: HashMap<u64, Service, foldhash::fast::RandomState>,
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
        if !self.known.contains_key(&routine.0) {
            let (module, rva) = system.kernel_module_at(routine, time)?;
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
            if self.known.len() >= SERVICES_MAX {
                self.known.clear();
            }
            self.known.insert(routine.0, Service { kind, name });
        }
        self.known.get(&routine.0)
    }
}

/// The name of the function that starts at an address.
fn start_name(names: &ResolvedFrame) -> Option<Arc<str>> {
    let (origin, name) = names.best()?;
    (origin != Origin::NearestExport && name.offset == 0).then(|| Arc::clone(&name.text))
}
