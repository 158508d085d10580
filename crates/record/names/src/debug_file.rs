//! Separate debug files: the symbols that were stripped from a program or library.
//!
//! A file names its debug file by its build id, by a link with a checksum, or both. A debug file
//! that does not belong to the file is not used: a wrong name is worse than none. Compressed symbols
//! in the file itself (`.gnu_debugdata`) are not read. Nothing is downloaded.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ReadCache, ReadRef};

/// The folder of the debug files of installed programs.
pub(crate) const GLOBAL: &str = "/usr/lib/debug";

/// Opens the debug file of a 64-bit ELF file with this path and content. `global` is the folder for
/// all programs.
///
/// The checksum of a link is computed only if one of the files has no build id: it needs all bytes
/// of the debug file.
pub(crate) fn open<'data>(path: &Path, data: impl ReadRef<'data>, global: &Path) -> Option<File> {
    let file = ElfFile64::<Endianness, _>::parse(data).ok()?;
    let id = file.build_id().ok().flatten().filter(|id| id.len() > 1);
    if let Some((first, rest)) = id.and_then(|id| id.split_first()) {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let by_id = global.join(format!(".build-id/{first:02x}/{rest}.debug"));
        if let Some(found) = File::open(by_id).ok().filter(|found| build_id(found).as_deref() == id) {
            return Some(found);
        }
    }
    let (name, checksum) = file.gnu_debuglink().ok().flatten()?;
    let candidates = linked(path, OsStr::from_bytes(name), global)?;
    candidates.iter().find_map(|candidate| {
        // Opening another kind of file, such as a pipe, may block.
        let found = File::open(candidate.is_file().then_some(candidate)?).ok()?;
        // A file can link to itself.
        if is_same(&found, path) {
            return None;
        }
        let fits = match (id, build_id(&found)) {
            (Some(id), Some(found)) => id == found,
            _ => crc32(candidate).ok()? == checksum,
        };
        fits.then_some(found)
    })
}

/// The paths that a link can refer to, in the order in which debuggers try them.
fn linked(path: &Path, name: &OsStr, global: &Path) -> Option<[PathBuf; 3]> {
    // The name is from the file: it must not lead to other folders.
    if Path::new(name).file_name() != Some(name) {
        return None;
    }
    let folder = path.parent()?;
    let below_global = global.join(folder.strip_prefix("/").unwrap_or(folder));
    Some([folder.join(name), folder.join(".debug").join(name), below_global.join(name)])
}

/// Whether an opened file is the one at a path.
fn is_same(found: &File, path: &Path) -> bool {
    let key = |metadata: Metadata| (metadata.dev(), metadata.ino());
    found.metadata().ok().map(key) == path.metadata().ok().map(key)
}

fn build_id(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    Some(file.build_id().ok().flatten()?.to_vec())
}

fn crc32(path: &Path) -> io::Result<u32> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match reader.read(&mut bytes)? {
            0 => return Ok(hasher.finalize()),
            length => hasher.update(&bytes[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use stackhound_record_elf::Image;

    /// Runs a tool in a folder. `None`, with a printed reason, if it is not installed; fails in CI.
    fn run(folder: &Path, tool: &str, arguments: &[&str]) -> Option<String> {
        match Command::new(tool).args(arguments).current_dir(folder).output() {
            Ok(output) => {
                assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
                Some(String::from_utf8(output.stdout).expect("text"))
            }
            Err(error) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{tool}: {error}");
                eprintln!("skipped: {tool}: {error}");
                None
            }
        }
    }

    /// Builds `program` with its debug file `program.debug`. Returns the address of its function
    /// `hidden`, as `nm` prints it.
    fn build(folder: &Path, number: u32, build_id: &str) -> Option<u64> {
        let source = format!(
            "__attribute__((noinline)) static int hidden(int n) {{ return n * {number}; }}\n\
             int main(int count, char **arguments) {{ return hidden(count) + !arguments; }}\n"
        );
        fs::write(folder.join("program.c"), source).unwrap();
        let build_id = format!("-Wl,--build-id={build_id}");
        run(folder, "cc", &["-O1", &build_id, "-o", "program", "program.c"])?;
        let symbols = run(folder, "nm", &["program"])?;
        let line = symbols.lines().find(|line| line.ends_with(" hidden")).expect("the function");
        run(folder, "objcopy", &["--only-keep-debug", "program", "program.debug"])?;
        run(folder, "objcopy", &["--strip-all", "--add-gnu-debuglink=program.debug", "program"])?;
        Some(u64::from_str_radix(line.split(' ').next()?, 16).expect("an address"))
    }

    /// The name of the function at an address, with the debug files that are found.
    fn name(folder: &Path, address: u64) -> Option<String> {
        let program = folder.join("program");
        let data = ReadCache::new(File::open(&program).unwrap());
        let debug = open(&program, &data, &folder.join("global")).map(ReadCache::new);
        let image = Image::read(&data, debug.as_ref());
        image.function_at(address).map(|(name, _)| name.to_owned())
    }

    #[test]
    fn debug_files_are_found_where_debuggers_find_them() {
        let id = "0xabcdef0123456789";
        let by_id = "global/.build-id/ab/cdef0123456789.debug";
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().canonicalize().unwrap();
        let below_global = format!("global{}/program.debug", folder.display());
        for (build_id, path, is_found) in [
            (id, by_id, true),
            (id, "program.debug", true),
            (id, ".debug/program.debug", true),
            (id, &below_global, true),
            (id, "other/program.debug", false),
            ("none", "program.debug", true),
            ("none", ".debug/program.debug", true),
            ("none", by_id, false),
        ] {
            let Some(address) = build(folder, 3, build_id) else { return };
            let kept = folder.join("kept");
            fs::rename(folder.join("program.debug"), &kept).unwrap();
            assert_eq!(name(folder, address), None, "{build_id}: stripped");
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::rename(&kept, &path).unwrap();
            let expected = is_found.then(|| "hidden".to_owned());
            assert_eq!(name(folder, address), expected, "{build_id}: {}", path.display());
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn debug_files_of_other_programs_are_not_used() {
        for (of_program, of_debug_file) in [("0xabcd", "0xabce"), ("none", "none"), ("0xabcd", "none")] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let Some(_) = build(folder, 5, of_debug_file) else { return };
            let other = folder.join("other");
            fs::rename(folder.join("program.debug"), &other).unwrap();
            let Some(address) = build(folder, 30_000, of_program) else { return };
            assert_eq!(name(folder, address).as_deref(), Some("hidden"));
            fs::rename(&other, folder.join("program.debug")).unwrap();
            assert_eq!(name(folder, address), None, "{of_program}, {of_debug_file}");
        }
    }

    #[test]
    fn links_do_not_lead_to_other_folders() {
        let linked = |name: &str| linked(Path::new("/bin/a"), OsStr::new(name), Path::new("/d"));
        let expected = ["/bin/a.debug", "/bin/.debug/a.debug", "/d/bin/a.debug"].map(PathBuf::from);
        assert_eq!(linked("a.debug"), Some(expected));
        for name in ["../a.debug", "/etc/a", "x/a", "..", ".", ""] {
            assert_eq!(linked(name), None, "{name}");
        }
    }
}
