//! The report of the fake to a test: its threads, and the addresses of its functions.
//!
//! ```text
//! process 52
//! thread waits 60
//! function leaf_wait 0x7f0000001000 0x7f0000001040
//! ```

use std::ops::Range;
use std::path::PathBuf;

/// The behavior of a thread of the fake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Takes every APC at once, in the innermost function of [`CHAIN`].
    Waits,
    /// Like [`Self::Waits`], and the system reports that it is a system thread.
    System,
    /// Takes its APCs only when [`crate::settings::Settings::wakes`] changes.
    Deaf,
    /// Ends some time after an APC was queued to it, without taking it.
    Exits,
    /// Like [`Self::Waits`], and the system reports that it is terminating. On Windows, this is so
    /// from the request to terminate it, while it takes APCs until almost its last step.
    Ending,
    /// Queueing an APC fails.
    Refuses,
}

impl Behavior {
    /// All behaviors.
    pub const ALL: [Behavior; 6] = [
        Behavior::Waits,
        Behavior::System,
        Behavior::Deaf,
        Behavior::Exits,
        Behavior::Ending,
        Behavior::Refuses,
    ];

    /// The name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Behavior::Waits => "waits",
            Behavior::System => "system",
            Behavior::Deaf => "deaf",
            Behavior::Exits => "exits",
            Behavior::Ending => "ending",
            Behavior::Refuses => "refuses",
        }
    }

    /// The number of threads with this behavior. There are more deaf threads than captures can be
    /// in progress.
    pub fn threads(self) -> usize {
        match self {
            Behavior::Deaf => 66,
            Behavior::Exits => 2,
            _ => 1,
        }
    }
}

/// The functions of a waiting thread, innermost first.
pub const CHAIN: [&str; 4] = ["leaf_wait", "middle", "outer", "start"];

/// The function that stands for the APC dispatcher of the kernel.
pub const DISPATCHER: &str = "deliver";

/// The threads and functions of a fake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The id of the process in which the driver runs.
    pub process: u32,
    /// The behavior and id of each thread.
    pub threads: Vec<(String, u32)>,
    /// The name and the addresses of each function in the process.
    pub functions: Vec<(String, Range<u64>)>,
}

impl Report {
    /// The path of the report.
    pub fn path() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("threads.txt")
    }

    /// The path of the log of calls, with one call per line.
    pub fn calls() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("calls.txt")
    }

    /// The ids of all threads with a behavior.
    pub fn threads_with(&self, behavior: Behavior) -> Vec<u32> {
        let threads = self.threads.iter().filter(|(name, _)| name == behavior.name());
        threads.map(|&(_, tid)| tid).collect()
    }

    /// The name of the function that contains an address.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let function = self.functions.iter().find(|(_, range)| range.contains(&address));
        function.map(|(name, _)| name.as_str())
    }

    /// Parses the text of a report.
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
    fn a_report_is_parsed_as_written() {
        let report = Report {
            process: 52,
            threads: vec![("waits".into(), 60), ("deaf".into(), 64)],
            functions: vec![("leaf_wait".into(), 0x7f00_0000_1000..0x7f00_0000_1040)],
        };
        assert_eq!(Report::parse(&report.to_string()), Some(report.clone()));
        assert_eq!(report.threads_with(Behavior::Deaf), [64]);
        assert_eq!(report.function_at(0x7f00_0000_103f), Some("leaf_wait"));
        assert_eq!(report.function_at(0x7f00_0000_1040), None);
    }

    #[test]
    fn incomplete_lines_are_rejected() {
        for text in ["thread waits", "process x", "function f 1 2", "more"] {
            assert_eq!(Report::parse(text), None, "{text}");
        }
    }
}
