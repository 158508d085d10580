//! Kernel stacks for programs.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use stackhound::threads::{
    Evidence, Part, StackFrame, StatedName, SwitchEvidence, SwitchRelation, ThreadStack, ThreadState,
};
use stackhound::{FileTime, Mode};
use stackhound_export::{Hex, escape};

use crate::frame::names_into;
use crate::render::utc;

/// `time` that the stacks are of, null if each is of another moment, and `threads`.
pub struct All<'s> {
    pub time: Option<FileTime>,
    pub stacks: &'s [ThreadStack],
}

impl Serialize for All<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let threads: Vec<_> = self.stacks.iter().map(Thread).collect();
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("time", &self.time.map(utc))?;
        map.serialize_entry("threads", &threads)?;
        map.end()
    }
}

/// A thread a line.
pub fn lines(out: &mut impl Write, stacks: &[ThreadStack]) -> io::Result<()> {
    for stack in stacks {
        escape::json(out, &Thread(stack))?;
        writeln!(out)?;
    }
    Ok(())
}

/// `pid`, `tid`, `process`, `thread_name`, `state` with `since` and `wait_reason`, `evidence`, `kernel` and, if asked for, `user`:
/// each a list of frames, or null, with the reason in `kernel_absent` and `user_absent`.
struct Thread<'s>(&'s ThreadStack);

impl Serialize for Thread<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stack = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pid", &stack.pid.map(|pid| pid.0))?;
        map.serialize_entry("tid", &stack.tid.0)?;
        map.serialize_entry("process", &stack.process)?;
        map.serialize_entry("thread_name", &stack.name)?;
        map.serialize_entry("state", stack.state.name())?;
        map.serialize_entry("since", &stack.state.since().map(utc))?;
        let reason = match &stack.state {
            ThreadState::Waiting { reason, .. } => reason.as_deref(),
            _ => None,
        };
        map.serialize_entry("wait_reason", &reason)?;
        map.serialize_entry("evidence", &stack.evidence.as_ref().map(Seen))?;
        part_into(&mut map, ("kernel", "kernel_absent"), &stack.kernel)?;
        if let Some(user) = &stack.user {
            part_into(&mut map, ("user", "user_absent"), user)?;
        }
        map.end()
    }
}

fn part_into<M: SerializeMap>(map: &mut M, keys: (&str, &str), part: &Part) -> Result<(), M::Error> {
    let frames = part.as_ref().ok().map(|frames| frames.iter().map(Frame).collect::<Vec<_>>());
    map.serialize_entry(keys.0, &frames)?;
    map.serialize_entry(keys.1, &part.as_ref().err().map(|absent| absent.name()))
}

/// `certainty`, `kind`, and what there is to say of that kind. `age_ns` is negative for switches after the time.
struct Seen<'s>(&'s Evidence);

impl Serialize for Seen<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("certainty", self.0.certainty().name())?;
        match self.0 {
            Evidence::Captured { took, own, kernel_cut, user_cut, user_later } => {
                map.serialize_entry("kind", "captured")?;
                map.serialize_entry("took_ns", &u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))?;
                map.serialize_entry("own", own)?;
                map.serialize_entry("kernel_cut", kernel_cut)?;
                map.serialize_entry("user_cut", user_cut)?;
                map.serialize_entry("user_later", user_later)?;
            }
            Evidence::Switch(SwitchEvidence { time, age, relation, lost_between }) => {
                map.serialize_entry("kind", "switch")?;
                map.serialize_entry("relation", relation.name())?;
                map.serialize_entry("time", &utc(*time))?;
                map.serialize_entry("age_ns", &age.saturating_mul(100))?;
                let (later, lost) = match *relation {
                    SwitchRelation::Earlier { later, lost } => (later, lost),
                    SwitchRelation::Last | SwitchRelation::Resumed => (0, false),
                };
                map.serialize_entry("later_switches", &later)?;
                map.serialize_entry("later_lost", &lost)?;
                map.serialize_entry("lost_between", lost_between)?;
            }
            Evidence::Proc => map.serialize_entry("kind", "proc")?,
            _ => map.serialize_entry("kind", "other")?,
        }
        map.end()
    }
}

/// As frames of other verbs: `addr`, `mode`, `module`, `rva`, of user frames `backing`; `symbol`, `offset` and `origin` of the
/// name to show, and all names of the module's files side by side.
struct Frame<'s>(&'s StackFrame);

impl Serialize for Frame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frame = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("addr", &frame.address.map(|address| Hex(address.0)))?;
        map.serialize_entry("mode", frame.mode.name())?;
        map.serialize_entry("module", &frame.place.as_ref().map(|place| &*place.module))?;
        map.serialize_entry("rva", &frame.place.as_ref().and_then(|place| place.rva).map(Hex))?;
        if frame.mode == Mode::User {
            map.serialize_entry("backing", frame.backing.name())?;
        }
        let name = frame.name.as_ref().map(|name| (&*name.text, name.offset, name.origin.name()));
        let stated = frame.stated.as_ref().map(|name| (&*name.function, name.offset, StatedName::ORIGIN));
        let shown = name.or(stated);
        if shown.is_some() || frame.names.is_some() {
            map.serialize_entry("symbol", &shown.map(|(symbol, _, _)| symbol))?;
            map.serialize_entry("offset", &shown.map(|(_, offset, _)| offset))?;
            map.serialize_entry("origin", &shown.map(|(_, _, origin)| origin))?;
        }
        if let Some(names) = &frame.names {
            names_into(&mut map, names)?;
        }
        map.end()
    }
}
