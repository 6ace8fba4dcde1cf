//! Programs on hosts, with their CPU time.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faircast_lab::lan::Lan;
use nix::sys::resource::UsageWho;

use super::{cpu_s, last_words, usage};
use crate::Error;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) at: Instant,
    /// True if the program ended by itself, with success.
    pub(crate) well: bool,
    pub(crate) cpu_s: f64,
}

const GLANCE: Duration = Duration::from_millis(3);

/// Program with its output in a log, killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) log: PathBuf,
    ended: Option<Ended>,
}

impl Running {
    pub(crate) fn on(
        lan: &Lan,
        host: usize,
        words: &[String],
        log: PathBuf,
    ) -> Result<Self, Error> {
        let mut command = lan.command(host, &words[0]);
        command.args(&words[1..]);
        Self::start(command, "setpriv of util-linux", log)
    }

    pub(crate) fn start(mut command: Command, name: &str, log: PathBuf) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::doing(name, error);
        let file = File::create(&log).map_err(|error| Error::write(&log, error))?;
        // A group of its own: Ctrl-C reaches the suite alone, which ends all programs in order.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(failed)?).stderr(file);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { child, log, ended: None })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            let before = children_cpu_s();
            if let Ok(Some(status)) = self.child.try_wait() {
                let cpu_s = children_cpu_s() - before;
                self.ended = Some(Ended { at: Instant::now(), well: status.success(), cpu_s });
            }
        }
        self.ended
    }

    pub(crate) fn end(mut self, deadline: Instant) -> Option<Ended> {
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(GLANCE);
        }
        self.kill()
    }

    fn kill(&mut self) -> Option<Ended> {
        let _ = self.child.kill();
        while self.ended().is_none() {
            std::thread::sleep(GLANCE);
        }
        self.ended
    }

    pub(crate) fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn children_cpu_s() -> f64 {
    usage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| cpu_s(&usage))
}
