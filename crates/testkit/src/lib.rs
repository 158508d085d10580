//! Test events with known verdicts. For each call-stack detection there are events that must be
//! found, events that must not be found, and events that are undetermined because evidence is
//! missing.
//!
//! Each case is a benign stack of a generated system with one change, so its verdict follows from
//! its construction: a service that does not match the stub, a missing thread root, a frame outside
//! of all modules, a return address that is not preceded by a call. The events are written as
//! traces (`.etl`) and, where Sysmon has such events, as rows of Sysmon. Each file comes with the
//! image files that are available to the evaluation.
//!
//! The crate depends on the ids and the meaning of the detections, but not on their implementation.
#![forbid(unsafe_code)]

mod case_builder;
mod cases;
mod code;
mod etl_file;
mod event_spec;
mod images;
mod rows;

use stackhound_etl::write::WriteError;
use stackhound_scenario::ImageFile;

pub use self::case_builder::{Answer, Kind};
use self::case_builder::{CaseBuilder, Flaw, Setting, TestCase};
use self::event_spec::World;

/// A case: an event, and the expected verdict of one detection for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The detection, such as `CS05`.
    pub detection: &'static str,
    /// The expected verdict.
    pub answer: Answer,
    /// The highest permitted severity, in its spelling, if benign programs cause the event too.
    pub at_most: Option<&'static str>,
    /// The lowest permitted severity, in its spelling, if the event is that of an attack.
    pub at_least: Option<&'static str>,
    /// Description of the case, for people.
    pub title: String,
    /// In a trace, the raw time of the event, which no other record has. Otherwise the row number,
    /// from 1.
    pub at: u64,
}

/// A file with cases.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// The common property of its cases, for people.
    pub name: String,
    /// The format of `bytes`.
    pub kind: Kind,
    /// The trace, or the text of the rows.
    pub bytes: Vec<u8>,
    /// The available image files.
    pub images: Vec<ImageFile>,
    /// Programs that are known to be part of Windows, one per line; empty if they are not known.
    pub known_images: &'static str,
    /// The cases.
    pub cases: Vec<Case>,
}

/// A verdict that a detection never reaches for events of one kind, with the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The detection.
    pub detection: &'static str,
    /// The kind of events.
    pub kind: Kind,
    /// The impossible verdict.
    pub answer: Answer,
    /// The reason, in a few words.
    pub reason: &'static str,
}

const fn limit(detection: &'static str, kind: Kind, answer: Answer, reason: &'static str) -> Limit {
    Limit { detection, kind, answer, reason }
}

/// All impossible verdicts.
pub const LIMITS: &[Limit] = &[
    limit("CS09", Kind::CallTrace, Answer::Yes, "Sysmon does not report kinds of memory"),
    limit("CS15", Kind::CallTrace, Answer::Yes, "Sysmon does not report the start of the thread"),
    limit("CS15", Kind::CallTrace, Answer::No, "Sysmon does not report the start of the thread"),
    limit("CS18", Kind::Etl, Answer::Yes, "traces contain no memory"),
    limit("CS18", Kind::Etl, Answer::No, "traces contain no memory"),
    limit("CS18", Kind::CallTrace, Answer::Yes, "Sysmon does not report contents of memory"),
    limit("CS18", Kind::CallTrace, Answer::No, "Sysmon does not report contents of memory"),
    limit("CS21", Kind::CallTrace, Answer::Yes, "Sysmon does not report waits"),
    limit(
        "CS22",
        Kind::CallTrace,
        Answer::No,
        "opening a process is sensitive, and registers are not reported",
    ),
    limit("CS27", Kind::CallTrace, Answer::Yes, "Sysmon does not report changes of memory"),
    limit("CS28", Kind::CallTrace, Answer::Yes, "Sysmon does not report changes of memory"),
    limit("CS28", Kind::CallTrace, Answer::No, "Sysmon does not report changes of memory"),
    limit("CS29", Kind::CallTrace, Answer::Yes, "Sysmon does not report changes of memory"),
    limit("CS29", Kind::CallTrace, Answer::No, "Sysmon does not report changes of memory"),
    limit("CS23", Kind::CallTrace, Answer::Yes, "Sysmon does not report the kernel stack"),
    limit("CS23", Kind::CallTrace, Answer::No, "Sysmon does not report the kernel stack"),
    limit("CS30", Kind::Etl, Answer::Yes, "traces do not report tampering"),
];

