//! Frames as people and scripts see them: module, name and offset, and where the name comes from.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use stackhound::symbols::{Origin, ResolvedFrame, ResolvedInline, ResolvedLine, ResolvedName};
use stackhound::{Address, Frame, Mode};

use crate::record::Hex;

/// The spelling in output.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Kernel => "kernel",
        Mode::User => "user",
    }
}

/// Where a frame is, apart from the trace that knows it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'f> {
    pub address: Address,
    pub mode: Mode,
    pub module: Option<&'f str>,
    pub rva: Option<u64>,
}

impl<'f> From<&Frame<'f>> for Place<'f> {
    fn from(frame: &Frame<'f>) -> Place<'f> {
        let module = frame.module().map(|module| module.file_name());
        Place { address: frame.address, mode: frame.mode, module, rva: frame.rva() }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module, self.rva) {
            (Some(module), Some(rva)) => write!(f, "{module}+{rva:#x}"),
            _ => write!(f, "{}", self.address),
        }
    }
}

/// `module!function+0x12 [pdb]` with names, `module+0x1234` without, the address where no module is.
pub struct Text<'f> {
    pub place: Place<'f>,
    pub names: Option<&'f ResolvedFrame>,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.and_then(ResolvedFrame::best).zip(self.place.module) {
            Some(((origin, name), module)) => {
                write!(f, "{module}!{}+{:#x} [{}]", name.text, name.offset, origin.name())
            }
            None => write!(f, "{}", self.place),
        }
    }
}

/// What a frame with a name is called where frames of one function are one: `module!function`. The nearest export is
/// marked with `~`, since the function can be another.
pub struct Function<'f> {
    pub module: &'f str,
    pub names: &'f ResolvedFrame,
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((origin, name)) = self.names.best() else { return f.write_str(self.module) };
        let mark = if origin == Origin::NearestExport { "~" } else { "" };
        write!(f, "{}!{mark}{}", self.module, name.text)
    }
}

/// A frame as JSON. With names, also `symbol`, `offset` and `origin` of the one to show, all three names, `line` and
/// `inlines`.
pub struct Json<'f> {
    pub place: Place<'f>,
    /// `None` if names were not asked for.
    pub names: Option<&'f ResolvedFrame>,
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.place;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("addr", &Hex(place.address.0))?;
        map.serialize_entry("mode", mode_name(place.mode))?;
        map.serialize_entry("module", &place.module)?;
        map.serialize_entry("rva", &place.rva.map(Hex))?;
        if let Some(names) = self.names {
            let best = names.best();
            map.serialize_entry("symbol", &best.map(|(_, name)| &*name.text))?;
            map.serialize_entry("offset", &best.map(|(_, name)| name.offset))?;
            map.serialize_entry("origin", &best.map(|(origin, _)| origin.name()))?;
            map.serialize_entry("pdb", &names.pdb.as_ref().map(Name))?;
            map.serialize_entry("export", &names.export.as_ref().map(Name))?;
            map.serialize_entry("nearest_export", &names.nearest_export.as_ref().map(Name))?;
            map.serialize_entry("line", &names.line.as_ref().map(Line))?;
            map.serialize_entry("inlines", &Inlines(&names.inlines))?;
        }
        map.end()
    }
}

struct Name<'n>(&'n ResolvedName);

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", &*self.0.text)?;
        map.serialize_entry("offset", &self.0.offset)?;
        map.end()
    }
}

struct Line<'n>(&'n ResolvedLine);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("file", &*self.0.file)?;
        map.serialize_entry("line", &self.0.line)?;
        map.end()
    }
}

struct Inlines<'n>(&'n [ResolvedInline]);

impl Serialize for Inlines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for inline in self.0 {
            list.serialize_element(&Inline(inline))?;
        }
        list.end()
    }
}

struct Inline<'n>(&'n ResolvedInline);

impl Serialize for Inline<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("function", &*self.0.function)?;
        map.serialize_entry("file", &self.0.line.as_ref().map(|line| &*line.file))?;
        map.serialize_entry("line", &self.0.line.as_ref().map(|line| line.line))?;
        map.end()
    }
}
