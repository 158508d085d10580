//! Findings for people: a block per event, followed by a summary.
//!
//! ```text
//! HIGH  CS07  unbacked executable memory calls the native API
//!   unbacked 0x24f64b7b7a1, in no module, calls the native API.
//!   tool.exe (pid 4021, thread 5032)  C:\Users\Public\tool.exe
//!   ProcessAccess of lsass.exe (pid 612), access 0x1410
//!   2023-01-01T00:00:00.0000000Z  events.evtx record 17  3 events  alert 0123456789abcdef
//!      0  ntdll.dll!NtOpenProcess+0x14
//!      1  KERNELBASE.dll!OpenProcess+0x4d
//!   ►  2  unbacked 0x24f64b7b7a1  private RWX  <== CS07
//!   ATT&CK: T1055, T1620
//! ```
//!
//! Several findings about one event share one stack. A repetition in the same alert, with the same
//! addresses, is one line. Colors carry no information that the text does not have.

mod alerts;
mod summary;
mod top;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use stackhound_detect::report::{
    EarlierEvent, EventContext, EventReport, Finding, FrameReport, ProcessReport,
};
use stackhound_detect::{Severity, Verdict};
use stackhound_facts::ProcessFact;
use stackhound_frames::RegionKind;
use stackhound_types::Mode;

use super::form::{End, Form, Options};
use super::related;
use super::shown::{self, Digest, known};
use crate::escape::Plain;
use crate::json::value::Hex;

use alerts::AlertTable;
use top::Top;

/// Of live events, whose alerts are not known before the end, a list.
pub(super) fn alert_table(options: Options) -> Box<dyn Form> {
    if options.is_live { list(options) } else { Box::new(AlertTable::new(options.is_colored)) }
}

pub(super) fn list(options: Options) -> Box<dyn Form> {
    Box::new(List::new(options.is_colored))
}

pub(super) fn summary(options: Options) -> Box<dyn Form> {
    Box::new(Top::new(options.is_colored))
}

/// Maximum number of frames of a stack that is shown completely. Longer stacks are shortened in the
/// middle.
const FRAMES_MAX: usize = 24;

/// Number of frames at both ends of a shortened stack, and around each frame that a finding
/// concerns.
const ENDS: usize = 8;
const AROUND: usize = 2;

/// Maximum length of a text, so that one name cannot fill a screen.
const TEXT_MAX: usize = 260;

/// Maximum number of remembered blocks. If there are more, all are forgotten.
const SEEN_MAX: usize = 1 << 16;

/// Writes a block for each event.
#[derive(Debug)]
struct List {
    is_colored: bool,
    /// Key of the last block.
    last: Option<u64>,
    /// Records of the blocks that were shown, by key.
    seen: HashMap<u64, u64>,
}

impl Form for List {
    fn add(&mut self, out: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let block = Block { is_colored: self.is_colored, event, findings };
        let key = block.key();
        if let Some(&record) = self.seen.get(&key) {
            return block.again(out, Some(record).filter(|_| self.last != Some(key)));
        }
        self.seen.insert(key, event.location.record);
        if self.last.replace(key).is_some() {
            writeln!(out)?;
        }
        block.write(out)
    }

    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()> {
        if self.last.is_some() {
            writeln!(out)?;
        }
        summary::write(out, self.is_colored, end)
    }
}

impl List {
    fn new(is_colored: bool) -> List {
        List { is_colored, last: None, seen: HashMap::new() }
    }
}

/// An event with its findings.
struct Block<'a> {
    is_colored: bool,
    event: &'a EventContext,
    findings: &'a [&'a Finding],
}

