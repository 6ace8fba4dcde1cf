//! Checks in their order, each with its name, its time and its result.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use crate::workspace::{self, Crate};
use crate::{deps, guide, packages, readme, shell, tidy};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    keep_going: bool,
    without_browser: bool,
}

pub(crate) const OPTIONS: &[(&str, &str)] = &[
    ("--keep-going", "run the other checks after one has failed"),
    (
        "--without-browser",
        "neither install nor require a browser; tests that need one may pass over",
    ),
];

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let is_unknown = |word: &&&str| !OPTIONS.iter().any(|(name, _)| name == *word);
        if let Some(other) = words.iter().find(is_unknown) {
            return Err(format!("unknown option of test: {other}"));
        }
        let [keep_going, without_browser] =
            ["--keep-going", "--without-browser"].map(|name| words.contains(&name));
        Ok(Self { keep_going, without_browser })
    }
}

struct StepResult {
    name: &'static str,
    seconds: f64,
    /// Result in words, also of a step for which something is not installed.
    outcome: Result<String, String>,
}

impl StepResult {
    fn line(&self) -> String {
        let (word, words) = match &self.outcome {
            Ok(words) => ("ok", words.as_str()),
            Err(words) => ("FAILED", words.lines().next().unwrap_or_default()),
        };
        format!("{:14} {:>7.1} s  {word:6}  {words}", self.name, self.seconds)
    }
}

pub(crate) fn test(options: Options) -> ExitCode {
    let mut run = Run { options, results: Vec::new(), crates: Vec::new(), tests: Vec::new() };
    run.all();
    println!("\n=== results");
    for result in &run.results {
        println!("{}", result.line());
    }
    let failed = run.results.iter().filter(|result| result.outcome.is_err()).count();
    if !run.tests.is_empty() {
        println!("\n=== the end of cargo test");
        for line in &run.tests[run.tests.len().saturating_sub(TEST_LINES_SHOWN_MAX)..] {
            println!("{line}");
        }
    }
    if failed == 0 {
        println!("\nall checks passed");
        return ExitCode::SUCCESS;
    }
    let left = if options.keep_going { "" } else { "; later checks were not run" };
    println!("\n{failed} of {} checks failed{left}", run.results.len());
    ExitCode::from(1)
}

/// Runs `tidy` or `guide` alone.
pub(crate) fn only(name: &str) -> ExitCode {
    let outcome = match name {
        "tidy" => workspace::crates().and_then(|crates| tidy::check(&crates)),
        _ => workspace::target_directory().and_then(|target| guide::check(&target, true)),
    };
    match outcome {
        Ok(words) => {
            println!("{name}: {words}");
            ExitCode::SUCCESS
        }
        Err(words) => {
            println!("{words}");
            ExitCode::from(1)
        }
    }
}

struct Run {
    options: Options,
    results: Vec<StepResult>,
    crates: Vec<Crate>,
    /// Lines of `cargo test` to print at the end.
    tests: Vec<String>,
}

impl Run {
    /// Runs quick checks first, and tests last, so that the output ends with test results.
    fn all(&mut self) {
        let browser = !self.options.without_browser;
        let ran = self.step("packages", |_| packages::install(browser))
            && self.step("format", |_| {
                cargo(&["fmt", "--all", "--check"], &[], "all code is formatted")
            })
            && self.step("crates", |run| {
                // Completes the lock file, so that all later calls agree.
                shell::output("cargo", &["metadata", "--format-version", "1"])?;
                run.crates = workspace::crates()?;
                deps::check(&run.crates)
            })
            && self.step("tidy", |run| tidy::check(&run.crates))
            && self.step("compare", |_| comparisons())
            && self.step("licences", |_| licences())
            && self.step("clippy", |_| {
                let warnings = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
                cargo(&warnings, &[], "no warnings")
            })
            && self.step("wasm32", |run| wasm32(&run.crates))
            && self.step("rustdoc", |_| {
                let documents = ["doc", "--workspace", "--no-deps"];
                cargo(&documents, &[("RUSTDOCFLAGS", "-D warnings")], "no warnings")
            })
            && self.step("build", |_| {
                cargo(&["test", "--workspace", "--no-run"], &[], "the program and all tests")
            })
            && self.step("readme", |_| readme::run(&workspace::target_directory()?.join("debug")))
            && self.tests_and_guide();
        debug_assert!(ran || !self.results.is_empty());
    }

