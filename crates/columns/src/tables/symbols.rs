//! The names of frames.

use std::collections::HashSet;

use rustc_hash::FxBuildHasher;
use stackhound_export::json::frame::Names;
use stackhound_frames::Frame;
use stackhound_pipeline::{Pipeline, ShownName};
use stackhound_types::AddressKind;

use super::Pending;
use crate::layout::{Column, NumberColumn, Table, TextColumn, Type};
use crate::rows::Rows;

#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    module_id: NumberColumn,
    rva: NumberColumn,
    is_return: NumberColumn,
    name: TextColumn,
    offset: NumberColumn,
    origin: TextColumn,
    names: TextColumn,
}

pub(super) fn table() -> (Table, Columns) {
    let mut t =
        Table::new("symbols", "The names of an offset in a module, for frames of which names were found.");
    let columns = Columns {
        module_id: t.number(Column::required("module_id", Type::UInt64, "The module, in `modules`.")),
        rva: t.number(Column::required("rva", Type::UInt64, "Offset in the module in bytes.")),
        is_return: t.number(Column::required("is_return", Type::Flag, "As in `frames`.")),
        name: t.text(Column::required("name", Type::Text, "The best name of the function.")),
        offset: t.number(Column::required(
            "offset",
            Type::UInt64,
            "Bytes from the start of the function to the address.",
        )),
        origin: t.text(Column::required(
            "origin",
            Type::Text,
            "Source of the name: `pdb`, `export` or `nearest_export`.",
        )),
        names: t.text(Column::required(
            "names",
            Type::Text,
            "All names, the source line and inlined functions, as JSON: the keys of frames in `events`.",
        )),
    };
    (t, columns)
}

/// Collects the distinct frames in modules.
#[derive(Debug)]
pub(crate) struct Symbols {
    trace: u64,
    known: HashSet<(u64, u64, bool), FxBuildHasher>,
    frames: Vec<(u64, Frame)>,
}

impl Symbols {
    pub fn new(trace: u64) -> Symbols {
        Symbols { trace, known: HashSet::default(), frames: Vec::new() }
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Adds a frame in the module with an id.
    pub fn add(&mut self, module: u64, frame: &Frame) {
        let Some((_, rva)) = frame.in_loaded() else { return };
        if self.known.insert((module, rva, frame.kind == AddressKind::Return)) {
            self.frames.push((module, *frame));
        }
    }

    /// Names the frames, and returns the rows of those with a name. None without a symbolizer.
    pub fn rows(self, pipeline: &mut Pipeline<'_>) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(table(), self.trace);
        let (known, _, Some(naming)) = pipeline.parts() else { return rows };
        let mut numbers = Vec::with_capacity(self.frames.len());
        for (module, frame) in &self.frames {
            let Some((loaded, rva)) = frame.in_loaded() else { continue };
            let number = naming.request(known.system().module(loaded), rva, frame.kind);
            numbers.extend(number.map(|number| (number, *module, rva, frame.kind)));
        }
        naming.wait_for_all();
        for (number, module, rva, kind) in numbers {
            let Some(resolved) = naming.frame(number) else { continue };
            let Some(name) = ShownName::of_files(resolved) else { continue };
            rows.begin();
            rows.number(c.module_id, module);
            rows.number(c.rva, rva);
            rows.number(c.is_return, kind == AddressKind::Return);
            rows.text(c.name, &name.text);
            rows.number(c.offset, name.offset);
            rows.text(c.origin, name.origin.name());
            rows.bytes(c.names, |bytes| stackhound_export::escape::json(bytes, &Names::new(resolved)));
        }
        rows
    }
}