/// The contents of [`CaseFile::known_images`] where they are known.
const KNOWN: &str = "inbox.exe";

/// Writes all cases: about 30 MB of files, identical on every machine.
///
/// # Errors
/// If a trace cannot be written.
pub fn files() -> Result<Vec<CaseFile>, WriteError> {
    let world = World::new();
    let mut builder = CaseBuilder::new(&world);
    cases::add_cases(&mut builder);
    let test_cases = builder.test_cases;
    let mut settings: Vec<(Kind, Setting)> =
        test_cases.iter().map(|test_case| (test_case.kind, test_case.setting)).collect();
    settings.sort_unstable();
    settings.dedup();
    settings
        .into_iter()
        .map(|(kind, setting)| {
            let test_cases: Vec<&TestCase> = test_cases
                .iter()
                .filter(|test_case| (test_case.kind, test_case.setting) == (kind, setting))
                .collect();
            let (bytes, locations) = match kind {
                Kind::Etl => etl_file::write(&world, setting.flaw, &test_cases)?,
                Kind::CallTrace => rows::write(&world, &test_cases),
            };
            let case = |(test_case, at): (&&TestCase, u64)| Case {
                detection: test_case.detection,
                answer: test_case.answer,
                at_most: test_case.at_most,
                at_least: test_case.at_least,
                title: test_case.title.clone(),
                at,
            };
            Ok(CaseFile {
                name: name(setting),
                kind,
                bytes,
                images: world.image_files(setting.without).collect(),
                known_images: if setting.knows_system { KNOWN } else { "" },
                cases: test_cases.iter().zip(locations).map(case).collect(),
            })
        })
        .collect()
}

fn name(setting: Setting) -> String {
    match setting {
        Setting { flaw: Flaw::NoRundown, .. } => "without rundown".to_owned(),
        Setting { flaw: Flaw::LostBuffer, .. } => "with a lost buffer".to_owned(),
        Setting { without: Some(image), .. } => format!("without the file of {image}"),
        Setting { knows_system: true, .. } => "with known images of Windows".to_owned(),
        Setting { .. } => "with all available facts".to_owned(),
    }
}

impl World {
    /// The files of all images but one.
    fn image_files(&self, without: Option<&'static str>) -> impl Iterator<Item = ImageFile> + '_ {
        let units = self.units.iter().filter(move |unit| Some(unit.spec.key) != without);
        units.map(|unit| {
            let (name, stamp) = (unit.spec.name(), unit.file.time_date_stamp);
            ImageFile {
                store_path: format!("{name}/{stamp:08X}{:x}/{name}", unit.file.size),
                bytes: unit.file.write(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_possible_verdict_has_enough_cases() {
        let mut counts: BTreeMap<(&str, Kind, Answer), u32> = BTreeMap::new();
        for file in files().unwrap() {
            for case in &file.cases {
                *counts.entry((case.detection, file.kind, case.answer)).or_default() += 1;
            }
        }
        for number in 1..=29 {
            let detection = format!("CS{number:02}");
            for kind in Kind::ALL {
                for (answer, least) in [(Answer::Yes, 5), (Answer::No, 5), (Answer::Undetermined, 1)] {
                    let is_limit = |limit: &&Limit| {
                        (limit.detection, limit.kind, limit.answer) == (&*detection, kind, answer)
                    };
                    let count = counts.get(&(&*detection, kind, answer)).copied().unwrap_or(0);
                    match LIMITS.iter().find(is_limit) {
                        Some(_) => assert_eq!(count, 0, "{detection} {kind:?} {answer:?}"),
                        None => assert!(count >= least, "{detection} {kind:?} {answer:?}: {count}"),
                    }
                }
            }
        }
    }
}
