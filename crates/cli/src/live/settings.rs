//! From arguments to sessions and providers.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use stackhound::Provider;
use stackhound::live::{Buffers, IfExists, ProviderSettings, Session};

/// A live session: what it records, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Live")]
pub struct LiveSettings {
    /// What of the kernel is recorded; `enrichment` if no provider is given either
    #[arg(long, value_enum, value_name = "WHAT")]
    pub preset: Option<Preset>,
    /// How it is buffered; by default as the preset wants it
    #[arg(long, value_enum, value_name = "HOW")]
    pub buffers: Option<BufferPreset>,
    /// What the session is called; by default something that no other session is called
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Stop a session that runs under this name already
    #[arg(long, requires = "session")]
    pub replace: bool,
    /// End after this time, such as 30s or 5min
    #[arg(long = "for", value_name = "TIME", value_parser = crate::time::parse_duration)]
    pub duration: Option<Duration>,
}

/// What of the kernel is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Every system call with its stack
    Syscalls,
    /// Processes, threads, images, registry, files and memory, with the stacks that are named by default
    Enrichment,
    /// Processes, threads, images, and context switches with their stacks: what `kstack` asks for
    Switches,
}

/// How much a session buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BufferPreset {
    /// Large buffers, handed over every second: for many events
    Throughput,
    /// Small buffers, handed over every 5 ms: for events that cannot wait
    LowLatency,
}

/// A provider with what is wanted of it: `NAME[:KEYWORDS[:LEVEL]]`, where the name may be a GUID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderSpec {
    name: String,
    /// 0 wants all.
    keywords: u64,
    /// 0 wants all.
    level: u8,
}

/// Levels by name, as Microsoft's page "LevelType" has them.
const LEVELS: [(&str, u8); 5] =
    [("critical", 1), ("error", 2), ("warning", 3), ("informational", 4), ("verbose", 5)];

impl FromStr for ProviderSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ProviderSpec> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().trim();
        if name.is_empty() {
            bail!("`{text}` names no provider; write NAME, NAME:KEYWORDS or NAME:KEYWORDS:LEVEL");
        }
        let keywords = parts.next().map_or(Ok(0), parse_keywords)?;
        let level = parts.next().map_or(Ok(0), parse_level)?;
        if parts.next().is_some() {
            bail!("`{text}` has too many parts; write NAME:KEYWORDS:LEVEL");
        }
        Ok(ProviderSpec { name: name.to_owned(), keywords, level })
    }
}

fn parse_keywords(text: &str) -> Result<u64> {
    let hexadecimal = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let parsed = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.is_empty() => Ok(0),
        None => text.parse(),
    };
    parsed.with_context(|| format!("`{text}` is no keyword mask; write a number such as 0x10"))
}

fn parse_level(text: &str) -> Result<u8> {
    let named = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    match named {
        Some((_, level)) => Ok(*level),
        None if text.is_empty() => Ok(0),
        None => text.parse().with_context(|| {
            format!(
                "`{text}` is no level; write critical, error, warning, informational, verbose or a number"
            )
        }),
    }
}

impl ProviderSpec {
    fn settings(&self, with_stacks: bool) -> Result<ProviderSettings> {
        let provider = Provider::named(&self.name)?.any(self.keywords).level(self.level);
        let provider = if with_stacks { provider.stack_trace() } else { provider };
        Ok(provider.settings().clone())
    }
}

/// A session to be, and who is enabled in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    pub session: Session,
    pub providers: Vec<ProviderSettings>,
}

