//! Servers of the benchmark: daemons of faircast, and nats-server, alone or three in a chain.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Setup;
use super::client::{Address, Client, Protocol};
use crate::Error;

/// Longest time until a server accepts clients and its neighbors are there.
const START_MAX: Duration = Duration::from_secs(20);

/// Running servers, which end when this is dropped.
pub(super) struct Servers {
    children: Vec<Child>,
    addresses: Vec<Address>,
    folder: PathBuf,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A server that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Servers {
    /// Starts one server, or three in a chain with encrypted links.
    pub(super) fn start(own: &Path, folder: &Path, setup: &Setup) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|error| Error::write(folder, error))?;
        let mut servers =
            Self { children: Vec::new(), addresses: Vec::new(), folder: folder.to_owned() };
        match setup.protocol {
            Protocol::Faircast(_) => servers.start_daemons(own, setup)?,
            Protocol::Nats => servers.start_nats(setup.servers)?,
        }
        servers.wait(setup.protocol)?;
        Ok(servers)
    }

    /// Address of the first server, where the publisher is, and of the last one.
    pub(super) fn ends(&self) -> (&Address, &Address) {
        let last = self.addresses.len() - 1;
        (&self.addresses[0], &self.addresses[last])
    }

    /// Address of every server.
    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Seconds of processor time that the servers have taken.
    pub(super) fn cpu_s(&self) -> f64 {
        self.children.iter().filter_map(|child| cpu_s(child.id())).sum()
    }

    /// Memory of the servers in MB.
    pub(super) fn memory_mb(&self) -> f64 {
        let of = |child: &Child| {
            let text = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.parse::<f64>().ok()
        };
        self.children.iter().filter_map(of).sum::<f64>() / 1e3
    }

    /// Text that a server has logged.
    pub(super) fn log(&self, at: usize) -> String {
        fs::read_to_string(self.folder.join(format!("{at}.log"))).unwrap_or_default()
    }

    fn start_daemons(&mut self, own: &Path, setup: &Setup) -> Result<(), Error> {
        let Setup { servers: count, is_unix, has_prices, .. } = *setup;
        let prices = if has_prices { "[flow_control]\nprofile = \"fast\"\n" } else { "" };
        let folder = self.folder.join("keys");
        let sites = count.max(2).to_string();
        let mut init = Command::new(own);
        init.args(["node", "init"]).arg(&folder).args(["--sites", &sites]);
        let made = init.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Error::Work("faircast node init: has failed".into()));
        }
        let ports = free_udp_ports(count)?;
        for (at, port) in ports.iter().enumerate() {
            let address = match is_unix {
                true => Address::Unix(self.folder.join(format!("{at}.sock"))),
                false => Address::Tcp(free_port()?),
            };
            let clients = match &address {
                Address::Tcp(port) => format!("tcp:127.0.0.1:{port}"),
                Address::Unix(path) => format!("unix:{}", path.display()),
            };
            let peers: Vec<String> =
                ports[..at].last().iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            let text = format!(
                "name = \"d{at}\"\nlisten = \"127.0.0.1:{port}\"\npeers = [{}]\n\
                 key = \"keys/overlay.key\"\nclients = [\"{clients}\"]\n{prices}",
                peers.join(", ")
            );
            let path = self.write(&format!("{at}.toml"), &text)?;
            let mut command = Command::new(own);
            command.args(["node", "--config"]).arg(path);
            self.spawn(command, at)?;
            self.addresses.push(address);
        }
        Ok(())
    }

    /// A cluster of NATS is a mesh, so the chain is made of leaf nodes, without compression.
    fn start_nats(&mut self, count: usize) -> Result<(), Error> {
        let (certificate, key) = (self.folder.join("cert.pem"), self.folder.join("key.pem"));
        if count > 1 {
            let mut make = Command::new("openssl");
            make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
            make.args(["-nodes", "-days", "2", "-subj", "/CN=bench"]);
            make.args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]).arg(&key);
            let made = make.arg("-out").arg(&certificate).stderr(Stdio::null()).status();
            if !made.is_ok_and(|status| status.success()) {
                return Err(Error::Work("openssl req: makes no certificate for NATS".into()));
            }
        }
        let mut upstream = None;
        for at in 0..count {
            let (port, leaves) = (free_port()?, free_port()?);
            let (cert, key) = (certificate.display(), key.display());
            let mut text = format!("listen: 127.0.0.1:{port}\n");
            if count > 1 {
                let tls = format!("tls {{ cert_file: \"{cert}\", key_file: \"{key}\" }}");
                let mut remotes = String::new();
                if let Some(upstream) = upstream {
                    remotes = format!(
                        ", remotes: [{{ url: \"tls://127.0.0.1:{upstream}\", compression: off, \
                         tls {{ ca_file: \"{cert}\" }} }}]"
                    );
                }
                text += &format!(
                    "leafnodes {{ listen: \"127.0.0.1:{leaves}\", compression: off, \
                     {tls}{remotes} }}\n"
                );
            }
            let path = self.write(&format!("{at}.conf"), &text)?;
            let mut command = Command::new("nats-server");
            command.arg("-c").arg(path);
            self.spawn(command, at)?;
            self.addresses.push(Address::Tcp(port));
            upstream = Some(leaves);
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| Error::write(&path, error))?;
        Ok(path)
    }

    fn spawn(&mut self, mut command: Command, at: usize) -> Result<(), Error> {
        let log = self.folder.join(format!("{at}.log"));
        let file = fs::File::create(&log).map_err(|error| Error::write(&log, error))?;
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(|error| Error::doing(program, error))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits until a message of the first server comes to the last one.
    fn wait(&mut self, protocol: Protocol) -> Result<(), Error> {
        let end = Instant::now() + START_MAX;
        let (first, last) = (self.addresses[0].clone(), self.addresses.last().cloned());
        let probe = |number: u32| {
            let name = format!("probe-{number}");
            let last = last.as_ref().unwrap_or(&first);
            let subscriber = Client::connect(last, protocol, &name)?.subscribe()?;
            let mut publisher = Client::connect(&first, protocol, &format!("{name}-out"))?;
            publisher.drain()?;
            std::thread::sleep(Duration::from_millis(200));
            publisher.publish(b"probe")?;
            publisher.flush()?;
            let received = subscriber.count(None, |count| count > 0).messages;
            publisher.close();
            std::io::Result::Ok(received > 0)
        };
        for number in 0.. {
            if probe(number).unwrap_or(false) {
                return Ok(());
            }
            let over = self.children.iter_mut().any(|it| matches!(it.try_wait(), Ok(Some(_))));
            if over || Instant::now() > end {
                let last = |at| self.log(at).lines().last().unwrap_or_default().to_string();
                let logs = (0..self.children.len()).map(last);
                let logs = logs.collect::<Vec<_>>().join("; ");
                return Err(Error::Work(format!("servers of groups: no message comes: {logs}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// True if nats-server is installed.
pub(super) fn has_nats() -> bool {
    let version = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn free_port() -> Result<u16, Error> {
    let failed = |error| Error::doing("a free port", error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

fn free_udp_ports(count: usize) -> Result<Vec<u16>, Error> {
    let failed = |error| Error::doing("a free port", error);
    let sockets: Result<Vec<_>, _> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let sockets = sockets.map_err(failed)?;
    sockets.iter().map(|it| it.local_addr().map(|at| at.port()).map_err(failed)).collect()
}

/// Processor time of a process of this host, by proc(5).
fn cpu_s(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let rate = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(ticks / rate as f64)
}
