//! Fuzzing one target with AFL++, guided by coverage: `cargo xtask fuzz TARGET`.

mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::shell;

pub(crate) struct Options {
    target: String,
    minutes: u64,
}

pub(crate) const USAGE: &str =
    "fuzz needs a target (a folder of fuzz/corpus), and takes --minutes N";

impl Options {
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

/// Fuzzes a target, minimises the corpus and records the run. Fails after a crash or a hang.
pub(crate) fn fuzz(options: &Options) -> ExitCode {
    let message = match run(options) {
        Ok(0) => return ExitCode::SUCCESS,
        Ok(found) => {
            format!("{found} inputs crash or hang; each is to become a file of the corpus")
        }
        Err(message) => message,
    };
    eprintln!("{message}");
    ExitCode::FAILURE
}

fn run(options: &Options) -> Result<usize, String> {
    if !shell::exists("cargo-afl") {
        shell::run("cargo", &["install", "--locked", "cargo-afl"], &[])?;
    }
    let fuzz = shell::root().join("fuzz");
    let mut build = vec!["afl", "build", "--release"];
    if options.target == PROGRAMS {
        build.extend(["--features", PROGRAMS]);
    }
    shell::run_in(&fuzz, "cargo", &build, &[])?;
    let program = fuzz.join("target/release/faircast-fuzz");
    let out = fuzz.join("target/afl").join(&options.target);
    let (corpus, program, out) = (corpus(&options.target), path(&program), path(&out));
    let seconds = (options.minutes * 60).to_string();
    fs::create_dir_all(&out).map_err(|error| format!("{out}: {error}"))?;
    let input = if Path::new(&out).join("default/queue").is_dir() { "-" } else { &path(&corpus) };
    let timeout_ms = TIMEOUT.as_millis().to_string();
    let arguments = ["afl", "fuzz", "-V", &seconds, "-t", &timeout_ms, "-i", input, "-o", &out];
    let end = ["--", &program, &options.target];
    let env = [
        ("AFL_NO_UI", "1"),
        ("AFL_NO_AFFINITY", "1"),
        ("AFL_SKIP_CPUFREQ", "1"),
        ("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1"),
    ];
    let found = Path::new(&out).join("default");
    let before = record::Counts::of(&found);
    let started = Instant::now();
    shell::run("cargo", &[&arguments[..], &end].concat(), &env)?;
    report(&found)?;
    let hours = started.elapsed().as_secs_f64() / 3600.0;
    let smallest = format!("{out}/smallest");
    let _ = fs::remove_dir_all(&smallest);
    let queue = path(&found.join("queue"));
    let arguments = ["afl", "cmin", "-i", &queue, "-o", &smallest];
    shell::run("cargo", &[&arguments[..], &end].concat(), &env)?;
    replace(&corpus, Path::new(&smallest))?;
    let mut findings = 0;
    for folder in ["crashes", "hangs"] {
        for input in files(&found.join(folder))? {
            findings += usize::from(fails(Path::new(&program), &options.target, &input)?);
        }
    }
    let after = record::Counts::of(&found).ok_or("AFL++ left no statistics")?;
    record::Run { target: &options.target, hours, before, after, findings }.add()?;
    Ok(findings)
}

/// True if a kept input crashes or hangs again: on a busy machine a sound program may be slow.
fn fails(program: &Path, target: &str, input: &Path) -> Result<bool, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", input.display());
    let stdin = fs::File::open(input).map_err(wrong)?;
    let mut command = Command::new(program);
    command.arg(target).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(wrong)?;
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().map_err(wrong)? {
            return Ok(!status.success());
        }
        std::thread::sleep(TIMEOUT / 1000);
    }
    child.kill().and_then(|()| child.wait()).map_err(wrong)?;
    Ok(true)
}

fn report(found: &Path) -> Result<(), String> {
    let stats = found.join("fuzzer_stats");
    let text = fs::read_to_string(&stats).map_err(|e| format!("{}: {e}", stats.display()))?;
    let key = |line: &str| line.split(':').next().unwrap_or_default().trim().to_string();
    let shown = text.lines().filter(|line| SHOWN.contains(&key(line).as_str()));
    shown.for_each(|line| println!("{line}"));
    println!("inputs: {}", found.display());
    Ok(())
}

fn replace(corpus: &Path, smallest: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", corpus.display());
    let with_len = |path: PathBuf| Ok((fs::metadata(&path).map_err(wrong)?.len(), path));
    let new = files(smallest)?.into_iter().map(with_len);
    let mut new = new.collect::<Result<Vec<_>, String>>()?;
    new.sort();
    // Handwritten examples have names, found inputs have numbers.
    let is_found = |path: &Path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"found-"))
    };
    for path in files(corpus)?.iter().filter(|path| is_found(path)) {
        fs::remove_file(path).map_err(wrong)?;
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

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(wrong)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.map_err(wrong)?;
    paths.retain(|path| path.is_file() && !path.ends_with("README.txt"));
    Ok(paths)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Target that contains a WebAssembly compiler, and the package feature that enables it.
const PROGRAMS: &str = "programs";
/// Run time of an input from which it counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(10);
const FILES_MAX: usize = 200;
const BYTES_MAX: u64 = 100_000;
const SHOWN: [&str; 9] = [
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_does_no_harm_when_run_again_is_no_finding() {
        let input = shell::root().join("Cargo.toml");
        for (program, want) in [("true", false), ("false", true)] {
            assert_eq!(fails(Path::new(program), "target", &input), Ok(want), "{program}");
        }
        assert!(fails(Path::new("true"), "target", Path::new("nothing")).is_err());
    }
}
