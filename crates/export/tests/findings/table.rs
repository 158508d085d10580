//! Tables as people see them, and properties that hold for any content.

use proptest::prelude::*;
use stackhound_detect::alert::Alert;
use stackhound_detect::report::{EventContext, FrameReport};
use stackhound_detect::{Analytic, DetectionId, Input, Inputs, Reason, Severity, Totals, Verdict};
use stackhound_export::findings::FindingsFormat::List as Table;
use stackhound_facts::ProcessFact;

use crate::event_contexts::{
    NEW_YEAR, access, backed, events, finding, nothing, unbacked, undetermined, yes,
};
use crate::written;

const ACCESS: &str = r"HIGH  CS07  unbacked executable memory calls the native API
  unbacked 0x24f64b7b7a1, in no module, calls the native API. The operation is one that attacks need.
CRITICAL  CS24  suspicious LSASS handle
  The final user module, unbacked 0x24f64b7b7a1, is neither part of Windows nor an installed program.
UNDETERMINED  CS11  call stack spoofing: return address not preceded by a call (at most high)
  The image file that would decide is missing.
  Missing evidence: image_bytes.
  tool.exe (pid 4021, thread 5032, parent 640)  C:\Users\Public\tool.exe
  tool.exe --dump
  ProcessAccess, NtOpenProcess of C:\Windows\System32\lsass.exe (pid 612), access 0x1410
  2023-01-01T00:00:00.0000001Z  on WS1  events.evtx record 17  3 events  alert 00000000deadbeef
     0  ntdll.dll!NtOpenProcess+0x14
     1  KERNELBASE.dll+0x2c13e
  ►  2  unbacked 0x24f64b7b7a1  private RWX  <== CS07, CS24
  ATT&CK: T1055, T1620, T1003.001
";

const NOTHING: &str = r"UNDETERMINED  CS01  direct system call from unbacked memory (at most high)
  The stack, or the part of it that decides, is missing.
  Missing evidence: stack.
  unknown process
  unknown event
  time unknown  1 event
  no stack
";

const SUMMARY: &str = r"Alerts by score
  100  critical  tool.exe (pid 4021) on WS1: CS24 critical 3, CS07 high 3
                 2023-01-01T00:00:00.0000000Z to 2023-01-01T00:00:01.0000000Z, alert 00000000deadbeef

Findings in 10 events, by severity
            info       low    medium      high  critical
  CS07         -         -         -         3         -  unbacked executable memory calls the native API
  CS24         -         -         -         -         3  suspicious LSASS handle

Undetermined (neither found nor excluded), with the missing evidence
  CS11         4  call stack spoofing: return address not preceded by a call: image_bytes 4, stack 1
";

fn table(events: &[(EventContext, Vec<stackhound_detect::report::Finding>)]) -> String {
    let text = written(Table, false, events, &[], &Totals::default());
    let blocks = text.strip_suffix("No findings in 0 events\n").expect("the summary");
    blocks.strip_suffix('\n').unwrap_or(blocks).to_owned()
}

/// The alert of [`access`], with counted totals.
fn alert_and_totals() -> (Alert, Totals) {
    let (event_context, findings) = access();
    let id = |name| Analytic::Detection(DetectionId::parse(name).unwrap());
    let alert = Alert {
        key: "00000000deadbeef".to_owned(),
        host: event_context.host,
        process: event_context.process,
        times: Some((NEW_YEAR, NEW_YEAR + 10_000_000)),
        detections: vec![(id("CS07"), Severity::High, 3), (id("CS24"), Severity::Critical, 3)],
        severity: Severity::Critical,
        events: 3,
    };
    let mut totals = Totals::default();
    totals.events = 10;
    for finding in &findings {
        totals.add_outcome(finding.analytic.detection().unwrap(), &finding.outcome, 3);
    }
    let (_, mut other) = nothing();
    other[0].outcome.missing = other[0].outcome.missing.with(Input::ImageBytes);
    totals.add_outcome(DetectionId::parse("CS11").unwrap(), &other[0].outcome, 1);
    (alert, totals)
}

#[test]
fn blocks_have_all_facts() {
    assert_eq!(table(&[access()]), ACCESS);
    assert_eq!(table(&[nothing()]), NOTHING);
    assert_eq!(table(&[access(), nothing()]), format!("{ACCESS}\n{NOTHING}"));
}

#[test]
fn missing_evidence_is_shown() {
    let (event_context, mut findings) = access();
    findings.truncate(1);
    findings[0].outcome.missing = Inputs::of(&[Input::CompiledCode, Input::Regions]);
    assert!(table(&[(event_context, findings)]).contains("\n  Missing evidence: compiled_code, regions.\n"));
}

#[test]
fn summaries_have_alerts_findings_and_undetermined_answers() {
    let (alert, totals) = alert_and_totals();
    assert_eq!(written(Table, false, &[], &[alert], &totals), SUMMARY);
}

#[test]
fn alerts_are_sorted_by_score() {
    let (high, totals) = alert_and_totals();
    let mut low = high.clone();
    low.detections = vec![(DetectionId::parse("CS08").unwrap().into(), Severity::Low, 1)];
    low.process.facts.set(ProcessFact::Name, "low.exe");
    let one = written(Table, false, &[], &[low.clone(), high.clone()], &totals);
    assert_eq!(one, written(Table, false, &[], &[high.clone(), low.clone()], &totals));
    assert!(one.find("tool.exe").unwrap() < one.find("low.exe").unwrap());
    let many = written(Table, false, &[], &vec![low; 150], &totals);
    assert_eq!((many.matches("low.exe").count(), many.contains("... and 50 more")), (100, true));
}

