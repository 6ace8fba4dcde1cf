//! Hosts in network namespaces, and programs on them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use faircast_lab::lan::Lan;

use crate::{GROUP, PORT, until};

pub(crate) struct Hosts {
    lan: Lan,
    folder: tempfile::TempDir,
    /// Lock that runs one test at a time, since others would disturb tests that measure times.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Program {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Hosts {
    pub(crate) fn new(count: u8) -> Self {
        // A poisoned lock is usable: a failed test leaves nothing behind.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let lan = Lan::new(count.into()).unwrap();
        let hosts = Self { lan, folder: tempfile::tempdir().unwrap(), _turn: turn };
        for host in 1..=count {
            // Batches are segmented before they leave, so that captures show single packets.
            let mut whole = hosts.lan.command(place(host), "ethtool");
            let done = whole.args(["-K", "e0", "tx-udp-segmentation", "off"]).status().unwrap();
            assert!(done.success());
        }
        hosts
    }

    pub(crate) fn address(&self, host: u8) -> Ipv4Addr {
        self.lan.address(place(host))
    }

    pub(crate) fn gate(&self, host: u8) -> impl FnOnce() + Send + use<> {
        let gate = self.lan.gate(place(host)).unwrap();
        move || gate.enter().unwrap()
    }

    pub(crate) fn until_member(&self, host: u8) {
        let group = Ipv4Addr::from(GROUP).to_string();
        let hears = || {
            let mut command = self.lan.command(place(host), "ip");
            command.args(["maddr", "show", "dev", "e0"]);
            let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
            said.split_whitespace().any(|word| word == group).then_some(())
        };
        until(hears, || format!("nobody on {host} hears {group}"));
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn start(&self, host: u8, words: &[&str]) -> Program {
        let name = Path::new(words[0]).file_name().unwrap().to_string_lossy().into_owned();
        let log = self.file(&format!("{name}-{host}.log"));
        let out = std::fs::File::create(&log).unwrap();
        let child = self
            .lan
            .command(place(host), words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Program { child, name: format!("{name} on host {host}"), log }
    }

    pub(crate) fn start_peer(
        &self,
        program: &Path,
        (host, verb): (u8, &str),
        rate: u32,
        rest: &[&str],
    ) -> Program {
        let address = self.address(host).to_string();
        let group = Ipv4Addr::from(GROUP).to_string();
        let (program, port, rate) = (program.to_string_lossy(), PORT.to_string(), rate.to_string());
        let mut words = vec![&*program, verb, &address, &group, &port, &rate];
        words.extend(rest);
        self.start(host, &words)
    }
}

impl Program {
    pub(crate) fn wait_for(&mut self, file: &Path) -> Vec<u8> {
        let done = PathBuf::from(format!("{}.done", file.display()));
        let (log, name) = (self.log.clone(), self.name.clone());
        let is_done = || {
            let is_done = done.exists();
            if !is_done {
                self.assert_alive();
            }
            is_done.then_some(())
        };
        let bytes = || std::fs::metadata(file).map_or(0, |data| data.len());
        until(is_done, || format!("{name} has {} bytes: {}", bytes(), said(&log)));
        std::fs::read(file).unwrap()
    }

    pub(crate) fn wait_for_success(&mut self) {
        let (log, name) = (&self.log, &self.name);
        let child = &mut self.child;
        let status =
            until(|| child.try_wait().unwrap(), || format!("{name} goes on: {}", said(log)));
        assert!(status.success(), "{name}: {status}: {}", said(log));
    }

    pub(crate) fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended: {:?}: {}", self.name, ended, self.said());
    }

    pub(crate) fn interrupt(mut self) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn said(&self) -> String {
        said(&self.log)
    }
}

/// Index of a host, which tests count from 1, as in its address.
fn place(host: u8) -> usize {
    usize::from(host) - 1
}

fn said(log: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
