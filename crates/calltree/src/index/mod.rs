//! The index: the stacks of a trace in one file that is read in place.
//!
//! The stacks are stored one after another. The starts and ends of all frames are one sequence of
//! parentheses. Their contexts are one rising sequence, in which every stack has its own stretch of
//! numbers. A frame therefore has one number in the whole trace, and a stack has a range of frame
//! numbers.

mod layout;
mod tables;

pub(crate) use layout::{Header, Kind, MAGIC, Reader, Writer};
pub(crate) use tables::{LOCATION_WORDS, MODULE_WORDS, STACK_WORDS, STUB_SHIFT, StackRow, Strings, Tables};

use bytes::Bytes;

use crate::Error;
use crate::succinct::{EliasFano, Packed, Parentheses, Wavelet, Words};

/// The header flag of a sampled trace.
pub(crate) const SAMPLED: u32 = 1;
/// The header flag of a trace without the switches of threads.
pub(crate) const NO_SWITCHES: u32 = 2;

/// Maximum number of transitions: the contexts of all processors must have distinct numbers.
pub(crate) const TRANSITIONS_MAX: u64 = 1 << 44;
/// Maximum number of contexts of all stacks together.
pub(crate) const STRETCHES_MAX: u64 = 1 << 62;

/// An index whose sections have been located and have consistent lengths.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) file: Bytes,
    pub(crate) header: Header,
    pub(crate) tables: Tables,
    /// The context of every frame start and end, relative to its stack's stretch.
    pub(crate) bounds: EliasFano,
    pub(crate) frames: Parentheses,
    /// Location number + 1 of every frame, or 0 if unknown.
    pub(crate) locations: Wavelet,
    /// The frames of another class than the usual one, and their classes.
    pub(crate) classed: EliasFano,
    pub(crate) classes: Packed,
    /// The frames with inferred bounds, and the slack of these.
    pub(crate) inferred: EliasFano,
    pub(crate) start_slack: Packed,
    pub(crate) end_slack: Packed,
    /// The frames of the tail calls, their first contexts and the numbers of their locations.
    pub(crate) tail_calls: EliasFano,
    pub(crate) tail_contexts: Packed,
    pub(crate) tail_locations: Wavelet,
    /// First contexts of the periods of activity. Every processor has a stretch of `transitions +
    /// 2` numbers.
    pub(crate) periods: EliasFano,
    /// Stack number + 1 of every period, or 0 if unknown.
    pub(crate) period_stacks: Packed,
    /// Numbers of periods, by stack.
    pub(crate) periods_by_stack: Packed,
    pub(crate) inferred_periods: EliasFano,
    pub(crate) period_slack: Packed,
    /// For every transition, if known: time since the origin, processor, label + 1.
    pub(crate) times: Option<EliasFano>,
    pub(crate) cpus: Option<Packed>,
    pub(crate) labels: Option<Packed>,
}

impl Index {
    /// Reads the whole file once, to verify its checksums. Builds nothing.
    pub(crate) fn new(file: Bytes) -> Result<Self, Error> {
        let reader = Reader::new(&file)?;
        let header = reader.header;
        let frames = reader.section(Kind::Parentheses);
        let at = frames.offset;
        let frames = Parentheses::new(frames.bytes)
            .ok_or(Error::IndexDamaged { offset: at, expected: "parentheses of the stated lengths" })?;
        let wavelet = |kind| {
            let section = reader.section(kind);
            Wavelet::new(section.bytes, section.count, section.width).ok_or(Error::IndexDamaged {
                offset: section.offset,
                expected: "levels of the stated lengths",
            })
        };
        let locations = wavelet(Kind::FrameLocations)?;
        let rising = |kind| {
            let section = reader.section(kind);
            EliasFano::new(section.bytes, section.count, section.greatest).ok_or(Error::IndexDamaged {
                offset: section.offset,
                expected: "the stated number of rising values",
            })
        };
        let packed = |kind, count: Option<u64>| {
            let section = reader.section(kind);
            let fits = count.is_none_or(|count| count == section.count)
                && section.width <= 64
                && Packed::words_for(section.count, section.width) == Some(section.bytes.len() as u64 / 8);
            match fits {
                true => Ok(Packed::new(Words::new(section.bytes), section.width)),
                false => Err(Error::IndexDamaged {
                    offset: section.offset,
                    expected: "the stated number of values",
                }),
            }
        };
        let given = |kind| reader.section(kind).count > 0 || header.transitions == 0;
        let bounds = rising(Kind::Bounds)?;
        if bounds.len() != frames.len() {
            let offset = reader.section(Kind::Bounds).offset;
            return Err(Error::IndexDamaged { offset, expected: "a context for every frame start and end" });
        }
        let tables = Tables::new(&reader)?;
        check_rows(&reader, &tables, bounds.len())?;
        let (classed, inferred) = (rising(Kind::Classed)?, rising(Kind::Inferred)?);
        let tail_calls = rising(Kind::TailCalls)?;
        let tail_locations = reader.section(Kind::TailLocations);
        if tail_locations.count != tail_calls.len() {
            let offset = tail_locations.offset;
            return Err(Error::IndexDamaged { offset, expected: "a location for every tail call" });
        }
        let (periods, inferred_periods) = (rising(Kind::PeriodStarts)?, rising(Kind::InferredPeriods)?);
        Ok(Self {
            tables,
            classes: packed(Kind::Classes, Some(classed.len()))?,
            start_slack: packed(Kind::StartSlack, Some(inferred.len()))?,
            end_slack: packed(Kind::EndSlack, Some(inferred.len()))?,
            tail_contexts: packed(Kind::TailContexts, Some(tail_calls.len()))?,
            tail_locations: wavelet(Kind::TailLocations)?,
            period_stacks: packed(Kind::PeriodStacks, Some(periods.len()))?,
            periods_by_stack: packed(Kind::PeriodsByStack, None)?,
            period_slack: packed(Kind::PeriodSlack, Some(inferred_periods.len()))?,
            times: if given(Kind::Times) { Some(rising(Kind::Times)?) } else { None },
            cpus: if given(Kind::Cpus) { Some(packed(Kind::Cpus, Some(header.transitions))?) } else { None },
            labels: if given(Kind::Labels) {
                Some(packed(Kind::Labels, Some(header.transitions))?)
            } else {
                None
            },
            file,
            header,
            bounds,
            frames,
            locations,
            classed,
            inferred,
            tail_calls,
            periods,
            inferred_periods,
        })
    }
}

/// Checks that the stacks, their contexts and their periods are stored one after another.
fn check_rows(reader: &Reader, tables: &Tables, bounds: u64) -> Result<(), Error> {
    let offset = reader.section(Kind::Stacks).offset;
    let stretches = reader.section(Kind::Bounds).greatest;
    let periods = reader.section(Kind::PeriodsByStack).count;
    if reader.header.transitions > TRANSITIONS_MAX || stretches > STRETCHES_MAX {
        return Err(Error::IndexDamaged { offset: 16, expected: "fewer transitions" });
    }
    let mut before = StackRow::default();
    for number in 0..tables.stack_count {
        let row = tables.stack_row(number);
        let in_order = before.bounds <= row.bounds
            && before.stretch <= row.stretch
            && before.periods.1 <= row.periods.0
            && row.periods.0 <= row.periods.1;
        let inside = row.bounds <= bounds
            && row.stretch <= stretches
            && row.periods.1 <= periods
            && row.first <= reader.header.transitions + 1;
        if !in_order || !inside {
            return Err(Error::IndexDamaged { offset, expected: "stacks in order, within their sections" });
        }
        before = row;
    }
    Ok(())
}
