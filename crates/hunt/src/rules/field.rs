//! The fields of rules in events of traces.

use stackhound_detect::DetectionId;
use stackhound_facts::{FactId, ProcessFact};
use stackhound_pipeline::FilterField;
use stackhound_rules::evaluate::{FieldRef, ResolvedField};
use stackhound_rules::{EventName, Field, PayloadForm, names};

use super::sigma;

/// A field as traces have it.
#[derive(Clone, Debug)]
pub enum TraceField {
    /// A field of filters.
    Filter(FilterField),
    /// A field of the payload in the spelling of rules.
    Payload(&'static str, PayloadForm),
    /// The information that is set for a file if it is of this class; 0 or false if it is of another one.
    Info(u64, PayloadForm),
    /// A fact about a process.
    Process(Whose, ProcessPart),
    /// The id of the process.
    Pid,
    /// The file of the event.
    File(PathPart),
    /// Whether a created file is of a kind. Only files that are not new are known not to be.
    IsNewFile,
    /// How the file was opened.
    Disposition,
    /// The status of the open.
    FileStatus,
    /// The registry key.
    Key(KeyPart),
    /// The requested access rights in hexadecimal digits after `0x`, as Sysmon writes them.
    Access,
    /// A fact about the image file.
    Image(ImageOf, ImagePart),
    /// A fact about the stack.
    Stack(StackPart),
    /// The start of the thread that the event is about.
    ThreadStart(StartPart),
    /// The protocol of a network event.
    Protocol,
    /// Detections with the answer yes.
    Findings,
    /// Whether one of these detections has the answer yes.
    IsFound(&'static [&'static str]),
}

/// The process that a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The process of the event.
    Own,
    /// The process that starts or ends.
    Subject,
    /// The process that the event acts on.
    Target,
    /// The parent of the process of the event, or of the one that starts or ends.
    ParentOf(Start),
}

/// Where the way to a process starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the process of the event.
    Own,
    /// At the process that starts or ends.
    Subject,
}

/// A fact about a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessPart {
    Pid,
    /// A fact of the catalogue.
    Fact(ProcessFact),
    Arguments,
    IsElevated,
    Modules,
    /// Names of the ancestors; with an index, of one.
    Ancestor(Option<usize>),
    Image(ImagePart),
}

/// A part of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathPart {
    Path,
    Name,
    Extension,
    /// The path without the extension.
    Stem,
}

/// A part of a registry path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPart {
    /// With the name of the value.
    Path,
    /// The last component of the key.
    Name,
    Value,
    /// The path with the short name of the root, as Sysmon writes it.
    Short,
}

/// The image file that a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageOf {
    /// The module that is loaded.
    Loaded,
    /// The final user module of the stack.
    FinalUser,
}

/// A fact about an image file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImagePart {
    IsSigned,
    IsTrusted,
    Subject,
    OriginalName,
    Company,
    Product,
    Description,
    FileVersion,
    IsDotNet,
}

/// A fact about the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackPart {
    /// The elements of the stack.
    Frames,
    /// Paths of the modules, the outermost frame first.
    Modules(Option<usize>),
    /// Names of functions with those of the modules; of one frame alone.
    Symbols(Option<usize>),
    Addresses,
    IsUnbacked,
    FinalUserPath,
    FinalUserSymbol,
    FinalKernelPath,
    FinalKernelSymbol,
    Detail,
    /// As Sysmon writes it: `path+offset|…`, the innermost frame first.
    CallTrace,
}

/// A fact about the start of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartPart {
    Address,
    Module,
    Symbol,
}

/// How expensive fields are, in the order of [`FilterField::cost`].
mod cost {
    pub const OWNER: u8 = 2;
    pub const STATE: u8 = 4;
    pub const PAYLOAD: u8 = 5;
    pub const STACK: u8 = 6;
    pub const FUNCTIONS: u8 = 7;
    pub const DETECTIONS: u8 = 8;
}

