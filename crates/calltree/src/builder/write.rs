//! Writes a finished trace as an index.

use super::log::Log;
use super::varints::Varints;
use super::{Builder, Period};
use crate::Error;
use crate::class::Class;
use crate::id::{ContextId, LocationId};
use crate::index::{
    Header, Kind, NO_SWITCHES, SAMPLED, STRETCHES_MAX, StackRow, Strings, TRANSITIONS_MAX, Tables, Writer,
};
use crate::index::{LOCATION_WORDS, MODULE_WORDS, STACK_WORDS, STUB_SHIFT};
use crate::succinct::{BitBuilder, EliasFano, Packed, Parentheses, Wavelet, to_bytes, width_of};

impl Builder {
    /// Returns the bytes of the index.
    pub(super) fn write(mut self, transitions: u64) -> Result<Vec<u8>, Error> {
        self.check(transitions)?;
        self.split_periods();
        let mut writer = Writer::default();
        let mut strings = Strings::default();
        let (stacks, mut logs): (Vec<_>, Vec<_>) = std::mem::take(&mut self.stacks).into_iter().unzip();
        logs.iter_mut().for_each(Log::finish);
        let by_stack = self.write_periods(&mut writer, stacks.len(), transitions);
        let rows = write_frames(&mut writer, logs, &by_stack, transitions)?;
        write_tables(&mut writer, &mut strings, &self);
        let words: Vec<u64> = stacks
            .iter()
            .zip(&rows)
            .flat_map(|(info, row)| Tables::stack_words(info, *row, &mut strings))
            .collect();
        writer.add(Kind::Stacks, 64, words.len() as u64 / STACK_WORDS, 0, to_bytes(&words));
        self.write_transitions(&mut writer, &mut strings);
        let (bytes, starts) = strings.finish();
        writer.add(Kind::Strings, 8, bytes.len() as u64, 0, bytes);
        packed(&mut writer, Kind::StringStarts, &starts);
        Ok(writer.finish(Header {
            transitions,
            origin: self.transitions.origin,
            source: self.source,
            cpus: self.cpus.len() as u32,
            flags: if self.sampled { SAMPLED } else { 0 } | if self.no_switches { NO_SWITCHES } else { 0 },
        }))
    }

    fn check(&self, transitions: u64) -> Result<(), Error> {
        if transitions > TRANSITIONS_MAX {
            return Err(Error::TooMany { items: "transitions", limit: TRANSITIONS_MAX });
        }
        let described = self.transitions.times.len();
        if described != 0 && described != transitions {
            return Err(Error::TransitionOutside {
                requested: crate::TransitionId(described.max(transitions) - 1),
                count: described.min(transitions),
            });
        }
        let frames = self.stacks.iter().map(|(_, log)| log.last_context());
        let periods = self.cpus.iter().flatten().map(|period| match period.stack {
            Some(_) => period.first,
            // The stack was active until the previous context.
            None => period.first.saturating_sub(1),
        });
        match frames.chain(periods).max() {
            Some(last) if last > transitions => {
                Err(Error::ContextOutside { requested: ContextId(last), last: ContextId(transitions) })
            }
            _ => Ok(()),
        }
    }

    /// Ends the period of a stack on one processor when it becomes active on another.
    fn split_periods(&mut self) {
        let mut order = Vec::new();
        for (cpu, periods) in self.cpus.iter().enumerate() {
            for (number, period) in periods.iter().enumerate() {
                let end = periods.get(number + 1).map_or(u64::MAX, |next| next.first);
                order.extend(period.stack.map(|stack| (stack, period.first, cpu, number, end)));
            }
        }
        order.sort_unstable();
        let mut cuts = Vec::new();
        for pair in order.windows(2) {
            let ((stack, _, cpu, number, end), (next_stack, first, ..)) = (pair[0], pair[1]);
            if stack == next_stack && end > first {
                cuts.push((cpu, number, first));
            }
        }
        // In reverse, so that the remaining positions stay valid.
        cuts.sort_unstable();
        for (cpu, number, first) in cuts.into_iter().rev() {
            let none = Period { first, earlier: 0, stack: None };
            if self.cpus[cpu][number].first == first {
                self.cpus[cpu][number] = none;
            } else {
                self.cpus[cpu].insert(number + 1, none);
            }
        }
    }

