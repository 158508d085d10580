//! A stack frame.

use std::borrow::Cow;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_detect::report::FrameReport;
use stackhound_frames::Region as FrameRegion;
use stackhound_pipeline::{Depth, Label};
use stackhound_symbols::{ResolvedCallSite, ResolvedFrame, ResolvedInline, ResolvedLine, ResolvedName};
use stackhound_system::{MethodRef, Protection};
use stackhound_threads::{StackFrame, StatedName};
use stackhound_types::Mode;

use super::images::ModuleImage;
use super::value::{Bytes, Hex, Text};
use crate::findings::shown;

/// One frame of a call stack.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Frame<'a> {
    /// The recorded address. Null if the source reports a module and an offset instead.
    address: Option<Hex>,
    #[cfg_attr(test, schemars(extend("enum" = ["kernel", "user"])))]
    mode: &'static str,
    /// Present and true for 32-bit code of a process on 64-bit Windows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    wow64: bool,
    /// File name of the module, or `jit:` followed by the runtime for JIT-compiled code; null if
    /// the module is not known.
    module: Option<Cow<'a, str>>,
    /// Path of the module; in findings only.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// What each source states about the image of the module; in findings, if anything is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    image: Vec<ModuleImage<'a>>,
    /// Offset in the module.
    rva: Option<Hex>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    function: Option<Function<'a>>,
    /// The JIT-compiled method with its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    method: Option<Text<MethodRef<'a>>>,
    /// Signature of the method.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    names: Option<Names<'a>>,
    /// Bytes around the address, if an image or memory was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_site: Option<CallSite<'a>>,
}

/// The origin of the code of a frame. Absent if modules were not requested.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Memory {
    /// Whether the code comes from an image or was compiled by a runtime that reported it.
    #[cfg_attr(test, schemars(extend("enum" = ["backed", "unbacked", "unknown"])))]
    backing: &'static str,
    /// The memory that the frame is in; for user frames only.
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

/// A region of memory.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Region {
    #[cfg_attr(test, schemars(extend("enum" = ["image", "mapped", "private", "jit:clr", "jit:script", "unknown"])))]
    kind: &'static str,
    /// Start of the allocation.
    base: Option<Hex>,
    /// Size in bytes.
    size: Option<u64>,
    /// Protection when it was mapped, such as `R-X`. Pages may have been changed since.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    protection: Option<Text<Protection>>,
    /// Protection of the page when the memory of the live process was read; in findings only.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_protection: Option<String>,
    /// The records that these facts come from.
    evidence: Option<&'static str>,
}

/// The displayed name. Absent if functions were not requested.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Function<'a> {
    /// The function; null if no name is known.
    symbol: Option<Cow<'a, str>>,
    /// Bytes from the start of the function to the address.
    offset: Option<u64>,
    /// Source of the name.
    #[cfg_attr(test, schemars(extend("enum" = ["pdb", "export", "nearest_export", "method", "kernel", null])))]
    origin: Option<&'static str>,
}

/// All names of an address, its source line, and the functions that were inlined there.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Names<'a> {
    /// The name in the PDB.
    pdb: Option<Name<'a>>,
    /// The name in the export table, if an export starts the function.
    export: Option<Name<'a>>,
    /// The nearest export before the address, which can be another function.
    nearest_export: Option<Name<'a>>,
    /// The source line.
    source: Option<SourceLine<'a>>,
    /// Functions that were inlined at the address, innermost first.
    inlines: Vec<Inline<'a>>,
}

/// A name, and the number of bytes from its start to the address.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Name<'a> {
    name: &'a str,
    offset: u64,
}

/// A source line.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct SourceLine<'a> {
    file: &'a str,
    line: u32,
}

/// An inlined function and its source line.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Inline<'a> {
    function: &'a str,
    source: Option<SourceLine<'a>>,
}

/// Bytes around an address.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct CallSite<'a> {
    /// Bytes before the address. Before a return address, these contain the call.
    leading_bytes: Bytes<'a>,
    /// Bytes from the address on.
    trailing_bytes: Bytes<'a>,
    /// The call before a return address, such as `call qword ptr [rip+0x1a2b]`, or the instruction
    /// that enters the kernel. Targets of direct calls are offsets in the module. Null if it is not
    /// certain; absent in findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    instruction: Option<Option<&'a str>>,
}