impl TraceField {
    /// The field for events with this name; `None` if traces never have it.
    pub fn resolve(used: FieldRef<'_>, event: EventName) -> Option<ResolvedField<TraceField>> {
        let field = match used {
            FieldRef::Field(used) => TraceField::of(used.field, used.argument.as_deref(), event.name())?,
            FieldRef::Data("GrantedAccess") => TraceField::Access,
            FieldRef::Data("TargetObject") => TraceField::Key(KeyPart::Short),
            FieldRef::Data("CallTrace") => TraceField::Stack(StackPart::CallTrace),
            FieldRef::Data(name) => TraceField::of_data(name, event.name())?,
        };
        Some(ResolvedField { cost: field.cost(), field })
    }

    fn cost(&self) -> u8 {
        match self {
            TraceField::Filter(field) => field.cost(),
            TraceField::Disposition
            | TraceField::FileStatus
            | TraceField::IsNewFile
            | TraceField::Protocol => 0,
            TraceField::Pid => cost::OWNER,
            TraceField::Process(..) => cost::STATE,
            TraceField::Payload(..)
            | TraceField::Info(..)
            | TraceField::File(_)
            | TraceField::Key(_)
            | TraceField::Access
            | TraceField::Image(ImageOf::Loaded, _) => cost::PAYLOAD,
            TraceField::Image(ImageOf::FinalUser, _) => cost::STACK,
            TraceField::Stack(
                StackPart::Symbols(_)
                | StackPart::Frames
                | StackPart::FinalUserSymbol
                | StackPart::FinalKernelSymbol
                | StackPart::Detail,
            )
            | TraceField::ThreadStart(StartPart::Symbol) => cost::FUNCTIONS,
            TraceField::Stack(_) | TraceField::ThreadStart(_) => cost::STACK,
            TraceField::Findings | TraceField::IsFound(_) => cost::DETECTIONS,
        }
    }

    /// A value of Sysmon's data, for events of a category of Sigma.
    fn of_data(name: &str, category: &str) -> Option<TraceField> {
        let event = sigma::event_of(category)?;
        match (name, event) {
            ("TargetImage", "OpenProcess") => argument_field("exe", event),
            ("TargetProcessId", "OpenProcess") => argument_field("pid", event),
            _ => match ProcessFact::with_sigma_name(name) {
                Some(fact) => {
                    let own = if is_of_process(event) { Whose::Subject } else { Whose::Own };
                    Some(TraceField::Process(own, ProcessPart::Fact(fact)))
                }
                None if sigma::has_data(event, name) => TraceField::of(Field::of_data(name)?, None, event),
                None => None,
            },
        }
    }

    fn of(field: &Field, argument: Option<&str>, event: &str) -> Option<TraceField> {
        let name = field.canonical_name;
        let payload = || {
            let source = field.payload.filter(|_| has_payload(name, event))?;
            Some(TraceField::Payload(source.name, source.form))
        };
        let filter = || field.filter_field.and_then(FilterField::of).map(TraceField::Filter);
        TraceField::computed(name, argument, event).or_else(payload).or_else(filter)
    }

