//! Programs in namespaces, with what they cost.
//!
//! Each runs below a process of this same binary, which enters the namespace, starts the program,
//! says when it is done, kills it when its own standard input ends (so that nothing outlives the
//! suite, however that ends), and reports the CPU time of that one program.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

use super::Case;
use super::network::enter;
use crate::error::{Failure, print};

/// A program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Job {
    /// The file that stands for the namespace.
    pub(in crate::bench) namespace: PathBuf,
    /// The program and its arguments.
    pub(in crate::bench) command: Vec<String>,
    /// The file that appears when it has done its work, where it does not end then.
    pub(in crate::bench) done: Option<PathBuf>,
    /// Where what it says goes.
    pub(in crate::bench) log: PathBuf,
}

/// What became of a program.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::bench) struct Ended {
    /// Whether it ended by itself, well.
    pub(in crate::bench) well: bool,
    /// User and system time.
    pub(in crate::bench) cpu_s: f64,
}

/// How often the state of a program is looked at.
const GLANCE: Duration = Duration::from_millis(3);

/// How long a killed program may take to go.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a job in this process; its whole standard output is the protocol with [`Running`].
pub(super) fn run_job(job: &Job) -> Result<(), Failure> {
    enter(&job.namespace)?;
    let (program, arguments) = job.command.split_first().expect("a job has a program");
    let failed = |error: std::io::Error| Failure::Work(format!("{program}: {error}"));
    let log = std::fs::File::create(&job.log).map_err(failed)?;
    let mut child = Command::new(program)
        .args(arguments)
        // An open pipe: our programs in C stay until their input ends.
        .stdin(Stdio::piped())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let mut done = false;
    let well = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status.success();
        }
        if !done && job.done.as_ref().is_some_and(|file| file.exists()) {
            done = true;
            print("done\n")?;
        }
        if over.load(Ordering::Relaxed) {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            break false;
        }
        std::thread::sleep(GLANCE);
    };
    if well && !done {
        print("done\n")?;
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|error| Failure::Work(format!("the system does not tell CPU time: {error}")))?;
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let ended = Ended { well, cpu_s: cpu as f64 / 1e6 };
    let ended = serde_json::to_string(&ended).expect("plain values serialise");
    print(&format!("{ended}\n"))
}

/// A job that was started.
pub(in crate::bench) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
    log: PathBuf,
    done: Option<Instant>,
    ended: Option<Ended>,
}

impl Running {
    /// Starts a job.
    pub(in crate::bench) fn start(job: &Job) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Work(format!("this program: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let case = serde_json::to_string(&Case::Job(job.clone())).expect("plain values serialise");
        let mut child = Command::new(program)
            .args(["bench", "wire", "--wire-case", &case])
            // Ctrl-C is for the suite alone, which then ends all in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let out = child.stdout.take().expect("its output is a pipe");
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if to.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, lines, log: job.log.clone(), done: None, ended: None })
    }

    /// The number of the program's process, while it runs.
    pub(in crate::bench) fn program_id(&self) -> Option<u32> {
        let own = self.child.id();
        let children = format!("/proc/{own}/task/{own}/children");
        std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// When it was done with its work, waiting for that no longer than until `deadline`. `None`
    /// where it ended badly or is not done.
    pub(in crate::bench) fn wait_done(&mut self, deadline: Instant) -> Option<Instant> {
        while self.done.is_none() && self.ended.is_none() && self.read(deadline) {}
        self.done
    }

    /// Whether it has ended, without waiting.
    pub(in crate::bench) fn has_ended(&mut self) -> bool {
        while self.ended.is_none() && self.read(Instant::now()) {}
        self.ended.is_some()
    }

    /// Ends it, after it has had until `deadline` to end by itself.
    pub(in crate::bench) fn end(mut self, deadline: Instant) -> Ended {
        while self.ended.is_none() && self.read(deadline) {}
        self.stdin = None;
        let last = Instant::now() + LAST_PATIENCE;
        while self.ended.is_none() && self.read(last) {}
        self.ended.unwrap_or_default()
    }

    /// The last thing that it said.
    pub(in crate::bench) fn last_words(&self) -> String {
        last_line(&self.log)
    }

    /// Takes one line of the protocol. False where none came until the deadline or none can come.
    fn read(&mut self, deadline: Instant) -> bool {
        let patience = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(patience) {
            Ok((at, line)) if line == "done" => self.done = Some(at),
            Ok((_, line)) => self.ended = serde_json::from_str(&line).ok().or(self.ended),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => {
                self.ended.get_or_insert_default();
                return false;
            }
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The end of its input makes it kill its program and go.
        self.stdin = None;
        let patience = Instant::now() + LAST_PATIENCE;
        while Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_string()
}
