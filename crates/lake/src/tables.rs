//! The tables that a query can name: for each argument, what it is, and what it adds to the tables.
//!
//! A directory of tables adds the files of its folders, a trace the rows that are made from it.
//! Columns are those of the crate `columns`, so that no file is read before a query names its table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use stackhound_columns::arrow::schema;
use stackhound_columns::tables::TableId;
use url::Url;

use crate::traces::{FOLDERS, TraceTable, Traces};

/// A directory of tables, as an absolute path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dataset(PathBuf);

impl Dataset {
    /// The directory of tables that an argument is, or none if it has none.
    pub fn open(argument: &Path) -> Result<Option<Dataset>> {
        let path = argument.canonicalize().with_context(|| argument.display().to_string())?;
        let dataset = Dataset(path);
        // Other folders can be named like one of the other tables.
        Ok(dataset.folder(TableId::Traces.name()).is_some().then_some(dataset))
    }

    /// The folder of a table, if it exists.
    pub fn folder(&self, table: &str) -> Option<PathBuf> {
        Some(self.0.join(table)).filter(|folder| folder.is_dir())
    }

    /// The files of a table, in the order of their paths.
    pub fn files(&self, table: TableId) -> std::io::Result<Vec<PathBuf>> {
        stackhound_columns::files(&self.0, table)
    }
}

/// What the arguments of a query are.
#[derive(Debug, Default)]
pub struct Sources {
    /// Directories of tables.
    pub datasets: Vec<Dataset>,
    /// The traces of all other arguments.
    pub traces: Arc<Traces>,
}

impl Sources {
    /// Directories of tables.
    #[cfg(feature = "cluster")]
    pub fn of_directories(paths: &[PathBuf]) -> Result<Sources> {
        let open = |path: &PathBuf| {
            Dataset::open(path)?.with_context(|| {
                format!("{} has no tables; `stackhound convert FILE -o DIR` writes them", path.display())
            })
        };
        Ok(Sources { datasets: paths.iter().map(open).collect::<Result<_>>()?, ..Sources::default() })
    }

    /// Checks what arguments are.
    pub fn open(arguments: &[PathBuf], symbol_path: Option<&str>, threads: usize) -> Result<Sources> {
        let (mut datasets, mut others) = (Vec::new(), Vec::new());
        for argument in arguments {
            match Dataset::open(argument)? {
                Some(dataset) => datasets.push(dataset),
                None => others.push(argument.clone()),
            }
        }
        Ok(Sources { datasets, traces: Arc::new(Traces::open(others, symbol_path, threads)?) })
    }
}

/// Registers the tables of all sources.
pub fn register(context: &SessionContext, sources: &Sources, threads: usize) -> Result<()> {
    for table in TableId::ALL {
        let mut providers: Vec<Arc<dyn TableProvider>> = Vec::new();
        providers.extend(of_files(&sources.datasets, table)?);
        if !sources.traces.is_empty() {
            providers.push(Arc::new(TraceTable::new(Arc::clone(&sources.traces), table, threads)));
        }
        let mut providers = providers.into_iter();
        let Some(first) = providers.next() else { continue };
        let provider = match providers.next() {
            None => first,
            Some(second) => context.read_table(first)?.union(context.read_table(second)?)?.into_view(),
        };
        context.register_table(table.name(), provider)?;
    }
    Ok(())
}

/// The files of a table, if a directory has the table.
fn of_files(datasets: &[Dataset], table: TableId) -> Result<Option<Arc<dyn TableProvider>>> {
    let folders: Vec<PathBuf> = datasets.iter().filter_map(|dataset| dataset.folder(table.name())).collect();
    if folders.is_empty() {
        return Ok(None);
    }
    let urls = folders.iter().map(|folder| {
        let url = Url::from_directory_path(folder);
        let url = url.map_err(|()| anyhow!("{} is not an absolute path", folder.display()))?;
        Ok(ListingTableUrl::try_new(url, None)?)
    });
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(FOLDERS.map(|name| (name.to_owned(), DataType::Utf8)).into());
    let config = ListingTableConfig::new_with_multi_paths(urls.collect::<Result<_>>()?)
        .with_listing_options(options)
        .with_schema(schema(table));
    Ok(Some(Arc::new(ListingTable::try_new(config).with_context(|| table.name())?)))
}