/// The sessions that arguments ask for: one of the kernel, one of providers, or both.
pub fn plan(settings: &LiveSettings, providers: &[ProviderSpec], with_stacks: bool) -> Result<Vec<Planned>> {
    let preset = settings.preset.or_else(|| providers.is_empty().then_some(Preset::Enrichment));
    let name = settings.session.clone().unwrap_or_default();
    let mut planned = Vec::new();
    if let Some(preset) = preset {
        let session = match preset {
            Preset::Syscalls => Session::syscalls(name.clone()),
            Preset::Enrichment => Session::enrichment(name.clone()),
            Preset::Switches => Session::switches(name.clone()),
        };
        planned.push(Planned { session, providers: Vec::new() });
    }
    if !providers.is_empty() {
        // The kernel's events have a session of their own.
        let name = match planned.first() {
            Some(kernel) => format!("{}-providers", kernel.session.name()),
            None => name,
        };
        let providers: Result<Vec<_>> = providers.iter().map(|spec| spec.settings(with_stacks)).collect();
        planned.push(Planned { session: Session::user(name), providers: providers? });
    }
    for Planned { session, .. } in &mut planned {
        let mut set = session.clone();
        if let Some(buffers) = settings.buffers {
            set = set.buffers(match buffers {
                BufferPreset::Throughput => Buffers::throughput(),
                BufferPreset::LowLatency => Buffers::low_latency(),
            });
        }
        if settings.replace {
            set = set.if_exists(IfExists::Replace);
        }
        *session = set;
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, keywords: u64, level: u8) -> ProviderSpec {
        ProviderSpec { name: name.to_owned(), keywords, level }
    }

    #[test]
    fn providers_are_read_with_keywords_and_level() {
        let guid = "{7dd42a49-5329-4832-8dfd-43d979153a88}";
        let with_guid = format!("{guid}:0x10");
        for (text, expected) in [
            ("Microsoft-Windows-DNS-Client", spec("Microsoft-Windows-DNS-Client", 0, 0)),
            (&*with_guid, spec(guid, 0x10, 0)),
            ("Some-Provider:16:4", spec("Some-Provider", 16, 4)),
            ("Some-Provider::Warning", spec("Some-Provider", 0, 3)),
            ("Some-Provider:0x8000000000000000:", spec("Some-Provider", 1 << 63, 0)),
        ] {
            assert_eq!(text.parse::<ProviderSpec>().unwrap(), expected, "{text}");
        }
        for (text, part) in [
            ("", "names no provider"),
            (":0x10", "names no provider"),
            ("A:many", "no keyword mask"),
            ("A:0x10:loud", "no level"),
            ("A:0x10:300", "no level"),
            ("A:1:2:3", "too many parts"),
        ] {
            let error = text.parse::<ProviderSpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn settings() -> LiveSettings {
        LiveSettings {
            preset: None,
            buffers: None,
            session: Some("s".into()),
            replace: false,
            duration: None,
        }
    }

    const NETWORK: &str = "{7dd42a49-5329-4832-8dfd-43d979153a88}";

    #[test]
    fn without_a_wish_what_is_named_by_default_is_recorded() {
        let planned = plan(&settings(), &[], true).unwrap();
        assert_eq!(planned, [Planned { session: Session::enrichment("s"), providers: Vec::new() }]);
    }

    #[test]
    fn providers_alone_need_no_kernel_session() {
        let planned = plan(&settings(), &[spec(NETWORK, 0x10, 4)], false).unwrap();
        let expected = ProviderSettings::new(NETWORK.parse().unwrap()).any(0x10).level(4);
        assert_eq!(planned, [Planned { session: Session::user("s"), providers: vec![expected] }]);
    }

    #[test]
    fn a_preset_and_providers_are_two_sessions() {
        let wish = LiveSettings {
            preset: Some(Preset::Syscalls),
            buffers: Some(BufferPreset::LowLatency),
            replace: true,
            ..settings()
        };
        let planned = plan(&wish, &[spec(NETWORK, 0, 0)], true).unwrap();
        let set = |session: Session| session.buffers(Buffers::low_latency()).if_exists(IfExists::Replace);
        let provider = ProviderSettings::new(NETWORK.parse().unwrap()).stack_trace();
        assert_eq!(
            planned,
            [
                Planned { session: set(Session::syscalls("s")), providers: Vec::new() },
                Planned { session: set(Session::user("s-providers")), providers: vec![provider] },
            ]
        );
    }

    #[test]
    fn generated_names_belong_together() {
        let wish = LiveSettings { preset: Some(Preset::Enrichment), session: None, ..settings() };
        let planned = plan(&wish, &[spec(NETWORK, 0, 0)], false).unwrap();
        let [kernel, user] = &planned[..] else { panic!("{planned:?}") };
        assert!(!kernel.session.name().is_empty());
        assert_eq!(user.session.name(), format!("{}-providers", kernel.session.name()));
    }

    #[test]
    fn providers_that_nobody_knows_are_told() {
        let error = plan(&settings(), &[spec("No-Such-Provider", 0, 0)], false).unwrap_err().to_string();
        assert!(error.contains("No-Such-Provider") && error.contains("GUID"), "{error}");
    }
}
