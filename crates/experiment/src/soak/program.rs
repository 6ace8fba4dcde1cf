//! Program on a host: started, stopped, killed and watched.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use faircast_base::{NodeId, fresh};
use faircast_lab::Field;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::round::TICK;
use crate::host::{children, memory_bytes, new_lines, said, spawn, stat};

/// Offset of the clocks in a time namespace in seconds: twelve days.
const AHEAD_S: u32 = 1_036_800;

pub(super) struct Program {
    own: PathBuf,
    node: NodeId,
    log: PathBuf,
    /// Bytes of the log that [`Program::new_output`] has returned.
    read_bytes: u64,
    trace: bool,
    /// File that the program finds at /etc/hosts.
    names: Option<PathBuf>,
    child: Option<Child>,
    pub(super) starts: u32,
    pub(super) memory_bytes: u64,
}

impl Program {
    pub(super) fn new(
        own: &Path,
        node: NodeId,
        log: PathBuf,
        trace: bool,
        names: Option<PathBuf>,
    ) -> Self {
        let own = own.to_owned();
        fresh! { Self { own, node, log, trace, names, } read_bytes, child, starts, memory_bytes }
    }

    pub(super) fn start(
        &mut self,
        field: &Field,
        arguments: &[String],
        ahead: bool,
    ) -> io::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let mut command = Command::new("unshare");
        if ahead {
            let ahead = AHEAD_S.to_string();
            command.args(["--time", "--monotonic", &ahead, "--boottime", &ahead, "--fork"]);
            command.arg("--kill-child=KILL").arg(&self.own);
        } else if let Some(names) = &self.names {
            let mounted = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            command.args(["--mount", "sh", "-c", mounted]).arg(names).arg(&self.own);
        } else {
            command = Command::new(&self.own);
        }
        command.args(arguments);
        if self.trace {
            let name = format!("{}.jsonl.gz", self.starts + 1);
            command.arg("--trace").arg(self.log.with_extension(name));
        }
        // A group of its own: signals reach a wrapper's child, and Ctrl-C reaches the soak alone.
        command.process_group(0);
        self.child = Some(spawn(field, self.node, command, &self.log)?);
        self.starts += 1;
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = killpg(Pid::from_raw(child.id() as i32), signal);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        let Some(child) = &self.child else { return false };
        let stopped = |id: u32| stat(id).is_some_and(|stat| stat[..1] == ["T"]);
        family(child.id()).all(stopped)
    }

    pub(super) fn kill(&mut self) {
        self.note_memory();
        self.signal(Signal::SIGKILL);
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Returns the exit status once after the program has ended; 128 for a signal.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.note_memory();
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status.code().unwrap_or(128))
    }

    /// Waits for the end and returns the exit status, or kills the program and returns `None`.
    pub(super) fn await_end(&mut self, longest: Duration) -> Option<i32> {
        let begin = Instant::now();
        while self.runs() && begin.elapsed() < longest {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::sleep(TICK);
        }
        self.kill();
        None
    }

    fn note_memory(&mut self) {
        let Some(child) = &self.child else { return };
        let peaks = family(child.id()).filter_map(|id| memory_bytes(id, "VmHWM:"));
        self.memory_bytes = peaks.fold(self.memory_bytes, u64::max);
    }

    /// Returns the longest time for which a process of the program waited for a processor.
    pub(super) fn starved(&self) -> Duration {
        let Some(child) = &self.child else { return Duration::ZERO };
        let waited = |id: u32| -> Option<u64> {
            let text = std::fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
            text.split(' ').nth(1)?.parse().ok()
        };
        let longest = family(child.id()).filter_map(waited).max();
        Duration::from_nanos(longest.unwrap_or(0))
    }

    pub(super) fn said(&self) -> String {
        said(&self.log)
    }

    pub(super) fn new_output(&mut self) -> String {
        new_lines(&self.log, &mut self.read_bytes)
    }

    pub(super) fn panics(&self) -> Vec<String> {
        let text = self.said();
        let wrong = |line: &&str| line.contains("panicked at") || line.contains("overflowed its");
        text.lines().filter(wrong).map(str::to_owned).collect()
    }
}

fn family(own: u32) -> impl Iterator<Item = u32> {
    children(own).into_iter().chain([own])
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
