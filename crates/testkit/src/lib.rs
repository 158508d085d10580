//! Single events of known meaning: for each detection of call stacks such as must be found, such as must not, and such as
//! nobody can decide, because something is missing.
//!
//! Each is a good stack of a generated system with one thing changed, so that its answer is known from how it was made:
//! another service than the stub's, a cut end, a frame in no module, a return address behind no call. The same events are
//! written as recordings (`.etl`) and as rows of Sysmon, as far as Sysmon tells of such events, each with the image files
//! that are at hand for whoever evaluates.
//!
//! Knows what the detections are called and ask. Does not know who answers.
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

/// A case: an event, and the answer to one question about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The detection, such as `CS05`.
    pub detection: &'static str,
    /// What it must answer.
    pub answer: Answer,
    /// Honest programs do so too: the most that it may matter, as the spelling of a severity.
    pub at_most: Option<&'static str>,
    /// What was done, for people.
    pub title: String,
    /// Raw time of the event in a recording; no other record has it. The number of the row from 1 otherwise.
    pub at: u64,
}

/// A file with cases.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// What its cases have in common, for people.
    pub name: String,
    /// Its form.
    pub kind: Kind,
    /// The recording, or the text of the rows.
    pub bytes: Vec<u8>,
    /// The image files that are at hand.
    pub images: Vec<ImageFile>,
    /// Programs that are known to be part of Windows, one a line; empty if that is not known.
    pub known_images: &'static str,
    /// The cases.
    pub cases: Vec<Case>,
}

/// An answer that a form of events can never give to a question, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The detection.
    pub detection: &'static str,
    /// The form.
    pub kind: Kind,
    /// The answer that cannot be.
    pub answer: Answer,
    /// Why, in a few words.
    pub reason: &'static str,
}

const fn limit(detection: &'static str, kind: Kind, answer: Answer, reason: &'static str) -> Limit {
    Limit { detection, kind, answer, reason }
}

/// All answers that cannot be given.
pub const LIMITS: &[Limit] = &[
    limit("CS09", Kind::CallTrace, Answer::Yes, "Sysmon does not tell what memory is"),
    limit("CS15", Kind::CallTrace, Answer::Yes, "Sysmon does not tell where the thread started"),
    limit("CS15", Kind::CallTrace, Answer::No, "Sysmon does not tell where the thread started"),
    limit("CS18", Kind::Etl, Answer::Yes, "recordings have no memory"),
    limit("CS18", Kind::Etl, Answer::No, "recordings have no memory"),
    limit("CS18", Kind::CallTrace, Answer::Yes, "Sysmon does not tell what stands in memory"),
    limit("CS18", Kind::CallTrace, Answer::No, "Sysmon does not tell what stands in memory"),
    limit("CS21", Kind::CallTrace, Answer::Yes, "Sysmon tells of no waits"),
    limit("CS22", Kind::CallTrace, Answer::No, "opening a process is sensitive, and registers are not told"),
    limit("CS23", Kind::CallTrace, Answer::Yes, "Sysmon does not tell the kernel's part"),
    limit("CS23", Kind::CallTrace, Answer::No, "Sysmon does not tell the kernel's part"),
];

/// The program that is known to be part of Windows, where that is known.
const KNOWN: &str = "inbox.exe";

/// Writes all cases. The same on every machine; some 30 MB of files.
///
/// # Errors
/// If a recording cannot be written.
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
        Setting { .. } => "with all that can be told".to_owned(),
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
    fn each_answer_has_five_cases_where_it_can_be_given() {
        let mut counts: BTreeMap<(&str, Kind, Answer), u32> = BTreeMap::new();
        for file in files().unwrap() {
            for case in &file.cases {
                *counts.entry((case.detection, file.kind, case.answer)).or_default() += 1;
            }
        }
        for number in 1..=24 {
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
