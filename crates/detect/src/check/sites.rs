//! Return addresses compared with the code around them: no call before (CS11), a ROP gadget (CS12),
//! no function (CS13), and calls that do not lead to the frame above (CS16).
//!
//! Kernel frames are not evaluated, because the code of drivers is modified when it is loaded.
//! Addresses that are not return addresses are not evaluated either: the point where the kernel was
//! entered, and interrupted instructions.

use stackhound_frames::lists::Functions;
use stackhound_frames::{Code, Frame, Role};
use stackhound_types::{AddressKind, Mode};

use super::Evidence;
use crate::binaries::{CodeLocation, Lookup};
use crate::case::Entry;
use crate::images::reach::Reach;
use crate::images::site::{self, Call, Gadget, Region, Site};
use crate::images::stubs::StubLocation;
use crate::stack::SiteBytes;
use crate::verdict::{Input, Inputs, Outcome, Reason, Reasons, Severity};

const WITHOUT_IMAGE: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// A return address in an image.
struct Return<'a> {
    index: usize,
    frame: &'a Frame,
    bytes: Option<SiteBytes>,
    location: CodeLocation,
    site: Lookup<Site>,
}

/// The results for all frames of a stack.
struct Tally {
    /// The highest possible severity of the answer.
    severity: Severity,
    /// The first suspicious frame with the highest severity.
    found: Option<(usize, Reason, Severity)>,
    count: usize,
    used: Inputs,
    missing: Inputs,
    /// Why some frames could not be evaluated.
    doubts: Option<Reasons>,
}

impl Tally {
    fn new(severity: Severity) -> Tally {
        let (used, missing) = (WITHOUT_IMAGE, Inputs::NONE);
        Tally { severity, found: None, count: 0, used, missing, doubts: None }
    }

    fn find(&mut self, index: usize, reason: Reason, severity: Severity) {
        self.count += 1;
        if self.found.is_none_or(|found| found.2 < severity) {
            self.found = Some((index, reason, severity));
        }
    }

    fn doubt(&mut self, reason: Reason, missing: Option<Input>) {
        self.doubts = Some(self.doubts.unwrap_or_default().with(reason));
        if let Some(missing) = missing {
            self.missing = self.missing.with(missing);
        }
    }

    fn doubt_lookup<T>(&mut self, lookup: &Lookup<T>) {
        match lookup {
            Lookup::NoFile => self.doubt(Reason::ImageMissing, Some(Input::ImageBytes)),
            Lookup::Unsupported => self.doubt(Reason::MachineUnsupported, None),
            Lookup::Unreadable | Lookup::Found(_) => {
                self.doubt(Reason::ImageUnreadable, Some(Input::ImageBytes));
            }
        }
    }

    /// `reason` is the reason for the verdict "no".
    fn outcome(self, reason: Reason) -> Outcome {
        let Tally { severity, found, used, missing, doubts, .. } = self;
        if let Some((index, reason, severity)) = found {
            return Outcome { missing, ..Outcome::yes(severity, Some(index), reason, used) };
        }
        match doubts {
            Some(reasons) => Outcome { reasons, ..Outcome::undetermined(severity, reason, used, missing) },
            None => Outcome::no(reason, used),
        }
    }
}

/// Evaluates each return address in an image, innermost first.
fn each_return<'a>(
    evidence: &mut Evidence<'a, '_>,
    tally: &mut Tally,
    mut check: impl FnMut(&mut Evidence<'a, '_>, &mut Tally, &Return<'a>),
) {
    let view = evidence.view;
    let has_files = !evidence.binaries.is_none();
    for (index, frame) in view.user_frames() {
        let Code::Image(module, offset) = frame.code else { continue };
        // Without files, all frames miss the same evidence.
        if !has_files && view.bytes(index).is_none() && tally.doubts.is_some() {
            continue;
        }
        let Some(above) = index.checked_sub(1).map(|above| view.frame(above)) else { continue };
        let is_entry = view.return_frame == Some(index) || view.top_32_bit == Some(index);
        // After kernel frames comes the point where the kernel was entered. After code in no module
        // comes an address that a walk without unwind data took for a return address. In the WoW64
        // layer there is the switch between 32-bit and 64-bit code.
        let is_walked = above.mode == Mode::User && above.code.module().is_some();
        let is_layer = !frame.is_wow64 && view.roles(frame).has(Role::Wow64);
        if is_entry || frame.kind == AddressKind::Instruction || !is_walked || is_layer {
            continue;
        }
        match is_interrupted(evidence, index - 1) {
            Lookup::Found(false) => {}
            Lookup::Found(true) => continue,
            other => {
                tally.doubt_lookup(&other);
                continue;
            }
        }
        let location = (module, offset);
        let site = evidence.binaries.site(view.modules, location);
        if let Lookup::Found(site) = site {
            tally.used = tally.used.with(Input::ImageBytes);
            if site.region == Region::Outside {
                tally.doubt(Reason::TopOutsideModule, Some(Input::Stack));
                continue;
            }
            // The kernel called user mode back.
            if matches!(site.stub, StubLocation::Return { .. } | StubLocation::Landing) {
                continue;
            }
        }
        let bytes = view.bytes(index);
        check(evidence, tally, &Return { index, frame, bytes, location, site });
    }
}

