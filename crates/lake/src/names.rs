//! The text of the frames of stacks: an index of the tables `frames`, `symbols` and `modules`.
//!
//! The index is loaded as a whole when a query first needs it, and counts toward the memory limit.
//! Stacks, frames and texts are stored once, however many hosts have them.
//!
//! A frame has one text, wherever it occurs. If traces name it differently, a name from a PDB is
//! used before that of an export, and this before that of the nearest export; then the smallest
//! text. The same holds for spellings and paths of a module: the smallest one.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, StringArray, UInt16Array, UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rustc_hash::FxHashMap;
use stackhound_columns::tables::TableId;
use stackhound_profile::Pattern;
use stackhound_symbols::Origin;

use crate::tables::Sources;

/// The names of frames in some directories and traces, loaded at first use.
#[derive(Debug)]
pub struct Names {
    sources: Arc<Sources>,
    pool: Arc<dyn MemoryPool>,
    index: OnceLock<std::result::Result<Index, String>>,
    matches: Mutex<FxHashMap<String, Arc<Matches>>>,
}

/// The number of patterns whose matches are kept.
const PATTERNS_KEPT: usize = 64;

impl Names {
    /// Names of frames in these sources. Nothing is read yet.
    pub fn new(sources: Arc<Sources>, pool: Arc<dyn MemoryPool>) -> Names {
        Names { sources, pool, index: OnceLock::new(), matches: Mutex::default() }
    }

    /// The index. The first call reads the tables.
    ///
    /// # Errors
    /// A file cannot be read, or the memory limit is too low. Later calls return the same error.
    pub fn index(&self) -> Result<&Index> {
        let index = self.index.get_or_init(|| {
            Index::load(&self.sources, &self.pool).map_err(|error| match error.find_root() {
                DataFusionError::ResourcesExhausted(reason) => {
                    format!("the names of frames do not fit into the memory limit: {reason}")
                }
                root => root.message().into_owned(),
            })
        });
        index.as_ref().map_err(|reason| DataFusionError::Execution(reason.clone()))
    }

    /// The frames that a pattern finds. The first call for a pattern searches all names.
    pub fn matches(&self, pattern: &str) -> Result<Arc<Matches>> {
        let lock = || self.matches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(pattern) {
            return Ok(Arc::clone(known));
        }
        let compiled =
            Pattern::new(pattern).map_err(|error| DataFusionError::Execution(error.to_string()))?;
        let matches = Arc::new(self.index()?.matches(&compiled));
        let mut known = lock();
        if known.len() >= PATTERNS_KEPT {
            known.clear();
        }
        known.insert(pattern.to_owned(), Arc::clone(&matches));
        Ok(matches)
    }
}

/// The frames that a pattern finds.
#[derive(Debug)]
pub struct Matches(Vec<bool>);

impl Matches {
    /// Whether it finds a frame.
    pub fn contains(&self, frame: FrameId) -> bool {
        self.0[frame.0 as usize]
    }
}

/// A frame of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameId(u32);

/// A text of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TextId(u32);

/// Texts, each stored once.
#[derive(Debug, Default)]
struct Texts {
    ids: FxHashMap<Arc<str>, TextId>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Texts {
    fn id(&mut self, text: &str) -> Result<TextId> {
        if let Some(&id) = self.ids.get(text) {
            return Ok(id);
        }
        let id = TextId(number(self.texts.len())?);
        let text: Arc<str> = text.into();
        // With the counters of references.
        self.bytes += text.len() + 2 * size_of::<usize>();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        Ok(id)
    }

    fn get(&self, id: TextId) -> &str {
        &self.texts[id.0 as usize]
    }

    fn size(&self) -> usize {
        self.bytes + map_size(&self.ids) + self.texts.capacity() * size_of::<Arc<str>>()
    }
}

fn number(index: usize) -> Result<u32> {
    u32::try_from(index)
        .map_err(|_| DataFusionError::Execution("there are more than 2^32 names of frames".to_owned()))
}

/// The bytes of a map: of each entry, and one byte of state.
fn map_size<K, V>(map: &FxHashMap<K, V>) -> usize {
    map.capacity() * (size_of::<(K, V)>() + 1)
}

/// A location in a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Location {
    module: u64,
    rva: u64,
    is_return: bool,
}