    fn step(
        &mut self,
        name: &'static str,
        check: impl FnOnce(&mut Self) -> Result<String, String>,
    ) -> bool {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = check(self);
        if let Err(words) = &outcome {
            println!("{words}");
        }
        let result = StepResult { name, seconds: start.elapsed().as_secs_f64(), outcome };
        println!("--- {}", result.line());
        let go_on = result.outcome.is_ok() || self.options.keep_going;
        self.results.push(result);
        go_on
    }

    /// Runs the guide during the tests, most of which wait and leave the processors idle.
    fn tests_and_guide(&mut self) -> bool {
        let begun = OnceLock::new();
        std::thread::scope(|scope| {
            let guide = scope.spawn(|| {
                // Cargo locks the build folder until the tests start.
                begun.wait();
                let start = Instant::now();
                let outcome =
                    workspace::target_directory().and_then(|target| guide::check(&target, false));
                StepResult { name: "guide", seconds: start.elapsed().as_secs_f64(), outcome }
            });
            let tests = self.step("tests", |run| {
                let outcome = run.tests(&begun);
                begun.get_or_init(|| ());
                outcome
            });
            let Ok(guide) = guide.join() else { return false };
            println!("--- {}", guide.line());
            let holds = guide.outcome.is_ok();
            self.results.push(guide);
            tests && holds
        })
    }

    /// Runs the network tests in parallel with all others: the first wait, the others compute.
    fn tests(&mut self, begun: &OnceLock<()>) -> Result<String, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.max(TEST_THREADS_MIN).to_string();
        let mut env = vec![("RUST_TEST_THREADS", threads.as_str())];
        if !self.options.without_browser {
            env.push(("FAIRCAST_REQUIRE_BROWSER", "1"));
        }
        // Tests skip what this machine does not support; supported tests must not be skipped.
        let network = packages::network();
        match &network {
            Ok(()) => env.push(("FAIRCAST_REQUIRE_INTEROP", "1")),
            Err(why) => println!("tests with other implementations pass over: {why}"),
        }
        let (waiting, computing) = test_arguments(&self.crates);
        let run = |part: &[String]| self.cargo_test(part, &env, begun);
        let (waited, computed) = std::thread::scope(|scope| {
            let computed = scope.spawn(|| {
                begun.wait();
                let (mut lines, ended) = run(&computing);
                let documented = match &ended {
                    Err(_) if !self.options.keep_going => Ok(()),
                    _ => {
                        let (more, documented) = run(&["--doc".into()]);
                        lines.extend(more);
                        documented
                    }
                };
                (lines, ended.and(documented))
            });
            let waited = run(&waiting);
            begun.get_or_init(|| ());
            let lost = || (Vec::new(), Err("a thread of the tests was lost".to_string()));
            (waited, computed.join().unwrap_or_else(|_| lost()))
        });
        let lines: Vec<String> = computed.0.into_iter().chain(waited.0).collect();
        let passed: u64 = lines.iter().filter_map(|line| passed(line)).sum();
        self.tests = lines;
        waited.1.and(computed.1)?;
        if passed == 0 {
            return Err("cargo test ran no test at all".to_string());
        }
        let without = network.err().map(|why| format!(", none with other implementations: {why}"));
        Ok(format!("{passed} tests passed{}", without.unwrap_or_default()))
    }

    fn cargo_test(
        &self,
        part: &[String],
        env: &[(&str, &str)],
        begun: &OnceLock<()>,
    ) -> (Vec<String>, Result<(), String>) {
        let interesting = |line: &str| {
            if line.starts_with("     Running") {
                begun.get_or_init(|| ());
            }
            ["     Running", "   Doc-tests", "test result:", "failures:", "error:", "    "]
                .iter()
                .any(|start| line.starts_with(start))
                && !line.starts_with("    Finished")
                && !line.starts_with("    Blocking")
        };
        let go_on = self.options.keep_going.then_some("--no-fail-fast");
        let part = part.iter().map(String::as_str);
        let arguments: Vec<&str> =
            ["test", "--workspace"].into_iter().chain(go_on).chain(part).collect();
        shell::run_and_remember("cargo", &arguments, env, interesting)
    }
}

