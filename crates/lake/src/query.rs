//! `query`: answers a question in SQL about traces or directories of tables.
//!
//! Only queries are allowed: statements that write files, create tables or change settings are
//! refused, and no other files are read.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::{SQLOptions, SessionContext};
use futures::StreamExt;

use crate::functions;
use crate::names::Names;
use crate::rows::{Format, Rows};
use crate::session::Limits;
use crate::sink::Sink;
use crate::tables::{self, Sources};

#[derive(Args, Debug)]
pub struct Arguments {
    /// The question in SQL, unless -f states a file; then traces, or directories of tables, as
    /// `stackhound convert -o DIR` writes them
    #[arg(value_name = "SQL|FILE|DIR", required = true)]
    words: Vec<PathBuf>,
    /// Read the question from this file; `-` is standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format; by default derived from the file name of -o, otherwise a table
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to this file, which is created when its content is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let a cluster answer: the address of its scheduler, such as df://127.0.0.1:50050
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL")]
    scheduler: Option<String>,
    /// Take names of functions in traces from this symbol path; by default, from _NT_SYMBOL_PATH,
    /// otherwise from the user's symbol store
    #[arg(long, value_name = "PATH")]
    symbol_path: Option<String>,
    #[command(flatten)]
    pub limits: Limits,
}

impl Arguments {
    /// The scheduler of the cluster that answers.
    fn scheduler(&self) -> Option<&str> {
        #[cfg(feature = "cluster")]
        return self.scheduler.as_deref();
        #[cfg(not(feature = "cluster"))]
        None
    }
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let format = format(arguments.format, arguments.output.as_deref())?;
    if let Some(path) = &arguments.output {
        Sink::check(path)?;
    }
    let (sql, folders) = question(&arguments.words, arguments.file.as_deref())?;
    let threads = arguments.limits.threads();
    let sources = Arc::new(Sources::open(folders, arguments.symbol_path.as_deref(), threads)?);
    if arguments.scheduler().is_some() && !sources.traces.is_empty() {
        bail!(
            "a cluster reads directories of tables; convert the traces first: `stackhound convert FILE -o DIR`"
        );
    }
    let context = context(&arguments, &sources).await?;
    tables::register(&context, &sources, threads)?;

    let only_queries =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let plan = context.state().create_logical_plan(&sql).await?;
    only_queries.verify_plan(&plan).context("only queries are allowed")?;
    let frame = context.execute_logical_plan(plan).await?;
    let schema = Arc::clone(frame.schema().inner());
    let of_cluster = |error: DataFusionError| match arguments.scheduler() {
        None => error.into(),
        Some(scheduler) => anyhow::Error::new(error).context(format!("the cluster of {scheduler}")),
    };
    let mut stream = frame.execute_stream().await.map_err(of_cluster)?;
    let mut rows = Rows::begin(format, &schema, Sink::open(arguments.output.as_deref())?)?;
    while let Some(batch) = stream.next().await {
        rows.write(&batch.map_err(of_cluster)?)?;
    }
    rows.finish()?;
    Ok(())
}

fn format(stated: Option<Format>, output: Option<&Path>) -> Result<Format> {
    let extension =
        output.and_then(Path::extension).map(|extension| extension.to_string_lossy().to_lowercase());
    match (stated, extension) {
        (Some(Format::Parquet), _) if output.is_none() => bail!("--format parquet writes a file; use -o FILE"),
        (Some(format), _) => Ok(format),
        (None, Some(extension)) => Format::of_extension(&extension).with_context(|| {
            format!("cannot tell the format from the extension `{extension}`; use --format, or .ndjson, .csv, .parquet or .txt")
        }),
        (None, None) => Ok(Format::Table),
    }
}

/// The question, and the directories.
fn question<'a>(words: &'a [PathBuf], file: Option<&Path>) -> Result<(String, &'a [PathBuf])> {
    let (sql, folders) = match (file, words) {
        (None, [sql, folders @ ..]) => {
            let sql = sql.to_str().context("the question is not text")?;
            (sql.to_owned(), folders)
        }
        (None, []) => bail!("expected a question in SQL, and a trace or a directory of tables"),
        (Some(path), folders) if path.as_os_str() == "-" => {
            let mut sql = String::new();
            std::io::stdin().read_to_string(&mut sql).context("standard input")?;
            (sql, folders)
        }
        (Some(path), folders) => {
            let sql = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            (sql, folders)
        }
    };
    if folders.is_empty() {
        bail!("expected a trace or a directory of tables after the question");
    }
    Ok((sql, folders))
}

async fn context(arguments: &Arguments, sources: &Arc<Sources>) -> Result<SessionContext> {
    let runtime = arguments.limits.runtime()?;
    let names = Arc::new(Names::new(Arc::clone(sources), Arc::clone(&runtime.memory_pool)));
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(arguments.limits.config())
        .with_runtime_env(runtime)
        .build();
    #[cfg(feature = "cluster")]
    let context = match arguments.scheduler() {
        None => SessionContext::new_with_state(state),
        Some(scheduler) => crate::cluster::connect(scheduler, state).await?,
    };
    #[cfg(not(feature = "cluster"))]
    let context = SessionContext::new_with_state(state);
    // A session of a cluster has the functions of the engine only.
    for function in functions::all(&names) {
        context.register_udf(ScalarUDF::clone(&function));
    }
    Ok(context)
}
