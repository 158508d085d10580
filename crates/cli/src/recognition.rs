//! Recognizes the format of a file by its first bytes: traces of calls and Sysmon events.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use stackhound::calltree::{self, journal};
use stackhound_sysmon::{Format, detect_format};

/// The limit of bytes of the first line that are examined.
const FIRST_LINE_MAX: u64 = 1 << 20;

/// The file name that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

const BUFFER_SIZE: usize = 1 << 18;

/// Whether a file can be read only once: standard input and pipes.
pub fn is_pipe(path: &Path) -> bool {
    let is_special = |path: &Path| path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
    path == Path::new(STANDARD_INPUT) || is_special(path)
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of a file, and whether it is compressed as `.gz`.
pub fn open(path: &Path) -> io::Result<(Box<dyn BufRead>, bool)> {
    let mut file = BufReader::with_capacity(BUFFER_SIZE, File::open(path)?);
    let is_packed = file.fill_buf()?.starts_with(&GZIP_MAGIC);
    let content: Box<dyn BufRead> = match is_packed {
        true => Box::new(BufReader::with_capacity(BUFFER_SIZE, MultiGzDecoder::new(file))),
        false => Box::new(file),
    };
    Ok((content, is_packed))
}

/// Whether a file begins like an event log, or like JSON with a whole object on its first line.
/// False if it cannot be opened: the caller that opens it reports the error.
pub fn is_sysmon(path: &Path) -> bool {
    let Ok(start) = first_line(path) else { return false };
    match detect_format(&start) {
        Some(Format::Evtx) => true,
        Some(Format::Json) => start.trim_ascii_end().ends_with(b"}") || start.len() as u64 == FIRST_LINE_MAX,
        None => false,
    }
}

/// The first line that is not empty, with the empty lines before it.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?.0.take(FIRST_LINE_MAX);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 && line.trim_ascii().is_empty() {}
    Ok(line)
}

/// The reason why a file that looks like JSON or text is not read as Sysmon events.
pub fn unreadable_reason(path: &Path) -> Option<&'static str> {
    let start = first_line(path).ok()?;
    Some(match start.trim_ascii_start() {
        [b'{' | b'[', ..] => {
            "expected JSON with one object per line; `jq -c '.[]?' FILE` converts a list to this form"
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            "expected JSON in UTF-8, found text in UTF-16; convert the file to UTF-8"
        }
        _ => return None,
    })
}

/// Whether a file is a trace of calls: a journal or an index.
pub fn holds_call_trees(path: &Path) -> bool {
    let mut first = [0; 8];
    if !path.is_file() {
        return false;
    }
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && (journal::is_journal(&first) || first == *calltree::Trace::MAGIC)
}
