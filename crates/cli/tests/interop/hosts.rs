//! Hosts in network namespaces, and programs on them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

use crate::{GROUP, PORT};

/// Some hosts on one bridge, numbered from 1. Removed when dropped.
pub(crate) struct Hosts {
    prefix: String,
    count: u8,
    /// For files of the test.
    folder: tempfile::TempDir,
    /// One test at a time: those that look at times must not be disturbed by the others.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// A program on a host; killed when dropped.
pub(crate) struct Program {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Hosts {
    pub(crate) fn new(name: &str, count: u8) -> Self {
        // A test that failed in its turn has left nothing behind.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        remove_leftovers();
        let prefix = format!("fci-{}-{name}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        let hosts = Self { prefix, count, folder, _turn: turn };
        let bridge = hosts.namespace(0);
        ip(&format!("netns add {bridge}"));
        ip(&format!("-n {bridge} link add br0 type bridge mcast_snooping 0"));
        ip(&format!("-n {bridge} link set br0 up"));
        for host in 1..=count {
            let inside = hosts.namespace(host);
            let address = hosts.address(host);
            ip(&format!("netns add {inside}"));
            ip(&format!("-n {bridge} link add b{host} type veth peer name e0 netns {inside}"));
            ip(&format!("-n {bridge} link set b{host} master br0 up"));
            ip(&format!("-n {inside} addr add {address}/24 dev e0"));
            ip(&format!("-n {inside} link set lo up"));
            ip(&format!("-n {inside} link set e0 up"));
            ip(&format!("-n {inside} route add 224.0.0.0/4 dev e0"));
            // Batches are cut into packets where they leave, so that captures show each by itself.
            ip(&format!("netns exec {inside} ethtool -K e0 tx-udp-segmentation off"));
        }
        hosts
    }

    pub(crate) fn address(&self, host: u8) -> Ipv4Addr {
        assert!(host <= self.count);
        Ipv4Addr::new(10, 78, 0, host)
    }

    fn namespace(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// Moves the thread that calls it onto a host.
    pub(crate) fn gate(&self, host: u8) -> impl FnOnce() + Send + use<> {
        let file = std::fs::File::open(namespaces().join(self.namespace(host))).unwrap();
        move || setns(file, CloneFlags::CLONE_NEWNET).unwrap()
    }

    /// Waits until something on a host hears the group.
    pub(crate) fn until_member(&self, host: u8) {
        let (namespace, group) = (self.namespace(host), Ipv4Addr::from(GROUP).to_string());
        let start = Instant::now();
        loop {
            let mut command = Command::new("ip");
            command.args(["-n", &namespace, "maddr", "show", "dev", "e0"]);
            let output = command.output().unwrap();
            if String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word == group)
            {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "nobody on {host} hears {group}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A file of the test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a program on a host.
    pub(crate) fn start(&self, host: u8, words: &[&str]) -> Program {
        let name = Path::new(words[0]).file_name().unwrap().to_string_lossy().into_owned();
        let log = self.file(&format!("{name}-{host}.log"));
        let out = std::fs::File::create(&log).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace(host)])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Program { child, name: format!("{name} on host {host}"), log }
    }

    /// Starts one of our programs on another implementation; `rate` is in its own unit.
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

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..=self.count {
            let name = self.namespace(host);
            if namespaces().join(&name).exists() {
                let _ = Command::new("ip").args(["netns", "del", &name]).status();
            }
        }
    }
}

impl Program {
    /// Waits until `file` has everything and says so.
    pub(crate) fn wait_for(&mut self, file: &Path, patience: Duration) -> Vec<u8> {
        let done = PathBuf::from(format!("{}.done", file.display()));
        let start = Instant::now();
        while !done.exists() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {:?}: {}", self.name, ended, self.said());
            let bytes = std::fs::metadata(file).map_or(0, |data| data.len());
            assert!(
                start.elapsed() < patience,
                "{} has {bytes} bytes after {patience:?}: {}",
                self.name,
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::read(file).unwrap()
    }

    /// Waits until it has ended well.
    pub(crate) fn wait_for_success(&mut self, patience: Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{}: {status}: {}", self.name, self.said());
                return;
            }
            assert!(start.elapsed() < patience, "{} goes on: {}", self.name, self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it runs still.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended: {:?}: {}", self.name, ended, self.said());
    }

    /// Ends it politely, and waits for that.
    pub(crate) fn interrupt(mut self) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap();
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes what test processes that are no more have left behind.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(namespaces()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix("fci-").and_then(|rest| rest.split('-').next());
        let Some(Ok(maker)) = maker.map(str::parse::<u32>) else { continue };
        if !Path::new("/proc").join(maker.to_string()).exists() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

fn namespaces() -> &'static Path {
    Path::new("/run/netns")
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}
