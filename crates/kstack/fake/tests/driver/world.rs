//! What all cases have: the driver's service, the device, and what the fake says of itself.

use std::path::PathBuf;
use std::time::Instant;

use stackhound_kstack_fake::report::{Behaviour, Report};
use stackhound_kstack_fake::settings::Settings;
use stackhound_kstack_proto::{Capture, Flags};

use crate::access;
use crate::device::Device;
use crate::service::Service;

/// What a case shows, and how.
pub type Case = (&'static str, fn(&mut World));

/// See the module.
pub struct World {
    pub service: Service,
    pub device: Device,
    pub report: Report,
    /// What the fake is to do; [`Self::set`] changes it.
    settings: Settings,
    next: u64,
}

/// The time that threads get which answer at once. Long, for busy machines.
pub const PATIENCE: u32 = 1000;

/// Runs the cases one after the other, in a kernel of that name, without the `missing` functions.
///
/// # Panics
/// At the first case that fails.
pub fn run(kernel: &str, missing: &[&str], cases: &[Case]) {
    std::fs::write(Report::calls(), "").expect("the folder is there");
    let begun = Instant::now();
    let settings =
        Settings { missing: missing.iter().map(|&name| name.to_owned()).collect(), ..Settings::default() };
    let service = Service::create(kernel);
    for fail in ["ZwSetSecurityObject", "IoCreateSymbolicLink"] {
        Settings { fail: vec![fail.to_owned()], ..settings.clone() }.store().expect("settings are written");
        assert!(service.start().is_err(), "the driver must not load where {fail} fails");
        assert!(Device::open().is_err());
    }
    println!("ok: where the device cannot be made as it must be, the driver does not load");
    settings.store().expect("settings are written");
    service.start().expect("the service starts");
    println!("ok: the service is created, and the driver loads");
    access::switch_privilege(true);
    let device = Device::open().expect("the device opens");
    let report = std::fs::read_to_string(Report::path()).expect("the fake reports");
    let report = Report::parse(&report).expect("a report");
    let mut world = World { service, device, report, settings, next: 1 };
    for (name, case) in cases {
        case(&mut world);
        println!("ok: {name} ({:.1} s)", begun.elapsed().as_secs_f32());
    }
    world.service.delete();
    println!("ok: {} cases, and the service is deleted", cases.len() + 3);
}

impl World {
    /// The one thread of a behaviour.
    pub fn thread(&self, behaviour: Behaviour) -> u32 {
        self.report.threads_that(behaviour)[0]
    }

    /// A request for both parts of a thread of the driver's process.
    pub fn capture(&mut self, tid: u32) -> Capture {
        self.next += 1;
        Capture {
            pid: self.report.process,
            tid,
            created: None,
            max_frames: 256,
            flags: Flags::KERNEL.and(Flags::USER),
            timeout_ms: PATIENCE,
            id: self.next << 32 | u64::from(tid),
            frames_to_skip: 0,
        }
    }

    /// Changes what the fake does.
    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.settings.store().expect("settings are written");
    }

    /// Runs something with other settings, and then puts them back.
    pub fn with<T>(&mut self, change: impl FnOnce(&mut Settings), run: impl FnOnce(&mut World) -> T) -> T {
        let before = self.settings.clone();
        self.set(change);
        let result = run(self);
        self.set(|settings| *settings = before);
        result
    }

    /// What is done while calls are looked at: the lines that the log has afterwards, and had not before.
    pub fn calls<T>(&mut self, run: impl FnOnce(&mut World) -> T) -> (T, Vec<String>) {
        let before = calls().len();
        let result = run(self);
        (result, calls().split_off(before))
    }
}

/// The log so far.
pub fn calls() -> Vec<String> {
    let path: PathBuf = Report::calls();
    let log = std::fs::read_to_string(path).expect("the log is there");
    log.lines().map(str::to_owned).collect()
}
