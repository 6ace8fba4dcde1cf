//! Tests of the built program: arguments, exit status, output and files.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

/// Ends a test that makes network namespaces, unless root runs it.
macro_rules! need_root {
    () => {
        if !is_root() {
            return;
        }
    };
}

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
#[path = "../../../../tests/noise.rs"]
mod noise;
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

/// Returns the program with these arguments. Arguments in single quotes may have spaces.
fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faircast"));
    command.args(site::words(words)).current_dir(root()).stdin(Stdio::null());
    command
}

fn run_within(limit_s: u64, words: &str) -> Ended {
    Running::start(words).end_within(limit_s)
}

fn succeed(words: &str) -> String {
    Running::start(words).succeed()
}

fn json(words: &str) -> Value {
    Running::start(words).document()
}

fn refuse(words: &str) -> String {
    Running::start(words).refuse()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

const SMALL: &str = r#"title = "Does a small run have all that a large one has?"
duration = "20 s"
warmup = "5 s"
seed = 7
[[link]]
between = ["a", "b"]
rate = "1 Mbit/s"
delay = "20 ms"
queue = { kind = "droptail", packets = 10 }
[[flow]]
name = "tcp"
protocol = "tcp-sack"
from = "a"
to = ["b"]
count = 2
start = { uniform = ["0 s", "2 s"] }
"#;

/// Seconds before a run of a few seconds counts as hung.
const LIMIT_S: u64 = 300;
/// Seconds before the report of a mistake, found before anything runs, counts as hung.
const HANG_S: u64 = 10;
