//! Frames as JSON.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use stackhound::frames::Region;
use stackhound::symbols::{ResolvedCallSite, ResolvedFrame, ResolvedInline, ResolvedLine, ResolvedName};
use stackhound::types::HexBytes;
use stackhound::{Depth, Label, Mode};
use stackhound_export::Hex;

use crate::json::Shown;

/// A frame: `addr`, `mode`, `module`, `rva`; of user frames `backing` and `region`; where functions are named `symbol`,
/// `offset` and `origin` of the name to show, all names side by side, `line`, `inlines` and `call_site`.
pub struct Json<'f>(pub Label<'f>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Label { frame, names } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("addr", &Hex(frame.address().0))?;
        map.serialize_entry("mode", frame.mode.name())?;
        map.serialize_entry("module", &self.0.module())?;
        map.serialize_entry("rva", &frame.rva().map(Hex))?;
        if frame.mode == Mode::User && frame.depth() > Depth::Address {
            map.serialize_entry("backing", frame.backing().name())?;
            map.serialize_entry("region", &Memory(&frame.region))?;
        }
        if frame.depth() == Depth::Function && (names.is_some() || frame.method().is_some()) {
            let shown = self.0.name();
            map.serialize_entry("symbol", &shown.as_ref().map(|name| &*name.text))?;
            map.serialize_entry("offset", &shown.as_ref().map(|name| name.offset))?;
            map.serialize_entry("origin", &shown.as_ref().map(|name| name.origin.name()))?;
        }
        if let Some(method) = frame.method().filter(|_| frame.depth() == Depth::Function) {
            map.serialize_entry("method", &Shown(method))?;
            map.serialize_entry("signature", method.signature())?;
        }
        if let Some(names) = names {
            names_into(&mut map, names)?;
            if let Some(site) = &names.call_site {
                map.serialize_entry("call_site", &CallSite(site))?;
            }
        }
        map.end()
    }
}

/// All names of an address side by side, its place in the source, and the functions compiled into the one there.
pub fn names_into<M: SerializeMap>(map: &mut M, names: &ResolvedFrame) -> Result<(), M::Error> {
    map.serialize_entry("pdb", &names.pdb.as_ref().map(Name))?;
    map.serialize_entry("export", &names.export.as_ref().map(Name))?;
    map.serialize_entry("nearest_export", &names.nearest_export.as_ref().map(Name))?;
    map.serialize_entry("line", &names.line.as_ref().map(Line))?;
    map.serialize_entry("inlines", &Inlines(&names.inlines))
}

struct Memory<'r>(&'r Region);

impl Serialize for Memory<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let region = self.0;
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("kind", region.kind.name())?;
        map.serialize_entry("base", &region.extent.map(|(base, _)| Hex(base.0)))?;
        map.serialize_entry("size", &region.extent.map(|(_, size)| size))?;
        map.serialize_entry("protection", &region.protection.map(Shown))?;
        map.serialize_entry("source", &region.evidence.map(|(source, _)| source.name()))?;
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

struct CallSite<'n>(&'n ResolvedCallSite);

impl Serialize for CallSite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("before", &Shown(HexBytes(&self.0.before)))?;
        map.serialize_entry("after", &Shown(HexBytes(&self.0.after)))?;
        map.end()
    }
}
