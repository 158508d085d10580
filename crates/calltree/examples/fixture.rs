//! Writes the index of the documented example trace to the specified file, for tests in other
//! languages.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .ok_or_else(|| std::io::Error::other("expected the output file as argument"))?;
    std::fs::write(path, fixtures::trace().as_bytes())
}
