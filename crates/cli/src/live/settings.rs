//! Converts arguments to sessions and providers.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use stackhound::Provider;
use stackhound::live::{Buffers, IfExists, Preset, ProviderSettings, Session};

#[derive(Args, Clone, Debug)]
pub struct LiveSettings {
    /// Record these kernel events; by default `enrichment` if no provider is given
    #[arg(long, value_parser = preset(), value_name = "PRESET", help_heading = "Live")]
    pub preset: Option<Preset>,
    /// Set the size of the buffers and the flush interval; by default those of the preset
    #[arg(long, value_enum, value_name = "BUFFERS", help_heading = "Live")]
    pub buffers: Option<BufferPreset>,
    /// Set the name of the session; by default a unique name
    #[arg(long, value_name = "NAME", help_heading = "Live")]
    pub session: Option<String>,
    /// Stop an existing session of the same name first
    #[arg(long, requires = "session", help_heading = "Live")]
    pub replace: bool,
    /// End after this time, such as 30s or 5min
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = crate::time::parse_duration,
        help_heading = "Live"
    )]
    pub duration: Option<Duration>,
}

/// The names of the presets, with help.
fn preset() -> impl TypedValueParser<Value = Preset> {
    let values = Preset::ALL.map(|preset| PossibleValue::new(preset.name()).help(preset.about()));
    PossibleValuesParser::new(values).try_map(|name| Preset::named(&name).context("expected a preset"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BufferPreset {
    /// Large buffers, delivered every second: for many events
    Throughput,
    /// Small buffers, delivered every 5 ms: for low latency
    LowLatency,
}

/// A provider with keywords and level: `NAME[:KEYWORDS[:LEVEL]]`, where the name can be a GUID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderSpec {
    name: String,
    /// 0 enables all.
    keywords: u64,
    /// 0 enables all.
    level: u8,
}

/// Levels by name, from Microsoft's page "LevelType".
const LEVELS: [(&str, u8); 5] =
    [("critical", 1), ("error", 2), ("warning", 3), ("informational", 4), ("verbose", 5)];

impl FromStr for ProviderSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ProviderSpec> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().trim();
        if name.is_empty() {
            bail!("`{text}` does not name a provider; write NAME, NAME:KEYWORDS or NAME:KEYWORDS:LEVEL");
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
    parsed.with_context(|| format!("`{text}` is not a keyword mask; write a number such as 0x10"))
}

fn parse_level(text: &str) -> Result<u8> {
    let named = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    match named {
        Some((_, level)) => Ok(*level),
        None if text.is_empty() => Ok(0),
        None => text.parse().with_context(|| {
            format!(
                "`{text}` is not a level; write critical, error, warning, informational, verbose or a number"
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

/// A session to start, with the providers to enable in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    pub session: Session,
    pub providers: Vec<ProviderSettings>,
}

/// The sessions of the arguments: one for the kernel, one for providers, or both.
pub fn plan(settings: &LiveSettings, providers: &[ProviderSpec], with_stacks: bool) -> Result<Vec<Planned>> {
    let preset = settings.preset.or_else(|| providers.is_empty().then_some(Preset::Enrichment));
    let name = settings.session.clone().unwrap_or_default();
    let mut planned = Vec::new();
    if let Some(preset) = preset {
        planned.push(Planned { session: preset.session(name.clone()), providers: Vec::new() });
    }
    if !providers.is_empty() {
        // Kernel events have their own session.
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
            ("", "does not name a provider"),
            (":0x10", "does not name a provider"),
            ("A:many", "not a keyword mask"),
            ("A:0x10:loud", "not a level"),
            ("A:0x10:300", "not a level"),
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
    fn the_default_is_the_enrichment_preset() {
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
        let chosen = LiveSettings {
            preset: Some(Preset::Syscalls),
            buffers: Some(BufferPreset::LowLatency),
            replace: true,
            ..settings()
        };
        let planned = plan(&chosen, &[spec(NETWORK, 0, 0)], true).unwrap();
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
        let chosen = LiveSettings { preset: Some(Preset::Enrichment), session: None, ..settings() };
        let planned = plan(&chosen, &[spec(NETWORK, 0, 0)], false).unwrap();
        let [kernel, user] = &planned[..] else { panic!("{planned:?}") };
        assert!(!kernel.session.name().is_empty());
        assert_eq!(user.session.name(), format!("{}-providers", kernel.session.name()));
    }

    #[test]
    fn unknown_providers_are_reported() {
        let error = plan(&settings(), &[spec("No-Such-Provider", 0, 0)], false).unwrap_err().to_string();
        assert!(error.contains("No-Such-Provider") && error.contains("GUID"), "{error}");
    }
}