/// Returns arguments by targets, not crates: the features of a part would differ.
fn test_arguments(crates: &[Crate]) -> (Vec<String>, Vec<String>) {
    let named = |networks: bool| {
        crates
            .iter()
            .filter(move |found| TESTS_ON_NETWORKS.contains(&found.name.as_str()) == networks)
            .flat_map(|found| &found.tests)
            .flat_map(|test| ["--test".to_string(), test.clone()])
    };
    let computing = ["--lib".to_string(), "--bins".to_string()].into_iter().chain(named(false));
    (named(true).collect(), computing.collect())
}

fn passed(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("test result:")?;
    rest.split_once(" passed")?.0.rsplit(' ').next()?.parse().ok()
}

fn cargo(arguments: &[&str], env: &[(&str, &str)], words: &str) -> Result<String, String> {
    shell::run("cargo", arguments, env).map(|()| words.to_string())
}

fn wasm32(crates: &[Crate]) -> Result<String, String> {
    let target = packages::PROGRAMS_TARGET;
    let portable = crates.iter().filter(|found| deps::PORTABLE.contains(&found.name.as_str()));
    let packages: Vec<&str> = portable.map(|found| found.package.as_str()).collect();
    let mut arguments = vec!["check", "--target", target];
    for package in &packages {
        arguments.extend(["-p", package]);
    }
    cargo(&arguments, &[], &format!("{} crates checked", packages.len()))
}

fn comparisons() -> Result<String, String> {
    if shell::output("python3", &["-c", "import tomllib"]).is_err() {
        return Ok("passed over: there is no python3 of version 3.11 or later".to_string());
    }
    let tests = ["-W", "error", "compare/test_compare.py"];
    shell::run("python3", &tests, &[]).map(|()| "all hold".to_string())
}

fn licences() -> Result<String, String> {
    if !shell::exists("cargo-deny") {
        let words = "passed over: cargo-deny is not installed: cargo install --locked cargo-deny";
        return Ok(words.to_string());
    }
    cargo(&["deny", "check", "licenses", "bans", "sources"], &[], "all allowed by deny.toml")
}

const TESTS_ON_NETWORKS: &[&str] = &["cli", "experiment", "faircast", "lab", "net", "node"];

/// Fewest concurrent tests: network tests mostly wait.
const TEST_THREADS_MIN: usize = 8;

const TEST_LINES_SHOWN_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let both = Options { keep_going: true, without_browser: true };
        assert_eq!(Options::parse(&["--without-browser", "--keep-going"]), Ok(both));
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
        assert!(Options::parse(&["--fast"]).unwrap_err().contains("--fast"));
    }

    #[test]
    fn each_integration_test_is_named_once_and_no_name_is_in_both_parts() {
        let crates = workspace::crates().unwrap();
        let (waiting, computing) = test_arguments(&crates);
        let names = |part: &[String]| -> std::collections::BTreeSet<String> {
            part.iter().filter(|word| !word.starts_with("--")).cloned().collect()
        };
        let (waiting, computing) = (names(&waiting), names(&computing));
        assert!(waiting.contains("live") && computing.contains("contract"));
        // Cargo runs every test of a name: a name in both parts would run twice.
        assert_eq!(waiting.intersection(&computing).count(), 0);
        let all: usize = crates.iter().map(|found| found.tests.len()).sum();
        assert!(waiting.len() + computing.len() <= all);
    }

    #[test]
    fn passed_tests_are_counted() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; finished in 0.1s";
        assert_eq!(passed(line), Some(12));
        assert_eq!(passed("test a ... ok"), None);
    }
}
