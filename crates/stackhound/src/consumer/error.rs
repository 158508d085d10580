//! Why a trace cannot begin, or ended early.

/// Why a trace cannot begin, or ended early. What is wrong with single events is no error of the trace: see
/// [`Trace::on_error`](crate::Trace::on_error).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files cannot be opened.
    #[error(transparent)]
    Trace(#[from] stackhound_trace::Error),
    /// A session cannot begin, or asks for what there is not.
    #[error(transparent)]
    Live(#[from] stackhound_live::Error),
    /// A filter names what no event has, or is nested too deep or too long.
    #[error("a filter cannot be used: {0}")]
    Filter(#[from] stackhound_expr::Error),
    /// Nobody knows a provider of this name.
    #[error(
        "no provider {0:?} is known here; its GUID always works, and a manifest of it makes its names known"
    )]
    UnknownProvider(String),
    /// Kernel groups are wanted, but no session of the trace is one of the kernel.
    #[error("a kernel provider is enabled, but none of the sessions is a kernel session")]
    NoKernelSession,
    /// A handler panicked, which ended the trace.
    #[error("a handler panicked: {0}")]
    Panicked(String),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
