//! Captured stacks of threads of each kind.

use stackhound_kstack_fake::HIGH;
use stackhound_kstack_fake::report::{Behavior, CHAIN, DISPATCHER, Report};
use stackhound_kstack_fake::settings::{Settings, UserWalk};
use stackhound_kstack_proto::{
    AnswerHeader, Capture, Flags, MAGIC, MAX_FRAMES, MAX_OUTSTANDING, MAX_TIMEOUT_MS, Missing, Outcome,
    VERSION, Version,
};
use windows_sys::Win32::Foundation::{CloseHandle, ERROR_BUSY, FILETIME};
use windows_sys::Win32::System::Threading::{
    GetCurrentThreadId, GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION,
};

use crate::device::Answered;
use crate::endings::await_until;
use crate::world::{World, calls};

fn abilities(world: &World) -> u16 {
    let version = world.device.version().expect("the version");
    assert_eq!((version.magic.get(), version.version.get()), (MAGIC, VERSION));
    assert_eq!((version.max_frames.get(), version.max_timeout_ms.get()), (MAX_FRAMES, MAX_TIMEOUT_MS));
    assert_eq!(usize::from(version.max_outstanding.get()), MAX_OUTSTANDING);
    version.abilities.get()
}

pub fn version(world: &mut World) {
    assert_eq!(abilities(world), Version::CAN_REMOVE);
}

pub fn version_of_old(world: &mut World) {
    assert_eq!(abilities(world), 0);
}

/// Captures the stack of the waiting thread.
fn waiting(world: &mut World, change: impl FnOnce(&mut Capture)) -> Answered {
    let tid = world.thread(Behavior::Waits);
    let mut capture = world.capture(tid);
    change(&mut capture);
    let answered = world.device.capture(&capture).expect("served");
    assert_eq!(answered.outcome, Outcome::Captured);
    answered
}

/// The functions of the fake among kernel frames, innermost first, once for each occurrence.
fn functions<'report>(report: &'report Report, frames: &[u64]) -> Vec<&'report str> {
    assert!(frames.iter().all(|frame| frame & HIGH == HIGH), "{frames:x?}");
    frames.iter().filter_map(|frame| report.function_at(frame & !HIGH)).collect()
}

/// Waits until all APCs have ended, so that no thread is busy and all later log lines belong to
/// later captures.
pub fn await_all_apcs() {
    await_until(|| {
        let calls = calls();
        let count = |like: &str| calls.iter().filter(|call| call.starts_with(like)).count();
        count("runs ") == count("ran ") + count("run down ")
    });
}

pub fn frames_in_order(world: &mut World) {
    await_all_apcs();
    let (answered, calls) = world.calls(|world| waiting(world, |_| {}));
    let kernel = answered.kernel.clone().expect("frames");
    // The driver's own frames and its caller in the dispatcher are omitted, but no others.
    assert_eq!(functions(&world.report, &kernel), CHAIN, "{kernel:x?}");
    assert!(answered.header.machinery.get() >= 2, "{:?}", answered.header);
    assert_eq!(answered.user, Ok(vec![0x7ff6_1234_0000, 0x7ff6_1234_0010, 0x7ff6_1234_0020]));
    assert_eq!((answered.header.flags.get(), answered.header.skipped.get()), (0, 0));
    // As designed: kernel mode, original environment, with a rundown routine, no priority boost;
    // one walk for each stack.
    let tid = world.thread(Behavior::Waits);
    let expected = [
        format!("PsLookupThreadByThreadId {tid}"),
        format!("KeInitializeApc {tid} environment 0 rundown true normal false mode 0"),
        format!("KeInsertQueueApc {tid} increment 0 = 1"),
        format!("runs {tid}"),
        "released, 0 threads are referenced".to_owned(),
    ];
    for call in expected {
        assert_eq!(calls.iter().filter(|&one| *one == call).count(), 1, "{call} in {calls:#?}");
    }
    let walks = calls.iter().filter(|call| call.starts_with("RtlWalkFrameChain"));
    let flags: Vec<&str> = walks.filter_map(|call| call.split(' ').nth(3)).collect();
    assert_eq!(flags, ["0x0", "0x1"]);
}

/// Here, the driver's own frames have addresses of a process, at which a kernel stack ends. They
/// are mapped so that they can be returned; then the driver does not recognize them as its own.
pub fn machinery_is_kept(world: &mut World) {
    let trimmed = waiting(world, |_| {});
    let whole = world.with(
        |settings| settings.own_mapped = true,
        |world| waiting(world, |capture| capture.flags = capture.flags.and(Flags::KEEP_MACHINERY)),
    );
    let (trimmed_frames, frames) = (trimmed.kernel.expect("frames"), whole.kernel.expect("frames"));
    assert_eq!(whole.header.machinery.get(), 0);
    let machinery = usize::from(trimmed.header.machinery.get());
    assert_eq!(frames[machinery..], trimmed_frames, "omitted: {machinery} frames of {frames:x?}");
    let found = functions(&world.report, &frames);
    assert_eq!(found[0], DISPATCHER);
    assert_eq!(found[1..], CHAIN);
    assert_eq!(world.report.function_at(frames[machinery - 1] & !HIGH), Some(DISPATCHER));
}