#[test]
fn repetitions_are_one_line() {
    let again = |record, tick| {
        let (mut event_context, findings) = access();
        event_context.location.record = record;
        event_context.time = Some(NEW_YEAR + tick);
        (event_context, findings)
    };
    let line = "  again CS07, CS24, CS11 undetermined  2023-01-01T00:00:00.0000005Z  record 18  3 events\n";
    assert_eq!(table(&[access(), again(18, 5)]), format!("{ACCESS}{line}"));
    // A different stack is not a repetition.
    let (mut event_context, findings) = again(18, 5);
    event_context.stack[1].rva = Some(1);
    let other = (event_context, findings);
    assert_eq!(table(&[access(), other.clone()]).matches("HIGH  CS07").count(), 2);
    // With another block in between, the line names the repeated one.
    let text = table(&[access(), other, again(20, 5)]);
    let line = text.lines().find(|line| line.starts_with("  again")).unwrap();
    assert!(line.ends_with("  record 20  3 events  as record 17"), "{text}");
}

#[test]
fn long_stacks_are_cut_except_around_findings() {
    let (mut event_context, _) = access();
    event_context.stack = (0..192).map(|index| backed("a.dll", index, "")).collect();
    event_context.stack[100] = unbacked(0x1000);
    let findings = vec![
        finding("CS08", yes(Severity::Medium, 100, Reason::FrameUnbacked)),
        finding("CS13", undetermined(Severity::Medium, Reason::ImageMissing, Input::ImageBytes).at(150)),
    ];
    let text = table(&[(event_context, findings)]);
    let stack: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("     0  ")).collect();
    assert_eq!(stack[7], "     7  a.dll+0x7");
    assert_eq!(stack[8], "       ... 90 frames");
    assert_eq!(stack[9], "    98  a.dll+0x62");
    assert_eq!(stack[11], "  ► 100  unbacked 0x1000  private RWX  <== CS08");
    assert_eq!(stack[14], "       ... 45 frames");
    assert_eq!(stack[17], "  ? 150  a.dll+0x96  <== CS13 undetermined");
    assert_eq!(stack[20], "       ... 31 frames");
    assert_eq!(stack[21], "    184  a.dll+0xb8");
    assert_eq!(stack[28], "    191  a.dll+0xbf");
}

#[test]
fn long_names_are_cut() {
    let (mut event_context, findings) = access();
    event_context.process.facts.set(ProcessFact::Path, "é".repeat(1 << 20));
    event_context.process.facts.set(ProcessFact::CommandLine, "x".repeat(1 << 20));
    event_context.stack[2] = backed("a.dll", 0x10, &format!("{}+0x1", "y".repeat(1 << 20)));
    assert!(table(&[(event_context, findings)]).len() < 10_000);
}

/// The text without the colors of the writer.
fn plain(colored: &str) -> String {
    let mut pieces = colored.split('\u{1b}');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let (color, rest) = piece.split_once('m').expect("a color");
        let digits = color.strip_prefix('[').expect("a color");
        assert!(digits.chars().all(|c| c.is_ascii_digit() || c == ';'), "{digits}");
        text + rest
    })
}

proptest! {
    #[test]
    fn tables_contain_no_control_characters_but_colors(events in events()) {
        let text = written(Table, false, &events, &[], &Totals::default());
        let is_interpreted = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!(!text.contains(is_interpreted), "{text:?}");
        let colored = written(Table, true, &events, &[], &Totals::default());
        assert_eq!(plain(&colored), text, "colors carry no information");
    }

    #[test]
    fn frames_of_findings_are_always_shown(len in 1..192_usize, at in any::<prop::sample::Index>()) {
        let at = at.index(len);
        let (mut event_context, _) = access();
        event_context.stack = vec![FrameReport::default(); len];
        let outcome = yes(Severity::High, at, Reason::FrameUnbacked);
        let text = table(&[(event_context, vec![finding("CS08", outcome)])]);
        let marked: Vec<&str> = text.lines().filter(|line| line.contains("<== CS08")).collect();
        assert_eq!(marked.len(), 1, "{text}");
        assert!(marked[0].starts_with(&format!("  ► {at:>2}  ")), "{text}");
    }

    /// Undetermined answers have no severity in the heading, no arrow and no technique.
    #[test]
    fn undetermined_answers_differ_from_findings(events in events()) {
        for (event_context, mut findings) in events {
            findings.retain(|finding| {
                finding.outcome.verdict == Verdict::Undetermined && finding.suppressed.is_none()
            });
            let text = table(&[(event_context, findings.clone())]);
            let is_head = |line: &&str| line.starts_with("UNDETERMINED  ") || line.starts_with("POSSIBLE  ");
            assert_eq!(text.lines().filter(is_head).count(), findings.len());
            assert!(!text.lines().any(|line| line.starts_with("  ► ") || line.starts_with("  ATT&CK")), "{text}");
            let heads = Severity::ALL.map(|severity| format!("{}  ", severity.name().to_uppercase()));
            assert!(!text.lines().any(|line| heads.iter().any(|head| line.starts_with(head))), "{text}");
        }
    }
}
