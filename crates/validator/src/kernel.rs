//! Rules about relations between the records of a kernel trace (K).

use std::collections::{HashMap, HashSet};

use crate::header::{Session, WINDOWS_8};
use crate::{Report, Rule};

/// Hook ids that rules refer to.
pub(crate) mod hook_id {
    pub(crate) const LOGFILE_HEADER: u16 = 0x0000;
    pub(crate) const GROUP_MASKS: u16 = 0x0005;
    pub(crate) const RUNDOWN_COMPLETE: u16 = 0x0008;
    pub(crate) const GROUP_MASKS_BEFORE: u16 = 0x0020;
    pub(crate) const PROCESS_START: u16 = 0x0301;
    pub(crate) const PROCESS_END: u16 = 0x0302;
    pub(crate) const PROCESS_START_RUNDOWN: u16 = 0x0303;
    pub(crate) const PROCESS_END_RUNDOWN: u16 = 0x0304;
    pub(crate) const IMAGE_LOAD: u16 = 0x030a;
    pub(crate) const THREAD_END: u16 = 0x0502;
    pub(crate) const THREAD_START_RUNDOWN: u16 = 0x0503;
    pub(crate) const THREAD_END_RUNDOWN: u16 = 0x0504;
    pub(crate) const SAMPLING_INTERVAL_START: u16 = 0x0f49;
    pub(crate) const SAMPLING_INTERVAL_END: u16 = 0x0f4a;
    pub(crate) const IMAGE_UNLOAD: u16 = 0x1402;
    pub(crate) const STACK: u16 = 0x1820;
    pub(crate) const STACK_DEFINITION_KERNEL: u16 = 0x1823;
    pub(crate) const STACK_DEFINITION_USER: u16 = 0x1824;
    pub(crate) const STACK_KEY_KERNEL: u16 = 0x1825;
    pub(crate) const STACK_KEY_USER: u16 = 0x1826;
}
use hook_id::*;

/// Data from the records of all buffers. Times are raw.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// Times of all records.
    pub times: HashSet<u64>,
    /// Times of the triggering events in stack records.
    pub triggers: Vec<u64>,
    /// Stack keys, and the times of the records that contain them.
    pub uses: Vec<(u64, u64)>,
    /// Time of the latest definition of each key.
    pub definitions: HashMap<u64, u64>,
    /// Time and hook id of the records that delimit a rundown.
    protocol: Vec<(u64, u16)>,
    /// Time and process of each rundown record.
    listed_at_start: Vec<(u64, u32)>,
    listed_at_end: Vec<u64>,
    /// Processes that start or end.
    changing: Vec<u32>,
    /// Processes that start or are listed at the start, with their parents.
    parents: Vec<(u32, u32)>,
    logfile_headers: usize,
    sampling_starts: bool,
    sampling_ends: bool,
}

impl Kernel {
    /// Collects data from a kernel event. The process ids are valid only for process events.
    pub fn note(&mut self, hook_id: u16, time: u64, process: u32, parent: u32) {
        match hook_id {
            LOGFILE_HEADER => self.logfile_headers += 1,
            GROUP_MASKS | RUNDOWN_COMPLETE | GROUP_MASKS_BEFORE => self.protocol.push((time, hook_id)),
            PROCESS_START => {
                self.changing.push(process);
                self.parents.push((process, parent));
            }
            PROCESS_END => self.changing.push(process),
            PROCESS_START_RUNDOWN => {
                self.listed_at_start.push((time, process));
                self.parents.push((process, parent));
            }
            PROCESS_END_RUNDOWN => self.listed_at_end.push(time),
            SAMPLING_INTERVAL_START => self.sampling_starts = true,
            SAMPLING_INTERVAL_END => self.sampling_ends = true,
            _ => {}
        }
    }

    /// Checks the rules after all records of a file were collected.
    pub fn check(mut self, report: &mut Report, session: &Session) {
        let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
            report.check(rule, 0, holds, found);
        };
        check(Rule::F06, self.logfile_headers == 0, &|| format!("{} more", self.logfile_headers));
        if !self.triggers.is_empty() {
            let without = self.triggers.iter().filter(|time| !self.times.contains(time)).count();
            check(Rule::K01, without == 0, &|| format!("{without} of {} without", self.triggers.len()));
            let undefined = |(key, time): &&(u64, u64)| self.definitions.get(key).is_none_or(|at| at < time);
            let undefined = self.uses.iter().filter(undefined).count();
            check(Rule::K02, undefined == 0, &|| format!("{undefined} of {} are not", self.uses.len()));
        }
        if self.sampling_starts {
            check(Rule::K07, self.sampling_ends, &|| String::from("none"));
        }
        if self.listed_at_start.is_empty() && self.listed_at_end.is_empty() {
            return;
        }
        let special = self.changing.iter().filter(|process| matches!(process, 0 | 4)).count();
        check(Rule::K08, special == 0, &|| format!("{special} times"));
        let own = self.parents.iter().find(|(process, parent)| *process != 0 && process == parent);
        check(Rule::K09, own.is_none(), &|| format!("{own:?}"));
        if session.windows < WINDOWS_8 {
            return;
        }
        self.protocol.sort_by_key(|(time, _)| *time);
        self.listed_at_start.sort_unstable();
        let last = self.protocol.last().map(|(_, hook_id)| *hook_id);
        check(Rule::K03, last == Some(RUNDOWN_COMPLETE), &|| format!("{last:x?}"));
        let by = |hook_id, time| self.protocol.iter().any(|entry| entry.1 == hook_id && entry.0 <= time);
        if let Some(time) = self.listed_at_end.iter().min() {
            check(Rule::K04, by(GROUP_MASKS_BEFORE, *time), &|| format!("none by {time}"));
        }
        if let Some((time, _)) = self.listed_at_start.first() {
            let first: Vec<u32> = self.listed_at_start.iter().take(2).map(|(_, process)| *process).collect();
            check(Rule::K05, first == [0, 4], &|| format!("{first:?}"));
            check(Rule::K06, by(GROUP_MASKS_BEFORE, *time) && by(GROUP_MASKS, *time), &|| {
                format!("{:x?} by {time}", self.protocol.first())
            });
        }
    }
}