pub fn skipped_and_cut(world: &mut World) {
    let all = waiting(world, |_| {});
    let kernel = all.kernel.expect("frames");
    let skipped = waiting(world, |capture| capture.frames_to_skip = 2);
    assert_eq!(skipped.kernel.as_deref(), Ok(&kernel[2..]));
    assert_eq!((skipped.header.skipped.get(), skipped.user), (2, all.user.clone()));
    // Three entries: two kernel frames and one user frame.
    let cut = waiting(world, |capture| capture.max_frames = 3);
    assert_eq!(cut.kernel.as_deref(), Ok(&kernel[..2]));
    assert_eq!(cut.user, Ok(all.user.expect("frames")[..1].to_vec()));
    assert_eq!(cut.header.flags.get(), AnswerHeader::KERNEL_CUT | AnswerHeader::USER_CUT);
    // All frames are skipped.
    let nothing = waiting(world, |capture| capture.frames_to_skip = MAX_FRAMES);
    assert_eq!(nothing.kernel, Err(Missing::Nothing));
    // A user stack that fills the answer.
    let long = world.with(|settings| settings.user = UserWalk::Frames(300), |world| waiting(world, |_| {}));
    assert_eq!(long.kernel.as_deref(), Ok(&kernel[..]));
    assert_eq!(long.user.expect("frames").len(), usize::from(MAX_FRAMES) - kernel.len());
    assert_eq!(long.header.flags.get(), AnswerHeader::USER_CUT);
}

pub fn parts(world: &mut World) {
    let both = waiting(world, |_| {});
    let kernel = waiting(world, |capture| capture.flags = Flags::KERNEL);
    assert_eq!((kernel.kernel, kernel.user), (both.kernel, Ok(vec![])));
    let user = waiting(world, |capture| capture.flags = Flags::USER);
    assert_eq!((user.kernel, user.user), (Ok(vec![]), both.user));
}

/// As for a window procedure: the kernel stack is that of the innermost call, and the user stack
/// contains the kernel frames of the callback.
pub fn callback(world: &mut World) {
    let answered = world.with(|settings| settings.callback = 2, |world| waiting(world, |_| {}));
    assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    let callback = [HIGH + 0x1_0000, HIGH + 0x1_0010];
    let user = [&[0x7ff6_1234_0000][..], &callback, &[0x7ff6_1234_0010, 0x7ff6_1234_0020]].concat();
    assert_eq!((answered.user, answered.header.flags.get()), (Ok(user.clone()), 0));
    let cut = world.with(
        |settings| settings.callback = 2,
        |world| waiting(world, |capture| (capture.flags, capture.max_frames) = (Flags::USER, 4)),
    );
    assert_eq!((cut.user, cut.header.flags.get()), (Ok(user[..4].to_vec()), AnswerHeader::USER_CUT));
}

/// The kernel stack is present all the same, and the driver continues to work.
pub fn user_faults(world: &mut World) {
    let (answered, calls) = world.calls(|world| {
        world.with(|settings| settings.user = UserWalk::Faults, |world| waiting(world, |_| {}))
    });
    assert!(calls.iter().any(|call| call == "RtlWalkFrameChain faults"));
    assert_eq!(answered.user, Err(Missing::Faulted));
    assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    frames_in_order(world);
}

pub fn user_withheld(world: &mut World) {
    let attached = world.with(|settings| settings.attached = true, |world| waiting(world, |_| {}));
    let protected = world.with(|settings| settings.protected = true, |world| waiting(world, |_| {}));
    let empty = world.with(|settings| settings.user = UserWalk::Frames(0), |world| waiting(world, |_| {}));
    let tid = world.thread(Behavior::System);
    let capture = world.capture(tid);
    let system = world.device.capture(&capture).expect("served");
    for (answered, why) in [
        (attached, Missing::Attached),
        (protected, Missing::Protected),
        (empty, Missing::Nothing),
        (system, Missing::System),
    ] {
        assert_eq!(answered.user, Err(why));
        assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    }
}

