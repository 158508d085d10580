//! Looks up the fields of rules in events of traces.
//!
//! Values are copied before they are visited: a visitor may look up another field, which needs the
//! same caches.

use std::cell::RefCell;
use std::ops::ControlFlow;

use stackhound_detect::{Evaluation, Verdict};
use stackhound_expr::{Value, Visitor};
use stackhound_facts::ProcessFact;
use stackhound_frames::{Backing, CreateDisposition, CreateEnd, ModuleIndex, final_user_frame};
use stackhound_images::{ImageEvidence, SignatureState};
use stackhound_pipeline::{EventView, FrameView, Label, Missing, ProcessView, visit_fact};
use stackhound_rules::evaluate::{Elements, RuleEvent, arguments};
use stackhound_rules::{Part, PayloadForm, names};
use stackhound_schema::Value as FieldValue;
use stackhound_schema::kernel::view;
use stackhound_types::{Address, Mode, Pid, file_name};

use super::field::{
    ImageOf, ImagePart, KeyPart, PathPart, ProcessPart, StackPart, Start, StartPart, TraceField, Whose,
    detections, image_part, process_part,
};

/// An event of a trace, for rules.
pub(super) struct TraceEvent<'v, 'c> {
    pub view: &'v EventView<'c>,
    /// The answers of detections; `None` if they were not evaluated.
    pub evaluation: Option<&'v Evaluation>,
    /// The frames, once they were needed.
    pub frames: RefCell<Option<Vec<FrameView<'c>>>>,
}

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

/// The limit of ancestors.
const ANCESTORS_MAX: usize = 32;

fn text(text: &str, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    visit(Value::Text(text))
}

/// Visits a text; a missing one has no value.
fn known(found: Option<impl AsRef<str>>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    found.map_or(CONTINUE, |found| text(found.as_ref(), visit))
}

/// Visits one of several texts; a missing one has a value that is not known.
fn one(found: Option<impl AsRef<str>>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match found {
        Some(found) => text(found.as_ref(), visit),
        None => visit(Value::Unknown),
    }
}

/// Visits what is known about other values than the visited ones.
fn rest(is_complete: bool, has_any: bool, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match (is_complete, has_any) {
        (false, _) => visit(Value::Unknown),
        (true, false) => visit(Value::Absent),
        (true, true) => CONTINUE,
    }
}

fn truth(found: Option<bool>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    found.map_or(CONTINUE, |found| visit(Value::Bool(found)))
}

fn number(found: Option<impl Into<u64>>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    found.map_or(CONTINUE, |found| visit(Value::Unsigned(found.into())))
}

fn hex(number: u64) -> String {
    format!("{number:x}")
}

/// The status as Fibratus spells it. Texts of errors depend on the language of the system, so they
/// are not known.
fn status(status: u64, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    text(if status as u32 <= 0x7fff_ffff { "Success" } else { "Error" }, visit)
}

