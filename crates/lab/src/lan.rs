//! Hosts in network namespaces on one Linux bridge, for measurements and tests as root.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;

/// Interface of a host to the bridge.
pub const INTERFACE: &str = "e0";

/// Prefix of the names of all namespaces and folders. The maker's process number follows it.
pub const PREFIX: &str = "fcw-";

const NAMESPACES: &str = "/run/netns";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Hosts on one bridge, which has a namespace of its own. All are removed when dropped.
///
/// Hosts count from 0. Host `i` has the addresses 10.77.0.(1 + i)/16 and fd77::(1 + i)/64 on
/// [`INTERFACE`], and the bridge has its port `p<i>`.
pub struct Lan {
    /// Names of the namespaces: the bridge, then the hosts.
    names: Vec<String>,
}

impl Lan {
    /// Makes a network of `hosts` hosts, and removes the networks of killed processes.
    pub fn new(hosts: usize) -> io::Result<Self> {
        remove_leftovers();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |host| format!("{PREFIX}{}-{number}-{host}", std::process::id());
        let names = [name("br".to_string())].into_iter();
        // Built before the first namespace, so that a failure below removes all namespaces.
        let lan = Self { names: names.chain((0..hosts).map(|i| name(i.to_string()))).collect() };
        batch("ip", &[], lan.names.iter().map(|name| format!("netns add {name}")))?;
        run("ip", lan.bridge(), "link add br0 type bridge mcast_snooping 0\nlink set br0 up")?;
        lan.plug(0..hosts)?;
        Ok(lan)
    }

    /// Makes a network for a test, or panics. Without root, prints that the test is skipped.
    pub fn or_skip(hosts: usize) -> Option<Self> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        Some(Self::new(hosts).expect("root makes network namespaces"))
    }

    /// Connects hosts without an interface to the bridge, and gives them their addresses.
    pub fn plug(&self, hosts: Range<usize>) -> io::Result<()> {
        let plugs = hosts.clone().flat_map(|i| {
            let host = self.host(i);
            [
                format!("link add p{i} type veth peer name {INTERFACE} netns {host}"),
                format!("link set p{i} master br0 up"),
            ]
        });
        batch("ip", &["-n", self.bridge()], plugs)?;
        for i in hosts {
            let (address, last) = (self.address(i), 1 + i);
            let commands = [
                // Without duplicate address detection for the link-local address.
                format!("link set {INTERFACE} addrgenmode none"),
                format!("addr add fe80::{last:x}/64 dev {INTERFACE} nodad"),
                format!("addr add {address}/16 dev {INTERFACE}"),
                format!("addr add fd77::{last:x}/64 dev {INTERFACE} nodad"),
                "link set lo up".to_string(),
                format!("link set {INTERFACE} up"),
                format!("route add 224.0.0.0/4 dev {INTERFACE}"),
            ];
            batch("ip", &["-n", self.host(i)], commands)?;
        }
        Ok(())
    }

    /// Returns the name of a host's namespace.
    pub fn host(&self, host: usize) -> &str {
        &self.names[1 + host]
    }

    /// Returns the name of the namespace with the bridge `br0`.
    pub fn bridge(&self) -> &str {
        &self.names[0]
    }

    /// Returns the IPv4 address that a host gets when it is connected.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + host as u32)
    }

    /// Runs commands of `ip` on a host, one in each line.
    pub fn ip(&self, host: usize, commands: &str) -> io::Result<()> {
        run("ip", self.host(host), commands)
    }

    /// Runs commands of `tc` on a host, one in each line.
    pub fn tc(&self, host: usize, commands: &str) -> io::Result<()> {
        run("tc", self.host(host), commands)
    }

    /// Returns a command that runs `program` on a host, and that dies with the starting thread: no
    /// program outlives its network.
    pub fn command(&self, host: usize, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]);
        command.arg(format!("--net={}", path(self.host(host)).display())).arg(program.as_ref());
        command
    }

    /// Opens a host's namespace for a thread that is to enter it.
    pub fn gate(&self, host: usize) -> io::Result<Gate> {
        File::open(path(self.host(host))).map(Gate)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        remove(&self.names);
    }
}

/// Opened namespace of a host.
pub struct Gate(File);

impl Gate {
    /// Moves the calling thread into the namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.0, CloneFlags::CLONE_NEWNET)?)
    }
}

/// True if a process that has ended gave this name to a namespace or folder.
pub fn is_leftover(name: &str) -> bool {
    let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    let maker = maker.and_then(|maker| maker.parse::<u32>().ok());
    maker.is_some_and(|maker| !Path::new("/proc").join(maker.to_string()).exists())
}

/// Runs commands of a tool of iproute2 in a namespace, one in each line.
pub fn run(tool: &str, namespace: &str, commands: &str) -> io::Result<()> {
    batch(tool, &["-n", namespace], commands.lines().map(str::to_string))
}

fn path(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

fn remove_leftovers() {
    let names = std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    remove(&names.filter(|name| is_leftover(name)).collect::<Vec<_>>());
}

fn remove(names: &[String]) {
    if !names.is_empty() {
        let _ = batch("ip", &["-force"], names.iter().map(|name| format!("netns del {name}")));
    }
}

/// Runs all commands in one process: a network of fifty hosts takes hundreds of them.
fn batch(
    tool: &str,
    options: &[&str],
    commands: impl IntoIterator<Item = String>,
) -> io::Result<()> {
    let lines: String = commands.into_iter().map(|command| command + "\n").collect();
    let mut command = Command::new(tool);
    command.args(options).args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        // An error of the tool says more than the pipe that it broke.
        let _ = child.stdin.take().map(|mut to| to.write_all(lines.as_bytes()));
        child.wait_with_output()
    });
    let output =
        output.map_err(|error| io::Error::other(format!("{tool} of iproute2: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{tool} {}: {}", options.join(" "), why.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_those_of_processes_that_have_ended() {
        let own = std::process::id();
        for (name, want) in [
            ("fcw-4999999-0-1".to_string(), true),
            (format!("fcw-{own}-0-1"), false),
            ("fcw-x-0-1".to_string(), false),
            ("fcx-4999999-0-1".to_string(), false),
        ] {
            assert_eq!(is_leftover(&name), want, "{name}");
        }
    }

    #[test]
    fn hosts_reach_each_other_and_nothing_is_left_after_a_panic() {
        let Some(lan) = Lan::or_skip(2) else { return };
        let leftover = format!("{PREFIX}4999999-0-0");
        batch("ip", &[], [format!("netns add {leftover}")]).unwrap();
        let error = lan.ip(0, "link set e7 up").unwrap_err().to_string();
        assert!(error.contains("e7"), "{error}");
        let names = lan.names.clone();
        let ended = std::thread::spawn(move || {
            let (here, there) = (lan.gate(0).unwrap(), lan.gate(1).unwrap());
            there.enter().unwrap();
            let to = std::net::UdpSocket::bind((lan.address(1), 7)).unwrap();
            here.enter().unwrap();
            let from = std::net::UdpSocket::bind((lan.address(0), 0)).unwrap();
            from.send_to(b"ping", (lan.address(1), 7)).unwrap();
            assert_eq!(to.recv(&mut [0; 9]).unwrap(), 4);
            drop(Lan::new(0).unwrap());
            panic!("with a network");
        });
        assert!(ended.join().is_err());
        assert!(names.iter().chain([&leftover]).all(|name| !path(name).exists()));
    }
}
