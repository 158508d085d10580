//! Tests with files: their names, and missing or damaged files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stackhound_types::{AddressKind, Guid, ImageIdentity, ModuleIdentity, PdbIdentity, Rva};
use tempfile::TempDir;

use crate::ResolvedFrame;
use crate::failure::{Cause, FileKind};
use crate::fixtures::server::{Answer, Server};
use crate::fixtures::{Fixture, IMAGE_SIZE};
use crate::path::SymbolPath;
use crate::store::StoreOptions;
use crate::symbolizer::{Symbolizer, SymbolizerOptions};

fn identity(fixture: &Fixture) -> ModuleIdentity {
    let pdb = fixture.pdb_name.map(|name| PdbIdentity {
        name: name.to_owned(),
        guid: Guid::from_u128(fixture.guid),
        age: fixture.age,
    });
    let image = ImageIdentity { time_date_stamp: fixture.time_date_stamp, size: IMAGE_SIZE };
    ModuleIdentity { name: "x.dll".to_owned(), image: Some(image), pdb }
}

struct User {
    folder: TempDir,
}

impl User {
    /// Creates a user with these files in a folder of the symbol path.
    fn new(files: &[(&str, &[u8])]) -> User {
        let user = User { folder: TempDir::new().unwrap() };
        fs::create_dir(user.path("files")).unwrap();
        for (name, bytes) in files {
            fs::write(user.path("files").join(name), bytes).unwrap();
        }
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self) -> SymbolizerOptions {
        let path = SymbolPath::parse(self.path("files").to_str().unwrap()).unwrap();
        let store = StoreOptions { path, cache: Some(self.path("user")), ..StoreOptions::default() };
        SymbolizerOptions { store, ..SymbolizerOptions::default() }
    }

    fn resolve(&self, options: SymbolizerOptions, module: &ModuleIdentity) -> Resolved {
        let mut symbolizer = Symbolizer::new(options).unwrap();
        let number = symbolizer.module(module);
        let frames = [0x1005, 0x1105].map(|rva| symbolizer.request(number, Rva(rva), AddressKind::Return));
        symbolizer.wait();
        let failures = symbolizer.failures(number).unwrap();
        Resolved {
            frames: frames.map(|frame| symbolizer.frame(frame).unwrap().clone()),
            failures: failures.iter().map(|failure| (failure.file, failure.cause)).collect(),
            downloaded: symbolizer.stats().downloaded,
        }
    }
}

#[derive(Debug)]
struct Resolved {
    frames: [ResolvedFrame; 2],
    failures: Vec<(FileKind, Cause)>,
    downloaded: u64,
}

/// PDB name, export, nearest export, each as `name+offset`, or `-`.
fn shown(frame: &ResolvedFrame) -> String {
    let names = [&frame.pdb, &frame.export, &frame.nearest_export];
    let name = |name: &Option<crate::ResolvedName>| {
        name.as_ref().map_or("-".to_owned(), |name| format!("{}+{:#x}", name.text, name.offset))
    };
    names.map(name).join(" ")
}

/// Each row: the existing files, the names in `Open` and in `Helper`, and the failures of the
/// files.
#[test]
fn names_missing_in_one_file_come_from_the_other() {
    use Cause::{Damaged, NotInPath, WrongAge, WrongIdentity};
    use FileKind::{Image, Pdb};
    let fixture = Fixture::new("x.pdb", 0);
    let (image, pdb) = (fixture.image(), fixture.pdb());
    let written_again = Fixture { age: 3, ..fixture.clone() }.pdb();
    let other = Fixture::new("x.pdb", 9).pdb();
    // The number of the stream with the public symbols is invalid.
    let mut damaged = pdb.clone();
    let dbi = damaged.windows(4).position(|bytes| bytes == 19_990_903u32.to_le_bytes()).unwrap() - 4;
    damaged[dbi + 20..dbi + 22].copy_from_slice(&99u16.to_le_bytes());
    type Row<'a> = (&'a [(&'a str, &'a [u8])], [&'a str; 2], &'a [(FileKind, Cause)]);
    let from_image = ["- - Open+0x5", "- - Open+0x105"];
    let rows: [Row<'_>; 8] = [
        (&[("x.dll", &image), ("x.pdb", &pdb)], ["Open+0x5 - Open+0x5", "Helper+0x5 - Open+0x105"], &[]),
        (&[("x.pdb", &pdb)], ["Open+0x5 - -", "Helper+0x5 - -"], &[(Image, NotInPath)]),
        (&[("x.dll", &image)], from_image, &[(Pdb, NotInPath)]),
        (&[("x.dll", &image), ("x.pdb", &written_again)], from_image, &[(Pdb, WrongAge)]),
        (&[("x.dll", &image), ("x.pdb", &other)], from_image, &[(Pdb, WrongIdentity)]),
        (&[("x.dll", &image), ("x.pdb", &pdb[..9000])], from_image, &[(Pdb, Damaged)]),
        (&[("x.dll", &image), ("x.pdb", &damaged)], from_image, &[(Pdb, Damaged)]),
        (&[], ["- - -", "- - -"], &[(Pdb, NotInPath), (Image, NotInPath)]),
    ];
    for (number, (files, names, failures)) in rows.into_iter().enumerate() {
        let user = User::new(files);
        // Twice: the second time with the cached table of the first.
        for round in 0..2 {
            let resolved = user.resolve(user.options(), &identity(&fixture));
            assert_eq!(resolved.frames.each_ref().map(shown), names, "row {number}, round {round}");
            assert_eq!(resolved.failures, failures, "row {number}, round {round}");
        }
    }
}