impl<'c> RuleEvent for TraceEvent<'_, 'c> {
    type Field = TraceField;

    fn visit(&self, field: &TraceField, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let view = self.view;
        match field {
            TraceField::Filter(field) => field.visit(view, visit),
            TraceField::Payload(name, form) => self.payload(name, *form, visit),
            TraceField::Info(class, form) => match self.number("InfoClass") {
                None => CONTINUE,
                Some(found) if found == *class => self.payload("ExtraInfo", *form, visit),
                Some(_) if *form == PayloadForm::IsSet => visit(Value::Bool(false)),
                Some(_) => visit(Value::Unsigned(0)),
            },
            TraceField::Process(whose, part) => self.process_part(*whose, part, visit),
            TraceField::Pid => number(view.pid().map(|pid| pid.0), visit),
            TraceField::File(part) => self.file(*part, visit),
            TraceField::IsNewFile => match view.create() {
                Some(create) if create.requested == CreateDisposition::Create && !create.end.has_failed() => {
                    visit(Value::Unknown)
                }
                _ => visit(Value::Bool(false)),
            },
            TraceField::Disposition => {
                let requested = view.create().map(|create| create.requested);
                known(requested.and_then(disposition), visit)
            }
            TraceField::FileStatus => match view.create().map(|create| create.end) {
                Some(CreateEnd::Completed { status: number, .. }) => status(number.into(), visit),
                _ => CONTINUE,
            },
            TraceField::Key(part) => self.key(*part, visit),
            TraceField::Access => {
                known(self.number("DesiredAccess").map(|access| format!("{access:#x}")), visit)
            }
            TraceField::Image(of, part) => {
                let index = match of {
                    ImageOf::Loaded => self.loaded_module(),
                    ImageOf::FinalUser => self.final_user().and_then(|frame| frame.code.module()),
                };
                index.map_or(CONTINUE, |index| self.image_part(index, *part, visit))
            }
            TraceField::Stack(part) => self.stack(*part, visit),
            TraceField::ThreadStart(part) => self.thread_start(*part, visit),
            TraceField::Protocol => {
                let is_udp = view.kernel_id().is_some_and(|hook_id| hook_id >> 8 == 8);
                text(if is_udp { "UDP" } else { "TCP" }, visit)
            }
            TraceField::Findings => {
                let Some(evaluation) = self.evaluation else { return CONTINUE };
                let mut has_any = false;
                for (id, outcome) in evaluation.iter() {
                    match outcome.verdict {
                        Verdict::Yes => {
                            has_any = true;
                            text(id.name(), visit)?;
                        }
                        Verdict::Undetermined => {
                            has_any = true;
                            visit(Value::Unknown)?;
                        }
                        Verdict::No => {}
                    }
                }
                rest(true, has_any, visit)
            }
            TraceField::IsFound(names) => {
                let Some(evaluation) = self.evaluation else { return CONTINUE };
                let verdicts = || detections(names).map(|id| evaluation.outcome(id).verdict);
                visit(if verdicts().any(|verdict| verdict == Verdict::Yes) {
                    Value::Bool(true)
                } else if verdicts().all(|verdict| verdict == Verdict::No) {
                    Value::Bool(false)
                } else {
                    Value::Unknown
                })
            }
        }
    }

    fn elements(&self, field: &TraceField) -> Elements {
        match field {
            TraceField::Stack(StackPart::Frames) => {
                let known = self.frames().len();
                Elements { known, is_complete: self.has_whole_stack() }
            }
            TraceField::Process(whose, ProcessPart::Modules) => match self.process(*whose) {
                Ok(process) => {
                    let modules = process.modules().map(Iterator::count);
                    let is_complete = modules.is_some() && process.has_all_modules();
                    Elements { known: modules.unwrap_or(0), is_complete }
                }
                Err(_) => Elements::default(),
            },
            TraceField::Process(whose, ProcessPart::Ancestor(_)) => {
                let (ancestors, is_complete) = self.ancestors(*whose);
                Elements { known: ancestors.len(), is_complete }
            }
            _ => Elements::default(),
        }
    }

    fn visit_part(
        &self,
        field: &TraceField,
        index: usize,
        part: &'static Part,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        match field {
            TraceField::Stack(StackPart::Frames) => self.frame_part(index, part.name, visit),
            TraceField::Process(whose, ProcessPart::Modules) => {
                let Ok(process) = self.process(*whose) else { return CONTINUE };
                let Some(module) = process.modules().and_then(|mut modules| modules.nth(index)) else {
                    return CONTINUE;
                };
                match part.name {
                    "path" => {
                        let path = self.view.trace_state().system().dos_path(module.path());
                        text(&path, visit)
                    }
                    "name" => text(module.file_name(), visit),
                    "address" => text(&hex(module.base().0), visit),
                    "size" => visit(Value::Unsigned(module.size())),
                    "checksum" => number(module.checksum(), visit),
                    _ => CONTINUE,
                }
            }
            TraceField::Process(whose, ProcessPart::Ancestor(_)) => {
                let (ancestors, _) = self.ancestors(*whose);
                let Some(process) = ancestors.get(index) else { return CONTINUE };
                let Some(part) = process_part(part.name) else { return CONTINUE };
                self.part_of(process, &part, visit)
            }
            _ => CONTINUE,
        }
    }
}

