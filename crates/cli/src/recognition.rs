//! What a file is, by its first bytes: call trees, Sysmon's events, or neither.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use stackhound::calltree::{self, journal};
use stackhound_sysmon::{Format, detects};

/// Bytes of a file's first line that are looked at.
const FIRST_LINE_MAX: u64 = 1 << 20;

/// Stands for standard input.
pub const STANDARD_INPUT: &str = "-";

const BUFFER_SIZE: usize = 1 << 18;

/// Whether it can be read only once, as standard input, named pipes and those of shells.
pub fn is_pipe(path: &Path) -> bool {
    let is_special = |path: &Path| path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir());
    path == Path::new(STANDARD_INPUT) || is_special(path)
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of a file, and whether it is packed as `.gz`.
pub fn open(path: &Path) -> io::Result<(Box<dyn BufRead>, bool)> {
    let mut file = BufReader::with_capacity(BUFFER_SIZE, File::open(path)?);
    let is_packed = file.fill_buf()?.starts_with(&GZIP_MAGIC);
    let content: Box<dyn BufRead> = match is_packed {
        true => Box::new(BufReader::with_capacity(BUFFER_SIZE, MultiGzDecoder::new(file))),
        false => Box::new(file),
    };
    Ok((content, is_packed))
}

/// Whether a file begins as Sysmon's do: JSON with a whole object on its first line. What cannot be opened is none: it is told
/// by who opens it.
pub fn is_sysmon(path: &Path) -> bool {
    let Ok(start) = first_line(path) else { return false };
    match detects(&start) {
        Some(Format::Evtx) => true,
        Some(Format::Json) => start.trim_ascii_end().ends_with(b"}") || start.len() as u64 == FIRST_LINE_MAX,
        None => false,
    }
}

/// Up to the first end of a line behind something else.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?.0.take(FIRST_LINE_MAX);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 && line.trim_ascii().is_empty() {}
    Ok(line)
}

/// What is wrong with a file that could be Sysmon's, if its beginning tells.
pub fn what_else(path: &Path) -> Option<&'static str> {
    let start = first_line(path).ok()?;
    Some(match start.trim_ascii_start() {
        [b'{' | b'[', ..] => {
            "JSON is read with one object on each line; `jq -c '.[]?' FILE` writes the objects of a list so"
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "text in UTF-16; JSON is read in UTF-8",
        _ => return None,
    })
}

/// Whether a file holds call trees, as a journal or an index.
pub fn holds_call_trees(path: &Path) -> bool {
    let mut first = [0; 8];
    if !path.is_file() {
        return false;
    }
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && (journal::is_journal(&first) || first == *calltree::Trace::MAGIC)
}
