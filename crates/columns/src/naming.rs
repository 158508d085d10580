//! Adds names to the tables of converted traces: writes the files of `symbols` again, from `frames`
//! and `modules`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustc_hash::FxBuildHasher;
use stackhound_symbols::Symbolizer;
use stackhound_types::{AddressKind, ImageIdentity, ModuleIdentity, PdbIdentity, Rva};

use crate::Error;
use crate::dataset::files;
use crate::part::{create, persist};
use crate::read::{Group, TableFile};
use crate::tables::{Named, Place, Symbols, TableId};

/// What was named.
#[derive(Clone, Copy, Default, Debug)]
pub struct AddedNames {
    /// The traces with complete tables.
    pub traces: u64,
    /// The distinct addresses in modules, counted per trace.
    pub addresses: u64,
    /// Those that have a name now.
    pub named: u64,
}

/// Looks up the names of all frames in modules in a folder of tables. Names that are there stay,
/// unless the new ones are from a better source. Needs memory for the names of all traces.
///
/// # Errors
/// If a file cannot be read or written. The files of other traces are complete.
pub fn add_names(root: &Path, symbolizer: &mut Symbolizer) -> Result<AddedNames, Error> {
    let mut added = AddedNames::default();
    for (trace, relative) in traces(root)? {
        let path = |table: TableId| root.join(table.name()).join(&relative);
        let mut symbols = Symbols::new(trace);
        add_places(&path(TableId::Frames), &modules(&path(TableId::Modules))?, &mut symbols)?;
        added.traces += 1;
        added.addresses += symbols.len() as u64;
        let path = path(TableId::Symbols);
        let rows = symbols.rows(symbolizer, known_names(&path)?);
        added.named += rows.len() as u64;
        let mut part = create(TableId::Symbols, &path)?;
        part.append(rows, None).map_err(|error| Error::Parquet { path: path.clone(), error })?;
        persist(part, &path)?;
    }
    Ok(added)
}

/// The ids of all traces with complete tables, and the paths of their files in the folder of each
/// table.
fn traces(root: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let of = root.join(TableId::Traces.name());
    let files = files(root, TableId::Traces).map_err(|error| Error::Io { path: of.clone(), error })?;
    let trace = |path: PathBuf| {
        let id = u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()?;
        Some((id, path.strip_prefix(&of).ok()?.to_owned()))
    };
    Ok(files.into_iter().filter_map(trace).collect())
}

/// The identities of modules, by id.
fn modules(path: &Path) -> Result<HashMap<u64, ModuleIdentity, FxBuildHasher>, Error> {
    let mut modules = HashMap::default();
    for group in TableFile::open(path)?.groups() {
        let group = group?;
        let (ids, stamps, sizes) =
            (group.numbers("module_id")?, group.numbers("time_date_stamp")?, group.numbers("size")?);
        let (names, pdbs) = (group.texts("name")?, group.texts("pdb")?);
        let (guids, ages) = (group.texts("pdb_guid")?, group.numbers("pdb_age")?);
        let images = stamps.into_iter().zip(sizes).map(|(stamp, size)| {
            let (time_date_stamp, size) = (u32::try_from(stamp?).ok()?, u32::try_from(size?).ok()?);
            Some(ImageIdentity { time_date_stamp, size })
        });
        let pdbs = pdbs.into_iter().zip(guids).zip(ages).map(|((name, guid), age)| {
            Some(PdbIdentity { name: name?, guid: guid?.parse().ok()?, age: u32::try_from(age?).ok()? })
        });
        for (((id, name), image), pdb) in ids.into_iter().zip(names).zip(images).zip(pdbs) {
            let identity = ModuleIdentity { name: name.unwrap_or_default(), image, pdb };
            modules.extend(id.map(|id| (id, identity)));
        }
    }
    Ok(modules)
}

/// Adds the places of all frames.
fn add_places(
    path: &Path,
    modules: &HashMap<u64, ModuleIdentity, FxBuildHasher>,
    symbols: &mut Symbols,
) -> Result<(), Error> {
    for group in TableFile::open(path)?.groups() {
        for (module, rva, kind) in places(&group?)? {
            if let Some(identity) = modules.get(&module) {
                symbols.add(module, rva, kind, || identity.clone());
            }
        }
    }
    Ok(())
}

/// The places that rows are about. Rows outside of modules have none.
fn places(group: &Group<'_>) -> Result<impl Iterator<Item = (u64, u64, AddressKind)>, Error> {
    let (ids, rvas) = (group.numbers("module_id")?, group.numbers("rva")?);
    let returns = group.numbers("is_return")?;
    Ok(ids.into_iter().zip(rvas).zip(returns).filter_map(|((module, rva), is_return)| {
        let kind = if is_return? != 0 { AddressKind::Return } else { AddressKind::Instruction };
        Some((module?, rva?, kind))
    }))
}

/// The names that a file of symbols has.
fn known_names(path: &Path) -> Result<HashMap<Place, Named, FxBuildHasher>, Error> {
    let mut known = HashMap::default();
    for group in TableFile::open(path)?.groups() {
        let group = group?;
        let texts = group.texts("name")?.into_iter().zip(group.texts("origin")?).zip(group.texts("names")?);
        let offsets = group.numbers("offset")?;
        for (((module, rva, kind), ((name, origin), names)), offset) in
            places(&group)?.zip(texts).zip(offsets)
        {
            let named = || Some(Named { name: name?, offset: offset?, origin: origin?, names: names? });
            let place = u32::try_from(rva).ok().map(|rva| Place { module, rva: Rva(rva), kind });
            known.extend(place.zip(named()));
        }
    }
    Ok(known)
}