/// Spelling and path of a module.
#[derive(Clone, Copy, Debug)]
struct Module {
    name: TextId,
    path: TextId,
}

/// What identifies the text of a frame: in a module, its location; and the text itself where it
/// depends on more.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum FrameKey {
    At(Location),
    Texts(String, String),
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    /// As output shows it.
    label: TextId,
    /// As patterns see it.
    full: TextId,
}

/// Stacks, innermost frame first.
#[derive(Debug, Default)]
pub struct Index {
    texts: Texts,
    frames: Vec<Frame>,
    /// The frames of all stacks.
    all: Vec<FrameId>,
    /// By stack id: the range in `all`.
    stacks: FxHashMap<u64, (u64, u32)>,
    /// Of the index itself, which lasts as long as the query.
    reservation: Option<MemoryReservation>,
}

impl Index {
    /// The frames of a stack, innermost first; `None` for an unknown stack.
    pub fn stack(&self, id: u64) -> Option<&[FrameId]> {
        let (start, length) = *self.stacks.get(&id)?;
        let start = start as usize;
        self.all.get(start..start + length as usize)
    }

    /// The text of a frame.
    pub fn label(&self, frame: FrameId) -> &str {
        self.texts.get(self.frames[frame.0 as usize].label)
    }

    fn matches(&self, pattern: &Pattern) -> Matches {
        // Many frames have the same full name, such as that of a module without names.
        let mut known = vec![None; self.texts.texts.len()];
        let matches = self.frames.iter().map(|frame| {
            let known: &mut Option<bool> = &mut known[frame.full.0 as usize];
            *known.get_or_insert_with(|| pattern.matches(self.texts.get(frame.full)))
        });
        Matches(matches.collect())
    }

    fn load(sources: &Sources, pool: &Arc<dyn MemoryPool>) -> Result<Index> {
        let mut loader = Loader::new(pool);
        for_each_batch(sources, TableId::Modules, &["module_id", "name", "path"], |batch| {
            loader.modules(batch)
        })?;
        for_each_batch(sources, TableId::Symbols, &SYMBOLS, |batch| loader.symbols(batch))?;
        for_each_batch(sources, TableId::Frames, &FRAMES, |batch| loader.frames(batch))?;
        Ok(loader.finish())
    }
}

const SYMBOLS: [&str; 5] = ["module_id", "rva", "is_return", "name", "origin"];
const FRAMES: [&str; 8] =
    ["stack_id", "depth", "module_id", "module", "rva", "is_return", "backing", "method"];

/// Reads some columns of a table of all sources.
fn for_each_batch(
    sources: &Sources,
    table: TableId,
    columns: &[&str],
    mut read: impl FnMut(&Batch<'_>) -> Result<()>,
) -> Result<()> {
    for path in sources.datasets.iter().map(|dataset| dataset.files(table)) {
        for path in path? {
            let of_file = |error: DataFusionError| error.context(path.display().to_string());
            let file = File::open(&path).map_err(|error| of_file(error.into()))?;
            let builder =
                ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| of_file(error.into()))?;
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
            for (number, batch) in reader.map_err(|error| of_file(error.into()))?.enumerate() {
                let batch = batch.map_err(|error| of_file(error.into()))?;
                read(&Batch { batch: &batch, path: &path, is_first: number == 0 })?;
            }
        }
    }
    sources.traces.for_each_batch(table, columns, |batch, is_first| {
        read(&Batch { batch, path: Path::new("trace"), is_first })
    })
}

const BATCH_ROWS: usize = 8192;

