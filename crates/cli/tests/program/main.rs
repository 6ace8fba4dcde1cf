//! The built program, as its users meet it: arguments, exit status, output and files.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod bench;
#[path = "../../../experiment/tests/browser/chrome.rs"]
mod chrome;
mod clocks;
mod demo;
mod documents;
mod faults;
mod files;
mod full_size;
mod heads;
mod hosts;
mod images;
mod interrupt;
mod lab;
mod live;
mod manual;
mod matrix;
mod mistakes;
mod networks;
mod overlay;
mod overlay_live;
mod overlay_page;
mod policies;
mod published;
mod relays;
mod running;
mod scenarios;
mod schemes;
mod site;
mod soak;
mod summary;
mod sweep;
mod trees;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use running::{Ended, Running};
use serde_json::Value;

/// The program with these words, at the root of the repository; those in single quotes may have spaces.
fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faircast"));
    command.args(site::words(words)).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs the program to its end. Longer than `limit_s` means that it hangs.
fn run_within(limit_s: u64, words: &str) -> Ended {
    Running::start(words).end_within(limit_s)
}

/// Runs the program, which must succeed and say nothing on standard error but its progress.
fn succeed(words: &str) -> String {
    Running::start(words).succeed()
}

/// Runs the program with `--json` among its words: exactly one document.
fn json(words: &str) -> Value {
    Running::start(words).document()
}

/// Runs the program, which must refuse its arguments with one line on standard error and nothing
/// else. Returns the line.
fn refuse(words: &str) -> String {
    Running::start(words).refuse()
}

/// A file that is one JSON document.
fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Whether this is root, without whom there are no network namespaces; says so where it is not.
fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
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
