//! Network of hosts in namespaces on a Linux bridge, also in a namespace of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns};

use super::{process::Running, text};
use crate::Error;

pub(crate) const PREFIX: &str = "fcw-";

const NAMESPACES: &str = "/run/netns";

pub(crate) const MEMORY: &str = "/dev/shm";

pub(crate) const INTERFACE: &str = "e0";

/// Hosts on a bridge, removed when dropped. The sender is number 1, receivers follow.
pub(crate) struct Network {
    prefix: String,
    receivers: u32,
}

impl Network {
    pub(crate) fn make(name: &str, receivers: u32) -> Result<Self, Error> {
        let prefix = format!("{PREFIX}{}-{name}", std::process::id());
        // Built before the first namespace, so that a failure below removes all namespaces.
        let network = Self { prefix, receivers };
        let bridge = network.bridge();
        let mut commands = format!(
            "netns add {bridge}\n\
             -n {bridge} link add br0 type bridge mcast_snooping 0\n\
             -n {bridge} link set br0 up\n"
        );
        for host in network.hosts() {
            let inside = network.namespace(host);
            let address = network.address(host);
            commands.push_str(&format!(
                "netns add {inside}\n\
                 -n {bridge} link add b{host} type veth peer name {INTERFACE} netns {inside}\n\
                 -n {bridge} link set b{host} master br0 up\n\
                 -n {inside} addr add {address}/16 dev {INTERFACE}\n\
                 -n {inside} link set lo up\n\
                 -n {inside} link set {INTERFACE} up\n\
                 -n {inside} route add 224.0.0.0/4 dev {INTERFACE}\n"
            ));
        }
        commands.lines().try_for_each(|line| ip(&line.split(' ').collect::<Vec<_>>()))?;
        Ok(network)
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = u32> + use<> {
        1..=1 + self.receivers
    }

    pub(crate) fn receivers(&self) -> impl Iterator<Item = u32> + use<> {
        2..=1 + self.receivers
    }

    pub(crate) fn start(
        &self,
        host: u32,
        command: &[String],
        log: PathBuf,
    ) -> Result<Running, Error> {
        Running::start(&self.path(host), command, log)
    }

    pub(crate) fn path(&self, host: u32) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace(host))
    }

    pub(crate) fn address(&self, host: u32) -> String {
        format!("10.77.0.{host}")
    }

    fn namespace(&self, host: u32) -> String {
        format!("{}h{host}", self.prefix)
    }

    fn bridge(&self) -> String {
        format!("{}br", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let hosts: Vec<String> = self.hosts().map(|host| self.namespace(host)).collect();
        for name in hosts.into_iter().chain([self.bridge()]) {
            if Path::new(NAMESPACES).join(&name).exists() {
                let _ = ip(&["netns", "del", &name]);
            }
        }
    }
}

pub(crate) fn remove_leftovers() {
    for folder in [NAMESPACES, MEMORY] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_leftover(&name) {
                if folder == NAMESPACES {
                    let _ = ip(&["netns", "del", &name]);
                } else {
                    let _ = run("umount", &["--lazy", &text(&entry.path())]);
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
        }
    }
}

fn is_leftover(name: &str) -> bool {
    let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    let maker = maker.and_then(|maker| maker.parse::<u32>().ok());
    maker.is_some_and(|maker| !Path::new("/proc").join(maker.to_string()).exists())
}

pub(crate) fn enter(namespace: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::doing(namespace.display(), error);
    let file = File::open(namespace).map_err(failed)?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| failed(error.into()))
}

pub(crate) fn sent_bytes(process: u32) -> Option<u64> {
    let table = std::fs::read_to_string(format!("/proc/{process}/net/dev")).ok()?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE))?;
    line.strip_prefix(':')?.split_whitespace().nth(8)?.parse().ok()
}

fn ip(words: &[&str]) -> Result<(), Error> {
    run("ip", words)
}

fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let failed =
        |what: &str| Error::Work(format!("{program} {}: {}", words.join(" "), what.trim()));
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(&format!("{error}; it is in the package iproute2")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(&String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_those_of_processes_that_are_no_more() {
        let own = std::process::id();
        for (name, want) in [
            ("fcw-4999999-fasth1".to_string(), true),
            (format!("fcw-{own}-fasth1"), false),
            ("fcw-x-fasth1".to_string(), false),
            ("fcx-4999999-fasth1".to_string(), false),
        ] {
            assert_eq!(is_leftover(&name), want, "{name}");
        }
    }
}
