//! Files as blocks of records, which are read and parsed in parallel and consumed in order. The
//! results do not depend on the number of threads.

use std::io::{self, BufRead, Read, Seek};
use std::ops::{ControlFlow, Range};

use evtx::{EvtxParser, ParserSettings};
use rayon::ThreadPool;

use crate::json::{Fields, Reader};

/// The limit of the length of a line, in bytes.
pub(crate) const LINE_MAX: u64 = 4 << 20;
/// The size of a block, in bytes. A line can make it longer.
const BLOCK: usize = 1 << 18;
/// Blocks per thread that are in memory at once, parsed or not.
const BLOCKS_PER_THREAD: usize = 3;

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A part of a file with whole records.
pub(crate) struct Block {
    text: Vec<u8>,
    records: Records,
}

enum Records {
    /// One record on each line. The last line can be only the start of one that is too long.
    Lines { is_first: bool },
    /// Records of an event log, or the errors about them.
    Listed(Vec<Result<Range<usize>, String>>),
}

/// A parsed block.
pub(crate) struct ParsedBlock {
    /// The texts of all fields.
    pub texts: String,
    pub records: Vec<ParsedRecord>,
    /// Number of lines, with those that are empty.
    pub lines: u64,
}

/// A parsed record.
pub(crate) struct ParsedRecord {
    /// Number of the line or record in the block, from 1.
    pub number: u64,
    /// The fields, or the reason why the record cannot be read.
    pub fields: Result<Fields, String>,
}

impl Block {
    /// Parses all records. For the first pass, without stacks.
    pub(crate) fn parse(self, with_stacks: bool) -> ParsedBlock {
        let mut reader = Reader::new(with_stacks);
        reader.texts.reserve(self.text.len());
        let mut records = Vec::new();
        let mut lines = 0;
        let _ = self.for_each(&mut lines, |number, json| {
            let read = |json: &[u8]| {
                reader.read(json).map_err(|error| match with_stacks {
                    true => format!("expected one JSON object per line: {error}"),
                    // Nothing reports it: the second pass reads the record again.
                    false => String::new(),
                })
            };
            records.push(ParsedRecord { number, fields: json.and_then(read) });
            ControlFlow::Continue(())
        });
        ParsedBlock { texts: reader.texts, records, lines }
    }