fn disposition(requested: CreateDisposition) -> Option<&'static str> {
    Some(match requested {
        CreateDisposition::Supersede => "SUPERSEDE",
        CreateDisposition::Open => "OPEN",
        CreateDisposition::Create => "CREATE",
        CreateDisposition::OpenIf => "OPEN_IF",
        CreateDisposition::Overwrite => "OVERWRITE",
        CreateDisposition::OverwriteIf => "OVERWRITE_IF",
        CreateDisposition::Other(_) => return None,
    })
}

impl<'v, 'c> TraceEvent<'v, 'c> {
    pub fn new(view: &'v EventView<'c>, evaluation: Option<&'v Evaluation>) -> TraceEvent<'v, 'c> {
        TraceEvent { view, evaluation, frames: RefCell::new(None) }
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.view.field(field)?.1.as_u64()
    }

    fn payload(&self, name: &str, form: PayloadForm, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        if form == PayloadForm::Text || form == PayloadForm::Parts {
            let Some((field, value)) = self.view.field(name) else { return CONTINUE };
            let shown = match value {
                FieldValue::Null => return CONTINUE,
                value => value.text().unwrap_or_else(|| field.render(value).to_string().into()),
            };
            return match form {
                PayloadForm::Parts => {
                    shown.split(';').filter(|part| !part.is_empty()).try_for_each(|part| text(part, visit))
                }
                _ => text(&shown, visit),
            };
        }
        let Some(found) = self.number(name) else { return CONTINUE };
        match form {
            PayloadForm::Hex => text(&hex(found), visit),
            PayloadForm::Status => status(found, visit),
            PayloadForm::Name(names, shift, mask) => known(names::name(names, found >> shift & mask), visit),
            PayloadForm::Flags(names, shift) => {
                let all: Vec<&str> = names::flags(names, found >> shift).collect();
                text(&all.join("|"), visit)
            }
            PayloadForm::FlagList(names) => names::flags(names, found).try_for_each(|name| text(name, visit)),
            PayloadForm::IsSet => visit(Value::Bool(found != 0)),
            PayloadForm::Number | PayloadForm::Text | PayloadForm::Parts => visit(Value::Unsigned(found)),
        }
    }