/// Whether the kernel starts this frame when it interrupts code, to dispatch an exception or a
/// callback.
fn is_interrupted(evidence: &mut Evidence<'_, '_>, index: usize) -> Lookup<bool> {
    let view = evidence.view;
    let frame = view.frame(index);
    let is_entry = view.return_frame == Some(index) || view.top_32_bit == Some(index);
    let is_stub = is_entry && view.case.event.entry == Entry::SystemCall;
    let Code::Image(module, offset) = frame.code else { return Lookup::Found(false) };
    if is_stub || !view.roles(frame).has(Role::SystemCall) {
        return Lookup::Found(false);
    }
    // Its unwind data or its name identify it. Not every ntdll.dll has such unwind data.
    let is_dispatcher =
        [Functions::ExceptionDispatchers, Functions::CallbackDispatchers, Functions::WaitDispatchers]
            .into_iter()
            .any(|list| evidence.is_function(index, list) == Some(true));
    if is_dispatcher {
        return Lookup::Found(true);
    }
    evidence.binaries.site(view.modules, (module, offset)).map(|site| site.has_machine_frame)
}

/// Whether a return address is preceded by a call, in the file or in memory; `None` if neither is
/// available.
fn follows_call(at: &Return<'_>) -> Option<bool> {
    let site = at.site.found();
    let in_file = site.and_then(|site| Some(site.call? != Call::None));
    let is_32_bit = site.map_or(at.frame.is_wow64, |site| site.is_32_bit);
    let in_memory = at.bytes.map(|bytes| site::ends_call(is_32_bit, &bytes.before));
    match (in_file, in_memory) {
        (None, None) => None,
        (file, memory) => Some(file == Some(true) || memory == Some(true)),
    }
}

fn is_32_bit(at: &Return<'_>) -> bool {
    at.site.found().map_or(at.frame.is_wow64, |site| site.is_32_bit)
}

/// Records why a frame could not be evaluated.
fn undecided(tally: &mut Tally, at: &Return<'_>) {
    match at.site {
        Lookup::Found(_) => tally.doubt(Reason::NoBytesInFile, Some(Input::MemoryBytes)),
        other => tally.doubt_lookup(&other),
    }
}

/// CS11.
pub(crate) fn no_call(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let mut tally = Tally::new(Severity::High);
    let last = evidence.view.last;
    each_return(evidence, &mut tally, |_, tally, at| {
        // The stack walk may have ended because of this frame.
        if Some(at.index) == last {
            return;
        }
        if at.bytes.is_some() {
            tally.used = tally.used.with(Input::MemoryBytes);
        }
        match follows_call(at) {
            Some(true) => {}
            Some(false) if is_32_bit(at) => tally.doubt(Reason::Stack32, None),
            Some(false) => tally.find(at.index, Reason::NoCallBefore, Severity::Medium),
            None => undecided(tally, at),
        }
    });
    let is_several = tally.count > 1;
    let outcome = tally.outcome(Reason::CallsPrecede);
    if is_several {
        return Outcome { severity: Severity::High, ..outcome.because(Reason::SeveralWithoutCall) };
    }
    outcome
}