    /// Calls `on` with each line or record, or with the reason why it cannot be read, until it
    /// breaks. `number` is incremented for each one, and for empty lines.
    fn for_each(
        self,
        number: &mut u64,
        mut on: impl FnMut(u64, Result<&[u8], String>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.records {
            Records::Lines { is_first } => {
                let mut rest = &self.text[..];
                while !rest.is_empty() {
                    let end = memchr::memchr(b'\n', rest);
                    let line = &rest[..end.unwrap_or(rest.len())];
                    rest = end.map_or(&[], |end| &rest[end + 1..]);
                    *number += 1;
                    let mut text = line.trim_ascii();
                    if is_first && *number == 1 {
                        text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
                    }
                    if text.is_empty() {
                        continue;
                    }
                    let is_whole = line.len() as u64 <= LINE_MAX;
                    let error = || format!("expected a line of at most {LINE_MAX} bytes, found a longer one");
                    on(*number, if is_whole { Ok(text) } else { Err(error()) })?;
                }
                ControlFlow::Continue(())
            }
            Records::Listed(listed) => listed.into_iter().try_for_each(|record| {
                *number += 1;
                on(*number, record.map(|range| &self.text[range]))
            }),
        }
    }
}

/// Reads lines. A pipe yields a block as soon as it has a line.
pub(crate) fn lines(mut input: impl BufRead) -> impl FnMut() -> io::Result<Option<Block>> {
    let mut is_first = true;
    move || {
        let mut text = Vec::with_capacity(BLOCK);
        loop {
            let part = input.fill_buf()?;
            let (is_end, end) = (part.is_empty(), memchr::memrchr(b'\n', part));
            let size = end.map_or(part.len(), |end| end + 1);
            text.extend_from_slice(&part[..size]);
            input.consume(size);
            // What follows the last line of a part belongs to the next block.
            if is_end || end.is_some() {
                break;
            }
            if text.len() as u64 > LINE_MAX {
                skip_line(&mut input)?;
                break;
            }
        }
        let block = Block { text, records: Records::Lines { is_first } };
        is_first = false;
        Ok((!block.text.is_empty()).then_some(block))
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let part = input.fill_buf()?;
        let end = memchr::memchr(b'\n', part);
        let (is_end, size) = (part.is_empty(), end.map_or(part.len(), |end| end + 1));
        input.consume(size);
        if is_end || end.is_some() {
            return Ok(());
        }
    }
}

/// Reads the records of an event log as JSON, with further threads if it is large.
///
/// # Errors
/// If the header of the log is invalid.
pub(crate) fn records(
    input: impl Read + Seek,
    threads: usize,
) -> Result<EvtxParser<impl Read + Seek>, evtx::err::EvtxError> {
    let settings = ParserSettings::default().num_threads(threads);
    Ok(EvtxParser::from_read_seek(input)?.with_configuration(settings))
}

/// Collects records of an event log into blocks.
pub(crate) fn listed<R: Read + Seek>(
    parser: &mut EvtxParser<R>,
) -> impl FnMut() -> io::Result<Option<Block>> {
    let mut records = parser.records_json_bytes();
    move || {
        let (mut text, mut listed) = (Vec::new(), Vec::new());
        while text.len() < BLOCK
            && let Some(record) = records.next()
        {
            listed.push(match record {
                Ok(record) => {
                    let start = text.len();
                    text.extend_from_slice(&record.data);
                    Ok(start..text.len())
                }
                Err(error) => Err(crate::hunt::one_line(&error)),
            });
        }
        Ok((!listed.is_empty()).then_some(Block { text, records: Records::Listed(listed) }))
    }
}

/// Calls `on` with the bytes and the number of each line or record, until it breaks. Those that
/// cannot be read are skipped.
pub(crate) fn for_each_json(
    mut source: impl FnMut() -> io::Result<Option<Block>>,
    mut on: impl FnMut(&[u8], u64) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut number = 0;
    while let Some(block) = source()? {
        let read = |number, json: Result<&[u8], String>| {
            json.map_or(ControlFlow::Continue(()), |json| on(json, number))
        };
        if block.for_each(&mut number, read).is_break() {
            break;
        }
    }
    Ok(())
}

/// Parses all blocks and consumes them in order, until `consume` breaks. With a pool, the next
/// blocks are read and parsed meanwhile.
pub(crate) fn for_each(
    pool: Option<&ThreadPool>,
    with_stacks: bool,
    mut source: impl FnMut() -> io::Result<Option<Block>>,
    mut consume: impl FnMut(ParsedBlock) -> ControlFlow<()>,
) -> io::Result<()> {
    let Some(pool) = pool else {
        while let Some(block) = source()? {
            if consume(block.parse(with_stacks)).is_break() {
                break;
            }
        }
        return Ok(());
    };
    let blocks = BLOCKS_PER_THREAD * pool.current_num_threads();
    let mut read = || -> io::Result<Vec<Block>> {
        let mut read = Vec::new();
        while read.len() < blocks
            && let Some(block) = source()?
        {
            read.push(block);
        }
        Ok(read)
    };
    let mut unparsed = read()?;
    let mut parsed: Vec<Option<ParsedBlock>> = Vec::new();
    while !unparsed.is_empty() || !parsed.is_empty() {
        let mut next: Vec<Option<ParsedBlock>> = unparsed.iter().map(|_| None).collect();
        let (flow, following) = pool.in_place_scope(|scope| {
            for (parsed, block) in next.iter_mut().zip(unparsed.drain(..)) {
                scope.spawn(move |_| *parsed = Some(block.parse(with_stacks)));
            }
            let flow = parsed.drain(..).flatten().try_for_each(&mut consume);
            (flow, if flow.is_break() { Ok(Vec::new()) } else { read() })
        });
        if flow.is_break() {
            return Ok(());
        }
        (parsed, unparsed) = (next, following?);
    }
    Ok(())
}
