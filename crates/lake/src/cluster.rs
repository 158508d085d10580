//! A cluster: a scheduler, which distributes queries, and executors, which work on parts of them.
//!
//! All processes read the same directories at the same paths. Nothing is encrypted, and everyone who
//! reaches the port of a process can read the files that it can read: addresses are those of this
//! machine unless others are stated.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ballista::prelude::SessionContextExt;
use ballista_core::extension::SessionConfigExt;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::Args;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use stackhound_export::escape::Plain;
use url::Url;

use crate::functions;
use crate::jobs::Jobs;
use crate::names::Names;
use crate::session::Limits;
use crate::tables::Sources;

/// The usual port of a scheduler.
const PORT: u16 = 50050;
/// After this time without a sign of life, an executor is given up, and its tasks run elsewhere.
const EXECUTOR_TIMEOUT_SECONDS: u64 = 15;
const HEARTBEAT_SECONDS: u64 = 3;

#[derive(Args, Debug)]
pub struct SchedulerArguments {
    /// Listen at this address
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    bind: SocketAddr,
    #[command(flatten)]
    messages: Messages,
}

#[derive(Args, Clone, Copy, Debug)]
struct Messages {
    /// Write what happens to standard error, not only warnings
    #[arg(short, long)]
    verbose: bool,
}

impl Messages {
    /// Writes the messages of the libraries to standard error.
    fn show(self) {
        log::set_max_level(if self.verbose { log::LevelFilter::Info } else { log::LevelFilter::Warn });
        // Fails only if it was set before.
        _ = log::set_logger(&Log);
    }
}

struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{}: {}", record.level().as_str().to_lowercase(), Plain(record.args()));
    }

    fn flush(&self) {}
}

#[derive(Args, Debug)]
pub struct ExecutorArguments {
    /// The address of the scheduler, such as df://127.0.0.1:50050
    #[arg(long, value_name = "URL")]
    scheduler: String,
    /// Directories of tables whose names of frames the functions return
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// Work on N tasks at the same time; by default one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_tasks: Option<u16>,
    /// Listen at this address, under which the scheduler and other executors reach this one
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    bind: String,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    messages: Messages,
}

impl ExecutorArguments {
    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.limits.threads()
    }
}

/// A session whose queries run on a cluster.
pub async fn connect(scheduler: &str, state: SessionState) -> Result<SessionContext> {
    let (host, port) = address(scheduler)?;
    // With the other planner of Ballista 55.0, which changes plans between stages, queries wait forever if an
    // executor is lost: "Can't find active stage to update stage outputs".
    let config = state.config().clone().upgrade_for_ballista().with_ballista_adaptive_query_planner(false);
    let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    SessionContext::remote_with_state(&format!("df://{host}:{port}"), state)
        .await
        .with_context(|| format!("--scheduler {scheduler}"))
}

/// Host and port of a scheduler.
fn address(text: &str) -> Result<(String, u16)> {
    let expected =
        || anyhow!("--scheduler: expected an address such as df://127.0.0.1:{PORT}, found `{text}`");
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "df").ok_or_else(expected)?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(expected)?;
    Ok((host.to_owned(), url.port().unwrap_or(PORT)))
}

/// Runs a scheduler until it is ended.
pub async fn schedule(arguments: &SchedulerArguments) -> Result<()> {
    arguments.messages.show();
    let config = SchedulerConfig {
        bind_host: arguments.bind.ip().to_string(),
        bind_port: arguments.bind.port(),
        external_host: arguments.bind.ip().to_string(),
        executor_timeout_seconds: EXECUTOR_TIMEOUT_SECONDS,
        expire_dead_executor_interval_seconds: HEARTBEAT_SECONDS,
        no_executors_grace_period_seconds: EXECUTOR_TIMEOUT_SECONDS,
        // It plans queries with the functions, but never evaluates them.
        override_session_builder: Some(Arc::new(|config| {
            let mut state = ballista_core::utils::default_session_builder(config)?;
            let pool = Arc::clone(&state.runtime_env().memory_pool);
            for function in functions::all(&Arc::new(Names::new(Arc::default(), pool))) {
                state.register_udf(function)?;
            }
            Ok(state)
        })),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let cluster = BallistaCluster::new(cluster.cluster_state(), Arc::new(Jobs(cluster.job_state())));
    eprintln!("scheduler at df://{}", arguments.bind);
    let served = start_server(cluster, arguments.bind, Arc::new(config)).await;
    served.with_context(|| format!("scheduler at {}", arguments.bind))
}

/// Runs an executor until it is ended.
pub async fn execute(arguments: ExecutorArguments) -> Result<()> {
    arguments.messages.show();
    let (scheduler_host, scheduler_port) = address(&arguments.scheduler)?;
    let sources = Arc::new(Sources::of_directories(&arguments.data)?);
    let tasks = arguments.concurrent_tasks.map_or_else(|| arguments.threads(), usize::from);
    let limits = &arguments.limits;
    // Names of frames have a limit of their own, because each task has a share of the other.
    let pool = Arc::new(GreedyMemoryPool::new(limits.memory_limit));
    let mut registry = BallistaFunctionRegistry::default();
    for function in functions::all(&Arc::new(Names::new(sources, pool))) {
        registry.scalar_functions.insert(function.name().to_owned(), function);
    }
    let parent = limits.spill_dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("stackhound-lake-").tempdir_in(&parent);
    let folder = folder.with_context(|| format!("cannot create a directory in {}", parent.display()))?;
    let [port, grpc_port] = free_ports(&arguments.bind)?;
    let config = ExecutorProcessConfig {
        bind_host: arguments.bind.clone(),
        external_host: Some(arguments.bind.clone()),
        port,
        grpc_port,
        scheduler_host,
        scheduler_port,
        scheduler_connect_timeout_seconds: 10,
        vcores: tasks,
        work_dir: Some(folder.path().display().to_string()),
        executor_heartbeat_interval_seconds: HEARTBEAT_SECONDS,
        memory_pool_size: Some(limits.memory_limit as u64),
        override_function_registry: Some(Arc::new(registry)),
        override_config_producer: Some(Arc::new(ballista_core::utils::default_config_producer)),
        ..ExecutorProcessConfig::default()
    };
    eprintln!("executor at {}:{port}, for the scheduler {}", arguments.bind, arguments.scheduler);
    start_executor_process(Arc::new(config)).await.context("executor")
}

/// Two ports that no other program uses now.
fn free_ports(host: &str) -> Result<[u16; 2]> {
    let listen = || TcpListener::bind((host, 0)).with_context(|| format!("--bind {host}"));
    // Both are open at the same time, so that they differ.
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}
