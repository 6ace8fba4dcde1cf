//! `faircast soak`: real programs on real sockets while everything around them goes wrong.
//!
//! Each round draws a [plan](plan) from its seed, makes a [field](faircast_lab::Field) of hosts,
//! runs this same binary there as sender and receivers, does to them what is planned, leaves them
//! in peace, and compares what every receiver has with what was sent, byte for byte.

mod noise;
mod plan;
mod program;
mod round;
mod tree;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration as WallDuration, Instant};

use clap::ValueEnum as _;
use faircast_proto::catalog::DEFAULT_SCHEME;
use serde::Serialize;

use crate::args::{SoakArgs, SoakFault};
use crate::error::{Failure, note, print};
use crate::interrupt::{interrupted, listen};
use plan::Plan;
use round::{MEMORY_MAX, Round, Verdict};

/// A round and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    seed: u64,
    faults: Vec<String>,
    holds: bool,
    #[serde(flatten)]
    verdict: Verdict,
    /// The command that does it again.
    again: String,
    /// Where its files are, where they were kept.
    kept: Option<PathBuf>,
}

/// Everything, for `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    faircast: &'static str,
    seed: u64,
    scheme: &'a str,
    receivers: u32,
    sealed: bool,
    memory_bytes_max: u64,
    rounds: &'a [Row],
    holds: bool,
}

/// Runs rounds until the time is over, and says what came of them.
pub(crate) fn soak(args: &SoakArgs) -> Result<(), Failure> {
    listen();
    if !nix::unistd::geteuid().is_root() {
        let message =
            "soak makes network namespaces and interfaces, which needs root: sudo faircast soak";
        return Err(Failure::Work(message.into()));
    }
    let seed = args.seed.unwrap_or_else(drawn_seed);
    if !args.json {
        print(&format!(
            "seed {seed}, {}, {} receivers{}\n",
            args.scheme,
            args.receivers,
            sealed(args)
        ))?;
    }
    let (begin, longest) = (Instant::now(), WallDuration::from_nanos(args.duration.as_nanos()));
    let mut rows: Vec<Row> = Vec::new();
    let goes_on = |done: usize| match args.rounds {
        Some(rounds) => done < rounds as usize,
        None => done == 0 || begin.elapsed() < longest,
    };
    while goes_on(rows.len()) && !interrupted() {
        let row = match one(args, seed.wrapping_add(rows.len() as u64)) {
            Err(_) if interrupted() => break,
            row => row?,
        };
        if !args.json {
            print(&line(&row, rows.len()))?;
        }
        rows.push(row);
    }
    let holds = !rows.is_empty() && rows.iter().all(|row| row.holds);
    if args.json {
        let document = Document {
            faircast: env!("CARGO_PKG_VERSION"),
            seed,
            scheme: &args.scheme,
            receivers: args.receivers,
            sealed: args.key,
            memory_bytes_max: MEMORY_MAX,
            rounds: &rows,
            holds,
        };
        let text = serde_json::to_string_pretty(&document).map_err(|error| {
            Failure::Work(format!("the rounds cannot be written as JSON: {error}"))
        })?;
        print(&(text + "\n"))?;
    } else {
        print(&table(&rows))?;
    }
    if interrupted() {
        note("interrupted; the rounds above are those that were finished");
    }
    if holds { Ok(()) } else { Err(Failure::Verdict) }
}

/// A round of this seed.
fn one(args: &SoakArgs, seed: u64) -> Result<Row, Failure> {
    let bytes = args.size.map(faircast_base::Bytes::count);
    let plan = Plan::new(seed, args.receivers, &args.only, bytes);
    let folder = Folder::new(args.out.as_deref(), seed)?;
    let round = Round::new(
        &plan,
        seed,
        args.receivers,
        folder.path(),
        (args.key, args.trace),
        &args.scheme,
    )?;
    let verdict = round.run()?;
    let holds = verdict.problems.is_empty();
    Ok(Row {
        seed,
        faults: plan.faults.iter().map(|fault| name(*fault)).collect(),
        holds,
        verdict,
        again: again(args, seed),
        kept: folder.finish(holds),
    })
}