/// A thread that may hold a file system lock reads no pages of its stack, unless the request allows
/// it.
pub fn critical_region(world: &mut World) {
    let inside = |world: &mut World, flags: Flags| {
        let set = |settings: &mut Settings| settings.region = true;
        world.with(set, |world| world.calls(|world| waiting(world, |capture| capture.flags = flags)))
    };
    let both = Flags::KERNEL.and(Flags::USER);
    let user_walks = |calls: &[String]| calls.iter().filter(|call| call.contains(" flags 0x1 ")).count();
    await_all_apcs();
    let (answered, calls) = inside(world, both);
    assert_eq!((answered.user, user_walks(&calls)), (Err(Missing::CriticalRegion), 0), "{calls:#?}");
    assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    await_all_apcs();
    let (answered, calls) = inside(world, both.and(Flags::USER_IN_CRITICAL_REGION));
    assert_eq!((answered.user.map(|frames| frames.len()), user_walks(&calls)), (Ok(3), 1), "{calls:#?}");
}

/// The kernel stack is present although a page of the user stack is not read. The thread can be
/// captured again once the page is read.
pub fn user_hangs(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let capture = Capture { timeout_ms: 200, ..world.capture(tid) };
    let hang = |settings: &mut Settings| settings.user = UserWalk::Hangs;
    let (answered, calls) =
        world.calls(|world| world.with(hang, |world| world.device.capture(&capture).expect("served")));
    assert!(calls.iter().any(|call| call == "RtlWalkFrameChain hangs"), "{calls:#?}");
    assert_eq!((answered.outcome, answered.user), (Outcome::Captured, Err(Missing::Unfinished)));
    assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    let capture = world.capture(tid);
    assert_eq!(world.device.outcome(&capture), Err(ERROR_BUSY), "its APC has not ended");
    world.set(|settings| settings.wakes += 1);
    await_all_apcs();
    frames_in_order(world);
}

/// A terminating thread still answers.
pub fn ending(world: &mut World) {
    let tid = world.thread(Behavior::Ending);
    let capture = world.capture(tid);
    let answered = world.device.capture(&capture).expect("served");
    assert_eq!(answered.outcome, Outcome::Captured);
    assert_eq!(functions(&world.report, &answered.kernel.expect("frames")), CHAIN);
    assert_eq!(answered.user.map(|frames| frames.len()), Ok(3));
}

pub fn own_stack(world: &mut World) {
    // SAFETY: no pointers.
    let tid = unsafe { GetCurrentThreadId() };
    let capture = Capture { pid: std::process::id(), ..world.capture(tid) };
    let (answered, calls) = world.calls(|world| world.device.capture(&capture).expect("served"));
    assert_eq!(answered.outcome, Outcome::Captured);
    assert_eq!(answered.header.flags.get(), AnswerHeader::OWN);
    // The request was called by the request dispatcher, without an APC.
    assert!(!answered.kernel.expect("frames").is_empty());
    assert!(answered.header.machinery.get() > 0);
    assert!(calls.iter().all(|call| !call.starts_with("KeI")), "{calls:#?}");
    // The thread is in the critical region of the driver, and holds no lock.
    assert_eq!(answered.user.map(|frames| frames.len()), Ok(3));
}

pub fn creation_time(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let created = created(tid);
    assert_eq!(waiting(world, |capture| capture.created = Some(created)).header.created.get(), created);
    for wrong in [1, created - 1, created + 1, u64::MAX] {
        let capture = Capture { created: Some(wrong), ..world.capture(tid) };
        assert_eq!(world.device.outcome(&capture), Ok(Outcome::NoThread));
    }
}

pub fn no_creation_time(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let capture = Capture { created: Some(created(tid)), ..world.capture(tid) };
    assert_eq!(world.device.outcome(&capture), Ok(Outcome::NoThread));
    assert_eq!(waiting(world, |_| {}).header.created.get(), 0);
}

/// The creation time of a thread, as the system reports it to programs.
fn created(tid: u32) -> u64 {
    // SAFETY: no pointers.
    let thread = unsafe { OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, tid) };
    assert!(!thread.is_null());
    let [mut created, mut ended, mut kernel, mut user] = [FILETIME::default(); 4];
    // SAFETY: all four are variables.
    assert_ne!(unsafe { GetThreadTimes(thread, &mut created, &mut ended, &mut kernel, &mut user) }, 0);
    // SAFETY: opened above, and not used again.
    unsafe { CloseHandle(thread) };
    u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime)
}

pub fn no_such_thread(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let wrong_process = Capture { pid: std::process::id(), ..world.capture(tid) };
    for capture in [wrong_process, world.capture(0x7fff_fff0), world.capture(0)] {
        let (outcome, calls) = world.calls(|world| world.device.outcome(&capture));
        assert_eq!(outcome, Ok(Outcome::NoThread));
        assert!(calls.iter().all(|call| !call.starts_with("KeI")), "{calls:#?}");
    }
}

pub fn idle(world: &mut World) {
    let capture = Capture { pid: 0, ..world.capture(0) };
    assert_eq!(world.device.outcome(&capture), Ok(Outcome::Idle));
}