    /// Returns the ranges of periods by stack.
    fn write_periods(&self, writer: &mut Writer, stacks: usize, transitions: u64) -> Vec<(u64, u64)> {
        let stretch = transitions + 2;
        let all = || {
            let cpus = self.cpus.iter().enumerate();
            cpus.flat_map(move |(cpu, periods)| {
                periods.iter().map(move |period| (cpu as u64 * stretch, period))
            })
        };
        let starts: Vec<u64> = all().map(|(base, period)| base + period.first).collect();
        rising(writer, Kind::PeriodStarts, &starts, self.cpus.len() as u64 * stretch);
        let active: Vec<u64> =
            all().map(|(_, period)| period.stack.map_or(0, |stack| u64::from(stack.0) + 1)).collect();
        packed(writer, Kind::PeriodStacks, &active);
        let slack: Vec<(u64, u64)> = all()
            .enumerate()
            .filter(|(_, (_, period))| period.earlier > 0)
            .map(|(number, (_, period))| (number as u64, period.earlier))
            .collect();
        let numbers: Vec<u64> = slack.iter().map(|(number, _)| *number).collect();
        rising(writer, Kind::InferredPeriods, &numbers, active.len() as u64);
        packed(writer, Kind::PeriodSlack, &slack.iter().map(|(_, earlier)| *earlier).collect::<Vec<_>>());

        // The periods of each stack, in time order, on all processors.
        let mut order: Vec<(u64, u64, u64)> = all()
            .zip(&active)
            .enumerate()
            .filter(|(_, (_, stack))| **stack > 0)
            .map(|(number, ((_, period), stack))| (stack - 1, period.first, number as u64))
            .collect();
        order.sort_unstable();
        packed(writer, Kind::PeriodsByStack, &order.iter().map(|(_, _, number)| *number).collect::<Vec<_>>());
        let mut ranges = Vec::with_capacity(stacks);
        let mut from = 0;
        for stack in 0..stacks as u64 {
            let to = from + order[from..].partition_point(|(of, _, _)| *of == stack);
            ranges.push((from as u64, to as u64));
            from = to;
        }
        ranges
    }

    fn write_transitions(&self, writer: &mut Writer, strings: &mut Strings) {
        let transitions = &self.transitions;
        if transitions.times.len() == 0 {
            return;
        }
        let times = transitions.times.iter().scan(0, |time, since| {
            *time += since;
            Some(*time)
        });
        let (count, last) = (transitions.times.len(), transitions.last);
        writer.add(Kind::Times, 0, count, last, EliasFano::build(times, count, last));
        listed(writer, Kind::Cpus, &transitions.cpus);
        listed(writer, Kind::Labels, &transitions.labels);
        let names: Vec<u64> = transitions.names.iter().map(|name| strings.number(name)).collect();
        writer.add(Kind::LabelNames, 64, names.len() as u64, 0, to_bytes(&names));
    }
}

/// Writes the frames of all stacks, one stack after another. Returns the rows of the stacks.
fn write_frames(
    writer: &mut Writer,
    logs: Vec<Log>,
    periods: &[(u64, u64)],
    transitions: u64,
) -> Result<Vec<StackRow>, Error> {
    let mut rows = Vec::with_capacity(logs.len());
    let mut parentheses = BitBuilder::default();
    let (mut bounds, mut stretch) = (0, 0);
    for (log, periods) in logs.iter().zip(periods) {
        rows.push(StackRow { first: log.first(), stretch, bounds, periods: *periods });
        bounds += log.bound_count();
        let contexts = (transitions + 1).saturating_sub(log.first()) + 1;
        stretch = u64::checked_add(stretch, contexts)
            .filter(|stretch| *stretch < STRETCHES_MAX)
            .ok_or(Error::TooMany { items: "contexts of all stacks together", limit: 1 << 62 })?;
        log.append_parentheses(&mut parentheses);
    }
    writer.add(Kind::Parentheses, 1, parentheses.len(), 0, Parentheses::build(&parentheses));
    drop(parentheses);
    let keys = logs.iter().zip(&rows).flat_map(|(log, row)| {
        log.bounds(transitions).map(|boundary| row.stretch + boundary.saturating_sub(row.first))
    });
    writer.add(Kind::Bounds, 0, bounds, stretch, EliasFano::build(keys, bounds, stretch));
    write_marks(writer, &logs, transitions);
    write_tail_calls(writer, &logs);
    let mut locations = Vec::with_capacity(bounds as usize / 2);
    for log in logs {
        locations.extend(log.locations());
    }
    let width = width_of(locations.iter().copied().max().unwrap_or(0).into());
    writer.add(Kind::FrameLocations, width, bounds / 2, 0, Wavelet::build(locations, width));
    Ok(rows)
}