/// Where a round keeps its files: a folder that stays, or one that goes with the round if that
/// holds.
enum Folder {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn new(out: Option<&Path>, seed: u64) -> Result<Self, Failure> {
        match out {
            Some(out) => {
                let folder = out.join(format!("round-{seed}"));
                // What an earlier run left would be taken for received.
                if folder.exists() {
                    std::fs::remove_dir_all(&folder)
                        .map_err(|error| Failure::write(&folder, &error))?;
                }
                Failure::make_folder(&folder)?;
                let absolute = folder.canonicalize();
                absolute.map(Self::Kept).map_err(|error| Failure::write(&folder, &error))
            }
            None => tempfile::Builder::new()
                .prefix("faircast-soak-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(|error| Failure::write(&std::env::temp_dir(), &error)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    fn finish(self, holds: bool) -> Option<PathBuf> {
        match self {
            Self::Kept(path) => Some(path),
            Self::Temporary(folder) => (!holds).then(|| folder.keep()),
        }
    }
}

fn drawn_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Small enough to be read out and typed.
    since.map_or(1, |since| u64::from(since.subsec_nanos()) % 1_000_000)
}

fn name(fault: SoakFault) -> String {
    fault.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

fn sealed(args: &SoakArgs) -> &'static str {
    if args.key { ", sealed" } else { "" }
}

/// The command that runs one round of `args` again.
fn again(args: &SoakArgs, seed: u64) -> String {
    let mut command = format!("faircast soak --seed {seed} --rounds 1");
    if args.scheme != DEFAULT_SCHEME {
        let _ = write!(command, " --scheme {}", args.scheme);
    }
    if args.receivers != 4 {
        let _ = write!(command, " --receivers {}", args.receivers);
    }
    if args.key {
        command += " --key";
    }
    for fault in &args.only {
        let _ = write!(command, " --only {}", name(*fault));
    }
    if let Some(size) = args.size {
        let _ = write!(command, " --size {}B", size.count());
    }
    command
}

/// A round in a line, and its problems below where it has any.
fn line(row: &Row, index: usize) -> String {
    let Verdict { seconds, bytes, memory_bytes, starts, .. } = row.verdict;
    let mut line = format!(
        "{:>4}  seed {:<8} {:<5} {seconds:>6.1} s {:>7.1} MB {:>5} MiB {starts:>3} starts  {}\n",
        index + 1,
        row.seed,
        if row.holds { "holds" } else { "FAILS" },
        bytes as f64 / 1e6,
        memory_bytes >> 20,
        row.faults.join(" ")
    );
    for said in row.verdict.notes.iter().chain(&row.verdict.problems) {
        let _ = writeln!(line, "      {said}");
    }
    if !row.holds {
        let _ = writeln!(line, "      again: sudo {}", row.again);
        if let Some(kept) = &row.kept {
            let _ = writeln!(line, "      kept:  {}", kept.display());
        }
    }
    line
}

/// What came of all rounds.
fn table(rows: &[Row]) -> String {
    let sum = |count: fn(&Verdict) -> u64| rows.iter().map(|row| count(&row.verdict)).sum::<u64>();
    let held = rows.iter().filter(|row| row.holds).count();
    let memory = rows.iter().map(|row| row.verdict.memory_bytes).max().unwrap_or(0);
    let mut text = format!("\n{held} of {} rounds hold\n", rows.len());
    let mut add = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<34} {value:>12}");
    };
    add("megabytes to each receiver", format!("{:.1}", sum(|v| v.bytes) as f64 / 1e6));
    add("starts of programs", sum(|v| v.starts.into()).to_string());
    add("packets lost by links", sum(|v| v.lost_packets).to_string());
    add("packets doubled", sum(|v| v.duplicated_packets).to_string());
    add("packets corrupted", sum(|v| v.corrupted_packets).to_string());
    add("packets delayed", sum(|v| v.delayed_packets).to_string());
    add("packets of the outsider", sum(|v| v.noise_packets).to_string());
    let limit = format!("{} of {} MiB", memory >> 20, MEMORY_MAX >> 20);
    add("most memory of a program", limit);
    text
}