    /// A field that is not just one of the payload or of filters.
    fn computed(name: &str, argument: Option<&str>, event: &str) -> Option<TraceField> {
        use PayloadForm::{IsSet, Number};
        use TraceField::*;
        let is_of_process = is_of_process(event);
        let (own, start) =
            if is_of_process { (Whose::Subject, Start::Subject) } else { (Whose::Own, Start::Own) };
        if let Some(rest) = name.strip_prefix("ps.parent.") {
            return Some(Process(Whose::ParentOf(start), process_part(rest)?));
        }
        let index = argument.and_then(|argument| argument.parse().ok());
        Some(match name {
            "evt.pid" if is_of_process => Process(Whose::Subject, ProcessPart::Pid),
            "evt.pid" => Pid,
            "evt.arg" => return argument_field(argument?, event),
            "evt.is_direct_syscall" => IsFound(&["CS01", "CS02"]),
            "evt.is_indirect_syscall" => IsFound(&["CS03", "CS04", "CS05"]),
            "stack.finding" => Findings,
            "ps._modules" => Process(own, ProcessPart::Modules),
            "ps._ancestors" => Process(own, ProcessPart::Ancestor(None)),
            "ps.ancestor" => Process(own, ProcessPart::Ancestor(index)),
            name if name.starts_with("ps.") => Process(own, process_part(&name[3..])?),
            "file.path" => File(PathPart::Path),
            "file.name" => File(PathPart::Name),
            "file.extension" => File(PathPart::Extension),
            "file.path.stem" => File(PathPart::Stem),
            "module.path" => File(PathPart::Path),
            "module.name" => File(PathPart::Name),
            "module.path.stem" => File(PathPart::Stem),
            "file.operation" if event == "CreateFile" => Disposition,
            "file.status" if event == "CreateFile" => FileStatus,
            "file.is_dll" | "file.is_driver" | "file.is_exec" => IsNewFile,
            "file.key" if event.ends_with("ViewFile") => Payload("FileObject", Number),
            "file.offset" if event.ends_with("ViewFile") => Payload("ByteOffset", Number),
            "file.info.allocation_size" => Info(names::INFO_ALLOCATION, Number),
            "file.info.eof_size" => Info(names::INFO_END_OF_FILE, Number),
            "file.info.is_disposition_delete_file" => Info(names::INFO_DISPOSITION, IsSet),
            "module.pe.is_dotnet" => Image(ImageOf::Loaded, ImagePart::IsDotNet),
            "registry.path" => Key(KeyPart::Path),
            "registry.key.name" => Key(KeyPart::Name),
            "registry.value" => Key(KeyPart::Value),
            "net.l4.proto" => Protocol,
            "thread.pid" if event == "OpenThread" => Payload("TargetProcessId", Number),
            "thread.start_address" => ThreadStart(StartPart::Address),
            "thread.start_address.module" => ThreadStart(StartPart::Module),
            "thread.start_address.symbol" => ThreadStart(StartPart::Symbol),
            "thread._callstack" => Stack(StackPart::Frames),
            "thread.callstack.modules" => Stack(StackPart::Modules(index)),
            "thread.callstack.symbols" => Stack(StackPart::Symbols(index)),
            "thread.callstack.addresses" => Stack(StackPart::Addresses),
            "thread.callstack.detail" => Stack(StackPart::Detail),
            "thread.callstack.is_unbacked" => Stack(StackPart::IsUnbacked),
            "thread.callstack.final_user_module.path" => Stack(StackPart::FinalUserPath),
            "thread.callstack.final_user_symbol.name" => Stack(StackPart::FinalUserSymbol),
            "thread.callstack.final_kernel_module.path" => Stack(StackPart::FinalKernelPath),
            "thread.callstack.final_kernel_symbol.name" => Stack(StackPart::FinalKernelSymbol),
            name => {
                let of = |prefix: &str| name.strip_prefix(prefix).and_then(image_part);
                match of("module.signature.") {
                    Some(part) => Image(ImageOf::Loaded, part),
                    None => Image(ImageOf::FinalUser, of("thread.callstack.final_user_module.signature.")?),
                }
            }
        })
    }
}

/// Whether the payload of an event has the value of a field. Other events have another value with the
/// same name.
fn has_payload(field: &str, event: &str) -> bool {
    match field {
        "file.key" => event != "CreateFile",
        "file.object" => !event.ends_with("ViewFile"),
        "ps.access.mask.names" | "ps.access.status" => event == "OpenProcess",
        "thread.access.mask.names" | "thread.access.status" => event == "OpenThread",
        _ => true,
    }
}

/// Whether an event is about a process that starts or ends.
fn is_of_process(event: &str) -> bool {
    matches!(event, "CreateProcess" | "TerminateProcess")
}

