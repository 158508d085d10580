//! What an address was resolved to. Stays valid when the tables it came from are gone.

use std::collections::HashSet;
use std::sync::Arc;

use stackhound_types::{AddressKind, Rva};

use crate::image::Image;
use crate::name::{Inline, Line, Name, Origin, Symbols};

/// One name of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedName {
    /// Demangled if it was mangled. Equal texts of one symbolizer are the same allocation.
    pub text: Arc<str>,
    /// Bytes from the start of what is named to the address that was asked for.
    pub offset: u32,
}

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedLine {
    /// Path, as the compiler wrote it.
    pub file: Arc<str>,
    /// Number of the line, from 1.
    pub line: u32,
}

/// A function that was compiled into the one that the address is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedInline {
    /// Its name.
    pub function: Arc<str>,
    /// Where in it the address is.
    pub line: Option<ResolvedLine>,
}

/// Bytes of the image around an address, as in [`crate::image::CallSite`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvedCallSite {
    /// Up to [`ResolvedCallSite::REACH`] bytes that end before the address: for a return address, the call is the last
    /// of them.
    pub before: Box<[u8]>,
    /// Up to [`ResolvedCallSite::REACH`] bytes from the address on.
    pub after: Box<[u8]>,
    /// Whether the bytes before can be read as a call. `None` for machines whose instructions are not known.
    pub ends_call: Option<bool>,
}

impl ResolvedCallSite {
    /// Most bytes to each side.
    pub const REACH: usize = 16;

    pub(super) fn read(image: &Image<'_>, rva: Rva) -> Option<ResolvedCallSite> {
        let site = image.call_site(rva, Self::REACH, Self::REACH)?;
        Some(ResolvedCallSite {
            before: site.before.into(),
            after: site.after.into(),
            ends_call: site.ends_call,
        })
    }
}

/// All that is known of an address of a module: its names as in [`crate::Names`], place in the source, code bytes.
/// About 120 bytes, texts aside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvedFrame {
    /// See [`Origin::Pdb`].
    pub pdb: Option<ResolvedName>,
    /// See [`Origin::Export`].
    pub export: Option<ResolvedName>,
    /// See [`Origin::NearestExport`].
    pub nearest_export: Option<ResolvedName>,
    /// Where in the source code it is; with functions compiled into another, the place in the innermost.
    pub line: Option<ResolvedLine>,
    /// The functions compiled into the one at the address, innermost first.
    pub inlines: Box<[ResolvedInline]>,
    /// If it was asked for, and the image is at hand.
    pub call_site: Option<Box<ResolvedCallSite>>,
}

impl ResolvedFrame {
    /// All that `symbols` know of an address, without a symbolizer.
    pub fn look_up(symbols: &dyn Symbols, rva: Rva, kind: AddressKind) -> ResolvedFrame {
        resolve(symbols, rva, kind, &std::sync::Mutex::default())
    }

    /// All names of the function at the address, and of those compiled into it there.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        let own = [&self.pdb, &self.export, &self.nearest_export].into_iter().flatten();
        let inlines = self.inlines.iter().map(|inline| &*inline.function);
        own.map(|name| &*name.text).chain(inlines)
    }

    /// The name to show if only one is shown: the first of PDB, export, nearest export.
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

/// Looks up all that `symbols` know of an address. `texts` are locked only after that.
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
