//! `profile --open`: the browser is a script that writes the address it gets, and the test requests
//! the file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{refused, stackhound, text};

/// A folder with the demo trace, a folder for temporary files, and a browser.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    assert!(stackhound(&["demo", "-q", "--out", text(folder.path())]).status.success());
    std::fs::create_dir(folder.path().join("temporary")).unwrap();
    let browser = folder.path().join("browser");
    // The file appears when it is complete.
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\nprintf %s \"$1\" > part\nmv part address\n";
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The program while it serves a file.
struct Opened {
    child: Child,
    /// The address that the browser got.
    address: String,
    temporary: PathBuf,
}

impl Opened {
    fn start(folder: &Path, arguments: &[&str]) -> Opened {
        let temporary = folder.join("temporary");
        let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
        command.args(["profile", "stackhound-demo.etl", "--open"]).args(arguments).current_dir(folder);
        command.env("BROWSER", folder.join("browser")).env("TMPDIR", &temporary);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (start, path) = (Instant::now(), folder.join("address"));
        while !path.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the program ended");
            assert!(start.elapsed() < Duration::from_secs(60), "no browser was started");
            std::thread::sleep(Duration::from_millis(20));
        }
        let address = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Opened { child, address, temporary }
    }

    /// The port and the path of the file at the address of the server.
    fn location(&self) -> (u16, String) {
        let address = match self.address.strip_prefix("https://profiler.firefox.com/from-url/") {
            Some(encoded) => encoded.replace("%3A", ":").replace("%2F", "/"),
            None => self.address.clone(),
        };
        let (port, path) = address.strip_prefix("http://127.0.0.1:").unwrap().split_once('/').unwrap();
        (port.parse().unwrap(), format!("/{path}"))
    }

    /// Ends the program as Ctrl-C does. Nothing is left of it.
    fn end(mut self) {
        let (port, _) = self.location();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        assert_eq!(std::fs::read_dir(&self.temporary).unwrap().count(), 0);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The status, the headers and the body of an answer.
fn request(port: u16, method: &str, path: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("headers") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, answer[end..].to_vec())
}

#[test]
fn the_firefox_profiler_gets_the_profile() {
    let folder = folder();
    let opened = Opened::start(folder.path(), &[]);
    let (port, path) = opened.location();
    // A connection without a request does not delay others.
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (status, head, body) = request(port, "GET", &path);
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("\r\nAccess-Control-Allow-Origin: https://profiler.firefox.com\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let trace = text(&folder.path().join("stackhound-demo.etl")).to_owned();
    let expected = stackhound(&["profile", &trace, "-q", "--format", "firefox"]).stdout;
    let [found, expected] = [body, expected].map(|text| serde_json::from_slice::<Value>(&text).unwrap());
    assert_eq!(found, expected);

    // Other users cannot read the temporary file.
    let made = std::fs::read_dir(&opened.temporary).unwrap().next().unwrap().unwrap().path();
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o077, 0, "{made:?}");

    let (status, head, body) = request(port, "OPTIONS", &path);
    assert_eq!((status, body.len()), (204, 0));
    assert!(head.contains("Access-Control-Allow-Private-Network: true"), "{head}");
    assert_eq!(request(port, "HEAD", &path).2.len(), 0);
    assert_eq!(request(port, "POST", &path).0, 405);
    let (_, name) = path.rsplit_once('/').unwrap();
    let other = path.replace(|c: char| c.is_ascii_digit(), "x");
    for path in ["/", "/profile.json", name, &other, &format!("{path}/../../etc/passwd"), "/etc/passwd", ""] {
        let (status, head, body) = request(port, "GET", path);
        assert_eq!((status, body.len()), (404, 0), "{path}");
        assert!(!head.contains("Access-Control"), "{head}");
    }
    // Of the loopback interface, only this address.
    #[cfg(target_os = "linux")]
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
    opened.end();
}

#[test]
fn written_files_are_served_as_they_are() {
    let folder = folder();
    let mut paths = Vec::new();
    for (name, is_profile, header) in [
        ("a.svg", false, "Content-Type: image/svg+xml"),
        ("a.json.gz", true, "Content-Encoding: gzip"),
        ("b.svg", false, "Content-Type: image/svg+xml"),
    ] {
        let opened = Opened::start(folder.path(), &["-q", "-o", name]);
        let (port, path) = opened.location();
        assert_eq!(opened.address.starts_with("https://profiler.firefox.com/"), is_profile);
        let (status, head, body) = request(port, "GET", &path);
        assert!(status == 200 && head.contains(header), "{head}");
        // No page may read a flame graph.
        assert_eq!(head.contains("Access-Control-Allow-Origin"), is_profile, "{head}");
        assert_eq!(body, std::fs::read(folder.path().join(name)).unwrap());
        opened.end();
        paths.push(path);
    }
    assert_ne!(paths[0], paths[2], "the path cannot be guessed");
}

#[test]
fn other_formats_are_refused() {
    let folder = folder();
    let trace = text(&folder.path().join("stackhound-demo.etl")).to_owned();
    let sentence =
        "--open shows flame graphs and Firefox profiles; use -o FILE.svg, -o FILE.json or --format";
    for format in ["folded", "speedscope", "perfetto"] {
        refused(&["profile", &trace, "--open", "--format", format], sentence);
    }
    let sentence = "--open needs a file; leave out -o for a temporary one";
    refused(&["profile", &trace, "--open", "--format", "firefox", "-o", "/dev/null"], sentence);
}