impl Block<'_> {
    /// A key that is equal for events that differ only in time and record: same process, answers and
    /// stack.
    fn key(&self) -> u64 {
        let EventContext { event, host, process, stack, .. } = self.event;
        let mut digest = Digest::NEW.with(shown::entity(host, process).to_string());
        for text in [&event.name, &event.service, event.target_path()] {
            digest = digest.with(text);
        }
        let numbers = [event.target_pid().map(u64::from), event.access.map(u64::from), event.start_address];
        digest = numbers.into_iter().fold(digest, Digest::with_number);
        for finding in self.findings {
            let outcome = &finding.outcome;
            digest = digest.with(finding.suppressed.as_ref().map(|cause| &*cause.reason).unwrap_or_default());
            digest = digest.with(&finding.alert).with(finding.analytic.name()).with(outcome.verdict.name());
            digest = digest.with(outcome.severity.name()).with_number(outcome.frame.map(u64::from));
            digest =
                shown::reasons(finding).into_iter().chain(shown::missing(finding)).fold(digest, Digest::with);
        }
        for frame in stack {
            digest = digest.with_number(frame.address).with_number(frame.rva).with(&frame.module);
            digest = digest.with(frame.symbol().unwrap_or_default());
        }
        digest.value()
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for finding in self.findings {
            self.head(out, finding)?;
        }
        process(out, &self.event.process)?;
        event(out, &self.event.event)?;
        self.location(out)?;
        for sentence in related::sentences(self.event) {
            writeln!(out, "  {}", text(&sentence))?;
        }
        self.stack(out)?;
        attack(out, self.findings)
    }

    /// The severity, title and reasons of a finding.
    fn head(&self, out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
        let (name, title) = (text(finding.analytic.label()), text(finding.analytic.title()));
        let severity = finding.outcome.severity;
        if let Some(cause) = &finding.suppressed {
            let word = painted(self.is_colored, UNDETERMINED, "SUPPRESSED");
            writeln!(out, "{word}  {name}  {title} ({})", severity.name())?;
            writeln!(out, "  Suppressed by {}.", text(&shown::suppression(cause)))?;
        } else if finding.outcome.verdict == Verdict::Yes {
            let word = severity.name().to_uppercase();
            let word = painted(self.is_colored, style(severity), &word);
            let novelty = finding.novelty.map(|novelty| format!(" ({})", novelty.text())).unwrap_or_default();
            writeln!(out, "{word}  {name}  {title}{novelty}")?;
        } else {
            let is_possible = finding.rule_match.as_ref().is_some_and(|found| found.is_possible);
            let word = if is_possible { "POSSIBLE" } else { "UNDETERMINED" };
            let word = painted(self.is_colored, UNDETERMINED, word);
            let most = severity.name();
            writeln!(out, "{word}  {name}  {title} (at most {most})")?;
        }
        let explanation = shown::explanation(self.event, finding);
        if !explanation.is_empty() {
            writeln!(out, "  {}", Short(&explanation, 4 * TEXT_MAX))?;
        }
        let missing = shown::missing(finding);
        if !missing.is_empty() {
            writeln!(out, "  Missing evidence: {}.", text(&missing.join(", ")))?;
        }
        if let Some(lost) = shown::loss(self.event, finding) {
            let time =
                |bound: Option<u64>, unknown: &str| bound.and_then(shown::time).unwrap_or(unknown.to_owned());
            let (from, until) = (time(lost.from, "the beginning"), time(lost.until, "the end"));
            let process = if lost.process.is_empty() { "process" } else { &lost.process };
            writeln!(
                out,
                "  Modules of {} ({}): records from {from} to {until} are missing.",
                text(process),
                lost.pid
            )?;
        }
        if let Some(found) = finding.rule_match.as_ref().filter(|found| !found.earlier.is_empty()) {
            let one = |event: &EarlierEvent| {
                let time = event.time.and_then(shown::time).unwrap_or_else(|| "time unknown".to_owned());
                format!("record {} ({time})", event.record)
            };
            let earlier: Vec<String> = found.earlier.iter().map(one).collect();
            writeln!(out, "  After {}.", earlier.join(", "))?;
        }
        Ok(())
    }

    fn location(&self, out: &mut dyn Write) -> io::Result<()> {
        let EventContext { host, location, count, .. } = self.event;
        write!(out, "  {}", when(self.event))?;
        if !host.is_empty() {
            write!(out, "  on {}", text(host))?;
        }
        if !location.file.is_empty() {
            write!(out, "  {} record {}", text(&location.file), location.record)?;
        }
        write!(out, "  {}", events(*count))?;
        match self.findings.iter().find(|finding| !finding.alert.is_empty()) {
            Some(finding) => writeln!(out, "  alert {}", text(&finding.alert)),
            None => writeln!(out),
        }
    }

    /// A repetition of the last block or of the block of another record.
    fn again(&self, out: &mut dyn Write, block: Option<u64>) -> io::Result<()> {
        let ids: Vec<String> = self.findings.iter().map(|finding| named(finding)).collect();
        let record = self.event.location.record;
        let count = events(self.event.count);
        write!(out, "  again {}  {}  record {record}  {count}", ids.join(", "), when(self.event))?;
        match block {
            Some(block) => writeln!(out, "  as record {block}"),
            None => writeln!(out),
        }
    }

    fn stack(&self, out: &mut dyn Write) -> io::Result<()> {
        let stack = &self.event.stack;
        if stack.is_empty() {
            return writeln!(out, "  no stack");
        }
        let mut left_out = 0;
        for (index, frame) in stack.iter().enumerate() {
            if !is_shown(index, stack.len(), self.findings) {
                left_out += 1;
                continue;
            }
            omission(out, left_out)?;
            left_out = 0;
            self.frame(out, index, frame)?;
        }
        Ok(())
    }

    /// A frame, marked if findings concern it. The mark, the ids after the arrow and the color
    /// agree.
    fn frame(&self, out: &mut dyn Write, index: usize, frame: &FrameReport) -> io::Result<()> {
        let is_about = |finding: &&&Finding| finding.outcome.frame.map(usize::from) == Some(index);
        let about: Vec<&&Finding> = self.findings.iter().filter(is_about).collect();
        let found = about.iter().filter(|finding| finding.is_reported());
        let severity = found.map(|finding| finding.outcome.severity).max();
        let mark = match (severity, about.is_empty()) {
            (Some(_), _) => '►',
            (None, false) => '?',
            (None, true) => ' ',
        };
        let mut line = format!("{mark} {index:>2}  {}", text(&frame.label()));
        if frame.mode == Mode::Kernel {
            line += "  kernel";
        }
        if frame.is_wow64 {
            line += "  wow64";
        }
        let memory = Some(frame.region.kind.name()).filter(|_| frame.region.kind != RegionKind::Unknown);
        let memory: Vec<String> = memory
            .map(str::to_owned)
            .into_iter()
            .chain(frame.page_protection.map(shown::protection))
            .collect();
        if !memory.is_empty() {
            line = line + "  " + &memory.join(" ");
        }
        if about.is_empty() {
            return writeln!(out, "  {line}");
        }
        let ids: Vec<String> = about.iter().map(|finding| named(finding)).collect();
        let line = format!("{line}  <== {}", ids.join(", "));
        let style = severity.map_or(UNDETERMINED, style);
        writeln!(out, "  {}", painted(self.is_colored, style, &line))
    }
}

