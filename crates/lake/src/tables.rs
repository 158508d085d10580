//! The tables that a query can name: for each argument, what it is, and what it adds to the tables.
//!
//! A directory of tables adds the files of its folders. Their columns are those of the crate
//! `columns`, so that no file is read before a query names its table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use stackhound_columns::layout::{Table, Type};
use stackhound_columns::tables;
use url::Url;

/// A directory of tables, as an absolute path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dataset(PathBuf);

impl Dataset {
    /// Checks what an argument is.
    pub fn open(argument: &Path) -> Result<Dataset> {
        let path = argument.canonicalize().with_context(|| argument.display().to_string())?;
        let shown = argument.display();
        if !path.is_dir() {
            bail!("{shown} is not a directory of tables; `stackhound convert {shown} -o DIR` writes one");
        }
        let dataset = Dataset(path);
        if tables::all().iter().all(|table| dataset.folder(table.name()).is_none()) {
            bail!("{shown} has no tables; `stackhound convert FILE -o DIR` writes them");
        }
        Ok(dataset)
    }

    /// The folder of a table, if it exists.
    pub fn folder(&self, table: &str) -> Option<PathBuf> {
        Some(self.0.join(table)).filter(|folder| folder.is_dir())
    }

    /// The files of a table, in the order of their paths.
    pub fn files(&self, table: &str) -> std::io::Result<Vec<PathBuf>> {
        // `date=…/host=…/ID.parquet`
        let mut paths: Vec<PathBuf> = self.folder(table).into_iter().collect();
        for _ in 0..3 {
            let mut deeper = Vec::new();
            for folder in paths.iter().filter(|path| path.is_dir()) {
                for entry in std::fs::read_dir(folder)? {
                    deeper.push(entry?.path());
                }
            }
            paths = deeper;
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
        paths.sort();
        Ok(paths)
    }
}

/// Registers the tables that at least one directory has.
pub fn register(context: &SessionContext, datasets: &[Dataset]) -> Result<()> {
    for table in tables::all() {
        let folders: Vec<PathBuf> =
            datasets.iter().filter_map(|dataset| dataset.folder(table.name())).collect();
        if folders.is_empty() {
            continue;
        }
        let urls = folders.iter().map(|folder| {
            let url = Url::from_directory_path(folder);
            let url = url.map_err(|()| anyhow!("{} is not an absolute path", folder.display()))?;
            Ok(ListingTableUrl::try_new(url, None)?)
        });
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(vec![
                ("date".to_owned(), DataType::Utf8),
                ("host".to_owned(), DataType::Utf8),
            ]);
        let config = ListingTableConfig::new_with_multi_paths(urls.collect::<Result<_>>()?)
            .with_listing_options(options)
            .with_schema(Arc::new(schema(&table)));
        let provider = ListingTable::try_new(config).with_context(|| table.name().to_owned())?;
        context.register_table(table.name(), Arc::new(provider))?;
    }
    Ok(())
}

/// The columns in files.
fn schema(table: &Table) -> Schema {
    let field = |column: &stackhound_columns::layout::Column| {
        let r#type = match column.r#type {
            Type::Flag => DataType::Boolean,
            Type::UInt8 => DataType::UInt8,
            Type::UInt16 => DataType::UInt16,
            Type::UInt32 => DataType::UInt32,
            Type::UInt64 => DataType::UInt64,
            Type::Int64 => DataType::Int64,
            Type::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Type::Text => DataType::Utf8View,
        };
        Field::new(column.name, r#type, column.is_optional)
    };
    Schema::new(table.columns().iter().map(field).collect::<Vec<_>>())
}