/// A fact about a process by the name that follows `ps.` or `ps.parent.`.
pub(super) fn process_part(name: &str) -> Option<ProcessPart> {
    if let Some(fact) = ProcessFact::with_alias(name) {
        return Some(ProcessPart::Fact(fact));
    }
    Some(match name {
        "pid" => ProcessPart::Pid,
        "args" => ProcessPart::Arguments,
        "modules" => ProcessPart::Modules,
        "token.is_elevated" => ProcessPart::IsElevated,
        "pe.file.name" => ProcessPart::Image(ImagePart::OriginalName),
        "pe.company" => ProcessPart::Image(ImagePart::Company),
        "pe.product" => ProcessPart::Image(ImagePart::Product),
        "pe.description" => ProcessPart::Image(ImagePart::Description),
        "pe.file.version" => ProcessPart::Image(ImagePart::FileVersion),
        "pe.is_dotnet" => ProcessPart::Image(ImagePart::IsDotNet),
        name => ProcessPart::Image(image_part(name.strip_prefix("signature.")?)?),
    })
}

/// A fact about a signature by the name that follows `signature.`.
pub(super) fn image_part(name: &str) -> Option<ImagePart> {
    Some(match name {
        "exists" => ImagePart::IsSigned,
        "trusted" => ImagePart::IsTrusted,
        "subject" => ImagePart::Subject,
        _ => return None,
    })
}

/// A parameter of an event, by the name that Fibratus gives it.
fn argument_field(name: &str, event: &str) -> Option<TraceField> {
    use PayloadForm::{Flags, Number, Status, Text};
    use TraceField::*;
    let of = |field: &str| TraceField::of(Field::of(field)?, None, event);
    let is_audit =
        matches!(event, "OpenProcess" | "OpenThread" | "SetThreadContext" | "CreateSymbolicLinkObject");
    let has_target = matches!(event, "OpenProcess" | "OpenThread" | "VirtualAlloc" | "VirtualFree");
    Some(match (name, event) {
        ("status", "CreateFile") => FileStatus,
        ("status", _) if event.starts_with("Reg") => return of("registry.status"),
        ("status", _) if is_audit => Payload("ReturnCode", Status),
        ("exe", _) if has_target => Process(Whose::Target, ProcessPart::Fact(ProcessFact::Path)),
        ("name", _) if has_target => Process(Whose::Target, ProcessPart::Fact(ProcessFact::Name)),
        ("exe" | "name" | "pid", _) if is_of_process(event) => return of(&format!("ps.{name}")),
        ("pid", "OpenProcess" | "OpenThread") => Payload("TargetProcessId", Number),
        ("tid", "OpenThread") => Payload("TargetThreatId", Number),
        ("tid", "CreateThread" | "TerminateThread") => Payload("TThreadId", Number),
        ("desired_access", "OpenProcess") => {
            Payload("DesiredAccess", Flags(names::list("process-access")?, 0))
        }
        ("desired_access", "OpenThread") => Payload("DesiredAccess", Flags(names::list("thread-access")?, 0)),
        ("desired_access", "CreateSymbolicLinkObject") => {
            Payload("DesiredAccess", Flags(names::list("object-access")?, 0))
        }
        ("source", "CreateSymbolicLinkObject") => Payload("LinkSourceName", Text),
        ("target", "CreateSymbolicLinkObject") => Payload("LinkTargetName", Text),
        ("create_options", "CreateFile") => {
            Payload("CreateOptions", Flags(names::list("create-options")?, 0))
        }
        ("create_disposition", "CreateFile") => Disposition,
        ("base_address", "LoadModule" | "UnloadModule") => return of("module.base"),
        ("protection", "MapViewFile" | "UnmapViewFile") => return of("file.view.protection"),
        _ => return TraceField::of(Field::of_argument(name)?, None, event),
    })
}

/// The detections with these names.
pub(super) fn detections(names: &[&str]) -> impl Iterator<Item = DetectionId> {
    names.iter().filter_map(|name| DetectionId::parse(name))
}
