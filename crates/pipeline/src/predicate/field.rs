//! The fields of filters and the cost of each.

use super::fact::Fact;

/// A field of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Time,
    Ts,
    Cpu,
    Pid,
    Tid,
    Process,
    Provider,
    ProviderGuid,
    Event,
    Id,
    Opcode,
    Version,
    Level,
    Keyword,
    Channel,
    Task,
    Flags,
    Activity,
    StackState,
    /// Modules of all frames: file names and paths.
    StackModule,
    /// Available names of all frames, alone and after `module!`.
    StackSymbol,
    /// Same, plus the full printed text, for filters that test it.
    StackSymbolAsPrinted,
    StackSummary,
    ContainsUnbacked,
    KernelSummary,
    FinalUserModule,
    FinalKernelModule,
    /// Facts of each frame.
    Frame(FrameFact),
    CreateRequested,
    CreateResult,
    CallService,
    CallCompletion,
    CallStatus,
    CallDuration,
    /// A fact of the state.
    Fact(Fact),
    /// A field of the payload.
    Payload(Box<str>),
}

/// A fact about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFact {
    Backing,
    RegionKind,
    RegionBase,
    RegionSize,
    RegionProtection,
    /// The call before the return address.
    Call,
}

impl Name {
    /// The name of the field in filter text.
    pub(super) fn text(&self) -> String {
        match self {
            Name::Payload(name) => format!("{PAYLOAD}{name}"),
            Name::Fact(fact) => fact.name().to_owned(),
            Name::StackSymbolAsPrinted => SYMBOL.to_owned(),
            named => NAMES.iter().find(|(_, name)| name == named).map_or("", |(text, _)| text).to_owned(),
        }
    }
}

/// The data that a field requires, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// The header only.
    Header,
    /// The header, and values computed from it.
    Derived,
    /// The process and thread: from the header, and for few events from the payload.
    Owner,
    /// The schema.
    Schema,
    /// The state of the trace, and for objects of the event some fields of the payload.
    State,
    Payload,
    Stack,
    Functions,
}

/// The names of all fields outside the payload and the state, the NDJSON keys first and in their
/// order.
pub(super) const NAMES: [(&str, Name); 39] = [
    ("time", Name::Time),
    ("ts", Name::Ts),
    ("cpu", Name::Cpu),
    ("pid", Name::Pid),
    ("tid", Name::Tid),
    ("process", Name::Process),
    ("process.name", Name::Process),
    ("provider", Name::Provider),
    ("event", Name::Event),
    ("id", Name::Id),
    ("opcode", Name::Opcode),
    ("version", Name::Version),
    ("stack.state", Name::StackState),
    (MODULE, Name::StackModule),
    (SYMBOL, Name::StackSymbol),
    ("stack.summary", Name::StackSummary),
    ("stack.contains_unbacked", Name::ContainsUnbacked),
    ("stack.kernel_summary", Name::KernelSummary),
    ("stack.final_user_module", Name::FinalUserModule),
    ("stack.final_kernel_module", Name::FinalKernelModule),
    ("stack.frame.backing", Name::Frame(FrameFact::Backing)),
    ("stack.frame.region.kind", Name::Frame(FrameFact::RegionKind)),
    ("stack.frame.region.base", Name::Frame(FrameFact::RegionBase)),
    ("stack.frame.region.size", Name::Frame(FrameFact::RegionSize)),
    ("stack.frame.region.protection", Name::Frame(FrameFact::RegionProtection)),
    ("stack.frame.call_site.instruction", Name::Frame(FrameFact::Call)),
    ("create.requested", Name::CreateRequested),
    ("create.result", Name::CreateResult),
    ("syscall.service", Name::CallService),
    ("syscall.completion", Name::CallCompletion),
    ("syscall.status", Name::CallStatus),
    ("syscall.duration", Name::CallDuration),
    ("level", Name::Level),
    ("keyword", Name::Keyword),
    ("channel", Name::Channel),
    ("task", Name::Task),
    ("flags", Name::Flags),
    ("activity", Name::Activity),
    ("provider_guid", Name::ProviderGuid),
];

pub(super) const MODULE: &str = "stack.module";
pub(super) const SYMBOL: &str = "stack.symbol";

/// Whether a text tests more than modules and functions: offsets, addresses, origins, or the mark
/// of the nearest export.
pub(super) fn is_long(text: &str) -> bool {
    text.contains(['+', '[', '(', '~']) || text.contains("0x")
}

/// The prefix of names of payload fields.
pub(crate) const PAYLOAD: &str = "fields.";

impl Name {
    /// The field with this name in filter text.
    pub fn of(name: &str) -> Option<Name> {
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, name)| name.clone());
        let known = known.or_else(|| Fact::of(name).map(Name::Fact));
        known.or_else(|| name.strip_prefix(PAYLOAD).map(|field| Name::Payload(field.into())))
    }

    pub fn cost(&self) -> Cost {
        match self {
            Name::Ts
            | Name::Cpu
            | Name::Id
            | Name::Opcode
            | Name::Version
            | Name::Level
            | Name::Keyword
            | Name::Channel
            | Name::Task
            | Name::Flags
            | Name::StackState
            | Name::CreateRequested
            | Name::CreateResult
            | Name::CallCompletion
            | Name::CallStatus
            | Name::CallDuration => Cost::Header,
            Name::Time | Name::Activity | Name::Provider | Name::ProviderGuid => Cost::Derived,
            Name::Pid | Name::Tid | Name::Process => Cost::Owner,
            Name::Event => Cost::Schema,
            Name::Fact(_) => Cost::State,
            Name::Payload(_) => Cost::Payload,
            Name::Frame(FrameFact::Call) | Name::CallService => Cost::Functions,
            Name::StackModule
            | Name::StackSummary
            | Name::KernelSummary
            | Name::ContainsUnbacked
            | Name::FinalUserModule
            | Name::FinalKernelModule
            | Name::Frame(_) => Cost::Stack,
            Name::StackSymbol | Name::StackSymbolAsPrinted => Cost::Functions,
        }
    }
}
