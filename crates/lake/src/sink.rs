//! Where a result goes: standard output, or a file that appears when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound_symbols::temporary::Temporary;

/// An open output.
#[derive(Debug)]
pub enum Sink {
    /// Standard output.
    Standard(BufWriter<io::Stdout>),
    /// A pipe or device, which must not be replaced by a file.
    Device(BufWriter<File>),
    /// A new file, and its name when it is complete.
    File(BufWriter<Temporary>, PathBuf),
}

const BUFFER_SIZE: usize = 1 << 18;

impl Sink {
    /// Refuses a name that cannot become a file, before a query runs.
    pub fn check(path: &Path) -> Result<()> {
        if path.is_dir() {
            bail!("--output: expected a file, found the directory `{}`", path.display());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder.filter(|folder| !folder.is_dir()) {
            None => Ok(()),
            Some(folder) => bail!(
                "--output: expected a file in an existing directory, found the missing directory `{}`",
                folder.display()
            ),
        }
    }

    /// Opens the output. Links are followed.
    pub fn open(path: Option<&Path>) -> Result<Sink> {
        let Some(path) = path else {
            return Ok(Sink::Standard(BufWriter::with_capacity(BUFFER_SIZE, io::stdout())));
        };
        if path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let device = File::options().write(true).open(path);
            let device = device.with_context(|| format!("cannot write {}", path.display()))?;
            return Ok(Sink::Device(BufWriter::with_capacity(BUFFER_SIZE, device)));
        }
        let path = path.canonicalize().unwrap_or(path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = Temporary::in_folder(folder);
        let file = file.with_context(|| format!("cannot write in {}", folder.display()))?;
        Ok(Sink::File(BufWriter::with_capacity(BUFFER_SIZE, file), path))
    }

    /// Writes what is buffered, and gives the file its name.
    pub fn finish(self) -> Result<()> {
        match self {
            Sink::Standard(mut out) => out.flush()?,
            Sink::Device(mut out) => out.flush()?,
            Sink::File(out, path) => {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Standard(out) => out.write(bytes),
            Sink::Device(out) => out.write(bytes),
            Sink::File(out, _) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Standard(out) => out.flush(),
            Sink::Device(out) => out.flush(),
            Sink::File(out, _) => out.flush(),
        }
    }
}