/// The only cached table.
fn table(user: &User) -> PathBuf {
    let folder = user.path("user/tables/x.dll");
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

fn pdb_name(resolved: &Resolved) -> &str {
    &resolved.frames[1].pdb.as_ref().unwrap().text
}

#[test]
fn tables_are_cached_and_rebuilt() {
    let fixture = Fixture::new("x.pdb", 0);
    let module = identity(&fixture);
    let user = User::new(&[("x.pdb", &fixture.pdb())]);
    assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Helper");
    let kept = fs::read(table(&user)).unwrap();

    // A change that keeps size and time shows that the cached table is used.
    let file = user.path("files/x.pdb");
    let change = |name: &'static str| {
        let publics = vec![("Open", 0x1000), (name, 0x1100)];
        fs::write(&file, Fixture { publics, ..fixture.clone() }.pdb()).unwrap();
    };
    let time =
        |time: SystemTime| fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let made = fs::metadata(&file).unwrap().modified().unwrap();
    change("Masker");
    time(made);
    assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Helper");
    time(made + Duration::from_secs(1));
    assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Masker");
    assert_ne!(fs::read(table(&user)).unwrap(), kept);

    // Damaged tables are made again, and so are tables with invalid content.
    let good = fs::read(table(&user)).unwrap();
    for bytes in [&b""[..], b"\xff\xff\xff\xff", &good[..good.len() - 1], &kept] {
        fs::write(table(&user), bytes).unwrap();
        assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Masker");
        assert_eq!(fs::read(table(&user)).unwrap(), good);
    }
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        fs::write(table(&user), bytes).unwrap();
        assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Masker", "byte {at}");
    }
}

#[test]
fn tables_that_cannot_be_cached_are_still_used() {
    let fixture = Fixture::new("x.pdb", 0);
    let user = User::new(&[("x.pdb", &fixture.pdb())]);
    fs::write(user.path("user"), b"in the way").unwrap();
    assert_eq!(pdb_name(&user.resolve(user.options(), &identity(&fixture))), "Helper");
    let mut options = user.options();
    options.store.cache = None;
    assert_eq!(pdb_name(&user.resolve(options, &identity(&fixture))), "Helper");
    for name in ["..", "../../up", "nul"] {
        let module = ModuleIdentity { name: name.to_owned(), ..identity(&fixture) };
        assert_eq!(pdb_name(&user.resolve(user.options(), &module)), "Helper");
    }
    assert!(!Path::new(&user.path("up")).exists());
}

#[test]
fn files_come_from_a_server_if_that_is_allowed() {
    let fixture = Fixture::new("x.pdb", 0);
    let server = Server::start();
    server.set("/x.pdb/0123456789ABCDEF01234567000000001/x.pdb", Answer::File(fixture.pdb()));
    let user = User::new(&[]);
    let mut options = user.options();
    options.store.path = SymbolPath::parse(&format!("srv*{}", server.url())).unwrap();
    let resolved = user.resolve(options.clone(), &identity(&fixture));
    assert_eq!(resolved.failures, [(FileKind::Pdb, Cause::NotAsked), (FileKind::Image, Cause::NotAsked)]);
    assert!(server.requests().is_empty());
    options.store.online = true;
    let resolved = user.resolve(options.clone(), &identity(&fixture));
    assert_eq!(pdb_name(&resolved), "Helper");
    assert_eq!(resolved.failures, [(FileKind::Image, Cause::NotOnServer)]);
    assert_eq!(resolved.downloaded, fixture.pdb().len() as u64);
    options.store.online = false;
    assert_eq!(pdb_name(&user.resolve(options, &identity(&fixture))), "Helper");
}

#[test]
fn call_sites_come_from_the_image() {
    let fixture = Fixture::new("x.pdb", 0);
    let user = User::new(&[("x.dll", &fixture.image())]);
    for call_sites in [false, true] {
        let options = SymbolizerOptions { call_sites, ..user.options() };
        let resolved = user.resolve(options, &identity(&fixture));
        let site = resolved.frames[0].call_site.as_deref();
        assert_eq!(site.is_some(), call_sites);
        assert!(site.is_none_or(|site| *site.before == [0xe8, 0, 0, 0, 0] && site.ends_call == Some(true)));
    }
}

/// PDBs and images from Microsoft's tools. Each row has a function of the golden list.
#[test]
fn pairs_of_the_corpus_are_named() {
    let rows = [
        ("CrashWithException.exe", "symbols/pairs/symbolic", 0x1010, "printf"),
        ("basic32.dll", "symbols/pairs/dump_syms", 0x6be0, "test1"),
    ];
    for (name, folder, function, expected) in rows {
        let pdb_name = name.replace(".exe", ".pdb").replace(".dll", ".pdb");
        let file = |name: &str| stackhound_corpus::bytes(&format!("{folder}/{name}"));
        let (Some(image), Some(pdb)) = (file(name), file(&pdb_name)) else { return };
        let user = User::new(&[(name, &image), (&pdb_name, &pdb)]);
        // The trace identifies the image only; the image identifies its PDB.
        let image = Some(crate::image::Image::parse(&image).unwrap().identity());
        let mut symbolizer = Symbolizer::new(user.options()).unwrap();
        let module = symbolizer.module(&ModuleIdentity { name: name.to_owned(), image, pdb: None });
        let frame = symbolizer.request(module, Rva(function + 5), AddressKind::Return);
        symbolizer.wait();
        assert_eq!(symbolizer.failures(module), Some(&[][..]), "{name}");
        let found = symbolizer.frame(frame).unwrap().pdb.clone().unwrap();
        assert!(found.text.starts_with(expected) && found.offset == 5, "{found:?}");
    }
}
