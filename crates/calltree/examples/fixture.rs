//! Writes the index of the trace of the documented examples to the file named, for tests in other languages.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("name the file to write"))?;
    std::fs::write(path, fixtures::trace().as_bytes())
}
