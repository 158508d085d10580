//! Text labels of frames.

use std::borrow::Cow;
use std::fmt;

use stackhound_frames::{Backing, RegionKind};
use stackhound_symbols::{Origin, ResolvedFrame, ResolvedInline, ResolvedLine};
use stackhound_types::Mode;

use crate::enrichment::Depth;
use crate::frame::FrameView;

/// The origin of a displayed name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NameOrigin {
    /// A symbol or image file of the module.
    Symbols(Origin),
    /// The runtime that JIT-compiled the method.
    Method,
}

impl NameOrigin {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            NameOrigin::Symbols(origin) => origin.name(),
            NameOrigin::Method => "method",
        }
    }
}

/// A displayed name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownName<'f> {
    /// The origin of the name.
    pub origin: NameOrigin,
    /// The name of the function or method.
    pub text: Cow<'f, str>,
    /// Offset from the start of the function in bytes.
    pub offset: u64,
}

impl ShownName<'_> {
    /// The best name from the files of the module: the first available of PDB, export and nearest
    /// export.
    pub fn of_files(names: &ResolvedFrame) -> Option<ShownName<'_>> {
        names.best().map(|(origin, name)| ShownName {
            origin: NameOrigin::Symbols(origin),
            text: Cow::Borrowed(&*name.text),
            offset: name.offset.into(),
        })
    }

    /// A copy that owns its text.
    pub fn into_owned(self) -> ShownName<'static> {
        ShownName { origin: self.origin, text: self.text.into_owned().into(), offset: self.offset }
    }
}

impl fmt::Display for ShownName<'_> {
    /// `function+0x12 [origin]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x} [{}]", self.text, self.offset, self.origin.name())
    }
}

/// A frame and its names as text: `module!function+0x12 [origin]`, without names `module+0x1234`.
/// Outside modules, the address and the known facts about the memory there.
#[derive(Clone, Copy, Debug)]
pub struct Label<'f> {
    /// The frame.
    pub frame: &'f FrameView<'f>,
    /// The names, if they were requested.
    pub names: Option<&'f ResolvedFrame>,
}

impl<'f> Label<'f> {
    /// The file name of the module, or the runtime of JIT-compiled code.
    pub fn module(&self) -> Option<Cow<'f, str>> {
        match (self.frame.module(), self.frame.region.kind) {
            (Some(module), _) => Some(Cow::Borrowed(module.file_name())),
            (None, kind @ RegionKind::Jit(_)) if self.frame.depth() > Depth::Address => {
                Some(Cow::Borrowed(kind.name()))
            }
            _ => None,
        }
    }

    /// The displayed name: the first available of PDB, export, JIT-compiled method and nearest
    /// export.
    pub fn name(&self) -> Option<ShownName<'f>> {
        let of_files = self.names.and_then(ShownName::of_files);
        let is_certain = |name: &ShownName<'_>| name.origin != NameOrigin::Symbols(Origin::NearestExport);
        let of_runtime = || {
            let method = self.frame.method().filter(|_| self.frame.depth() == Depth::Function)?;
            let offset = self.frame.address().0.saturating_sub(method.start().0);
            let text = method.to_string();
            (!text.is_empty()).then_some(ShownName { origin: NameOrigin::Method, text: text.into(), offset })
        };
        match of_files {
            Some(name) if is_certain(&name) => Some(name),
            of_files => of_runtime().or(of_files),
        }
    }

    /// Module and function without the offset, so that all addresses of a function have the same
    /// text. The nearest export is marked with `~`, since it can belong to another function.
    /// Without a name, the result is the same as that of `to_string`.
    pub fn function(&self) -> String {
        let Some((module, name)) = self.module().zip(self.name()) else { return self.to_string() };
        let is_near = name.origin == NameOrigin::Symbols(Origin::NearestExport);
        format!("{module}!{}{}", if is_near { "~" } else { "" }, name.text)
    }

    /// The source line of the address in the function. In inlined functions, this is the line of the
    /// outermost call. For a return address, it is the line of the call.
    pub fn source(&self) -> Option<&'f ResolvedLine> {
        self.names?.line.as_ref()
    }

    /// The functions that were inlined at the address, innermost first.
    pub fn inlines(&self) -> impl DoubleEndedIterator<Item = InlineLabel<'f>> + use<'f> {
        let module = self.module();
        let inlines = self.names.filter(|_| module.is_some()).map_or(&[][..], |names| &names.inlines);
        inlines.iter().map(move |inline| InlineLabel { module: module.clone().unwrap_or_default(), inline })
    }
}

/// A function that was inlined at the address of a frame, as text: `module!function [inlined]`. It
/// called the function that is inlined further inside, or is the code at the address itself. It has
/// no address of its own.
#[derive(Clone, Debug)]
pub struct InlineLabel<'f> {
    module: Cow<'f, str>,
    inline: &'f ResolvedInline,
}

impl<'f> InlineLabel<'f> {
    /// The source line of the address in the function.
    pub fn source(&self) -> Option<&'f ResolvedLine> {
        self.inline.line.as_ref()
    }
}

impl fmt::Display for InlineLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}!{} [inlined]", self.module, self.inline.function)
    }
}

/// The file name of a module without its extension, if it has one.
pub fn stem(module: &str) -> Option<&str> {
    module.rsplit_once('.').map(|(stem, _)| stem)
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((module, name)) = self.module().zip(self.name()) {
            return write!(f, "{module}!{name}");
        }
        write!(f, "{}", self.frame)?;
        if self.frame.mode == Mode::Kernel || self.frame.depth() == Depth::Address {
            return Ok(());
        }
        match (self.frame.code.backing(), self.frame.region.kind) {
            (Backing::Backed, _) => Ok(()),
            (Backing::Unbacked, RegionKind::Unknown) => f.write_str(" (unbacked)"),
            (Backing::Unbacked, kind) => write!(f, " (unbacked, {} memory)", kind.name()),
            (Backing::Unknown, RegionKind::Unknown) => f.write_str(" (unknown memory)"),
            (Backing::Unknown, kind) => write!(f, " ({} memory)", kind.name()),
        }
    }
}
