//! Requests that the driver refuses, and the errors that programs get.

use stackhound_kstack_fake::report::Behavior;
use stackhound_kstack_proto::{AnswerHeader, Code, MAX_FRAMES, MAX_TIMEOUT_MS, Request, Version};
use windows_sys::Win32::Foundation::{
    ERROR_INSUFFICIENT_BUFFER, ERROR_INVALID_FUNCTION, ERROR_INVALID_PARAMETER,
};
use zerocopy::IntoBytes;

use crate::captures::await_all_apcs;
use crate::world::World;

pub fn refused(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let good = Request::from(world.capture(tid));
    let (capture, version) = (Code::Capture.number(), Code::Version.number());
    let room = AnswerHeader::length_with(usize::from(MAX_FRAMES));
    let mut rows: Vec<(String, u32, Vec<u8>, usize, u32)> = Vec::new();
    let mut row = |name: &str, code, input: &[u8], room, error| {
        rows.push((name.to_owned(), code, input.to_owned(), room, error));
    };
    type Change = fn(&mut Request);
    let changes: [(&str, Change); 13] = [
        ("another magic", |request| request.magic = 0x4142_4344.into()),
        ("another version", |request| request.version = 1.into()),
        ("another size", |request| request.size = 47.into()),
        ("unknown flags", |request| request.flags = 0x0013.into()),
        ("no stack", |request| request.flags = 0.into()),
        ("no stack, but another flag", |request| request.flags = 4.into()),
        ("no frames", |request| request.max_frames = 0.into()),
        ("fewer frames than stacks", |request| request.max_frames = 1.into()),
        ("too many frames", |request| request.max_frames = (MAX_FRAMES + 1).into()),
        ("no timeout", |request| request.timeout_ms = 0.into()),
        ("a timeout that is too long", |request| request.timeout_ms = (MAX_TIMEOUT_MS + 1).into()),
        ("too many frames to skip", |request| request.frames_to_skip = (MAX_FRAMES + 1).into()),
        ("a reserved byte", |request| request.reserved[2] = 1.into()),
    ];
    for (name, change) in changes {
        let mut request = good;
        change(&mut request);
        row(name, capture, request.as_bytes(), room, ERROR_INVALID_PARAMETER);
    }
    let longer = [good.as_bytes(), &[0]].concat();
    for length in [0, 1, 47, 49] {
        row("a length", capture, &longer[..length], room, ERROR_INVALID_PARAMETER);
    }
    for room in [0, 1, AnswerHeader::LENGTH, room - 1] {
        row("no space", capture, good.as_bytes(), room, ERROR_INSUFFICIENT_BUFFER);
    }
    row("input to a version", version, &[0], 100, ERROR_INVALID_PARAMETER);
    for room in [0, size_of::<Version>() - 1] {
        row("no space for a version", version, &[], room, ERROR_INSUFFICIENT_BUFFER);
    }
    // The next function, another device type, and each other transfer method.
    for code in [version + (2 << 2), capture ^ 1 << 16, capture | 1, capture | 2, capture | 3] {
        row("an unknown request", code, good.as_bytes(), room, ERROR_INVALID_FUNCTION);
    }
    await_all_apcs();
    for (name, code, input, room, error) in rows {
        let (refused, calls) = world.calls(|world| world.device.control(code, &input, room));
        assert_eq!(refused, Err(error), "{name}: {code:#x}, {} bytes, output of {room}", input.len());
        assert_eq!(calls.len(), 1, "{name}: more than the completion: {calls:?}");
        assert!(calls[0].starts_with("completed 0xe") && calls[0].ends_with(" bytes 0"), "{calls:?}");
    }
    assert!(world.device.control(capture, good.as_bytes(), room).is_ok());
}
