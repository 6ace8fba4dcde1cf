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

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
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
    let out = Said::of(child.stdout.take().unwrap());
    let err = Said::of(child.stderr.take().unwrap());
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
    Ended { code: status.code(), out: out.all(), err: err.all() }
}

/// What a program says, read all the time: one whose pipe is full waits for its reader.
struct Said {
    text: Arc<(Mutex<Text>, Condvar)>,
}

#[derive(Default)]
struct Text {
    so_far: String,
    is_all: bool,
}

impl Said {
    fn of(from: impl Read + Send + 'static) -> Self {
        let text = Arc::<(Mutex<Text>, Condvar)>::default();
        let said = Self { text: text.clone() };
        std::thread::spawn(move || {
            let (text, more) = &*text;
            let (mut from, mut line) = (BufReader::new(from), Vec::new());
            while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                text.lock().unwrap().so_far += &String::from_utf8_lossy(&line);
                more.notify_all();
                line.clear();
            }
            text.lock().unwrap().is_all = true;
            more.notify_all();
        });
        said
    }

    /// Waits for a line that is wanted; `false` where it ends before, or nothing comes for too long.
    fn until(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let (text, more) = &*self.text;
        let is_there = |text: &Text| text.so_far.lines().any(&is_wanted);
        let go_on = |text: &mut Text| !text.is_all && !is_there(text);
        let limit = Duration::from_secs(LIMIT_S);
        let waited = more.wait_timeout_while(text.lock().unwrap(), limit, go_on).unwrap();
        is_there(&waited.0)
    }

    fn so_far(&self) -> String {
        self.text.0.lock().unwrap().so_far.clone()
    }

    /// All of it, once it has an end.
    fn all(&self) -> String {
        let (text, more) = &*self.text;
        let mut text = more.wait_while(text.lock().unwrap(), |text| !text.is_all).unwrap();
        std::mem::take(&mut text.so_far)
    }
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
