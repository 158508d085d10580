//! Writes the seeds of every target to a separate folder, as the initial corpus of a fuzzer.
//!
//! usage: write_seeds FOLDER

use std::path::PathBuf;

use stackhound_fuzzing::TARGETS;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder"));
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}