/// Rows of a file.
#[derive(Debug)]
struct Batch<'b> {
    batch: &'b RecordBatch,
    path: &'b Path,
    /// Whether they are the first ones of the file.
    is_first: bool,
}

impl Batch<'_> {
    fn column<T: Array + Clone + 'static>(&self, name: &str, r#type: &DataType) -> Result<T> {
        let error = || {
            DataFusionError::Execution(format!(
                "{}: expected the column {name} of type {type}",
                self.path.display()
            ))
        };
        let column: &ArrayRef = self.batch.column_by_name(name).ok_or_else(error)?;
        cast(column, r#type)?.as_any().downcast_ref::<T>().cloned().ok_or_else(error)
    }

    fn numbers(&self, name: &str) -> Result<UInt64Array> {
        self.column(name, &DataType::UInt64)
    }

    fn flags(&self, name: &str) -> Result<BooleanArray> {
        self.column(name, &DataType::Boolean)
    }

    fn texts(&self, name: &str) -> Result<StringArray> {
        self.column(name, &DataType::Utf8)
    }
}

/// A text that can be missing.
fn text(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

/// Builds an index.
#[derive(Debug)]
struct Loader {
    index: Index,
    modules: FxHashMap<u64, Module>,
    symbols: FxHashMap<Location, (Origin, TextId)>,
    known: FxHashMap<FrameKey, FrameId>,
    /// The texts in `known`.
    key_bytes: usize,
    /// The stack whose rows are being read, and whether it is new.
    current: Option<(u64, bool)>,
    reservation: MemoryReservation,
}

impl Loader {
    fn new(pool: &Arc<dyn MemoryPool>) -> Loader {
        Loader {
            index: Index::default(),
            modules: FxHashMap::default(),
            symbols: FxHashMap::default(),
            known: FxHashMap::default(),
            key_bytes: 0,
            current: None,
            reservation: MemoryConsumer::new("names of frames").register(pool),
        }
    }

    /// Reserves the memory that is used.
    fn reserve(&self) -> Result<()> {
        let tables = map_size(&self.modules) + map_size(&self.symbols) + map_size(&self.known);
        self.reservation.try_resize(self.index.size() + tables + self.key_bytes)
    }

    fn modules(&mut self, batch: &Batch<'_>) -> Result<()> {
        let (ids, names, paths) = (batch.numbers("module_id")?, batch.texts("name")?, batch.texts("path")?);
        for row in 0..ids.len() {
            let texts = &mut self.index.texts;
            let module = Module { name: texts.id(names.value(row))?, path: texts.id(paths.value(row))? };
            let smaller = |a: TextId, b: TextId| if texts.get(b) < texts.get(a) { b } else { a };
            let known = self.modules.entry(ids.value(row)).or_insert(module);
            *known =
                Module { name: smaller(known.name, module.name), path: smaller(known.path, module.path) };
        }
        self.reserve()
    }

    fn symbols(&mut self, batch: &Batch<'_>) -> Result<()> {
        let (modules, rvas, returns) =
            (batch.numbers("module_id")?, batch.numbers("rva")?, batch.flags("is_return")?);
        let (names, origins) = (batch.texts("name")?, batch.texts("origin")?);
        for row in 0..modules.len() {
            let Some(origin) = Origin::from_name(origins.value(row)) else { continue };
            let location =
                Location { module: modules.value(row), rva: rvas.value(row), is_return: returns.value(row) };
            let texts = &mut self.index.texts;
            let name = (origin, texts.id(names.value(row))?);
            let known = self.symbols.entry(location).or_insert(name);
            if (name.0, texts.get(name.1)) < (known.0, texts.get(known.1)) {
                *known = name;
            }
        }
        self.reserve()
    }

    fn frames(&mut self, batch: &Batch<'_>) -> Result<()> {
        let stacks = batch.numbers("stack_id")?;
        let depths: UInt16Array = batch.column("depth", &DataType::UInt16)?;
        let (modules, rvas, returns) =
            (batch.numbers("module_id")?, batch.numbers("rva")?, batch.flags("is_return")?);
        let (names, backings, methods) =
            (batch.texts("module")?, batch.texts("backing")?, batch.texts("method")?);
        if batch.is_first {
            self.current = None;
        }
        for row in 0..stacks.len() {
            let stack = stacks.value(row);
            // A file of several traces can have the stack again.
            if self.current.is_none_or(|(id, _)| id != stack) || depths.value(row) == 0 {
                let is_new = !self.index.stacks.contains_key(&stack);
                if is_new {
                    self.index.stacks.insert(stack, (self.index.all.len() as u64, 0));
                }
                self.current = Some((stack, is_new));
            }
            if self.current == Some((stack, false)) {
                continue;
            }
            let place = (modules.is_valid(row) && rvas.is_valid(row)).then(|| Location {
                module: modules.value(row),
                rva: rvas.value(row),
                is_return: returns.value(row),
            });
            let frame = self.frame(place, text(&names, row), text(&methods, row), backings.value(row))?;
            let Some((_, length)) = self.index.stacks.get_mut(&stack) else { continue };
            if u32::from(depths.value(row)) != *length {
                return Err(DataFusionError::Execution(format!(
                    "{}: expected the frames of stack {stack} together and by depth, found depth {} after {length} frames",
                    batch.path.display(),
                    depths.value(row)
                )));
            }
            *length += 1;
            self.index.all.push(frame);
        }
        self.reserve()
    }

    fn frame(
        &mut self,
        place: Option<Location>,
        module: Option<&str>,
        method: Option<&str>,
        backing: &str,
    ) -> Result<FrameId> {
        let key = match (place, method) {
            (Some(location), None) => FrameKey::At(location),
            _ => {
                let (label, full) = self.texts_of(place, module, method, backing);
                FrameKey::Texts(label, full)
            }
        };
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        let (label, full) = self.texts_of(place, module, method, backing);
        if matches!(key, FrameKey::Texts(..)) {
            self.key_bytes += label.len() + full.len();
        }
        let texts = &mut self.index.texts;
        let frame = Frame { label: texts.id(&label)?, full: texts.id(&full)? };
        let id = FrameId(number(self.index.frames.len())?);
        self.index.frames.push(frame);
        self.known.insert(key, id);
        Ok(id)
    }

    /// The text in output, and that for patterns, as the main program makes them.
    fn texts_of(
        &self,
        place: Option<Location>,
        module: Option<&str>,
        method: Option<&str>,
        backing: &str,
    ) -> (String, String) {
        let Some(location) = place else {
            let label = match (module, method) {
                (Some(runtime), Some(method)) => format!("{runtime}!{method}"),
                (Some(runtime), None) => format!("[{runtime}]"),
                _ => format!("[{backing}]"),
            };
            return (label.clone(), label);
        };
        let text = |id: TextId| self.index.texts.get(id);
        let known = self.modules.get(&location.module);
        let name = known.map_or(module.unwrap_or_default(), |module| text(module.name));
        let path = known.map(|module| text(module.path)).filter(|path| !path.is_empty()).unwrap_or(name);
        let symbol = self.symbols.get(&location).map(|&(origin, name)| (origin, text(name)));
        match (symbol, method) {
            (Some((Origin::Pdb | Origin::Export, function)), _) | (_, Some(function)) => {
                (format!("{name}!{function}"), format!("{path}!{function}"))
            }
            (Some((Origin::NearestExport, function)), None) => {
                (format!("{name}!~{function}"), format!("{path}!?"))
            }
            (None, None) => (format!("{name}+{:#x}", location.rva), format!("{path}!?")),
        }
    }

    fn finish(self) -> Index {
        let Loader { mut index, reservation, .. } = self;
        // It becomes smaller, which cannot fail.
        _ = reservation.try_resize(index.size());
        index.reservation = Some(reservation);
        index
    }
}

impl Index {
    fn size(&self) -> usize {
        self.texts.size()
            + self.frames.capacity() * size_of::<Frame>()
            + self.all.capacity() * size_of::<FrameId>()
            + map_size(&self.stacks)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
    use datafusion::parquet::arrow::ArrowWriter;

    use super::*;

    /// Writes a file of a table.
    fn write(root: &Path, table: &str, host: &str, columns: Vec<(&str, ArrayRef)>) {
        let folder = root.join(table).join("date=2024-01-01").join(format!("host={host}"));
        fs::create_dir_all(&folder).unwrap();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(folder.join("1.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn numbers(values: &[u64]) -> ArrayRef {
        Arc::new(UInt64Array::from(values.to_vec()))
    }

    fn texts(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    /// Rows of `frames`: stack, depth, location in a module, module, backing, method.
    type Row<'r> = (u64, u16, Option<(u64, u64)>, Option<&'r str>, &'r str, Option<&'r str>);

    fn frames(root: &Path, host: &str, rows: &[Row<'_>]) {
        let optional = |part: fn(&(u64, u64)) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter(rows.iter().map(|row| row.2.as_ref().map(part))))
        };
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("stack_id", Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.0)))),
            ("depth", Arc::new(UInt16Array::from_iter_values(rows.iter().map(|row| row.1)))),
            ("module_id", optional(|location| location.0)),
            ("rva", optional(|location| location.1)),
            ("is_return", Arc::new(BooleanArray::from(vec![false; rows.len()]))),
            ("module", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.3)))),
            ("backing", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.4)))),
            ("method", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.5)))),
        ];
        write(root, "frames", host, columns);
    }

    fn symbols(root: &Path, host: &str, rows: &[(u64, u64, &str, &str)]) {
        let columns = vec![
            ("module_id", numbers(&rows.iter().map(|row| row.0).collect::<Vec<_>>())),
            ("rva", numbers(&rows.iter().map(|row| row.1).collect::<Vec<_>>())),
            ("is_return", Arc::new(BooleanArray::from(vec![false; rows.len()])) as ArrayRef),
            ("name", texts(&rows.iter().map(|row| row.2).collect::<Vec<_>>())),
            ("origin", texts(&rows.iter().map(|row| row.3).collect::<Vec<_>>())),
        ];
        write(root, "symbols", host, columns);
    }

    fn modules(root: &Path, host: &str, rows: &[(u64, &str, &str)]) {
        let columns = vec![
            ("module_id", numbers(&rows.iter().map(|row| row.0).collect::<Vec<_>>())),
            ("name", texts(&rows.iter().map(|row| row.1).collect::<Vec<_>>())),
            ("path", texts(&rows.iter().map(|row| row.2).collect::<Vec<_>>())),
        ];
        write(root, "modules", host, columns);
    }

    fn sources(root: &Path) -> Arc<Sources> {
        fs::create_dir_all(root.join("traces")).unwrap();
        Arc::new(Sources::open(&[root.to_owned()], None, 1).unwrap())
    }

    fn names(root: &Path) -> Names {
        Names::new(sources(root), Arc::new(UnboundedMemoryPool::default()))
    }

    fn labels(names: &Names, stack: u64) -> Vec<&str> {
        let index = names.index().unwrap();
        index.stack(stack).unwrap().iter().map(|frame| index.label(*frame)).collect()
    }

    /// The folders of hosts are read in both orders.
    #[test]
    fn the_best_name_does_not_depend_on_the_order_of_files() {
        for [first, second] in [["a", "b"], ["b", "a"]] {
            let root = tempfile::tempdir().unwrap();
            let root = root.path();
            modules(root, first, &[(7, "X.dll", r"C:\z\X.dll"), (8, "y.dll", "")]);
            modules(root, second, &[(7, "x.dll", r"C:\a\x.dll")]);
            symbols(
                root,
                first,
                &[(7, 1, "Near", "nearest_export"), (7, 2, "B", "pdb"), (7, 3, "N", "nearest_export")],
            );
            symbols(
                root,
                second,
                &[(7, 1, "Open", "export"), (7, 2, "A", "pdb"), (7, 3, "N", "nearest_export")],
            );
            let rows: Vec<Row<'_>> = (1..=4)
                .map(|rva| (5, rva as u16 - 1, Some((7, rva)), Some("x.dll"), "backed", None))
                .collect();
            frames(root, first, &rows);
            frames(root, second, &rows);
            let names = names(root);
            assert_eq!(labels(&names, 5), ["X.dll!Open", "X.dll!A", "X.dll!~N", "X.dll+0x4"]);
            let index = names.index().unwrap();
            let found = |pattern| {
                let matches = names.matches(pattern).unwrap();
                index.stack(5).unwrap().iter().map(|frame| matches.contains(*frame)).collect::<Vec<_>>()
            };
            assert_eq!(found(r"a\x!open"), [true, false, false, false]);
            assert_eq!(found("x!?"), [false, false, true, true], "the nearest export is not a name");
        }
    }

    #[test]
    fn frames_outside_of_modules_have_no_addresses() {
        let root = tempfile::tempdir().unwrap();
        let rows: [Row<'_>; 6] = [
            (1, 0, None, Some("jit:clr"), "backed", Some("App.Main")),
            (1, 1, None, Some("jit:clr"), "backed", None),
            (1, 2, None, None, "unbacked", None),
            (1, 3, None, None, "unknown", None),
            (1, 4, Some((9, 16)), Some("a.dll"), "backed", Some("Ngen.Method")),
            (2, 0, Some((9, 17)), Some("a.dll"), "backed", None),
        ];
        frames(root.path(), "a", &rows);
        let names = names(root.path());
        assert_eq!(
            labels(&names, 1),
            ["jit:clr!App.Main", "[jit:clr]", "[unbacked]", "[unknown]", "a.dll!Ngen.Method"]
        );
        assert_eq!(labels(&names, 2), ["a.dll+0x11"], "without the table of modules");
        assert_eq!(names.index().unwrap().stack(3), None);
    }

    #[test]
    fn unusable_tables_are_one_sentence() {
        let root = tempfile::tempdir().unwrap();
        frames(root.path(), "a", &[(1, 1, None, None, "unbacked", None)]);
        let error = names(root.path()).index().unwrap_err().to_string();
        assert!(
            error.contains("expected the frames of stack 1 together and by depth, found depth 1"),
            "{error}"
        );

        let rows: Vec<Row<'_>> =
            (0..5000).map(|id| (id, 0, Some((9, id)), Some("a.dll"), "backed", None)).collect();
        frames(root.path(), "a", &rows);
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100_000));
        let names = Names::new(sources(root.path()), Arc::clone(&pool));
        for _ in 0..2 {
            let error = names.index().unwrap_err().to_string();
            assert!(error.contains("the names of frames do not fit into the memory limit"), "{error}");
        }
        assert_eq!(pool.reserved(), 0);
        write(root.path(), "symbols", "a", vec![("module_id", numbers(&[1]))]);
        let error = self::names(root.path()).index().unwrap_err().to_string();
        assert!(error.contains("expected the column rva"), "{error}");
    }

    #[test]
    fn the_counted_memory_is_that_of_the_index() {
        let root = tempfile::tempdir().unwrap();
        let rows: Vec<Row<'_>> =
            (0..5000).map(|id| (id, 0, Some((9, id)), Some("a.dll"), "backed", None)).collect();
        frames(root.path(), "a", &rows);
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let names = Names::new(sources(root.path()), Arc::clone(&pool));
        assert_eq!(pool.reserved(), 0, "nothing is loaded before it is needed");
        let size = names.index().unwrap().size();
        assert_eq!(pool.reserved(), size);
        drop(names);
        assert_eq!(pool.reserved(), 0);
    }
}
