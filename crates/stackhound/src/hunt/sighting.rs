//! Judged events with all that outputs tell of them.

use stackhound_detect::report::{
    EventReport, FrameReport, Place, ProcessReport, Sighting, final_user_module, summary,
};
use stackhound_detect::{Case, Code, Frame, Judge, MemoryKind, Mode, Services as Ran, View};
use stackhound_enrich as enrich;
use stackhound_etl::RawTime;
use stackhound_system::{Span, System};

use super::{Circumscribed, Hunter, services};
use crate::seen::Seen;

impl Hunter {
    /// All that outputs tell of an event, named from the files that the judge looks into. For findings: it costs far more than
    /// judging does.
    pub fn sighting(&mut self, seen: &Seen<'_>, place: Place) -> Sighting {
        let all = self.circumscribe(seen);
        let facts: Vec<enrich::Frame> = seen.facts().collect();
        let system = seen.knowledge().system();
        self.facts_number(system, all.around.session, all.around.owner.process, seen.time());
        let process = self.process_report(seen, &all);
        let target_pid = all.told.target.map(|target| target.pid.0);
        let (event, stack, asker) = self.with_case(seen, &all, |judge, case| {
            let frames = case.stack.frames.iter().zip(&facts);
            let stack: Vec<FrameReport> =
                frames.map(|(frame, facts)| frame_report(system, judge, frame, facts)).collect();
            let asker = final_user_module(&View::new(case, judge.modules()));
            (event_report(seen, judge, case, target_pid), stack, asker)
        });
        Sighting {
            place,
            count: 1,
            time: u64::try_from(seen.utc().0).ok(),
            host: String::new(),
            process,
            event,
            summary: summary(&stack),
            stack,
            final_user_module: asker,
        }
    }

    fn process_report(&self, seen: &Seen<'_>, all: &Circumscribed) -> ProcessReport {
        let owner = all.around.owner;
        let system = seen.knowledge().system();
        let process = owner.process.map(|process| system.process(process));
        let facts = self.processes.facts(owner.process).process();
        let name = process.map_or("", |process| process.image_name());
        let from = process.map(|process| process.span().from).filter(|from| *from != Span::BEGINNING);
        let started = from.map(|from| self.clock.to_file_time(RawTime(from.0)));
        ProcessReport {
            pid: owner.pid.or_else(|| seen.pid()).map(|pid| pid.0),
            tid: owner.tid.or_else(|| seen.tid()).map(|tid| tid.0),
            name: name.to_owned(),
            // Without a folder it is the name again.
            path: if facts.image.contains('\\') { facts.image.to_owned() } else { String::new() },
            command_line: process.map_or("", |process| process.command_line()).to_owned(),
            parent_pid: process.and_then(|process| process.parent_pid()).map(|pid| pid.0),
            started: started.and_then(|time| u64::try_from(time.0).ok()),
        }
    }
}

fn event_report(seen: &Seen<'_>, judge: &mut Judge, case: &Case<'_>, target_pid: Option<u32>) -> EventReport {
    let event = &case.event;
    let (start, target) = (event.start, event.target);
    let start_name = start.map(|start| match (start.function, start.code) {
        (Some(function), Code::Image(module, _)) => {
            format!("{}!{function}", judge.modules().get(module).name())
        }
        (None, Code::Image(module, rva)) => format!("{}+{rva:#x}", judge.modules().get(module).name()),
        (_, Code::Compiled(runtime)) => format!("jit:{runtime}"),
        (_, Code::Unbacked) => "unbacked".to_owned(),
        (_, Code::Unknown) => String::new(),
    });
    EventReport {
        name: seen.name().into_owned(),
        provider: seen.provider().into_owned(),
        service: match event.services {
            Ran::Entered(service) => service.to_owned(),
            Ran::OneOf(_) | Ran::Unknown => String::new(),
        },
        target: target.map_or("", |target| target.image).to_owned(),
        target_pid,
        access: target.and_then(|target| target.access),
        start_address: start.map(|start| start.address),
        start_name: start_name.unwrap_or_default(),
    }
}

fn frame_report(system: &System, judge: &mut Judge, frame: &Frame, facts: &enrich::Frame) -> FrameReport {
    let named = services::named(judge, frame).map(|(name, offset)| format!("{name}+{offset:#x}"));
    let method = facts.method.map(|method| system.method(method)).map(|method| {
        let offset = facts.address.0.saturating_sub(method.start().0);
        format!("{method}+{offset:#x}")
    });
    let (module, rva) = match frame.code {
        Code::Image(module, rva) => (judge.modules().get(module).path.to_string(), Some(rva)),
        Code::Compiled(_) | Code::Unbacked | Code::Unknown => (String::new(), None),
    };
    let (leading_bytes, trailing_bytes) = bytes_around(judge, frame);
    FrameReport {
        address: frame.address,
        is_kernel: frame.mode == Mode::Kernel,
        is_wow64: frame.is_wow64,
        module,
        rva,
        symbol: named.or(method).unwrap_or_default(),
        backing: match frame.code {
            Code::Image(..) => "",
            Code::Compiled("clr") => "jit:clr",
            Code::Compiled("script") => "jit:script",
            Code::Compiled(_) => "jit",
            Code::Unbacked => "unbacked",
            Code::Unknown => "unknown",
        },
        memory: match frame.memory.kind {
            Some(MemoryKind::Image) => "image",
            Some(MemoryKind::Mapped) => "mapped",
            Some(MemoryKind::Private) => "private",
            None => "",
        },
        protection: frame.memory.protection,
        leading_bytes,
        trailing_bytes,
    }
}

/// Bytes before and behind a frame's address: of memory where it was read, else of the image file. Those of the kernel's files
/// are changed when they are loaded.
fn bytes_around(judge: &mut Judge, frame: &Frame) -> (Vec<u8>, Vec<u8>) {
    match (frame.bytes, frame.code, frame.mode) {
        (Some(bytes), ..) => (bytes.before.to_vec(), bytes.after.to_vec()),
        (None, Code::Image(module, rva), Mode::User) => {
            let (binaries, modules) = judge.binaries();
            let around = binaries.bytes_around(modules, (module, rva)).found();
            around.map(|around| (around.before, around.after)).unwrap_or_default()
        }
        _ => (Vec::new(), Vec::new()),
    }
}