impl<'a> Frame<'a> {
    /// Converts a frame of an event, with the requested facts.
    pub fn of_event(label: &Label<'a>) -> Frame<'a> {
        let Label { frame, names } = *label;
        let is_named = frame.depth() == Depth::Function;
        let method = frame.method().filter(|_| is_named);
        Frame {
            address: Some(Hex(frame.address().0)),
            mode: frame.mode.name(),
            wow64: frame.is_wow64,
            module: label.module(),
            path: None,
            image: Vec::new(),
            rva: frame.rva().map(Hex),
            memory: (frame.depth() > Depth::Address).then(|| Memory {
                backing: frame.backing().name(),
                region: (frame.mode == Mode::User).then(|| Region::new(&frame.region)),
            }),
            function: (is_named && (names.is_some() || method.is_some())).then(|| {
                let shown = label.name();
                Function {
                    offset: shown.as_ref().map(|name| name.offset),
                    origin: shown.as_ref().map(|name| name.origin.name()),
                    symbol: shown.map(|name| name.text),
                }
            }),
            method: method.map(Text),
            signature: method.map(|method| method.signature()),
            names: names.map(Names::new),
            call_site: names.and_then(|names| names.call_site.as_deref()).map(CallSite::new),
        }
    }

    /// Converts a frame of a thread's stack.
    pub fn of_thread(frame: &'a StackFrame) -> Frame<'a> {
        let name = frame.name.as_ref().map(|name| (&*name.text, name.offset, name.origin.name()));
        let stated = frame.stated.as_ref().map(|name| (&*name.function, name.offset, StatedName::ORIGIN));
        let shown = name.or(stated);
        Frame {
            address: frame.address.map(|address| Hex(address.0)),
            mode: frame.mode.name(),
            wow64: frame.is_wow64,
            module: frame.location.as_ref().map(|location| Cow::Borrowed(&*location.module)),
            path: None,
            image: Vec::new(),
            rva: frame.location.as_ref().and_then(|location| location.rva).map(Hex),
            memory: Some(Memory {
                backing: frame.backing.name(),
                region: (frame.mode == Mode::User).then(|| Region::new(&frame.region)),
            }),
            function: (shown.is_some() || frame.names.is_some()).then_some(Function {
                symbol: shown.map(|(symbol, _, _)| Cow::Borrowed(symbol)),
                offset: shown.map(|(_, offset, _)| offset),
                origin: shown.map(|(_, _, origin)| origin),
            }),
            method: None,
            signature: None,
            names: frame.names.as_ref().map(Names::new),
            call_site: None,
        }
    }

    /// Converts a frame of an evaluated event.
    pub fn of_finding(frame: &'a FrameReport) -> Frame<'a> {
        let shown = frame.function.as_ref();
        let bytes = (&*frame.leading_bytes, &*frame.trailing_bytes);
        Frame {
            address: frame.address.map(Hex),
            mode: frame.mode.name(),
            wow64: frame.is_wow64,
            module: frame.module_or_runtime().map(Cow::Borrowed),
            path: Some(&*frame.module).filter(|path| path.contains('\\')),
            image: ModuleImage::list(&frame.image),
            rva: frame.rva.map(Hex),
            memory: Some(Memory {
                backing: frame.backing.name(),
                region: (frame.mode == Mode::User).then(|| Region {
                    page_protection: frame.page_protection.map(shown::protection),
                    ..Region::new(&frame.region)
                }),
            }),
            function: Some(Function {
                symbol: shown.map(|name| Cow::Borrowed(&*name.text)),
                offset: shown.map(|name| name.offset),
                origin: shown.map(|name| name.origin),
            }),
            method: None,
            signature: None,
            names: None,
            call_site: (!bytes.0.is_empty() || !bytes.1.is_empty()).then_some(CallSite {
                leading_bytes: Bytes(bytes.0),
                trailing_bytes: Bytes(bytes.1),
                instruction: None,
            }),
        }
    }
}

impl Region {
    fn new(region: &FrameRegion) -> Region {
        Region {
            kind: region.kind.name(),
            base: region.extent.map(|(base, _)| Hex(base.0)),
            size: region.extent.map(|(_, size)| size),
            protection: region.protection.map(Text),
            page_protection: None,
            evidence: region.evidence.map(|(source, _)| source.name()),
        }
    }
}

impl<'a> Names<'a> {
    /// Converts the names from the files of a module.
    pub fn new(names: &'a ResolvedFrame) -> Names<'a> {
        Names {
            pdb: names.pdb.as_ref().map(Name::new),
            export: names.export.as_ref().map(Name::new),
            nearest_export: names.nearest_export.as_ref().map(Name::new),
            source: names.line.as_ref().map(SourceLine::new),
            inlines: names.inlines.iter().map(Inline::new).collect(),
        }
    }
}

impl<'a> Name<'a> {
    fn new(name: &'a ResolvedName) -> Name<'a> {
        Name { name: &name.text, offset: name.offset.into() }
    }
}

impl<'a> SourceLine<'a> {
    fn new(line: &'a ResolvedLine) -> SourceLine<'a> {
        SourceLine { file: &line.file, line: line.line }
    }
}

impl<'a> Inline<'a> {
    fn new(inline: &'a ResolvedInline) -> Inline<'a> {
        Inline { function: &inline.function, source: inline.line.as_ref().map(SourceLine::new) }
    }
}

impl<'a> CallSite<'a> {
    fn new(site: &'a ResolvedCallSite) -> CallSite<'a> {
        CallSite {
            leading_bytes: Bytes(&site.before),
            trailing_bytes: Bytes(&site.after),
            instruction: Some(site.instruction.as_deref()),
        }
    }
}
