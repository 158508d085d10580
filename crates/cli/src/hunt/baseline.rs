//! The file of a baseline: a line of JSON with its version, then one per entry, sorted.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use stackhound::detect::DetectionId;
use stackhound::detect::baseline::{Baseline, ENTRIES_MAX, Key, VERSION};

use crate::inputs;
use crate::output::Sink;

#[derive(Serialize, Deserialize)]
struct Head {
    r#type: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    detection: String,
    program: String,
    stack: String,
    /// Raw events.
    count: u64,
}

const TYPE: &str = "stackhound-baseline";

pub fn read(path: &Path) -> Result<Baseline> {
    let text = inputs::text(path)?;
    let at = |line: usize| format!("{}:{}", path.display(), line + 1);
    let mut lines = text.lines().enumerate();
    let head = lines.next().and_then(|(_, line)| serde_json::from_str::<Head>(line).ok());
    match head.filter(|head| head.r#type == TYPE) {
        Some(Head { version: VERSION, .. }) => {}
        Some(Head { version, .. }) => bail!(
            "{}: expected a baseline of version {VERSION}, found version {version}; write it again with --write-baseline",
            path.display()
        ),
        None => bail!("{}: expected a baseline, as written by --write-baseline", path.display()),
    }
    let mut baseline = Baseline::default();
    for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let entry: Entry = serde_json::from_str(text)
            .map_err(|_| anyhow!("{}: expected detection, program, stack and count", at(line)))?;
        let detection = DetectionId::parse(&entry.detection)
            .ok_or_else(|| anyhow!("{}: there is no detection `{}`", at(line), entry.detection))?;
        let key = Key { detection, program: entry.program, stack: entry.stack };
        if !baseline.add(key, entry.count) {
            bail!("{}: expected at most {ENTRIES_MAX} entries, found more", path.display());
        }
    }
    Ok(baseline)
}

pub fn write(path: &Path, baseline: &Baseline) -> Result<()> {
    let mut sink = Sink::open(Some(path))?;
    let mut line = |value: String| writeln!(sink, "{value}");
    let mut lines = || -> Result<()> {
        line(serde_json::to_string(&Head { r#type: TYPE.to_owned(), version: VERSION })?)?;
        for (key, count) in baseline.entries() {
            let Key { detection, program, stack } = key.clone();
            let entry = Entry { detection: detection.name().to_owned(), program, stack, count };
            line(serde_json::to_string(&entry)?)?;
        }
        Ok(())
    };
    lines().with_context(|| format!("cannot write {}", path.display()))?;
    sink.finish()
}