/// Writes the classes of the frames that have another one than the usual, and the inferred bounds.
fn write_marks(writer: &mut Writer, logs: &[Log], transitions: u64) {
    let frames = logs.iter().map(Log::bound_count).sum::<u64>() / 2;
    let (mut classed, mut inferred) = (BitBuilder::zeros(frames), BitBuilder::zeros(frames));
    let [mut classes, mut start_slack, mut end_slack] = <[Varints; 3]>::default();
    let mut before = 0;
    for log in logs {
        for marked in log.marked(transitions) {
            if marked.class != Class::USUAL {
                classed.set(before + marked.frame);
                classes.push(marked.class.number());
            }
            if marked.slack != (0, 0) {
                inferred.set(before + marked.frame);
                start_slack.push(marked.slack.0);
                end_slack.push(marked.slack.1);
            }
        }
        before += log.bound_count() / 2;
    }
    let (classed, inferred) = (
        EliasFano::build(classed.ones(), classes.len(), frames),
        EliasFano::build(inferred.ones(), start_slack.len(), frames),
    );
    writer.add(Kind::Classed, 0, classes.len(), frames, classed);
    let words = to_bytes(&Packed::build(classes.iter(), Class::WIDTH));
    writer.add(Kind::Classes, Class::WIDTH, classes.len(), 0, words);
    writer.add(Kind::Inferred, 0, start_slack.len(), frames, inferred);
    listed(writer, Kind::StartSlack, &start_slack);
    listed(writer, Kind::EndSlack, &end_slack);
}

/// Writes the tail calls of all frames, by frame.
fn write_tail_calls(writer: &mut Writer, logs: &[Log]) {
    let mut all: Vec<(u64, u64, u32)> = Vec::new();
    let mut before = 0;
    for log in logs {
        all.extend(log.tail_calls().map(|(frame, first, location)| (before + frame, first, location)));
        before += log.bound_count() / 2;
    }
    // Those of one frame stay in order.
    all.sort_by_key(|(frame, ..)| *frame);
    let frames: Vec<u64> = all.iter().map(|(frame, ..)| *frame).collect();
    rising(writer, Kind::TailCalls, &frames, before);
    packed(writer, Kind::TailContexts, &all.iter().map(|(_, first, _)| *first).collect::<Vec<_>>());
    let locations: Vec<u32> = all.iter().map(|(.., location)| *location).collect();
    let width = width_of(locations.iter().copied().max().unwrap_or(0).into());
    writer.add(Kind::TailLocations, width, locations.len() as u64, 0, Wavelet::build(locations, width));
}

fn write_tables(
    writer: &mut Writer,
    strings: &mut Strings,
    Builder { modules, locations, entered_through, .. }: &Builder,
) {
    let mut words = Vec::with_capacity(modules.len() * MODULE_WORDS as usize);
    for module in modules {
        let path = module.path.as_ref().map_or(0, |path| strings.number(path) + 1);
        let base = module.base.map_or(0, |base| base.0);
        words.extend([strings.number(&module.name), path, u64::from(module.base.is_some()), base]);
    }
    writer.add(Kind::Modules, 64, modules.len() as u64, 0, to_bytes(&words));
    let mut words = Vec::with_capacity(locations.len() * LOCATION_WORDS as usize);
    for (location, number) in locations.iter().zip(0..) {
        let known = [
            location.address.is_some(),
            location.module.is_some(),
            location.rva.is_some(),
            location.symbol.is_some(),
        ];
        let known = known.iter().enumerate().fold(0, |flags, (bit, known)| flags | u64::from(*known) << bit);
        let stub = entered_through.get(&LocationId(number)).map_or(0, |stub| u64::from(stub.0) + 1);
        words.push(known | stub << STUB_SHIFT);
        words.push(location.address.map_or(0, |address| address.0));
        words.push(location.module.map_or(0, |module| u64::from(module.0)));
        words.push(location.rva.unwrap_or(0));
        words.push(location.symbol.as_ref().map_or(0, |symbol| strings.number(symbol)));
        words.push(location.symbol_offset);
    }
    writer.add(Kind::Locations, 64, locations.len() as u64, 0, to_bytes(&words));
}

fn rising(writer: &mut Writer, kind: Kind, numbers: &[u64], greatest: u64) {
    let count = numbers.len() as u64;
    writer.add(kind, 0, count, greatest, EliasFano::build(numbers.iter().copied(), count, greatest));
}

fn packed(writer: &mut Writer, kind: Kind, numbers: &[u64]) {
    let width = width_of(numbers.iter().copied().max().unwrap_or(0));
    let words = Packed::build(numbers.iter().copied(), width);
    writer.add(kind, width, numbers.len() as u64, 0, to_bytes(&words));
}

fn listed(writer: &mut Writer, kind: Kind, numbers: &Varints) {
    let width = width_of(numbers.greatest());
    writer.add(kind, width, numbers.len(), 0, to_bytes(&Packed::build(numbers.iter(), width)));
}