/// The id, followed by `undetermined` or `suppressed` if it is.
fn named(finding: &Finding) -> String {
    format!("{}{}", text(finding.analytic.label()), shown::verdict(finding))
}

fn process(out: &mut dyn Write, process: &ProcessReport) -> io::Result<()> {
    let name = known(process.name()).unwrap_or("unknown process");
    write!(out, "  {}", text(name))?;
    let shown = |what: &str, value: Option<&dyn fmt::Display>| value.map(|value| format!("{what} {value}"));
    let of = |fact: ProcessFact| process.facts.get(fact).map(|value| value as &dyn fmt::Display);
    let properties = [
        shown("pid", process.pid.as_ref().map(|pid| pid as &dyn fmt::Display)),
        shown("thread", process.tid.as_ref().map(|tid| tid as &dyn fmt::Display)),
        shown("parent", of(ProcessFact::ParentPid)),
        shown("user", of(ProcessFact::UserName).or(of(ProcessFact::UserSid))),
        shown("integrity", of(ProcessFact::Integrity)),
    ];
    let properties: Vec<String> = properties.into_iter().flatten().collect();
    if !properties.is_empty() {
        write!(out, " ({})", text(&properties.join(", ")))?;
    }
    if !process.path().is_empty() && process.path() != name {
        write!(out, "  {}", text(process.path()))?;
    }
    writeln!(out)?;
    if process.command_line().is_empty() {
        return Ok(());
    }
    writeln!(out, "  {}", text(process.command_line()))
}

