//! `stackhound symbols list`, `check` and `fetch` on generated traces, with a local server.

#[expect(dead_code, reason = "errors of servers are tested in the crate for symbols")]
#[path = "../../../symbols/tests/fixtures/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use server::{Answer, Server};
use stackhound_scenario::{ImageFile, Mix, Scenario};

/// A user with a trace and its image files.
struct User {
    folder: tempfile::TempDir,
    files: Vec<ImageFile>,
}

impl User {
    fn new() -> User {
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario { events: 8_000, seed: 1, mix: Mix::Default };
        let etl_file = std::fs::File::create(folder.path().join("trace.etl")).unwrap();
        let truth = scenario.write(etl_file).unwrap();
        let files = truth.image_files().collect();
        User { folder, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, store: &str, file: &ImageFile) {
        let path = self.path(store).join(&file.store_path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &file.bytes).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_stackhound"))
            .arg("symbols")
            .args(arguments)
            .arg(self.path("trace.etl"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("LOCALAPPDATA", self.path("cache"))
            .env("HOME", self.path("home"))
            .env_remove("_NT_SYMBOL_PATH")
            .output()
            .expect("the program runs")
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn row<'a>(list: &'a Value, module: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|row| row["module"] == module).expect(module)
}

/// The number of modules in a report for a file and cause.
fn missing(report: &Value, file: &str, cause: &str) -> usize {
    let mut groups = report["missing"].as_array().unwrap().iter();
    groups
        .find(|group| group["file"] == file && group["cause"] == cause)
        .map_or(0, |group| group["modules"].as_array().unwrap().len())
}

#[test]
fn modules_are_listed_with_identity_and_files() {
    let user = User::new();
    let ntdll = user.files.iter().find(|file| file.store_path.starts_with("ntdll.dll/")).unwrap();
    user.put("cache/stackhound/symbols", ntdll);
    let list = user.json(&["list"]);
    assert_eq!(list.as_array().unwrap().len(), user.files.len(), "each image once");
    let found = row(&list, "ntdll.dll");
    assert_eq!(found["image"]["key"], "70E69BAD1f5000");
    let path = user.path("cache/stackhound/symbols").join(&ntdll.store_path);
    assert_eq!(found["image"]["path"], path.to_str().unwrap());
    assert_eq!(found["image"]["cause"], Value::Null);
    assert!(found["mapped"].as_u64().unwrap() > 1);
    let other = row(&list, "CLASSPNP.SYS");
    assert_eq!((&other["image"]["path"], &other["image"]["cause"]), (&Value::Null, &"not-in-path".into()));
    let table = String::from_utf8(user.run(&["list"]).stdout).unwrap();
    assert!(table.starts_with("MODULE"), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("ntdll.dll") && line.contains("70E69BAD1f5000     found"))
    );
    assert_eq!(table.lines().count(), user.files.len() + 1);
}

#[test]
fn failures_are_grouped_by_cause_with_a_hint() {
    let user = User::new();
    for (number, file) in user.files.iter().enumerate() {
        match number {
            0 => {}
            1 => user.put("store", &ImageFile { bytes: b"MZ and no more".to_vec(), ..file.clone() }),
            2 => user.put("store", &ImageFile { bytes: user.files[0].bytes.clone(), ..file.clone() }),
            3 => {
                let packed = file.store_path[..file.store_path.len() - 1].to_owned() + "_";
                user.put("store", &ImageFile { store_path: packed, bytes: Vec::new() });
            }
            _ => user.put("store", file),
        }
    }
    let store = format!("srv*{}", user.path("store").display());
    let report = user.json(&["check", "--symbol-path", &store]);
    assert_eq!(report["modules"], user.files.len());
    assert_eq!(report["with_image"], user.files.len() - 4);
    for cause in ["not-in-path", "damaged", "wrong-identity", "packed"] {
        assert_eq!(missing(&report, "image", cause), 1, "{cause}: {report}");
    }
    assert_eq!(missing(&report, "pdb", "no-pdb"), user.files.len() - 4);
    assert_eq!(missing(&report, "pdb", "no-identity"), 4);
    let table = String::from_utf8(user.run(&["check", "--symbol-path", &store]).stdout).unwrap();
    assert!(
        table.contains(
            "     1 image  the file cannot be read\n              Delete the file and fetch it again.\n"
        ),
        "{table}"
    );
    let with_server = user.json(&["check", "--symbol-path", &format!("{store};srv*http://127.0.0.1:1")]);
    assert_eq!(missing(&with_server, "image", "not-asked"), 2, "no server is queried without --online");
}

#[test]
fn files_are_fetched_once() {
    let user = User::new();
    let server = Server::start();
    for file in &user.files[1..] {
        server.set(&format!("/{}", file.store_path), Answer::File(file.bytes.clone()));
    }
    let path = format!("srv*{}", server.url());
    let arguments = ["fetch", "--online", "--symbol-path", &path];
    let report = user.json(&arguments);
    let all = user.files.len();
    assert_eq!(report["downloaded_files"], all - 1, "{report}");
    let bytes: usize = user.files[1..].iter().map(|file| file.bytes.len()).sum();
    assert_eq!(report["downloaded_bytes"], bytes);
    assert_eq!((&report["with_image"], missing(&report, "image", "not-on-server")), (&(all - 1).into(), 1));
    assert_eq!(server.requests().len(), all);
    let kept = |file: &ImageFile| std::fs::read(user.path("cache/stackhound/symbols").join(&file.store_path));
    assert!(user.files[1..].iter().all(|file| kept(file).is_ok_and(|bytes| bytes == file.bytes)));

    let again = user.json(&arguments);
    assert_eq!(
        (&again["downloaded_files"], server.requests().len()),
        (&0.into(), all),
        "no server is queried again"
    );
    server.set(&format!("/{}", user.files[0].store_path), Answer::File(user.files[0].bytes.clone()));
    let retried = user.json(&[&arguments[..], &["--retry"]].concat());
    assert_eq!((&retried["downloaded_files"], &retried["with_image"]), (&1.into(), &all.into()));
    let offline = user.json(&["check"]);
    assert_eq!(offline["with_image"], all);
    let table = String::from_utf8(user.run(&["check"]).stdout).unwrap();
    assert!(
        table.starts_with(&format!("{all} modules: 0 with their PDB, {all} with their image\n")),
        "{table}"
    );
}

#[test]
fn an_unreachable_server_is_reported() {
    let user = User::new();
    let nothing =
        user.run(&["fetch", "--online", "--symbol-path", "srv*http://127.0.0.1:1", "--format", "json"]);
    assert_eq!(nothing.status.code(), Some(2), "no requested file is in the store");
    let report: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!(missing(&report, "image", "unreachable"), user.files.len(), "{report}");
}

#[test]
fn invalid_usage_is_reported_in_one_sentence() {
    let user = User::new();
    let folder = user.path("");
    for (arguments, sentence) in [
        (&["fetch"][..], "fetching symbols needs --online"),
        (&["fetch", "--symbol-path", "srv*http://h"], "fetching symbols needs --online"),
        (
            &["fetch", "--online"],
            "the symbol path contains no server; add one, such as srv*https://msdl.microsoft.com/download/symbols, with --symbol-path or _NT_SYMBOL_PATH",
        ),
        (
            &["check", "--symbol-path", "http://h"],
            "in the symbol path, the server \"http://h\" must be written as srv*http://h",
        ),
        (
            &["list", "--symbol-path", "a*b"],
            "in the symbol path, \"a*b\" must start with srv*, symsrv* or cache*",
        ),
    ] {
        let output = user.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), format!("error: {sentence}"));
    }
    assert!(!Path::new(&folder).join("cache").exists(), "nothing was written");
    if cfg!(unix) {
        let output = user.run(&["check", "--symbol-path", r"srv*C:\Symbols"]);
        let note = "The symbol path contains C:\\Symbols, which cannot be used on this system.\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), note);
        assert!(output.status.success());
    }
}
