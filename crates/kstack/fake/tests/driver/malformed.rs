//! Requests that the driver refuses, as the system tells programs.

use stackhound_kstack_fake::report::Behaviour;
use stackhound_kstack_proto::{AnswerHeader, Code, MAX_FRAMES, MAX_TIMEOUT_MS, Request, Version};
use windows_sys::Win32::Foundation::{
    ERROR_INSUFFICIENT_BUFFER, ERROR_INVALID_FUNCTION, ERROR_INVALID_PARAMETER,
};
use zerocopy::IntoBytes;

use crate::captures::await_the_end_of_all;
use crate::world::World;

pub fn refused(world: &mut World) {
    let tid = world.thread(Behaviour::Waits);
    let good = Request::from(world.capture(tid));
    let (capture, version) = (Code::Capture.number(), Code::Version.number());
    let room = AnswerHeader::length_with(usize::from(MAX_FRAMES));
    let mut rows: Vec<(String, u32, Vec<u8>, usize, u32)> = Vec::new();
    let mut row = |what: &str, code, input: &[u8], room, error| {
        rows.push((what.to_owned(), code, input.to_owned(), room, error));
    };
    type Change = fn(&mut Request);
    let changes: [(&str, Change); 13] = [
        ("another beginning", |request| request.magic = 0x4142_4344.into()),
        ("another version", |request| request.version = 1.into()),
        ("another size", |request| request.size = 47.into()),
        ("unknown flags", |request| request.flags = 0x0013.into()),
        ("no part", |request| request.flags = 0.into()),
        ("no part but a flag", |request| request.flags = 4.into()),
        ("no frames", |request| request.max_frames = 0.into()),
        ("fewer frames than parts", |request| request.max_frames = 1.into()),
        ("too many frames", |request| request.max_frames = (MAX_FRAMES + 1).into()),
        ("no time", |request| request.timeout_ms = 0.into()),
        ("too long a time", |request| request.timeout_ms = (MAX_TIMEOUT_MS + 1).into()),
        ("too much to skip", |request| request.frames_to_skip = (MAX_FRAMES + 1).into()),
        ("something reserved", |request| request.reserved[2] = 1.into()),
    ];
    for (what, change) in changes {
        let mut request = good;
        change(&mut request);
        row(what, capture, request.as_bytes(), room, ERROR_INVALID_PARAMETER);
    }
    let longer = [good.as_bytes(), &[0]].concat();
    for length in [0, 1, 47, 49] {
        row("a length", capture, &longer[..length], room, ERROR_INVALID_PARAMETER);
    }
    for room in [0, 1, AnswerHeader::LENGTH, room - 1] {
        row("no room", capture, good.as_bytes(), room, ERROR_INSUFFICIENT_BUFFER);
    }
    row("input to a version", version, &[0], 100, ERROR_INVALID_PARAMETER);
    for room in [0, size_of::<Version>() - 1] {
        row("no room for a version", version, &[], room, ERROR_INSUFFICIENT_BUFFER);
    }
    // The next function, another device type, and each other way to hand over buffers.
    for code in [version + (2 << 2), capture ^ 1 << 16, capture | 1, capture | 2, capture | 3] {
        row("an unknown request", code, good.as_bytes(), room, ERROR_INVALID_FUNCTION);
    }
    await_the_end_of_all();
    for (what, code, input, room, error) in rows {
        let (refused, calls) = world.calls(|world| world.device.control(code, &input, room));
        assert_eq!(refused, Err(error), "{what}: {code:#x}, {} bytes, room for {room}", input.len());
        assert_eq!(calls.len(), 1, "{what}: nothing but completed: {calls:?}");
        assert!(calls[0].starts_with("completed 0xe") && calls[0].ends_with(" bytes 0"), "{calls:?}");
    }
    assert!(world.device.control(capture, good.as_bytes(), room).is_ok());
}
