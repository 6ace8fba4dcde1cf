//! Daemons of the benchmark: one, or three in a chain.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use faircast_overlay::Service;

use super::Setup;
use super::client::BlockingClient;
use crate::Error;
use crate::files::write;
use crate::host::{Running, cpu_s_of};

const START_MAX: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(super) struct Daemons {
    pub(super) programs: Vec<Running>,
    pub(super) addresses: Vec<String>,
}

impl Daemons {
    pub(super) fn start(own: &Path, folder: &Path, setup: &Setup) -> Result<Self, Error> {
        let mut daemons = Self::default();
        daemons.spawn_all(own, folder, setup)?;
        daemons.wait(setup.service)?;
        Ok(daemons)
    }

    pub(super) fn ends(&self) -> (&str, &str) {
        (&self.addresses[0], &self.addresses[self.addresses.len() - 1])
    }

    pub(super) fn cpu_s(&self) -> f64 {
        self.programs.iter().filter_map(|program| cpu_s_of(program.id())).sum()
    }

    fn spawn_all(&mut self, own: &Path, folder: &Path, setup: &Setup) -> Result<(), Error> {
        let Setup { daemons: count, is_unix, has_prices, .. } = *setup;
        let prices = if has_prices { "[flow_control]\nprofile = \"fast\"\n" } else { "" };
        let sites = count.max(2).to_string();
        let mut init = Command::new(own);
        init.args(["node", "init"]).arg(folder.join("keys")).args(["--sites", &sites]);
        let made = init.stdout(Stdio::null()).stderr(Stdio::inherit()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Error::Work("faircast node init: has failed".into()));
        }
        let ports = free_ports(count).map_err(|error| Error::doing("a free port", error))?;
        for (at, (port, tcp)) in ports.iter().enumerate() {
            let address = match is_unix {
                true => format!("unix:{}", folder.join(format!("{at}.sock")).display()),
                false => format!("tcp:127.0.0.1:{tcp}"),
            };
            let peer = ports[..at].last().map(|(port, _)| format!("\"127.0.0.1:{port}\""));
            let text = format!(
                "name = \"d{at}\"\nlisten = \"127.0.0.1:{port}\"\npeers = [{}]\n\
                 key = \"keys/overlay.key\"\nclients = [\"{address}\"]\n{prices}",
                peer.unwrap_or_default()
            );
            let path = folder.join(format!("{at}.toml"));
            write(&path, text)?;
            let mut command = Command::new(own);
            command.args(["node", "--config"]).arg(path);
            let (name, log) = (own.display().to_string(), folder.join(format!("{at}.log")));
            self.programs.push(Running::start(command, &name, log)?);
            self.addresses.push(address);
        }
        Ok(())
    }

    fn wait(&mut self, service: Service) -> Result<(), Error> {
        let end = Instant::now() + START_MAX;
        let [first, last] = <[&str; 2]>::from(self.ends()).map(str::to_owned);
        let probe = |number: u32| {
            let subscriber = BlockingClient::subscriber(&last, &format!("probe-{number}"))?;
            let publisher = BlockingClient::publisher(&first, &format!("probe-{number}-out"))?;
            std::thread::sleep(Duration::from_millis(200));
            publisher.publish_one(service)?;
            std::io::Result::Ok(subscriber.count(None, |count| count > 0).messages > 0)
        };
        let mut number = 0;
        while !probe(number).unwrap_or(false) {
            number += 1;
            if self.programs.iter_mut().any(|it| it.ended().is_some()) || Instant::now() > end {
                let logs = self.programs.iter().map(Running::last_words);
                let logs = logs.collect::<Vec<_>>().join("; ");
                return Err(Error::Work(format!("daemons of groups: no message comes: {logs}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn free_ports(count: usize) -> io::Result<Vec<(u16, u16)>> {
    let pair = |_| Ok((UdpSocket::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?));
    let sockets = (0..count).map(pair).collect::<io::Result<Vec<_>>>()?;
    let port = |address: io::Result<SocketAddr>| address.map(|address| address.port());
    sockets
        .iter()
        .map(|(udp, tcp)| Ok((port(udp.local_addr())?, port(tcp.local_addr())?)))
        .collect()
}