    fn process(&self, whose: Whose) -> Result<ProcessView<'c>, Missing> {
        let subject = || match self.view.target().filter(|target| target.pid().is_some()) {
            Some(target) => target.process(),
            None => self.view.process(),
        };
        match whose {
            Whose::Own => self.view.process(),
            Whose::Subject => subject(),
            Whose::Target => self.view.target().ok_or(Missing::NotStated)?.process(),
            Whose::ParentOf(Start::Own) => self.view.process()?.parent(),
            Whose::ParentOf(Start::Subject) => subject()?.parent(),
        }
    }

    /// The parent, its parent, and so on; whether there are no others.
    fn ancestors(&self, whose: Whose) -> (Vec<ProcessView<'c>>, bool) {
        let mut ancestors = Vec::new();
        let Ok(mut process) = self.process(whose) else { return (ancestors, false) };
        while ancestors.len() < ANCESTORS_MAX {
            // The first process has no parent.
            if process.pid().is_kernel_only() {
                return (ancestors, true);
            }
            let Ok(parent) = process.parent() else { return (ancestors, false) };
            if parent.pid() == process.pid() {
                return (ancestors, true);
            }
            ancestors.push(parent);
            process = parent;
        }
        (ancestors, false)
    }

    fn process_part(&self, whose: Whose, part: &ProcessPart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        match (part, whose) {
            // The id is known even if the process is not.
            (ProcessPart::Pid, Whose::Own) => number(self.view.pid().map(|pid| pid.0), visit),
            (ProcessPart::Pid, Whose::Subject) => {
                let target = self.view.target().and_then(|target| target.pid());
                number(target.or_else(|| self.view.pid()).map(|pid| pid.0), visit)
            }
            (ProcessPart::Pid, Whose::ParentOf(start)) => {
                let child = match start {
                    Start::Own => Whose::Own,
                    Start::Subject => Whose::Subject,
                };
                self.process_part(child, &ProcessPart::Fact(ProcessFact::ParentPid), visit)
            }
            (ProcessPart::Ancestor(index), _) => {
                let (ancestors, is_complete) = self.ancestors(whose);
                if let Some(index) = index {
                    return known(ancestors.get(*index).and_then(|process| process.name().ok()), visit);
                }
                ancestors.iter().try_for_each(|process| one(process.name().ok(), visit))?;
                rest(is_complete, !ancestors.is_empty(), visit)
            }
            _ => self.process(whose).map_or(CONTINUE, |process| self.part_of(&process, part, visit)),
        }
    }

    fn part_of(
        &self,
        process: &ProcessView<'c>,
        part: &ProcessPart,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        match part {
            ProcessPart::Pid => number(Some(process.pid().0), visit),
            ProcessPart::Fact(ProcessFact::Integrity) => {
                known(process.integrity().ok().map(integrity), visit)
            }
            ProcessPart::Fact(fact) => {
                process.fact(*fact).map_or(CONTINUE, |value| visit_fact(&value, visit))
            }
            ProcessPart::Arguments => {
                let Ok(line) = process.command_line() else { return CONTINUE };
                let all = arguments(line);
                all.iter().try_for_each(|argument| text(argument, visit))?;
                rest(true, !all.is_empty(), visit)
            }
            ProcessPart::IsElevated => {
                let level = process.integrity().ok();
                truth(level.map(|level| matches!(level, "high" | "system" | "protected")), visit)
            }
            ProcessPart::Modules => {
                let Some(modules) = process.modules() else { return visit(Value::Unknown) };
                let system = self.view.trace_state().system();
                let mut has_any = false;
                for module in modules {
                    has_any = true;
                    text(&system.dos_path(module.path()), visit)?;
                }
                rest(process.has_all_modules(), has_any, visit)
            }
            ProcessPart::Image(part) => {
                process.image_file().map_or(CONTINUE, |index| self.image_part(index, *part, visit))
            }
            ProcessPart::Ancestor(_) => CONTINUE,
        }
    }

    fn file(&self, part: PathPart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let path = match self.view.file_path() {
            Ok(path) => path,
            // The event states that there is no file.
            Err(Missing::NotStated) if self.number("FileObject") == Some(0) => "".into(),
            Err(_) => return CONTINUE,
        };
        let name = file_name(&path);
        let extension = name.rfind('.').map_or("", |at| &name[at..]);
        text(
            match part {
                PathPart::Path => &path,
                PathPart::Name => name,
                PathPart::Extension => extension,
                PathPart::Stem => &path[..path.len() - extension.len()],
            },
            visit,
        )
    }

    fn key(&self, part: KeyPart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let Some(subject) = self.view.registry() else { return CONTINUE };
        let value = subject.value.as_ref().ok();
        if part == KeyPart::Value {
            return known(value, visit);
        }
        let Ok(path) = &subject.path else { return CONTINUE };
        if part == KeyPart::Name {
            return text(file_name(path.trim_end_matches('\\')), visit);
        }
        let mut path = path.to_string();
        if let Some(value) = value {
            path = format!("{}\\{value}", path.trim_end_matches('\\'));
        }
        let own = self.view.process().and_then(|process| process.user_sid()).map(|sid| sid.to_string());
        let paths = registry_paths(&path, own.ok().as_deref());
        if part == KeyPart::Short {
            let short = paths.first().map(|path| short_registry_path(path)).unwrap_or_default();
            return text(&short, visit);
        }
        paths.iter().try_for_each(|path| text(path, visit))
    }

    /// The module that the event reports.
    fn loaded_module(&self) -> Option<ModuleIndex> {
        let record = self.view.event().record();
        let image = view::Image::parse(record.payload(), record.version(), record.pointer_size()).ok()?;
        let (system, time) = (self.view.trace_state().system(), self.view.time());
        let pointer_size = self.view.event().block().session().pointer_size;
        let module = if image.image_base.is_kernel(pointer_size) {
            system.kernel_module_at(image.image_base, time)?.0
        } else {
            let process = system.process_of_event(image.process_id?, time)?;
            system.module_in(process.id(), image.image_base, time)?.0
        };
        Some(self.view.resolver().loaded(system, module.id()).index)
    }

    fn image_part(&self, index: ModuleIndex, part: ImagePart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let image = self.view.modules().get(index).image.clone();
        image_value(&image, part, visit)
    }

    fn has_whole_stack(&self) -> bool {
        let states = self.view.stack_states();
        states.has_whole_user_part() && states.has_certain_frames()
    }

    /// The frames, innermost first.
    fn frames(&self) -> Vec<FrameView<'c>> {
        let mut frames = self.frames.borrow_mut();
        frames.get_or_insert_with(|| self.view.frames_in_full().collect()).clone()
    }

    fn final_user(&self) -> Option<FrameView<'c>> {
        let frames = self.frames();
        let facts: Vec<_> = frames.iter().map(|frame| *frame.facts()).collect();
        let index = final_user_frame(&self.view.modules(), &facts)?;
        frames.get(index).copied()
    }

    /// The path of a frame's module; `None` if it is not known.
    fn module_path(&self, frame: &FrameView<'c>) -> Option<String> {
        if let Some(module) = frame.module() {
            return Some(self.view.trace_state().system().dos_path(module.path()).into_owned());
        }
        match frame.backing() {
            Backing::Unbacked => Some("unbacked".to_owned()),
            _ => None,
        }
    }

    /// The names of a frame's function; none if they are not known.
    fn functions(&self, frame: &FrameView<'c>) -> Vec<String> {
        let names = self.view.names(frame);
        let label = Label { frame, names: names.as_deref() };
        let mut all: Vec<String> = label.name().map(|name| name.text.into_owned()).into_iter().collect();
        let others = names.as_deref().into_iter().flat_map(|names| names.all_names());
        for name in others {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        }
        if all.is_empty() && frame.backing() == Backing::Unbacked {
            all.push("?".to_owned());
        }
        all
    }

    /// Visits the names of a frame's function, after that of its module if it is given.
    fn visit_functions(
        &self,
        frame: &FrameView<'c>,
        module: Option<&str>,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        let functions = self.functions(frame);
        if functions.is_empty() {
            return visit(Value::UnnamedFunction { module: module.unwrap_or_default() });
        }
        functions.iter().try_for_each(|function| match module {
            None => text(function, visit),
            Some(module) => text(&format!("{module}!{function}"), visit),
        })
    }

    fn stack(&self, part: StackPart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        if self.view.stack().is_none() {
            return CONTINUE;
        }
        let frames = self.frames();
        let functions = |frame: Option<FrameView<'c>>, visit: &mut Visitor<'_>| {
            frame.map_or(CONTINUE, |frame| self.visit_functions(&frame, None, visit))
        };
        let path = |frame: Option<FrameView<'c>>, visit: &mut Visitor<'_>| {
            known(frame.and_then(|frame| self.module_path(&frame)), visit)
        };
        // The outermost frame is the first.
        let at = |index: usize| frames.iter().rev().nth(index).copied();
        let rest = |visit: &mut Visitor<'_>| rest(self.has_whole_stack(), true, visit);
        match part {
            StackPart::Frames => CONTINUE,
            StackPart::Modules(Some(index)) => path(at(index), visit),
            StackPart::Symbols(Some(index)) => functions(at(index), visit),
            StackPart::Modules(None) => {
                frames.iter().rev().try_for_each(|frame| one(self.module_path(frame), visit))?;
                rest(visit)
            }
            StackPart::Symbols(None) => {
                for frame in frames.iter().rev() {
                    match self.module_path(frame) {
                        Some(path) => self.visit_functions(frame, Some(file_name(&path)), visit)?,
                        None => visit(Value::Unknown)?,
                    }
                }
                rest(visit)
            }
            StackPart::Addresses => {
                frames.iter().rev().try_for_each(|frame| text(&hex(frame.address().0), visit))?;
                rest(visit)
            }
            StackPart::IsUnbacked => {
                let mut summary = stackhound_frames::Summary::default();
                self.view.summarize(&mut summary);
                visit(match summary.contains_unbacked() {
                    stackhound_frames::Answer::Yes => Value::Bool(true),
                    stackhound_frames::Answer::No => Value::Bool(false),
                    stackhound_frames::Answer::Undetermined => Value::Unknown,
                })
            }
            StackPart::CallTrace => {
                let user = frames.iter().filter(|frame| frame.mode == Mode::User);
                let one = |frame: &FrameView<'c>| match (self.module_path(frame), frame.rva()) {
                    (Some(path), Some(rva)) => Some(format!("{path}+{rva:x}")),
                    (Some(_), None) => Some(format!("UNKNOWN({:016X})", frame.address().0)),
                    _ => None,
                };
                let all: Option<Vec<String>> = user.map(one).collect();
                match all {
                    Some(all) if self.has_whole_stack() => text(&all.join("|"), visit),
                    _ => visit(Value::Unknown),
                }
            }
            StackPart::FinalUserPath => path(self.final_user(), visit),
            StackPart::FinalUserSymbol => functions(self.final_user(), visit),
            StackPart::FinalKernelPath => path(frames.first().copied(), visit),
            StackPart::FinalKernelSymbol => functions(frames.first().copied(), visit),
            StackPart::Detail => {
                let lines = frames.iter().map(|frame| {
                    let names = self.view.names(frame);
                    let label = Label { frame, names: names.as_deref() };
                    format!("{:#x} {}", frame.address().0, label)
                });
                text(&lines.collect::<Vec<_>>().join("|"), visit)
            }
        }
    }

    fn frame_part(&self, index: usize, part: &str, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let frames = self.frames();
        let Some(frame) = frames.iter().rev().nth(index) else { return CONTINUE };
        match part {
            "address" => text(&hex(frame.address().0), visit),
            "module" => known(self.module_path(frame), visit),
            "symbol" => {
                let path = self.module_path(frame);
                path.map_or(CONTINUE, |path| self.visit_functions(frame, Some(&path), visit))
            }
            "offset" => {
                let names = self.view.names(frame);
                let label = Label { frame, names: names.as_deref() };
                let offset = label.name().map(|name| name.offset);
                drop(names);
                number(offset, visit)
            }
            "is_unbacked" => match (frame.backing(), frame.mode) {
                (Backing::Unbacked, _) => visit(Value::Bool(true)),
                (Backing::Backed, _) => visit(Value::Bool(false)),
                (_, _) => visit(Value::Unknown),
            },
            "protection" => match frame.region.protection {
                Some(protection) if frame.mode == Mode::User => text(protection.letters(), visit),
                _ => CONTINUE,
            },
            part => {
                let image = part.strip_prefix("module.signature.").and_then(image_part);
                match image.zip(frame.code.module()) {
                    Some((image, module)) => self.image_part(module, image, visit),
                    None => CONTINUE,
                }
            }
        }
    }

    fn thread_start(&self, part: StartPart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let record = self.view.event().record();
        let parsed = view::Thread::parse(record.payload(), record.version(), record.pointer_size());
        let Ok(thread) = parsed else { return CONTINUE };
        let Some(detail) = thread.detail else { return CONTINUE };
        let address = match detail.win32_start_address {
            Address(0) => detail.start_address.unwrap_or(Address(0)),
            address => address,
        };
        if address.0 == 0 {
            return CONTINUE;
        }
        if part == StartPart::Address {
            return text(&hex(address.0), visit);
        }
        let (system, time) = (self.view.trace_state().system(), self.view.time());
        let process: Pid = thread.process_id;
        let Some(process) = system.process_of_event(process, time) else { return CONTINUE };
        let module = system.kernel_module_at(address, time);
        let Some((module, _)) = module.or_else(|| system.module_in(process.id(), address, time)) else {
            return CONTINUE;
        };
        match part {
            StartPart::Module => text(&system.dos_path(module.path()), visit),
            // The frames of the stack have names; other addresses have not.
            StartPart::Address | StartPart::Symbol => CONTINUE,
        }
    }
}

