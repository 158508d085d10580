//! `--open`: shows a written file in the default browser, through a server on the loopback
//! interface.
//!
//! The server answers requests for this one file, at a path with a random part that other local
//! users and web pages cannot guess. Pages of the Firefox Profiler may read a profile; no other page
//! may read anything. Files are not cached in memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stackhound::types::HexBytes;

use crate::options::Common;
use crate::output::message;

/// The page that shows a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Viewer {
    /// The browser itself.
    Browser,
    /// The Firefox Profiler, which requests the file from the page of its project.
    FirefoxProfiler,
}

const FIREFOX_PROFILER: &str = "https://profiler.firefox.com";
/// Browsers open connections in advance, which must not delay others.
const THREADS: usize = 8;
/// Maximum size of a request, in bytes.
const REQUEST_MAX: usize = 16 << 10;
/// For the whole request, and for each part of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The file, and where it is served.
struct Page {
    file: PathBuf,
    path: String,
    headers: String,
}

/// Serves a file and opens it. Does not return while the program runs: Ctrl-C ends it.
///
/// # Errors
/// No address of the loopback interface can be used.
pub fn browse(file: &Path, viewer: Viewer, common: &Common) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    let port = listener.local_addr().context("cannot listen on 127.0.0.1")?.port();
    let mut token = [0; 16];
    getrandom::fill(&mut token).context("cannot get random numbers")?;
    let (name, mut headers) = match viewer {
        Viewer::Browser => ("flamegraph.svg", "Content-Type: image/svg+xml\r\n".to_owned()),
        Viewer::FirefoxProfiler => (
            "profile.json",
            // A public page may request a private address only if the server agrees.
            format!(
                "Content-Type: application/json\r\nAccess-Control-Allow-Origin: {FIREFOX_PROFILER}\r\n\
                 Access-Control-Allow-Methods: GET\r\nAccess-Control-Allow-Private-Network: true\r\n"
            ),
        ),
    };
    if file.extension().is_some_and(|end| end == "gz") {
        headers += "Content-Encoding: gzip\r\n";
    }
    let page = Page { file: file.to_owned(), path: format!("/{}/{name}", HexBytes(&token)), headers };
    let served = format!("http://127.0.0.1:{port}{}", page.path);
    let address = match viewer {
        Viewer::Browser => served,
        Viewer::FirefoxProfiler => {
            format!("{FIREFOX_PROFILER}/from-url/{}", served.replace(':', "%3A").replace('/', "%2F"))
        }
    };
    if !common.quiet {
        message(format_args!("{address}"));
        message(format_args!("The page can read the profile until this program ends. Ctrl-C ends it."));
    }
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| serve(&listener, &page));
        }
        if let Err(error) = start_browser(&address) {
            message(format_args!("cannot start a browser ({error}); open {address}"));
        }
    });
    Ok(())
}

/// Starts the browser of the variable `BROWSER`, or the default one. A list of browsers is left to
/// the default opener.
fn start_browser(address: &str) -> io::Result<()> {
    let browser = std::env::var("BROWSER").ok().filter(|browser| !browser.is_empty());
    match browser.filter(|browser| cfg!(unix) && !browser.contains([':', '%'])) {
        Some(browser) => open::with_detached(address, browser),
        None => open::that_detached(address),
    }
}

/// Answers one connection after the other.
fn serve(listener: &TcpListener, page: &Page) {
    loop {
        match listener.accept() {
            // A client that disappears needs no answer.
            Ok((mut stream, _)) => drop(answer(&mut stream, page)),
            // Such as too many open files.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(stream: &mut TcpStream, page: &Page) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = request(stream)?;
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if path != page.path {
        return head(stream, "404 Not Found", "", 0);
    }
    match method {
        "GET" | "HEAD" => match File::open(&page.file) {
            Ok(file) => {
                let size = file.metadata()?.len();
                head(stream, "200 OK", &page.headers, size)?;
                if method == "GET" {
                    io::copy(&mut file.take(size), stream)?;
                }
                Ok(())
            }
            Err(_) => head(stream, "404 Not Found", "", 0),
        },
        "OPTIONS" => head(stream, "204 No Content", &page.headers, 0),
        _ => head(stream, "405 Method Not Allowed", "Allow: GET, HEAD, OPTIONS\r\n", 0),
    }
}

fn head(stream: &mut TcpStream, status: &str, headers: &str, size: u64) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {size}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
}

/// Reads a request up to the end of its headers, and returns its first line.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let (start, mut bytes, mut part) = (Instant::now(), Vec::new(), [0; 1024]);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part)?;
        bytes.extend_from_slice(&part[..read]);
        if read == 0 || bytes.len() > REQUEST_MAX || start.elapsed() > TIMEOUT {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}
