//! Results for an address. They remain valid after the tables are removed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use stackhound_types::{AddressKind, Rva};

use crate::image::Image;
use crate::name::{Inline, Line, Name, Origin, Symbols};

/// One name of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedName {
    /// The name, demangled if it was mangled. Equal texts of one symbolizer share an allocation.
    pub text: Arc<str>,
    /// Offset of the queried address from the start of the named symbol, in bytes.
    pub offset: u32,
}

/// A location in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedLine {
    /// The path, as the compiler wrote it.
    pub file: Arc<str>,
    /// The line number, from 1.
    pub line: u32,
}

impl fmt::Display for ResolvedLine {
    /// `file:line`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A function that was inlined into the function that contains the address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedInline {
    /// Its name.
    pub function: Arc<str>,
    /// The source location of the address within it.
    pub line: Option<ResolvedLine>,
}

/// The bytes of the image around an address, as in [`crate::image::CallSite`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvedCallSite {
    /// Up to [`ResolvedCallSite::REACH`] bytes that end before the address. For a return address,
    /// the last of them are the call.
    pub before: Box<[u8]>,
    /// Up to [`ResolvedCallSite::REACH`] bytes from the address on.
    pub after: Box<[u8]>,
    /// Whether the bytes before can be decoded as a call. `None` for machines whose instructions
    /// are not decoded.
    pub ends_call: Option<bool>,
    /// The call before a return address, as in [`Image::call_before`]. `None` if it is not certain,
    /// and for addresses of instructions.
    pub instruction: Option<Box<str>>,
}

impl ResolvedCallSite {
    /// Maximum number of bytes on each side.
    pub const REACH: usize = 16;

    pub(super) fn read(image: &Image<'_>, rva: Rva, instruction: Option<String>) -> Option<ResolvedCallSite> {
        let site = image.call_site(rva, Self::REACH, Self::REACH)?;
        Some(ResolvedCallSite {
            before: site.before.into(),
            after: site.after.into(),
            ends_call: site.ends_call,
            instruction: instruction.map(String::into_boxed_str),
        })
    }
}

/// The data of an address of a module: its names as in [`crate::Names`], source location, and code
/// bytes. About 120 bytes, without texts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvedFrame {
    /// See [`Origin::Pdb`].
    pub pdb: Option<ResolvedName>,
    /// See [`Origin::Export`].
    pub export: Option<ResolvedName>,
    /// See [`Origin::NearestExport`].
    pub nearest_export: Option<ResolvedName>,
    /// The source location. If functions are inlined at the address, the location of the outermost
    /// call; the locations in them are in `inlines`.
    pub line: Option<ResolvedLine>,
    /// The functions that are inlined at the address, innermost first.
    pub inlines: Box<[ResolvedInline]>,
    /// The code bytes, if requested and if the image is available.
    pub call_site: Option<Box<ResolvedCallSite>>,
}

impl ResolvedFrame {
    /// Looks up the data of an address in `symbols`, without a symbolizer.
    pub fn look_up(symbols: &dyn Symbols, rva: Rva, kind: AddressKind) -> ResolvedFrame {
        resolve(symbols, rva, kind, &std::sync::Mutex::default())
    }

    /// Returns all names of the function at the address, and of the functions inlined there.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        let own = [&self.pdb, &self.export, &self.nearest_export].into_iter().flatten();
        let inlines = self.inlines.iter().map(|inline| &*inline.function);
        own.map(|name| &*name.text).chain(inlines)
    }

    /// Returns the preferred name: the first of PDB, export, nearest export.
    pub fn best(&self) -> Option<(Origin, &ResolvedName)> {
        let all = [
            (Origin::Pdb, &self.pdb),
            (Origin::Export, &self.export),
            (Origin::NearestExport, &self.nearest_export),
        ];
        all.into_iter().find_map(|(origin, name)| Some((origin, name.as_ref()?)))
    }
}

/// The distinct texts of all resolved frames.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: HashSet<Arc<str>, foldhash::fast::RandomState>,
}

impl Texts {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn name(&mut self, name: Option<Name<'_>>) -> Option<ResolvedName> {
        name.map(|name| ResolvedName { text: self.text(&name.text), offset: name.offset })
    }

    fn line(&mut self, line: Option<Line<'_>>) -> Option<ResolvedLine> {
        line.map(|line| ResolvedLine { file: self.text(&line.file), line: line.line })
    }

    fn inline(&mut self, inline: Inline<'_>) -> ResolvedInline {
        ResolvedInline { function: self.text(&inline.function), line: self.line(inline.line) }
    }
}

/// Looks up the data of an address in `symbols`. `texts` is locked only after that.
pub(super) fn resolve(
    symbols: &dyn Symbols,
    rva: Rva,
    kind: AddressKind,
    texts: &std::sync::Mutex<Texts>,
) -> ResolvedFrame {
    let names = symbols.names(rva, kind);
    let line = symbols.line(rva, kind);
    let inlines = symbols.inlines(rva, kind);
    let mut texts = super::locked(texts);
    ResolvedFrame {
        pdb: texts.name(names.pdb),
        export: texts.name(names.export),
        nearest_export: texts.name(names.nearest_export),
        line: texts.line(line),
        inlines: inlines.into_iter().map(|inline| texts.inline(inline)).collect(),
        call_site: None,
    }
}