fn event(out: &mut dyn Write, event: &EventReport) -> io::Result<()> {
    let name = if event.name.is_empty() { "unknown event" } else { &event.name };
    write!(out, "  {}", text(name))?;
    if !event.service.is_empty() {
        write!(out, ", {}", text(&event.service))?;
    }
    match (event.target_path(), event.target_pid()) {
        ("", None) => {}
        ("", Some(pid)) => write!(out, " of pid {pid}")?,
        (path, Some(pid)) => write!(out, " of {} (pid {pid})", text(path))?,
        (path, None) => write!(out, " of {}", text(path))?,
    }
    if let Some(access) = event.access {
        write!(out, ", access {}", Hex(access.into()))?;
    }
    if let Some(address) = event.start_address {
        write!(out, ", starts at {}", Hex(address))?;
    }
    if !event.start_name.is_empty() {
        write!(out, " in {}", text(&event.start_name))?;
    }
    writeln!(out)
}

fn attack(out: &mut dyn Write, findings: &[&Finding]) -> io::Result<()> {
    let mut ids: Vec<&str> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.is_reported()) {
        let mut new = finding.analytic.techniques();
        new.retain(|id| !ids.contains(id));
        ids.extend(new);
    }
    if ids.is_empty() { Ok(()) } else { writeln!(out, "  ATT&CK: {}", text(&ids.join(", "))) }
}

/// Whether a frame of a long stack is shown. Few frames have findings, because there are few
/// detections.
fn is_shown(index: usize, len: usize, findings: &[&Finding]) -> bool {
    let near = |finding: &&Finding| {
        finding.outcome.frame.is_some_and(|frame| usize::from(frame).abs_diff(index) <= AROUND)
    };
    len <= FRAMES_MAX || index < ENDS || index + ENDS >= len || findings.iter().any(near)
}

fn omission(out: &mut dyn Write, frames: usize) -> io::Result<()> {
    match frames {
        0 => Ok(()),
        1 => writeln!(out, "       ... 1 frame"),
        frames => writeln!(out, "       ... {frames} frames"),
    }
}

fn when(event_context: &EventContext) -> String {
    event_context.time.and_then(shown::time).unwrap_or_else(|| "time unknown".to_owned())
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

const UNDETERMINED: Style = AnsiColor::Magenta.on_default();

/// The style of a severity.
fn style(severity: Severity) -> Style {
    match severity {
        Severity::Info => Style::new().dimmed(),
        Severity::Low => AnsiColor::Cyan.on_default(),
        Severity::Medium => AnsiColor::Yellow.on_default(),
        Severity::High => AnsiColor::Red.on_default(),
        Severity::Critical => AnsiColor::Red.on_default().bold(),
    }
}

fn painted(is_colored: bool, style: Style, text: &str) -> String {
    if is_colored { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// An untrusted text on one line, cut if it is long.
struct Short<'t>(&'t str, usize);

fn text(text: &str) -> Short<'_> {
    Short(text, TEXT_MAX)
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Short(text, most) = *self;
        match text.char_indices().nth(most) {
            None => write!(f, "{}", Plain(text)),
            Some((end, _)) => write!(f, "{}…", Plain(&text[..end])),
        }
    }
}
