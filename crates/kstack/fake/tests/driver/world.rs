//! The environment of all cases: the driver's service, the device, and the report of the fake.

use std::path::PathBuf;
use std::time::Instant;

use stackhound_kstack_fake::report::{Behavior, Report};
use stackhound_kstack_fake::settings::Settings;
use stackhound_kstack_proto::{Capture, Flags};

use crate::access;
use crate::device::Device;
use crate::service::Service;

/// The description of a case, and its function.
pub type Case = (&'static str, fn(&mut World));

/// The environment of a case.
pub struct World {
    pub service: Service,
    pub device: Device,
    pub report: Report,
    /// The current settings of the fake; [`Self::set`] changes them.
    settings: Settings,
    next: u64,
}

/// The timeout in milliseconds for threads that answer at once. It is long, for busy machines.
pub const PATIENCE: u32 = 1000;

/// Runs the cases one after another, in a kernel of this name without the `missing` functions.
///
/// # Panics
/// At the first case that fails.
pub fn run(kernel: &str, missing: &[&str], cases: &[Case]) {
    std::fs::write(Report::calls(), "").expect("the folder exists");
    let start = Instant::now();
    let settings =
        Settings { missing: missing.iter().map(|&name| name.to_owned()).collect(), ..Settings::default() };
    let service = Service::create(kernel);
    for fail in ["ZwSetSecurityObject", "IoCreateSymbolicLink"] {
        Settings { fail: vec![fail.to_owned()], ..settings.clone() }.store().expect("settings are written");
        assert!(service.start().is_err(), "the driver must not load if {fail} fails");
        assert!(Device::open().is_err());
    }
    println!("ok: the driver does not load if its device cannot be secured and linked");
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
        println!("ok: {name} ({:.1} s)", start.elapsed().as_secs_f32());
    }
    world.service.delete();
    println!("ok: {} cases, and the service is deleted", cases.len() + 3);
}

impl World {
    /// The first thread with a behavior.
    pub fn thread(&self, behavior: Behavior) -> u32 {
        self.report.threads_with(behavior)[0]
    }

    /// A request for both stacks of a thread in the driver's process.
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

    /// Changes the settings of the fake.
    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        self.settings.store().expect("settings are written");
    }

    /// Runs a function with changed settings, and then restores them.
    pub fn with<T>(&mut self, change: impl FnOnce(&mut Settings), run: impl FnOnce(&mut World) -> T) -> T {
        let before = self.settings.clone();
        self.set(change);
        let result = run(self);
        self.set(|settings| *settings = before);
        result
    }

    /// Runs a function, and returns its result and the lines that were logged meanwhile.
    pub fn calls<T>(&mut self, run: impl FnOnce(&mut World) -> T) -> (T, Vec<String>) {
        let before = calls().len();
        let result = run(self);
        (result, calls().split_off(before))
    }
}

/// The log so far.
pub fn calls() -> Vec<String> {
    let path: PathBuf = Report::calls();
    let log = std::fs::read_to_string(path).expect("the log exists");
    log.lines().map(str::to_owned).collect()
}