/// CS12.
pub(crate) fn gadget(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let mut tally = Tally::new(Severity::High);
    each_return(evidence, &mut tally, |_, tally, at| {
        let in_file = at.site.found().and_then(|site| site.gadget);
        let in_memory = at.bytes.and_then(|bytes| site::gadget(is_32_bit(at), &bytes.after));
        if at.bytes.is_some() {
            tally.used = tally.used.with(Input::MemoryBytes);
        }
        let is_seen = at.bytes.is_some() || at.site.found().is_some_and(|site| site.call.is_some());
        let has_call = follows_call(at);
        let is_jump = in_file == Some(Gadget::Jump) || in_memory == Some(Gadget::Jump);
        let is_any = in_file.is_some() || in_memory.is_some();
        match has_call {
            _ if !is_seen => undecided(tally, at),
            // Thunks of 32-bit programs have such jumps after calls.
            Some(true) if is_jump && !is_32_bit(at) => {
                tally.find(at.index, Reason::ReturnsToGadget, Severity::High);
            }
            Some(false) if is_any => tally.find(at.index, Reason::ReturnsToGadget, Severity::High),
            _ => {}
        }
    });
    tally.outcome(Reason::NoGadget)
}

/// CS13.
pub(crate) fn outside(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let mut tally = Tally::new(Severity::Medium);
    let last = evidence.view.last;
    each_return(evidence, &mut tally, |evidence, tally, at| {
        if Some(at.index) == last {
            return;
        }
        let Lookup::Found(site) = at.site else { return tally.doubt_lookup(&at.site) };
        if !site.is_32_bit {
            tally.used = tally.used.with(Input::UnwindData);
        }
        match site.region {
            Region::Function => {}
            Region::FunctionStart => tally.find(at.index, Reason::AtFunctionStart, Severity::Medium),
            Region::NotCode => tally.find(at.index, Reason::OutsideCode, Severity::Medium),
            Region::NoTable if site.is_32_bit => {
                tally.doubt(Reason::MachineUnsupported, Some(Input::UnwindData));
            }
            Region::NoTable => tally.doubt(Reason::NoUnwindData, Some(Input::UnwindData)),
            Region::NoBytes => tally.doubt(Reason::NoBytesInFile, Some(Input::MemoryBytes)),
            Region::Outside => {}
            // Runtimes register precompiled functions in their own ways.
            Region::NoFunction if evidence.view.roles(at.frame).has(Role::Runtime) => {
                tally.doubt(Reason::RuntimeInStack, Some(Input::UnwindData));
            }
            // Some functions are written in assembly without unwind data.
            Region::NoFunction if follows_call(at) == Some(true) => {
                tally.find(at.index, Reason::OutsideFunctions, Severity::Low);
            }
            Region::NoFunction => tally.find(at.index, Reason::OutsideFunctions, Severity::Medium),
        }
    });
    tally.outcome(Reason::InsideFunctions)
}

/// CS16.
pub(crate) fn linkage(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let mut tally = Tally::new(Severity::High);
    each_return(evidence, &mut tally, |evidence, tally, at| {
        let Lookup::Found(site) = at.site else { return tally.doubt_lookup(&at.site) };
        if site.is_32_bit {
            return tally.doubt(Reason::MachineUnsupported, Some(Input::UnwindData));
        }
        tally.used = tally.used.with(Input::UnwindData);
        let Some(call) = site.call else {
            return tally.doubt(Reason::NoBytesInFile, Some(Input::MemoryBytes));
        };
        // Other calls can lead anywhere.
        let Call::Direct(target) = call else { return };
        let view = evidence.view;
        let above = view.frame(at.index - 1);
        let Code::Image(module, offset) = above.code else { return };
        if view.roles(above).has(Role::Hook) {
            return;
        }
        let modules = view.modules;
        let is_same = module == at.location.0;
        let above = if is_same { evidence.binaries.site(modules, (module, offset)).found() } else { None };
        let reach = match evidence.binaries.reach(modules, at.location.0, target) {
            Lookup::Found(reach) => reach,
            other => return tally.doubt_lookup(&other),
        };
        if !reach.is_closed() {
            return;
        }
        match (is_same, above.map(|above| holds(reach, &above))) {
            (true, Some(Some(false))) => tally.find(at.index, Reason::LinkBroken, Severity::High),
            // An inline hook may have redirected the call.
            (false, _) => tally.find(at.index, Reason::LinkBroken, Severity::Medium),
            (true, _) => {}
        }
    });
    tally.outcome(Reason::LinksHold)
}

/// Whether a call can lead to the function of the frame above; `None` if that function is not
/// known.
fn holds(reach: &Reach, above: &Site) -> Option<bool> {
    if let StubLocation::Return { start, .. } = above.stub {
        return Some(reach.functions.contains(&start));
    }
    // The frame above can be an instruction or a return address.
    let mut functions = [above.function, above.function_before].into_iter().flatten().peekable();
    functions.peek()?;
    Some(functions.any(|function| reach.functions.contains(&function)))
}
