//! Loading from files: converts the files that the store finds to a table, which is cached on disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stackhound_types::ModuleIdentity;

use super::Loaded;
use crate::failure::{Cause, Failure, FileKind};
use crate::image::Image;
use crate::store::{FileName, ModuleFiles, Store, read_image, size_and_time};
use crate::table::{SymbolTable, SymbolTableBuilder};
use crate::temporary::Temporary;

/// Maximum size of a table that is cached on disk.
const TABLE_SIZE_MAX: u64 = 1 << 30;

/// Makes tables from the files that a store finds.
#[derive(Debug)]
pub(super) struct FileLoader {
    pub store: Arc<Store>,
    /// The folder of cached tables, if any.
    pub tables: Option<PathBuf>,
    /// Whether images are kept in memory, for their code.
    pub call_sites: bool,
}

impl FileLoader {
    pub fn load(&self, module: &ModuleIdentity) -> Loaded {
        let files = self.store.files(module);
        let mut failures: Vec<Failure> =
            [&files.pdb, &files.image].into_iter().filter_map(|file| file.as_ref().err().cloned()).collect();
        for (kind, file) in [(FileKind::Pdb, &files.pdb), (FileKind::Image, &files.image)] {
            match file {
                Ok(file) => {
                    tracing::debug!(module = module.name, file = %file.path.display(), "{} found", kind.name())
                }
                Err(failure) => {
                    tracing::debug!(module = module.name, cause = ?failure.cause, "no {}", kind.name())
                }
            }
        }
        let is_available = |file: &Result<_, _>| file.is_ok();
        if !is_available(&files.pdb) && !is_available(&files.image) {
            return Loaded { failures, ..Loaded::default() };
        }
        let location = self.location(module);
        let sources = sources(&files);
        let known = location.as_deref().and_then(|location| read_table(location, &sources));
        let image = match &files.image {
            Ok(image) if self.call_sites || known.is_none() => image_bytes(&image.path, &mut failures),
            _ => None,
        };
        let table = known.unwrap_or_else(|| {
            let before = failures.len();
            let table = make_table(&files, image.as_deref(), &mut failures);
            // Defects of a file must be found again the next time.
            if failures.len() == before
                && let Some(location) = &location
            {
                // A table that cannot be cached is made again the next time.
                let _ = write_table(location, &sources, &table);
            }
            table
        });
        Loaded { symbols: Some(Box::new(table)), image: image.filter(|_| self.call_sites), failures }
    }

    /// The file of a module's cached table.
    fn location(&self, module: &ModuleIdentity) -> Option<PathBuf> {
        let name = FileName::last_of(&module.name)?;
        let image = module.image.map(|image| image.store_key()).unwrap_or_default();
        let pdb = module.pdb.as_ref().map(|pdb| pdb.store_key()).unwrap_or_default();
        Some(self.tables.as_ref()?.join(name.as_str()).join(format!("{image}-{pdb}")))
    }
}

/// Describes the sources of a table: the files, their sizes and times. If the text changes, the
/// table is made again.
fn sources(files: &ModuleFiles) -> String {
    let mut text = String::new();
    for (kind, file) in [(FileKind::Pdb, &files.pdb), (FileKind::Image, &files.image)] {
        let Ok(file) = file else { continue };
        text += &format!("{}\t{}\t{}\n", kind.name(), file.path.display(), size_and_time(&file.path));
    }
    text
}

/// Reads a cached table. The file contains the length of the sources' text, the text, and the
/// table.
fn read_table(location: &Path, sources: &str) -> Option<SymbolTable> {
    if fs::metadata(location).ok()?.len() > TABLE_SIZE_MAX {
        return None;
    }
    let bytes = fs::read(location).ok()?;
    let (length, rest) = bytes.split_first_chunk()?;
    let (found_sources, table) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if found_sources != sources.as_bytes() {
        return None;
    }
    SymbolTable::from_bytes(table).ok()
}

fn write_table(location: &Path, sources: &str, table: &SymbolTable) -> std::io::Result<()> {
    let folder = location.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = Temporary::in_folder(folder)?;
    file.write_all(&(sources.len() as u32).to_le_bytes())?;
    file.write_all(sources.as_bytes())?;
    file.write_all(&table.to_bytes())?;
    file.persist(location)
}

fn image_bytes(path: &Path, failures: &mut Vec<Failure>) -> Option<Vec<u8>> {
    read_image(path).map_err(|error| failures.push(damaged(FileKind::Image, path, &error))).ok()
}

fn damaged(file: FileKind, path: &Path, detail: &dyn std::fmt::Display) -> Failure {
    Failure { file, cause: Cause::Damaged, detail: format!("{}: {detail}", path.display()) }
}

/// Adds the names of all readable files. Other files are added to `failures`.
fn make_table(files: &ModuleFiles, image: Option<&[u8]>, failures: &mut Vec<Failure>) -> SymbolTable {
    let mut builder = SymbolTableBuilder::new();
    #[cfg(feature = "pdb")]
    if let Ok(pdb) = &files.pdb {
        builder = with_pdb(builder, &pdb.path, failures);
    }
    if let (Some(bytes), Ok(image)) = (image, &files.image) {
        let added = Image::parse(bytes).and_then(|image| builder.add_image(&image));
        // Single unreadable entries are those of hostile images; the other entries are valid.
        if let Err(error) = added {
            failures.push(damaged(FileKind::Image, &image.path, &error));
        }
    }
    builder.build()
}

/// Adds the names of a PDB, if it can be read.
#[cfg(feature = "pdb")]
fn with_pdb(mut builder: SymbolTableBuilder, path: &Path, failures: &mut Vec<Failure>) -> SymbolTableBuilder {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::pdb::Pdb;
    use crate::table::Detail;

    // A PDB can be damaged in ways that the library does not expect. The names of the image are
    // used then.
    let added = catch_unwind(AssertUnwindSafe(|| {
        let file = Pdb::open_path(path).map_err(|error| error.to_string())?;
        builder.add_pdb(&file, Detail::Lines).map_err(|error| error.to_string())
    }));
    match added.unwrap_or_else(|_| Err("cannot be read".to_owned())) {
        Ok(0) => {}
        Ok(modules) => failures.push(damaged(
            FileKind::Pdb,
            path,
            &format!("{modules} of its object files are damaged; their names are missing"),
        )),
        Err(error) => {
            failures.push(damaged(FileKind::Pdb, path, &error));
            return SymbolTableBuilder::new();
        }
    }
    builder
}
