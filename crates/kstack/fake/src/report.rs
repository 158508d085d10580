//! What the fake tells a test: the threads that it made, and where its functions lie.
//!
//! ```text
//! process 52
//! thread waits 60
//! function leaf_wait 0x7f0000001000 0x7f0000001040
//! ```

use std::ops::Range;
use std::path::PathBuf;

/// How a thread of the fake's behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It takes every APC at once, at the end of the chain of functions [`CHAIN`].
    Waits,
    /// As [`Self::Waits`], and the system says that it is a thread of its own.
    System,
    /// It takes its APCs only when [`crate::settings::Settings::wakes`] changes.
    Deaf,
    /// It ends some time after it was sent an APC, without taking it.
    Exits,
    /// As [`Self::Waits`], and the system says that it is ending: as in Windows, where that is so from the moment at which
    /// its end is asked for, while it takes APCs until almost its last step.
    Ending,
    /// Queueing an APC fails.
    Refuses,
}

impl Behaviour {
    /// All of them.
    pub const ALL: [Behaviour; 6] = [
        Behaviour::Waits,
        Behaviour::System,
        Behaviour::Deaf,
        Behaviour::Exits,
        Behaviour::Ending,
        Behaviour::Refuses,
    ];

    /// What a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Behaviour::Waits => "waits",
            Behaviour::System => "system",
            Behaviour::Deaf => "deaf",
            Behaviour::Exits => "exits",
            Behaviour::Ending => "ending",
            Behaviour::Refuses => "refuses",
        }
    }

    /// How many threads there are of it: of deaf ones, more than captures can be under way.
    pub fn threads(self) -> usize {
        match self {
            Behaviour::Deaf => 66,
            Behaviour::Exits => 2,
            _ => 1,
        }
    }
}

/// The functions of a waiting thread, the innermost first.
pub const CHAIN: [&str; 4] = ["leaf_wait", "middle", "outer", "start"];

/// The function that plays the kernel's dispatcher of APCs.
pub const DISPATCHER: &str = "deliver";

/// The threads and functions of a fake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The process in which the driver runs.
    pub process: u32,
    /// Behaviours and thread numbers.
    pub threads: Vec<(String, u32)>,
    /// Names of functions and their addresses in the process.
    pub functions: Vec<(String, Range<u64>)>,
}

impl Report {
    /// Where the file is.
    pub fn path() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("threads.txt")
    }

    /// Where calls are written, a line each.
    pub fn calls() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("calls.txt")
    }

    /// The numbers of all threads of a behaviour.
    pub fn threads_that(&self, behaviour: Behaviour) -> Vec<u32> {
        let of_it = self.threads.iter().filter(|(name, _)| name == behaviour.name());
        of_it.map(|&(_, tid)| tid).collect()
    }

    /// The name of the function in which an address lies.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let function = self.functions.iter().find(|(_, range)| range.contains(&address));
        function.map(|(name, _)| name.as_str())
    }

    /// Reads a report's text.
    pub fn parse(text: &str) -> Option<Report> {
        let mut report = Report::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
            match words[..] {
                ["process", number] => report.process = number.parse().ok()?,
                ["thread", name, tid] => report.threads.push((name.to_owned(), tid.parse().ok()?)),
                ["function", name, begin, end] => {
                    report.functions.push((name.to_owned(), address(begin)?..address(end)?));
                }
                _ => return None,
            }
        }
        Some(report)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "process {}", self.process)?;
        for (name, tid) in &self.threads {
            writeln!(f, "thread {name} {tid}")?;
        }
        for (name, range) in &self.functions {
            writeln!(f, "function {name} {:#x} {:#x}", range.start, range.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let report = Report {
            process: 52,
            threads: vec![("waits".into(), 60), ("deaf".into(), 64)],
            functions: vec![("leaf_wait".into(), 0x7f00_0000_1000..0x7f00_0000_1040)],
        };
        assert_eq!(Report::parse(&report.to_string()), Some(report.clone()));
        assert_eq!(report.threads_that(Behaviour::Deaf), [64]);
        assert_eq!(report.function_at(0x7f00_0000_103f), Some("leaf_wait"));
        assert_eq!(report.function_at(0x7f00_0000_1040), None);
    }

    #[test]
    fn half_a_line_is_no_report() {
        for text in ["thread waits", "process x", "function f 1 2", "more"] {
            assert_eq!(Report::parse(text), None, "{text}");
        }
    }
}