/// The integrity level as Fibratus spells it.
fn integrity(level: &str) -> String {
    match level {
        "medium-plus" => "MEDIUM+".to_owned(),
        level => level.to_ascii_uppercase(),
    }
}

/// Visits a fact that all sources about an image state, unless they contradict each other.
fn image_value(image: &ImageEvidence, part: ImagePart, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let signature = image.signature().map(|(signature, _)| signature);
    let version = |name: Option<(&str, _)>, visit: &mut Visitor<'_>| known(name.map(|(name, _)| name), visit);
    match part {
        ImagePart::IsSigned => match signature.map(|signature| signature.state) {
            None | Some(SignatureState::Unknown | SignatureState::NotEmbedded) => CONTINUE,
            Some(state) => visit(Value::Bool(state != SignatureState::Unsigned)),
        },
        ImagePart::IsTrusted => match signature.map(|signature| signature.state) {
            Some(SignatureState::Valid) => visit(Value::Bool(image.valid_signer().is_some())),
            Some(SignatureState::Invalid | SignatureState::Unsigned | SignatureState::RootNotTrusted) => {
                visit(Value::Bool(false))
            }
            _ => CONTINUE,
        },
        ImagePart::Subject => known(signature.and_then(|signature| signature.signer.as_deref()), visit),
        ImagePart::OriginalName => version(image.original_file_name(), visit),
        ImagePart::Company => version(image.text(|version| version.company.as_ref()), visit),
        ImagePart::Product => version(image.text(|version| version.product.as_ref()), visit),
        ImagePart::Description => version(image.text(|version| version.description.as_ref()), visit),
        ImagePart::FileVersion => version(image.text(|version| version.file_version.as_ref()), visit),
        ImagePart::IsDotNet => truth(image.is_dotnet(), visit),
    }
}

