//! Errors of traces.

/// The reason why a trace cannot start, or ended early. Errors in single events are not errors of
/// the trace: see [`Trace::on_error`](crate::Trace::on_error).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files cannot be opened.
    #[error(transparent)]
    Trace(#[from] stackhound_trace::Error),
    /// A session cannot start, or its settings are not supported.
    #[error(transparent)]
    Live(#[from] stackhound_live::Error),
    /// A filter has an unknown field, or is nested too deeply or too long.
    #[error("invalid filter: {0}")]
    Filter(#[from] stackhound_expr::Error),
    /// No provider with this name is known.
    #[error("unknown provider {0:?}; use its GUID, or add its manifest to the schemas")]
    UnknownProvider(String),
    /// Kernel groups are requested, but the trace has no kernel session.
    #[error("a kernel provider is enabled, but the trace has no kernel session; add one")]
    NoKernelSession,
    /// A handler panicked, which ended the trace.
    #[error("a handler panicked: {0}")]
    Panicked(String),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
