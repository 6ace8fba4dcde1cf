//! The built program, as its users meet it: arguments, exit status, output and files.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod bench;
#[cfg(target_os = "linux")]
mod clocks;
mod demo;
mod documents;
#[cfg(target_os = "linux")]
mod faults;
mod files;
#[cfg(target_os = "linux")]
mod full_size;
#[cfg(target_os = "linux")]
mod images;
mod interrupt;
mod lab;
mod live;
mod manual;
mod matrix;
mod mistakes;
#[cfg(target_os = "linux")]
mod networks;
mod published;
mod scenarios;
mod schemes;
#[cfg(target_os = "linux")]
mod soak;
mod summary;
mod sweep;
#[cfg(target_os = "linux")]
mod trees;
mod waiting;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the program said and how it ended.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The program with these arguments, at the root of the repository.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faircast"));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs the program to its end. Longer than `limit_s` means that it hangs.
fn run_within(limit_s: u64, arguments: &[&str]) -> Ended {
    let mut child =
        program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Both at once: a program whose pipe is full waits for its reader.
    let out = reader(child.stdout.take().unwrap());
    let err = reader(child.stderr.take().unwrap());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > Duration::from_secs(limit_s) {
            child.kill().unwrap();
            panic!("faircast {arguments:?} still runs after {limit_s} s");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ended { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

/// Runs the program, which must succeed and say nothing on standard error.
fn succeed(arguments: &[&str]) -> String {
    let ended = run_within(LIMIT_S, arguments);
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(0), ""),
        "faircast {arguments:?}: {}",
        ended.out
    );
    ended.out
}

/// Runs the program with `--json` among its arguments: exactly one document.
fn json(arguments: &[&str]) -> serde_json::Value {
    let out = succeed(arguments);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
}

/// Runs the program, which must refuse its arguments with one line on standard error and nothing
/// else. Returns the line.
fn refuse(arguments: &[&str]) -> String {
    let ended = run_within(HANG_S, arguments);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {}", ended.err);
    let line = ended.err.strip_suffix('\n').unwrap_or_default();
    assert!(line.starts_with("faircast: ") && !line.contains('\n'), "{arguments:?}: {line}");
    line.to_string()
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Puts a file into a folder and gives its path.
fn put(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    text_of(&path)
}

/// A path as an argument.
fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

/// Two TCP flows over one bottleneck: small, random in its starts, and with losses.
const SMALL: &str = "title = \"Does a small run have all that a large one has?\"
duration = \"20 s\"
warmup = \"5 s\"
seed = 7
[[link]]
between = [\"a\", \"b\"]
rate = \"1 Mbit/s\"
delay = \"20 ms\"
queue = { kind = \"droptail\", packets = 10 }
[[flow]]
name = \"tcp\"
protocol = \"tcp-sack\"
from = \"a\"
to = [\"b\"]
count = 2
start = { uniform = [\"0 s\", \"2 s\"] }
";

/// Seconds after which a run that should take a few is taken to hang.
const LIMIT_S: u64 = 300;
/// The same for a mistake that is found before anything runs.
const HANG_S: u64 = 10;
