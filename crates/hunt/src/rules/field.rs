//! The fields of rules in events of traces.

use stackhound_detect::DetectionId;
use stackhound_facts::{FactId, ProcessFact};
use stackhound_pipeline::FilterField;
use stackhound_rules::EventName;
use stackhound_rules::evaluate::{FieldRef, ResolvedField};

use super::sigma;
use stackhound_rules::names::{self, Names};

/// A field as traces have it.
#[derive(Clone, Debug)]
pub enum TraceField {
    /// A field of filters.
    Filter(FilterField),
    /// A field of the payload in another spelling.
    Payload(&'static str, Form),
    /// A field of the payload if another one has a value; 0 or false if it has another one.
    IfInfoClass { class: u64, field: &'static str, form: Form },
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

/// How a field of the payload is spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As a number.
    Number,
    /// As a text.
    Text,
    /// In hexadecimal digits.
    Hex,
    /// `Success`, or something else.
    Status,
    /// The name of some bits: how far they are shifted, and a mask.
    Name(Names, u32, u64),
    /// Names of flags after a shift, joined with `|`.
    Flags(Names, u32),
    /// Names of flags, one by one.
    FlagList(Names),
    /// Parts between semicolons.
    Parts,
    /// Whether it is not 0.
    IsSet,
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
            FieldRef::Field(used) => {
                let field = TraceField::of(used.field.name, used.argument.as_deref(), event.name());
                let filter = || used.field.filter_field.and_then(FilterField::of).map(TraceField::Filter);
                field.or_else(filter)?
            }
            FieldRef::Data("GrantedAccess") => TraceField::Access,
            FieldRef::Data("TargetObject") => TraceField::Key(KeyPart::Short),
            FieldRef::Data("CallTrace") => TraceField::Stack(StackPart::CallTrace),
            FieldRef::Data(name) if let Some(fact) = ProcessFact::with_sigma_name(name) => {
                let event = sigma::event_of(event.name())?;
                let own = if is_of_process(event) { Whose::Subject } else { Whose::Own };
                TraceField::Process(own, ProcessPart::Fact(fact))
            }
            FieldRef::Data(name) => match sigma::field_of(event.name(), name) {
                Some((field, argument)) => {
                    let event = sigma::event_of(event.name())?;
                    let field = TraceField::of(field, argument, event).or_else(|| {
                        let port = name.strip_suffix("Port")?;
                        let name = if port == "Destination" { "fields.dport" } else { "fields.sport" };
                        FilterField::of(name).map(TraceField::Filter)
                    });
                    field?
                }
                None => return None,
            },
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
            | TraceField::IfInfoClass { .. }
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

    fn of(name: &str, argument: Option<&str>, event: &str) -> Option<TraceField> {
        use Form::*;
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
            "ps.access.mask.names" if event == "OpenProcess" => {
                Payload("DesiredAccess", FlagList(names::list("process-access")?))
            }
            "ps.access.status" if event == "OpenProcess" => Payload("ReturnCode", Status),
            "ps._modules" => Process(own, ProcessPart::Modules),
            "ps._ancestors" => Process(own, ProcessPart::Ancestor(None)),
            "ps.ancestor" => Process(own, ProcessPart::Ancestor(index)),
            name if name.starts_with("ps.") => Process(own, process_part(&name[3..])?),
            "file.path" => File(PathPart::Path),
            "file.name" => File(PathPart::Name),
            "file.extension" => File(PathPart::Extension),
            "file.path.stem" => File(PathPart::Stem),
            "module.path" | "dll.path" => File(PathPart::Path),
            "module.name" | "dll.name" => File(PathPart::Name),
            "module.path.stem" | "dll.path.stem" => File(PathPart::Stem),
            "file.operation" if event == "CreateFile" => Disposition,
            "file.status" if event == "CreateFile" => FileStatus,
            "file.is_dll" | "file.is_driver" | "file.is_exec" => IsNewFile,
            "file.object" if !event.ends_with("ViewFile") => Payload("FileObject", Number),
            "file.key" if event.ends_with("ViewFile") => Payload("FileObject", Number),
            "file.key" if event != "CreateFile" => Payload("FileKey", Number),
            "file.io.size" => Payload("IoSize", Number),
            "file.offset" if event.ends_with("ViewFile") => Payload("ByteOffset", Number),
            "file.offset" => Payload("Offset", Number),
            "file.share_mode" => Payload("ShareAccess", Flags(names::list("shares")?, 0)),
            "file.attributes" => Payload("FileAttributes", FlagList(names::list("file-attributes")?)),
            "file.info_class" => Payload("InfoClass", Name(names::list("info-classes")?, 0, u64::MAX)),
            "file.info.allocation_size" => {
                IfInfoClass { class: names::INFO_ALLOCATION, field: "ExtraInfo", form: Number }
            }
            "file.info.eof_size" => {
                IfInfoClass { class: names::INFO_END_OF_FILE, field: "ExtraInfo", form: Number }
            }
            "file.info.is_disposition_delete_file" => {
                IfInfoClass { class: names::INFO_DISPOSITION, field: "ExtraInfo", form: IsSet }
            }
            "file.view.base" => Payload("ViewBase", Hex),
            "file.view.size" => Payload("ViewSize", Number),
            "file.view.type" => Payload("MiscInfo", Name(names::list("view-types")?, 52, 0xfff)),
            "file.view.protection" => Payload("MiscInfo", Flags(names::list("view-protections")?, 32)),
            "file.pid" => Payload("ProcessId", Number),
            "module.base" | "dll.base" => Payload("ImageBase", Hex),
            "module.size" | "dll.size" => Payload("ImageSize", Number),
            "module.checksum" => Payload("ImageChecksum", Number),
            "module.default_address" => Payload("DefaultBase", Hex),
            "module.pid" | "dll.pid" => Payload("ProcessId", Number),
            "module.signature.level" | "dll.signature.level" => {
                Payload("SignatureLevel", Name(names::list("signature-levels")?, 0, 0xf))
            }
            "module.signature.type" | "dll.signature.type" => {
                Payload("SignatureType", Name(names::list("signature-types")?, 0, 0x7))
            }
            "module.pe.is_dotnet" | "dll.pe.is_dotnet" => Image(ImageOf::Loaded, ImagePart::IsDotNet),
            "registry.path" => Key(KeyPart::Path),
            "registry.key.name" => Key(KeyPart::Name),
            "registry.value" => Key(KeyPart::Value),
            "registry.status" => Payload("Status", Status),
            "registry.kcb" => Payload("KeyHandle", Hex),
            "net.dip" => Payload("daddr", Text),
            "net.sip" => Payload("saddr", Text),
            "net.l4.proto" => Protocol,
            "dns.name" => Payload("QueryName", Text),
            "dns.rr" => Payload("QueryType", Name(names::list("dns-types")?, 0, u64::MAX)),
            "dns.answers" => Payload("QueryResults", Parts),
            "handle.id" => Payload("Handle", Number),
            "handle.object" => Payload("Object", Number),
            "mem.address" => Payload("BaseAddress", Number),
            "mem.size" => Payload("RegionSize", Number),
            "mem.alloc" => Payload("Flags", Flags(names::list("allocations")?, 0)),
            "thread.pid" if event == "OpenThread" => Payload("TargetProcessId", Number),
            "thread.pid" => Payload("ProcessId", Number),
            "thread.access.mask.names" if event == "OpenThread" => {
                Payload("DesiredAccess", FlagList(names::list("thread-access")?))
            }
            "thread.access.status" if event == "OpenThread" => Payload("ReturnCode", Status),
            "thread.prio" => Payload("BasePriority", Number),
            "thread.page.prio" => Payload("PagePriority", Number),
            "thread.io.prio" => Payload("IoPriority", Number),
            "thread.kstack.base" => Payload("StackBase", Hex),
            "thread.kstack.limit" => Payload("StackLimit", Hex),
            "thread.ustack.base" => Payload("UserStackBase", Hex),
            "thread.ustack.limit" => Payload("UserStackLimit", Hex),
            "thread.teb_address" => Payload("TebBase", Hex),
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
            "threadpool.id" => Payload("PoolId", Hex),
            "threadpool.task.id" => Payload("TaskId", Hex),
            "threadpool.callback.address" => Payload("CallbackFunction", Hex),
            "threadpool.callback.context" => Payload("CallbackContext", Hex),
            "threadpool.subprocess_tag" => Payload("SubProcessTag", Hex),
            "threadpool.timer.duetime" => Payload("DueTime", Number),
            "threadpool.timer.subqueue" => Payload("SubQueue", Hex),
            "threadpool.timer.period" => Payload("Period", Number),
            "threadpool.timer.window" => Payload("WindowLength", Number),
            name => {
                let of = |prefix: &str| name.strip_prefix(prefix).and_then(image_part);
                if let Some(part) = of("module.signature.").or_else(|| of("dll.signature.")) {
                    return Some(Image(ImageOf::Loaded, part));
                }
                return Some(Image(ImageOf::FinalUser, of("thread.callstack.final_user_module.signature.")?));
            }
        })
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
    use Form::*;
    use TraceField::*;
    let of = |field: &str| TraceField::of(field, None, event);
    let is_audit =
        matches!(event, "OpenProcess" | "OpenThread" | "SetThreadContext" | "CreateSymbolicLinkObject");
    let has_target = matches!(event, "OpenProcess" | "OpenThread" | "VirtualAlloc" | "VirtualFree");
    match (name, event) {
        ("status", "CreateFile") => Some(FileStatus),
        ("status", _) if event.starts_with("Reg") => Some(Payload("Status", Status)),
        ("status", _) if is_audit => Some(Payload("ReturnCode", Status)),
        ("exit_status", _) => Some(Payload("ExitStatus", Status)),
        ("exe", _) if has_target => Some(Process(Whose::Target, ProcessPart::Fact(ProcessFact::Path))),
        ("name", _) if has_target => Some(Process(Whose::Target, ProcessPart::Fact(ProcessFact::Name))),
        ("pid", "OpenProcess" | "OpenThread") => Some(Payload("TargetProcessId", Number)),
        ("pid", "CreateProcess" | "TerminateProcess") => of("ps.pid"),
        ("pid", _) => Some(Payload("ProcessId", Number)),
        ("tid", "OpenThread") => Some(Payload("TargetThreatId", Number)),
        ("tid", "CreateThread" | "TerminateThread") => Some(Payload("TThreadId", Number)),
        ("desired_access", "OpenProcess") => {
            Some(Payload("DesiredAccess", Flags(names::list("process-access")?, 0)))
        }
        ("desired_access", "OpenThread") => {
            Some(Payload("DesiredAccess", Flags(names::list("thread-access")?, 0)))
        }
        ("desired_access", "CreateSymbolicLinkObject") => {
            Some(Payload("DesiredAccess", Flags(names::list("object-access")?, 0)))
        }
        ("source", "CreateSymbolicLinkObject") => Some(Payload("LinkSourceName", Text)),
        ("target", "CreateSymbolicLinkObject") => Some(Payload("LinkTargetName", Text)),
        ("create_options", "CreateFile") => {
            Some(Payload("CreateOptions", Flags(names::list("create-options")?, 0)))
        }
        ("create_disposition", "CreateFile") => Some(Disposition),
        ("ppid", _) => of("ps.ppid"),
        ("exe", "CreateProcess" | "TerminateProcess") => of("ps.exe"),
        ("name", "CreateProcess" | "TerminateProcess") => of("ps.name"),
        ("cmdline", _) => of("ps.cmdline"),
        ("sid", _) => of("ps.sid"),
        ("session_id", _) => of("ps.sessionid"),
        ("token_integrity_level", _) => of("ps.token.integrity_level"),
        ("start_address", _) => of("thread.start_address"),
        ("start_address_module", _) => of("thread.start_address.module"),
        ("start_address_symbol", _) => of("thread.start_address.symbol"),
        ("file_path", _) => of("file.path"),
        ("key_path", _) => of("registry.path"),
        ("base_address", "LoadModule" | "UnloadModule") => of("module.base"),
        ("base_address", _) => of("mem.address"),
        ("region_size", _) => of("mem.size"),
        ("alloc_type", _) => of("mem.alloc"),
        ("view_base", _) => of("file.view.base"),
        ("view_size", _) => of("file.view.size"),
        ("section_type", _) => of("file.view.type"),
        ("protection", "MapViewFile" | "UnmapViewFile") => of("file.view.protection"),
        ("class", _) => of("file.info_class"),
        ("share_mask", _) => of("file.share_mode"),
        ("attributes", _) => of("file.attributes"),
        ("file_object", _) => of("file.object"),
        ("file_key", _) => of("file.key"),
        ("io_size", _) => of("file.io.size"),
        ("signature_level", _) => of("module.signature.level"),
        ("signature_type", _) => of("module.signature.type"),
        ("dip", _) => of("net.dip"),
        ("sip", _) => of("net.sip"),
        ("l4_proto", _) => of("net.l4.proto"),
        ("dport", _) => Some(Filter(FilterField::of("fields.dport")?)),
        ("sport", _) => Some(Filter(FilterField::of("fields.sport")?)),
        _ => None,
    }
}

/// The detections with these names.
pub(super) fn detections(names: &[&str]) -> impl Iterator<Item = DetectionId> {
    names.iter().filter_map(|name| DetectionId::parse(name))
}