/// The path with the short name of its root, as Sysmon writes it.
fn short_registry_path(path: &str) -> String {
    for (long, short) in [("HKEY_LOCAL_MACHINE", "HKLM"), ("HKEY_USERS", "HKU")] {
        if let Some(rest) = path.strip_prefix(long) {
            return format!("{short}{rest}");
        }
    }
    path.to_owned()
}

/// A registry path with the names of its root that rules use. The hive of the process's user has
/// two.
fn registry_paths(path: &str, own_sid: Option<&str>) -> Vec<String> {
    fn after<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
        let (start, rest) = path.split_at_checked(prefix.len())?;
        let is_whole = rest.is_empty() || rest.starts_with('\\');
        (start.eq_ignore_ascii_case(prefix) && is_whole).then_some(rest)
    }
    if let Some(rest) = after(path, r"\REGISTRY\MACHINE") {
        return vec![format!("HKEY_LOCAL_MACHINE{rest}")];
    }
    let Some(rest) = after(path, r"\REGISTRY\USER") else { return vec![path.to_owned()] };
    let mut all = vec![format!("HKEY_USERS{rest}")];
    if let Some(sid) = own_sid {
        if let Some(rest) = after(rest, &format!("\\{sid}_Classes")) {
            all.push(format!(r"HKEY_CURRENT_USER\Software\Classes{rest}"));
        } else if let Some(rest) = after(rest, &format!("\\{sid}")) {
            all.push(format!("HKEY_CURRENT_USER{rest}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_paths_have_the_names_of_rules() {
        let own = Some("S-1-5-21-1");
        for (path, expected) in [
            (r"\REGISTRY\MACHINE\SOFTWARE\x", vec![r"HKEY_LOCAL_MACHINE\SOFTWARE\x"]),
            (r"\Registry\Machine", vec!["HKEY_LOCAL_MACHINE"]),
            (r"\REGISTRY\MACHINES\x", vec![r"\REGISTRY\MACHINES\x"]),
            (r"\REGISTRY\USER\S-1-5-18\x", vec![r"HKEY_USERS\S-1-5-18\x"]),
            (r"\REGISTRY\USER\S-1-5-21-1\x", vec![r"HKEY_USERS\S-1-5-21-1\x", r"HKEY_CURRENT_USER\x"]),
            (
                r"\REGISTRY\USER\S-1-5-21-1_Classes\x",
                vec![r"HKEY_USERS\S-1-5-21-1_Classes\x", r"HKEY_CURRENT_USER\Software\Classes\x"],
            ),
            (r"\REGISTRY\A\{x}", vec![r"\REGISTRY\A\{x}"]),
        ] {
            assert_eq!(registry_paths(path, own), expected, "{path}");
        }
    }
}
