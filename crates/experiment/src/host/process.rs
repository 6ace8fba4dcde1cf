//! Programs in namespaces, with what they cost.
//!
//! Each runs below a process of this same binary, which enters the namespace, starts the program,
//! says when it is done, kills it when its own standard input ends (so that nothing outlives the
//! suite, however that ends), and reports the CPU time of that one program.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};

use super::network::enter;
use super::{children, cpu_s, last_words, usage};
use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) namespace: PathBuf,
    pub(crate) command: Vec<String>,
    /// The file that appears when it has done its work, where it does not end then.
    pub(crate) done: Option<PathBuf>,
    pub(crate) log: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Whether it ended by itself, well.
    pub(crate) well: bool,
    pub(crate) cpu_s: f64,
}

const GLANCE: Duration = Duration::from_millis(3);

/// How long a killed program may take to go.
const LAST_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs a job in this process; all that goes to `out`, its standard output, is the protocol with
/// [`Running`].
pub(crate) fn run_job(job: &Job, out: &mut dyn Write) -> Result<(), Error> {
    enter(&job.namespace)?;
    let (program, arguments) = job.command.split_first().expect("a job has a program");
    let failed = |error: std::io::Error| Error::doing(program, error);
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
    // Who started it may be gone; the end of the input says so.
    let mut tell = |line: &str| drop(writeln!(out, "{line}").and_then(|()| out.flush()));
    let mut done = false;
    let well = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status.success();
        }
        if !done && job.done.as_ref().is_some_and(|file| file.exists()) {
            done = true;
            tell("done");
        }
        if over.load(Ordering::Relaxed) {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            break false;
        }
        std::thread::sleep(GLANCE);
    };
    if well && !done {
        tell("done");
    }
    let ended = Ended { well, cpu_s: cpu_s(&usage(UsageWho::RUSAGE_CHILDREN)?) };
    tell(&serde_json::to_string(&ended).expect("plain values serialise"));
    Ok(())
}

pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
    log: PathBuf,
    done: Option<Instant>,
    ended: Option<Ended>,
}

impl Running {
    pub(super) fn start(own: &Path, job: &Job) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::doing("this program", error);
        let case = serde_json::json!({ "Job": job }).to_string();
        let mut child = Command::new(own)
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
    pub(crate) fn program_id(&self) -> Option<u32> {
        children(self.child.id()).first().copied()
    }

    /// When it was done with its work, waiting for that no longer than until `deadline`. `None`
    /// where it ended badly or is not done.
    pub(crate) fn wait_done(&mut self, deadline: Instant) -> Option<Instant> {
        while self.done.is_none() && self.ended.is_none() && self.read(deadline) {}
        self.done
    }

    /// Whether it has ended, without waiting.
    pub(crate) fn has_ended(&mut self) -> bool {
        while self.ended.is_none() && self.read(Instant::now()) {}
        self.ended.is_some()
    }

    /// Ends it, after it has had until `deadline` to end by itself.
    pub(crate) fn end(mut self, deadline: Instant) -> Ended {
        while self.ended.is_none() && self.read(deadline) {}
        self.stdin = None;
        let last = Instant::now() + LAST_WAIT_MAX;
        while self.ended.is_none() && self.read(last) {}
        self.ended.unwrap_or_default()
    }

    pub(crate) fn last_words(&self) -> String {
        last_words(&self.log)
    }

    /// Takes one line of the protocol. False where none came until the deadline or none can come.
    fn read(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
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
        let last = Instant::now() + LAST_WAIT_MAX;
        while Instant::now() < last {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
