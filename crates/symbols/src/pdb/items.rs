//! Names of inlined functions: from the stream of items, with classes from the stream of types.

use std::cell::OnceCell;

use ms_pdb::StreamData;
use ms_pdb::types::{TypeData, TypesIter};

use super::{ItemId, Pdb, PdbError, u32_at};

const TYPES: u32 = 2;
const ITEMS: u32 = 4;
/// Maximum length of a qualified name. Longer names are skipped.
const NAME_LENGTH_MAX: usize = 4096;

/// Names of items.
#[derive(Debug)]
pub struct ItemNames<'p> {
    pdb: &'p Pdb,
    items: OnceCell<Records>,
    types: OnceCell<Records>,
}

/// A stream of records, which are accessed by number.
#[derive(Default)]
struct Records {
    stream: StreamData,
    first: u32,
    /// The offset of each record in the stream.
    starts: Vec<u32>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Records({} from {})", self.starts.len(), self.first)
    }
}

impl Records {
    /// Reads a stream. Its header contains its own size, the number of the first record and the
    /// size of all records.
    fn read(pdb: &Pdb, stream: u32, part: &'static str) -> Result<Records, PdbError> {
        let stream = pdb.streams.read(stream, part)?;
        let field = |at| u32_at(&stream, at).unwrap_or(0);
        let (header, first, size) = (field(4) as usize, field(8), field(16) as usize);
        let end = header.saturating_add(size).min(stream.len());
        let mut starts = Vec::new();
        let mut records = TypesIter::new(stream.get(header..end).unwrap_or_default());
        loop {
            let start = end - records.rest().len();
            if records.next().is_none() {
                break;
            }
            starts.push(start as u32);
        }
        Ok(Records { stream, first, starts })
    }

    fn get(&self, number: u32) -> Option<TypeData<'_>> {
        let start = *self.starts.get(number.checked_sub(self.first)? as usize)?;
        let record = TypesIter::new(self.stream.get(start as usize..)?).next()?;
        record.parse().ok()
    }
}

impl Pdb {
    /// Returns the names of inlined functions. Their streams are read at the first query.
    pub fn item_names(&self) -> ItemNames<'_> {
        ItemNames { pdb: self, items: OnceCell::new(), types: OnceCell::new() }
    }
}

impl ItemNames<'_> {
    fn items(&self) -> &Records {
        self.items.get_or_init(|| Records::read(self.pdb, ITEMS, "items").unwrap_or_default())
    }

    fn types(&self) -> &Records {
        self.types.get_or_init(|| Records::read(self.pdb, TYPES, "types").unwrap_or_default())
    }

    /// Returns the qualified name of a function.
    pub fn name(&self, item: ItemId) -> Option<String> {
        let (scope, name) = match self.items().get(item.0)? {
            TypeData::FuncId(function) => (self.string(function.fixed.scope.get()), function.name),
            TypeData::MFuncId(method) => (self.class(method.fixed.parent_type.get().0), method.name),
            _ => return None,
        };
        let name = match scope {
            Some(scope) => format!("{scope}::{name}"),
            None => name.to_string(),
        };
        (name.len() <= NAME_LENGTH_MAX).then_some(name)
    }

    /// Returns the name of a namespace.
    fn string(&self, item: u32) -> Option<String> {
        match self.items().get(item)? {
            TypeData::StringId(string) => Some(string.name.to_string()),
            _ => None,
        }
    }

    fn class(&self, type_number: u32) -> Option<String> {
        let name = match self.types().get(type_number)? {
            TypeData::Struct(class) => class.name,
            TypeData::Union(union) => union.name,
            TypeData::Enum(enumeration) => enumeration.name,
            _ => return None,
        };
        Some(name.to_string())
    }
}
