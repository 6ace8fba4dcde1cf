//! Daemons of the benchmark: one, or three in a chain.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faircast_overlay::Service;

use super::Setup;
use super::client::{Publisher, Subscriber};
use crate::Error;

const START_MAX: Duration = Duration::from_secs(20);

pub(super) struct Daemons {
    children: Vec<Child>,
    addresses: Vec<String>,
    folder: PathBuf,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Daemons {
    pub(super) fn start(own: &Path, folder: &Path, setup: &Setup) -> Result<Self, Error> {
        let mut daemons =
            Self { children: Vec::new(), addresses: Vec::new(), folder: folder.to_owned() };
        daemons.spawn_all(own, setup)?;
        daemons.wait(setup.service)?;
        Ok(daemons)
    }

    pub(super) fn ends(&self) -> (&str, &str) {
        let last = self.addresses.len() - 1;
        (&self.addresses[0], &self.addresses[last])
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(super) fn cpu_s(&self) -> f64 {
        self.children.iter().filter_map(|child| cpu_s(child.id())).sum()
    }

    pub(super) fn memory_mb(&self) -> f64 {
        let of = |child: &Child| {
            let text = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.parse::<f64>().ok()
        };
        self.children.iter().filter_map(of).sum::<f64>() / 1e3
    }

    pub(super) fn log(&self, at: usize) -> String {
        fs::read_to_string(self.folder.join(format!("{at}.log"))).unwrap_or_default()
    }

    fn spawn_all(&mut self, own: &Path, setup: &Setup) -> Result<(), Error> {
        let Setup { daemons: count, is_unix, has_prices, .. } = *setup;
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
                true => format!("unix:{}", self.folder.join(format!("{at}.sock")).display()),
                false => format!("tcp:127.0.0.1:{}", free_port()?),
            };
            let peers: Vec<String> =
                ports[..at].last().iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            let text = format!(
                "name = \"d{at}\"\nlisten = \"127.0.0.1:{port}\"\npeers = [{}]\n\
                 key = \"keys/overlay.key\"\nclients = [\"{address}\"]\n{prices}",
                peers.join(", ")
            );
            let path = self.folder.join(format!("{at}.toml"));
            fs::write(&path, text).map_err(|error| Error::write(&path, error))?;
            let log = self.folder.join(format!("{at}.log"));
            let file = fs::File::create(&log).map_err(|error| Error::write(&log, error))?;
            let mut command = Command::new(own);
            command.args(["node", "--config"]).arg(path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
            let child = command.spawn().map_err(|error| Error::doing(own.display(), error))?;
            self.children.push(child);
            self.addresses.push(address);
        }
        Ok(())
    }

    fn wait(&mut self, service: Service) -> Result<(), Error> {
        let end = Instant::now() + START_MAX;
        let [first, last] = <[&str; 2]>::from(self.ends()).map(str::to_owned);
        let probe = |number: u32| {
            let subscriber = Subscriber::connect(&last, &format!("probe-{number}"))?;
            let publisher = Publisher::connect(&first, &format!("probe-{number}-out"))?;
            std::thread::sleep(Duration::from_millis(200));
            publisher.publish_one(service)?;
            std::io::Result::Ok(subscriber.count(None, |count| count > 0).messages > 0)
        };
        let mut number = 0;
        while !probe(number).unwrap_or(false) {
            number += 1;
            let over = self.children.iter_mut().any(|it| matches!(it.try_wait(), Ok(Some(_))));
            if over || Instant::now() > end {
                let last = |at| self.log(at).lines().last().unwrap_or_default().to_string();
                let logs = (0..self.children.len()).map(last);
                let logs = logs.collect::<Vec<_>>().join("; ");
                return Err(Error::Work(format!("daemons of groups: no message comes: {logs}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
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

fn cpu_s(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let rate = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    Some(ticks / rate as f64)
}
