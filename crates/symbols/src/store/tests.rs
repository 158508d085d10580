//! Tests of finding and downloading, with generated modules.

use std::time::{Duration, Instant};

use stackhound_types::Guid;
use tempfile::TempDir;

use super::*;
use crate::fixtures::server::{Answer, NEVER, Server};
use crate::fixtures::{Fixture, IMAGE_SIZE};

fn image_of(fixture: &Fixture) -> ImageIdentity {
    ImageIdentity { time_date_stamp: fixture.time_date_stamp, size: IMAGE_SIZE }
}

fn pdb_of(fixture: &Fixture) -> PdbIdentity {
    let name = fixture.pdb_name.unwrap().to_owned();
    PdbIdentity { name, guid: Guid::from_u128(fixture.guid), age: fixture.age }
}

fn module_of(name: &str, fixture: &Fixture) -> ModuleIdentity {
    ModuleIdentity { name: name.to_owned(), image: Some(image_of(fixture)), pdb: Some(pdb_of(fixture)) }
}

/// A user with a folder, and a symbol path in which `$` represents that folder.
struct User {
    folder: TempDir,
}

impl User {
    fn new() -> User {
        User { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn options(&self, path: &str) -> StoreOptions {
        let path = path.replace('$', &self.folder.path().to_string_lossy());
        let limits = DownloadLimits { file_size: 1 << 20, ..DownloadLimits::default() };
        let path = SymbolPath::parse(&path).unwrap();
        StoreOptions { path, online: true, retry: false, cache: Some(self.path("user")), limits }
    }

    fn store(&self, path: &str) -> Store {
        Store::new(self.options(path))
    }

    /// The files in a folder and below, without those of the negative cache.
    fn files(&self, folder: &str) -> Vec<String> {
        let (mut files, mut folders) = (Vec::new(), vec![self.path(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    let path = entry.path();
                    files.push(path.strip_prefix(self.folder.path()).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        files
    }
}

fn cause<T: std::fmt::Debug>(result: Result<T, Failure>) -> Cause {
    result.unwrap_err().cause
}

/// Each row: a change after a search, and whether a repeated search finds the same.
#[test]
fn repeated_searches_find_the_same_until_a_file_changes() {
    type Change = fn(&User, &Fixture);
    let rows: [(&str, Change, bool); 6] = [
        ("nothing", |_, _| {}, true),
        ("another file", |user, fixture| _ = user.put("dir/y.dll", &fixture.image()), true),
        ("a file before the found one", |user, fixture| _ = user.put("first/x.dll", &fixture.image()), false),
        ("the file is gone", |user, _| fs::remove_file(user.path("dir/x.dll")).unwrap(), false),
        (
            "the file is changed",
            |user, fixture| {
                user.put("dir/x.dll", &[fixture.image(), vec![0]].concat());
            },
            false,
        ),
        ("the missing file is there", |user, fixture| _ = user.put("dir/x.pdb", &fixture.pdb()), false),
    ];
    for (name, change, same) in rows {
        let (user, fixture) = (User::new(), Fixture::new("x.pdb", 1));
        user.put("dir/x.dll", &fixture.image());
        let offline = || Store::new(StoreOptions { online: false, ..user.options("$/first;$/dir") });
        let before = offline();
        let files = before.files(&module_of("x.dll", &fixture));
        assert!(files.image.is_ok() && files.pdb.is_err(), "{name}");
        let searches = before.searches();
        assert_eq!(searches.len(), 2, "{name}: {searches:?}");
        change(&user, &fixture);
        let after = offline();
        assert_eq!(searches.iter().all(|search| after.finds_the_same(search)), same, "{name}");
    }
}

/// Text that no store wrote.
#[test]
fn other_text_is_no_search() {
    let user = User::new();
    let store = user.store("$/dir");
    for text in [
        "",
        "pdb",
        "pdb\tx.pdb\t1\t2\tnone",
        "image\tx.dll\t5\t-1\tnone",
        "exe\tx\t1\t1\tnone",
        "image\t..\t1\t1\tnone",
    ] {
        assert!(!store.finds_the_same(text), "{text:?}");
    }
}

/// Each row: the location of the image of `x.dll`, and whether the path `store;srv*…` finds it
/// there.
#[test]
fn files_are_found_in_all_layouts() {
    let fixture = Fixture::new("x.pdb", 0);
    let rows: [(&str, &str, bool); 16] = [
        ("dir/x.dll", "$/dir", true),
        ("dir/X.DLL", "$/dir", true),
        ("dir/dll/x.dll", "$/dir", true),
        ("dir/Symbols/DLL/X.dll", "$/dir", true),
        ("dir/x.dll/5F0000003000/x.dll", "$/dir", true),
        ("dir/sub/x.dll", "$/dir", false),
        ("dir/x.dll", "srv*$/dir", false),
        ("dir/x.dll/5F0000003000/x.dll", "srv*$/dir", true),
        ("dir/X.dll/5f0000003000/x.DLL", "srv*$/dir", true),
        ("dir/x/x.dll/5F0000003000/x.dll", "srv*$/dir", false),
        ("dir/y/x.dll/5F0000003000/x.dll", "srv*$/dir", false),
        ("user/symbols/x.dll/5F0000003000/x.dll", "srv*", true),
        ("user/symbols/x.dll/5F0000003000/x.dll", "cache*", true),
        ("user/symbols/x.dll/5F0000003000/x.dll", "$/dir", false),
        ("b/x.dll/5F0000003000/x.dll", "srv*$/a*$/b", true),
        ("b/x.dll", "$/a;$/none;$/b", true),
    ];
    for (location, path, is_there) in rows {
        let user = User::new();
        let expected = user.put(location, &fixture.image());
        let found = user.store(path).image("x.dll", image_of(&fixture));
        match found {
            Ok(found) => assert_eq!((found.path, is_there), (expected, true), "{location}, {path}"),
            Err(failure) => {
                assert_eq!((failure.cause, is_there), (Cause::NotInPath, false), "{location}, {path}")
            }
        }
    }
}

#[test]
fn large_stores_are_sorted_by_two_characters() {
    let user = User::new();
    let fixture = Fixture::new("x.pdb", 0);
    let path = user.put("dir/x./x.dll/5F0000003000/x.dll", &fixture.image());
    assert_eq!(cause(user.store("srv*$/dir").image("x.dll", image_of(&fixture))), Cause::NotInPath);
    user.put("dir/index2.txt", b"");
    assert_eq!(user.store("srv*$/dir").image("x.dll", image_of(&fixture)).unwrap().path, path);
}

/// Each row: the content of the folder with the right name and key, and the resulting cause.
#[test]
fn only_the_right_file_is_used() {
    let fixture = Fixture::new("x.pdb", 0);
    let other = Fixture::new("x.pdb", 1);
    let written_again = Fixture { age: 2, ..fixture.clone() };
    let (image, pdb) = (fixture.image(), fixture.pdb());
    let rows: [(&str, &[u8], Cause); 8] = [
        ("x.dll/5F0000003000/x.dll", &other.image(), Cause::WrongIdentity),
        ("x.dll/5F0000003000/x.dll", &image[..100], Cause::Damaged),
        ("x.dll/5F0000003000/x.dll", b"", Cause::Damaged),
        ("x.dll/5F0000003000/x.dl_", &image, Cause::Packed),
        ("x.dll/5F0000003000/file.ptr", b"PATH:/etc/passwd", Cause::Packed),
        ("x.pdb/0123456789ABCDEF01234567000000001/x.pdb", &other.pdb(), Cause::WrongIdentity),
        ("x.pdb/0123456789ABCDEF01234567000000001/x.pdb", &written_again.pdb(), Cause::WrongAge),
        ("x.pdb/0123456789ABCDEF01234567000000001/x.pdb", &pdb[..5000], Cause::Damaged),
    ];
    for (location, bytes, expected) in rows {
        let user = User::new();
        user.put(&format!("dir/{location}"), bytes);
        let files = user.store("srv*$/dir").files(&module_of("x.dll", &fixture));
        let (this, that) =
            if location.starts_with("x.dll") { (files.image, files.pdb) } else { (files.pdb, files.image) };
        let this = this.unwrap_err();
        assert_eq!(this.cause, expected, "{location}: {}", this.detail);
        assert!(this.detail.contains(&*user.path("dir").to_string_lossy()), "{}", this.detail);
        assert_eq!(cause(that), Cause::NotInPath);
    }
}

#[test]
fn a_later_right_file_is_preferred_to_a_wrong_one() {
    let user = User::new();
    let fixture = Fixture::new("x.pdb", 0);
    user.put("a/x.pdb", &Fixture::new("x.pdb", 1).pdb());
    user.put("b/x.pdb", &Fixture { age: 7, ..fixture.clone() }.pdb());
    user.put("c/x.pdb", b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0");
    let store = user.store("$/a;$/b;$/c;srv*$/d");
    assert_eq!(cause(store.pdb(&pdb_of(&fixture))), Cause::Damaged, "the greatest cause");
    assert_eq!(cause(user.store("$/b;$/a").pdb(&pdb_of(&fixture))), Cause::WrongAge);
    let path = user.put("d/x.pdb/0123456789ABCDEF01234567000000001/x.pdb", &fixture.pdb());
    assert_eq!(cause(store.pdb(&pdb_of(&fixture))), Cause::Damaged, "searched once");
    assert_eq!(user.store("$/a;$/b;$/c;srv*$/d").pdb(&pdb_of(&fixture)).unwrap().path, path);
}

#[test]
fn the_image_names_its_pdb() {
    let user = User::new();
    let fixture = Fixture::new("x.pdb", 0);
    user.put("dir/x.dll", &fixture.image());
    user.put("dir/x.pdb", &fixture.pdb());
    let module = ModuleIdentity { pdb: None, ..module_of("x.dll", &fixture) };
    let files = user.store("$/dir").files(&module);
    assert!(files.image.is_ok() && files.pdb.is_ok(), "{files:?}");
    let user = User::new();
    user.put("dir/x.dll", &Fixture { pdb_name: None, ..fixture.clone() }.image());
    assert_eq!(cause(user.store("$/dir").files(&module).pdb), Cause::NoPdb);
    let nothing = ModuleIdentity { name: "x.dll".to_owned(), image: None, pdb: None };
    let files = user.store("$/dir").files(&nothing);
    assert_eq!((cause(files.pdb), cause(files.image)), (Cause::NoIdentity, Cause::NoIdentity));
}

#[test]
fn hostile_names_reach_no_path() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    let store = user.store(&format!("$/dir;srv*{}", server.url()));
    for name in ["..", "../", r"..\..", "nul", "C:", "a\0.pdb", "x:y", ".", "%2e%2e/.."] {
        let identity = PdbIdentity { name: name.to_owned(), ..pdb_of(&fixture) };
        assert_eq!(cause(store.pdb(&identity)), Cause::BadName, "{name:?}");
        assert_eq!(cause(store.image(name, image_of(&fixture))), Cause::BadName, "{name:?}");
    }
    assert!(server.requests().is_empty());
    // The remaining parts of these are plain names, below the right folders.
    for (number, name) in
        ["../../../up.dll", r"C:\Windows\up.dll", "/up.dll", "up.dll"].into_iter().enumerate()
    {
        let fixture = Fixture::new("x.pdb", number as u32);
        server.set(
            &format!("/up.dll/{}/up.dll", image_of(&fixture).store_key()),
            Answer::File(fixture.image()),
        );
        assert!(store.image(name, image_of(&fixture)).is_ok(), "{name}");
    }
    // A name is used literally, even if it has a special meaning elsewhere.
    let identity = image_of(&fixture);
    server.set("/a%2F%3Fb%23%20%C3%A9.dll/5F0000003000/a%2F%3Fb%23%20%C3%A9.dll", Answer::Status(500));
    assert_eq!(cause(store.image("%2e%2e%2f.dll", identity)), Cause::NotOnServer);
    assert_eq!(server.requests().last().unwrap(), "/%252e%252e%252f.dll/5F0000003000/%252e%252e%252f.dll");
    assert_eq!(cause(store.image("a b#é.dll", identity)), Cause::NotOnServer);
    assert_eq!(server.requests().last().unwrap(), "/a%20b%23%C3%A9.dll/5F0000003000/a%20b%23%C3%A9.dll");
    let outside = |path: &String| !path.starts_with("user/symbols/up.dll/");
    assert_eq!(
        user.files("").into_iter().filter(outside).filter(|path| !path.starts_with("user/missing")).count(),
        0
    );
}

#[test]
fn downloads_are_stored_and_reused() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    let (image, pdb) = ("/x.dll/5F0000003000/x.dll", "/x.pdb/0123456789ABCDEF01234567000000001/x.pdb");
    server.set(image, Answer::File(fixture.image()));
    server.set(pdb, Answer::Unmeasured(fixture.pdb()));
    let module = module_of("x.dll", &fixture);
    for (path, kept) in [("srv*", "user/symbols"), ("srv*$/a*$/b*", "b"), ("cache*$/c;srv*", "c")] {
        let path = format!("{path}{}", server.url());
        let before = server.requests().len();
        let offline = Store::new(StoreOptions { online: false, ..user.options(&path) });
        assert_eq!(cause(offline.files(&module).pdb), Cause::NotAsked);
        assert_eq!(server.requests().len(), before);
        let store = user.store(&path);
        let files = store.files(&module);
        let sizes = (fixture.image().len() as u64, fixture.pdb().len() as u64);
        assert_eq!(files.image.unwrap().downloaded, Some(sizes.0));
        assert_eq!(files.pdb.unwrap().downloaded, Some(sizes.1));
        assert_eq!(store.downloads(), (2, sizes.0 + sizes.1));
        assert_eq!(user.files(kept), [format!("{kept}{image}"), format!("{kept}{pdb}")]);
        assert_eq!(server.requests()[before..], [image, pdb]);
        let again = offline_again(&user, &path).files(&module);
        assert_eq!(again.image.unwrap().path, user.path(kept).join(&image[1..]));
        assert_eq!(again.pdb.unwrap().downloaded, None);
    }
}

fn offline_again(user: &User, path: &str) -> Store {
    Store::new(StoreOptions { online: false, ..user.options(path) })
}

/// A time limit for responses that are too late. A server on a busy machine must not exceed it by
/// chance.
const STALL: Duration = Duration::from_millis(1500);

/// Each row: a response, and the resulting failure. No file is stored.
#[test]
fn invalid_responses_are_distinguished_and_store_no_file() {
    let fixture = Fixture::new("x.pdb", 0);
    let image = fixture.image();
    let size = image.len() as u64;
    let rows = [
        (Answer::Status(404), Cause::NotOnServer, "does not have it"),
        (Answer::Status(410), Cause::NotOnServer, "does not have it"),
        (Answer::Status(403), Cause::Unreachable, "status 403"),
        (Answer::Status(500), Cause::Unreachable, "status 500"),
        (Answer::Status(204), Cause::Unreachable, "status 204"),
        (Answer::Nothing, Cause::Unreachable, ""),
        (Answer::BreaksOff(size, image[..2000].to_vec()), Cause::Unreachable, "connection lost"),
        (Answer::Stalls(image[..2000].to_vec()), Cause::Unreachable, "timeout"),
        (Answer::Late(NEVER, image.clone()), Cause::Unreachable, "timeout"),
        (Answer::BreaksOff(2 << 20, image.clone()), Cause::TooLarge, "more than 1048576 bytes"),
        (Answer::Unmeasured(vec![0; (1 << 20) + 1]), Cause::TooLarge, "more than 1048576 bytes"),
        (Answer::Unmeasured(image[..200].to_vec()), Cause::Damaged, ""),
        (Answer::File(Vec::new()), Cause::Damaged, ""),
        (Answer::File(b"<html>Sign in</html>".to_vec()), Cause::Damaged, ""),
        (Answer::File(Fixture::new("x.pdb", 1).image()), Cause::WrongIdentity, "is 5F0000013000"),
        (Answer::Moved("/x.dll/5F0000003000/x.dll".to_owned()), Cause::Unreachable, "redirects"),
        // A path without a host is a path of the same server.
        (Answer::Moved("file:///etc/passwd".to_owned()), Cause::NotOnServer, ""),
    ];
    for (answer, expected, detail) in rows {
        let user = User::new();
        let server = Server::start();
        let row = format!("{answer:.40?}");
        server.set("/x.dll/5F0000003000/x.dll", answer);
        let start = Instant::now();
        let mut options = user.options(&format!("srv*$/s*{}", server.url()));
        if detail == "timeout" {
            options.limits.stall = STALL;
        }
        let store = Store::new(options);
        let failure = store.image("x.dll", image_of(&fixture)).unwrap_err();
        assert_eq!(failure.cause, expected, "{row}: {}", failure.detail);
        assert!(failure.detail.contains(detail), "{row}: {}", failure.detail);
        assert!(failure.detail.starts_with(server.url()), "{row}: {}", failure.detail);
        assert_eq!(user.files("s"), <[String; 0]>::default(), "{row}");
        assert_eq!(user.files("user").len(), usize::from(expected == Cause::NotOnServer), "{row}");
        assert!(start.elapsed() < NEVER / 2, "{row}: time limits hold");
    }
}

#[test]
fn redirects_are_followed() {
    let user = User::new();
    let (server, other) = (Server::start(), Server::start());
    let fixture = Fixture::new("x.pdb", 0);
    server.set("/x.dll/5F0000003000/x.dll", Answer::Moved(format!("{}/blob?1", other.url())));
    other.set("/blob?1", Answer::File(fixture.image()));
    let store = user.store(&format!("srv*{}", server.url()));
    assert!(store.image("x.dll", image_of(&fixture)).is_ok());
}

#[test]
fn the_next_server_is_queried() {
    let user = User::new();
    let (first, second) = (Server::start(), Server::start());
    let fixture = Fixture::new("x.pdb", 0);
    first.set("/x.dll/5F0000003000/x.dll", Answer::Status(500));
    second.set("/x.dll/5F0000003000/x.dll", Answer::File(fixture.image()));
    let path = format!("srv*{}/;srv*{}", first.url(), second.url());
    assert!(user.store(&path).image("x.dll", image_of(&fixture)).is_ok());
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}

#[test]
fn a_damaged_file_of_the_cache_is_replaced() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    let path = user.put("user/symbols/x.dll/5F0000003000/x.dll", b"half a fi");
    let symbols = format!("srv*{}", server.url());
    assert_eq!(cause(user.store(&symbols).image("x.dll", image_of(&fixture))), Cause::Damaged);
    server.set("/x.dll/5F0000003000/x.dll", Answer::File(fixture.image()));
    let options = StoreOptions { retry: true, ..user.options(&symbols) };
    assert_eq!(Store::new(options).image("x.dll", image_of(&fixture)).unwrap().path, path);
    assert_eq!(fs::read(path).unwrap(), fixture.image());
}

#[test]
fn missing_files_are_remembered_until_a_retry() {
    let user = User::new();
    let (server, other) = (Server::start(), Server::start());
    let fixture = Fixture::new("x.pdb", 0);
    let path = format!("srv*{}", server.url());
    let find = |path: &str, retry| {
        let options = StoreOptions { retry, ..user.options(path) };
        Store::new(options).image("x.dll", image_of(&fixture)).map_err(|failure| failure.cause)
    };
    assert_eq!(find(&path, false), Err(Cause::NotOnServer));
    server.set("/x.dll/5F0000003000/x.dll", Answer::File(fixture.image()));
    assert_eq!(find(&path, false), Err(Cause::NotOnServer));
    assert_eq!(server.requests().len(), 1, "remembered");
    assert_eq!(find(&format!("srv*{}", other.url()), false), Err(Cause::NotOnServer));
    assert_eq!(other.requests().len(), 1, "for each server separately");
    assert!(find(&path, true).is_ok());
    fs::remove_dir_all(user.path("user/symbols")).unwrap();
    assert!(find(&path, false).is_ok(), "the entry is removed");
}

#[test]
fn temporary_failures_are_not_remembered() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    let path = format!("srv*{}", server.url());
    server.set("/x.dll/5F0000003000/x.dll", Answer::Nothing);
    assert_eq!(cause(user.store(&path).image("x.dll", image_of(&fixture))), Cause::Unreachable);
    server.set("/x.dll/5F0000003000/x.dll", Answer::File(fixture.image()));
    assert!(user.store(&path).image("x.dll", image_of(&fixture)).is_ok());
}

#[test]
fn an_unreachable_server_is_not_queried_again() {
    let user = User::new();
    // A port on which no program listens or can listen: the local end of a connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = connection.local_addr().unwrap().port();
    let store = user.store(&format!("srv*http://127.0.0.1:{port}"));
    let details: Vec<String> = (0..5)
        .map(|number| {
            let failure = store.image("x.dll", image_of(&Fixture::new("x.pdb", number))).unwrap_err();
            assert_eq!(failure.cause, Cause::Unreachable);
            failure.detail
        })
        .collect();
    let skipped: Vec<bool> = details.iter().map(|detail| detail.contains("not queried")).collect();
    assert_eq!(skipped, [false, false, false, true, true]);
}

#[test]
fn parallel_requests_download_once() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    let late = |bytes| Answer::Late(Duration::from_millis(100), bytes);
    server.set("/x.dll/5F0000003000/x.dll", late(fixture.image()));
    server.set("/x.pdb/0123456789ABCDEF01234567000000001/x.pdb", late(fixture.pdb()));
    let store = user.store(&format!("srv*{}", server.url()));
    let modules: Vec<_> =
        ["x.dll", r"C:\x.dll", "x.dll", "x.dll", "x.dll"].map(|name| module_of(name, &fixture)).into();
    let all = store.files_of_all(&modules, 5);
    assert!(all.iter().all(|files| files.image.is_ok() && files.pdb.is_ok()), "{all:?}");
    assert_eq!(server.requests().len(), 2);
    assert_eq!(store.downloads().0, 2);
    assert!(store.files_of_all(&[], 3).is_empty());
}

#[test]
fn without_a_folder_nothing_is_downloaded() {
    let user = User::new();
    let server = Server::start();
    let fixture = Fixture::new("x.pdb", 0);
    server.set("/x.dll/5F0000003000/x.dll", Answer::File(fixture.image()));
    let options = StoreOptions { cache: None, ..user.options(&format!("srv*{}", server.url())) };
    assert_eq!(cause(Store::new(options).image("x.dll", image_of(&fixture))), Cause::NotKept);
    user.put("file", b"in the way");
    let options = user.options(&format!("srv*$/file*{}", server.url()));
    assert_eq!(cause(Store::new(options).image("x.dll", image_of(&fixture))), Cause::NotKept);
    assert!(server.requests().is_empty());
}
