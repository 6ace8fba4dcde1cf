//! Fuzzing one target with AFL++, guided by coverage: `cargo xtask fuzz TARGET`.

mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::shell;

/// What is fuzzed, and for how long.
pub(crate) struct Options {
    target: String,
    minutes: u64,
}

/// Usage, for who gave wrong arguments.
pub(crate) const USAGE: &str =
    "fuzz needs a target (a folder of fuzz/corpus), and takes --minutes N";

impl Options {
    /// Reads the arguments behind `fuzz`.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (target, minutes) = match words {
            [target] => (target, 60),
            [target, "--minutes", minutes] => (target, minutes.parse().ok()?),
            _ => return None,
        };
        let known = target.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && corpus(target).is_dir();
        (known && minutes > 0).then(|| Self { target: (*target).to_string(), minutes })
    }
}

fn corpus(target: &str) -> PathBuf {
    shell::root().join("fuzz/corpus").join(target)
}

/// Builds the targets with AFL++'s instrumentation, fuzzes one, says what came of it, and replaces
/// its corpus by the smallest one that covers as much, and adds the run to `fuzz/RECORD.md`. Fails
/// where something crashed or hung.
pub(crate) fn fuzz(options: &Options) -> ExitCode {
    match run(options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(found) => {
            eprintln!("{found} inputs crash or hang; each is to become a file of the corpus");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<usize, String> {
    if !shell::exists("cargo-afl") {
        shell::run("cargo", &["install", "--locked", "cargo-afl"], &[])?;
    }
    let fuzz = shell::root().join("fuzz");
    shell::run_in(&fuzz, "cargo", &["afl", "build", "--release"])?;
    let program = fuzz.join("target/release/faircast-fuzz");
    let out = fuzz.join("target/afl").join(&options.target);
    let (corpus, program, out) = (corpus(&options.target), path(&program), path(&out));
    let seconds = (options.minutes * 60).to_string();
    fs::create_dir_all(&out).map_err(|error| format!("{out}: {error}"))?;
    // What an earlier run has found is taken up again.
    let input = if Path::new(&out).join("default/queue").is_dir() { "-" } else { &path(&corpus) };
    let arguments = ["afl", "fuzz", "-V", &seconds, "-t", TIMEOUT_MS, "-i", input, "-o", &out];
    let end = ["--", &program, &options.target];
    let env = [
        ("AFL_NO_UI", "1"),
        ("AFL_NO_AFFINITY", "1"),
        ("AFL_SKIP_CPUFREQ", "1"),
        ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
    ];
    let found = Path::new(&out).join("default");
    let before = record::Counts::of(&found);
    let started = record::cpu_s()?;
    shell::run("cargo", &[&arguments[..], &end].concat(), &env)?;
    tell(&found)?;
    let cpu_s = record::cpu_s()? - started;
    let smallest = format!("{out}/smallest");
    let _ = fs::remove_dir_all(&smallest);
    let queue = path(&found.join("queue"));
    let arguments = ["afl", "cmin", "-i", &queue, "-o", &smallest];
    shell::run("cargo", &[&arguments[..], &end].concat(), &env)?;
    replace(&corpus, Path::new(&smallest))?;
    let inputs = |folder: &str| files(&found.join(folder)).map(|files| files.len());
    let findings = inputs("crashes")? + inputs("hangs")?;
    let after = record::Counts::of(&found).ok_or("AFL++ left no statistics")?;
    record::add(&options.target, cpu_s, before, after, findings)?;
    Ok(findings)
}

/// Prints what AFL++ counted.
fn tell(found: &Path) -> Result<(), String> {
    let stats = found.join("fuzzer_stats");
    let text = fs::read_to_string(&stats).map_err(|e| format!("{}: {e}", stats.display()))?;
    for line in text.lines() {
        let key = line.split(':').next().unwrap_or_default().trim();
        if SHOWN.contains(&key) {
            println!("{line}");
        }
    }
    println!("inputs: {}", found.display());
    Ok(())
}

/// Puts the smallest corpus in the place of the old one. Large inputs say little that small ones do
/// not, and the repository keeps all of them.
fn replace(corpus: &Path, smallest: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", corpus.display());
    let mut new: Vec<(u64, PathBuf)> = Vec::new();
    for path in files(smallest)? {
        new.push((fs::metadata(&path).map_err(wrong)?.len(), path));
    }
    new.sort();
    // Examples that people wrote have names; those of the fuzzer have numbers.
    for path in files(corpus)? {
        if is_found(&path) {
            fs::remove_file(&path).map_err(wrong)?;
        }
    }
    let mut bytes = 0;
    for (number, (len, path)) in new.iter().take(FILES_MAX).enumerate() {
        bytes += len;
        if bytes > BYTES_MAX {
            break;
        }
        fs::copy(path, corpus.join(format!("found-{number:03}"))).map_err(wrong)?;
    }
    Ok(())
}

fn is_found(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("found-"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(wrong)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(wrong)?.path());
    }
    paths
        .retain(|path| path.is_file() && path.file_name().is_some_and(|name| name != "README.txt"));
    Ok(paths)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// An input for which a target takes longer hangs.
const TIMEOUT_MS: &str = "10000";
/// The most files of a corpus that the repository keeps of what was found, and their bytes.
const FILES_MAX: usize = 200;
const BYTES_MAX: u64 = 100_000;
/// What is printed of AFL++'s statistics.
const SHOWN: &[&str] = &[
    "run_time",
    "execs_done",
    "execs_per_sec",
    "corpus_count",
    "edges_found",
    "total_edges",
    "bitmap_cvg",
    "saved_crashes",
    "saved_hangs",
];
