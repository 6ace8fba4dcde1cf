//! A field of hosts with the programs of one implementation on them, and what its packets did.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faircast_base::{NodeId, Time};
use faircast_lab::{Field, Seen};
use faircast_scenario::{Overrides, Scenario};
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use tempfile::TempDir;

use super::packets::Speaker;
use crate::Error;
use crate::command;
use crate::host::{NORM, Unprepared, installed, last_words, make_content, spawn, text, wait_until};
use crate::monitor::Monitor;

/// Content enough for any of these runs, at 20 Mbit/s for 45 s: nobody reaches the end. It is written
/// out, since holes are not sent.
const FILE_BYTES: u64 = 120_000_000;

/// The port of every session, and that of the TCP connection.
const PORT: u16 = 7500;
const TCP_PORT: u16 = 5001;

/// A session that has not begun to send after so long does not work.
const START_MAX: Duration = Duration::from_secs(20);

/// The sender of every run, and both ends of its TCP connection, where there is one.
pub(super) const SENDER: &str = "sender";
pub(super) const TCP_SENDER: &str = "ts";
pub(super) const TCP_RECEIVER: &str = "tr";

#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) speaker: Speaker,
    send: &'static str,
    receive: &'static str,
}

/// Ours first.
pub(super) const PROGRAMS: [Program; 3] = [
    Program {
        id: "faircast",
        title: "faircast",
        speaker: Speaker::Faircast,
        send: "{own} send {path} --group {group}:{port} --wait-for {receivers} --scheme tfmcc --json",
        receive: "{own} recv --into {path} --name {name} --group {group}:{port} --once",
    },
    Program {
        id: "uftp",
        title: "UFTP",
        speaker: Speaker::Uftp,
        send: "uftp -M {group} -P {group} -I {interface} -H {hosts} -b 1400 -r 0.1 -C tfmcc {path}",
        receive: "uftpd -d -D {path} -I {interface} -M {group} -U {hex}",
    },
    Program {
        id: "norm",
        title: "NORM",
        speaker: Speaker::Norm,
        // With the library's own start.
        send: "{norm} send {interface} {group} {port} -1 {path} {receivers}",
        receive: "{norm} recv {interface} {group} {port} {number} {path}/copy {path}",
    },
];

impl Program {
    pub(super) fn is_peer(&self) -> bool {
        self.speaker != Speaker::Faircast
    }

    /// Makes ready what it needs, in a folder of tools. The error says why it cannot be run here.
    pub(super) fn prepare(&self, tools: &Path) -> Result<(), Unprepared> {
        match self.speaker {
            Speaker::Faircast => Ok(()),
            Speaker::Uftp => installed("uftpd", "uftp"),
            Speaker::Norm => NORM.compile(tools),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) tools: &'a Path,
    pub(super) own: &'a Path,
    pub(super) monitor: &'a dyn Monitor,
}

/// What its packets did since the first data.
#[derive(Debug, Default)]
struct Tally {
    began: Option<Time>,
    /// Reports: when, from whom.
    reports: Vec<(Time, NodeId)>,
    /// Who has which number for the program.
    numbers: BTreeMap<u32, NodeId>,
    /// When the sender said who limits it, and who that is by the number of its program.
    limiting: Vec<(Time, u32)>,
    /// Arrivals: when, from whom, at whom, bytes.
    arrived: Vec<(Time, NodeId, NodeId, u32)>,
    latest: Time,
}

impl Tally {
    fn take(&mut self, speaker: Speaker, seen: &Seen<'_>) {
        self.latest = seen.at;
        match seen.reached {
            Some(at) => self.arrived.push((seen.at, seen.from, at, seen.len)),
            None => {
                let said = seen.datagram.map(|bytes| speaker.read(bytes)).unwrap_or_default();
                if said.data {
                    self.began.get_or_insert(seen.at);
                }
                if let Some(number) = said.report {
                    self.reports.push((seen.at, seen.from));
                    self.numbers.insert(number, seen.from);
                }
                self.limiting.extend(said.limiting.map(|number| (seen.at, number)));
            }
        }
    }
}

/// Hosts, programs and what they say. All is ended when it is dropped.
pub(super) struct PeerRun<'a> {
    context: Context<'a>,
    program: Program,
    /// Hosts by name, the sender first.
    hosts: Vec<(String, NodeId)>,
    receivers: Vec<String>,
    tally: Arc<Mutex<Tally>>,
    children: Vec<Child>,
    connection: Option<TcpStream>,
    field: Field,
    folder: TempDir,
}

impl<'a> PeerRun<'a> {
    /// Makes the hosts of a scenario and starts the programs: the sender's on [`SENDER`], and a
    /// receiver's on each of `receivers`.
    pub(super) fn new(
        program: Program,
        text: &str,
        receivers: &[&str],
        context: Context<'a>,
    ) -> Result<Self, Error> {
        let path = Path::new("peers.toml");
        let catalog = faircast_sim::catalog();
        let scenario = Scenario::parse(path, text, &Overrides::default(), &catalog)?;
        let hosts = scenario.flows.iter().map(|flow| (flow.name.clone(), flow.sender())).collect();
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let told = Arc::clone(&tally);
        let watch = move |seen: &Seen<'_>| {
            lock(&told).take(program.speaker, seen);
        };
        let field = Field::watched(scenario, watch)?;
        let folder = tempfile::tempdir().map_err(|error| Error::doing("make a folder", error))?;
        let mut run = Self {
            context,
            program,
            hosts,
            receivers: receivers.iter().map(|name| (*name).to_string()).collect(),
            tally,
            children: Vec::new(),
            connection: None,
            field,
            folder,
        };
        let file = run.at("content");
        make_content(&file, "faircast bench tfmcc", FILE_BYTES)
            .map_err(|error| Error::doing("make a file", error))?;
        for name in receivers {
            let into = run.at(name);
            std::fs::create_dir(&into).map_err(|error| Error::doing("make a folder", error))?;
            let words = run.words(program.receive, name, &into);
            run.start(name, &words)?;
        }
        // Daemons must have joined before they are asked for.
        std::thread::sleep(Duration::from_millis(300));
        let words = run.words(program.send, SENDER, &file);
        run.start(SENDER, &words)?;
        Ok(run)
    }

    pub(super) fn wait_for_data(&mut self) -> Result<(), Error> {
        let mut ended = false;
        let began = wait_until(Instant::now() + START_MAX, self.context.monitor, || {
            let mut children = self.children.iter_mut();
            ended = children.any(|child| !matches!(child.try_wait(), Ok(None)));
            ended || lock(&self.tally).began.is_some()
        })?;
        match began && !ended {
            true => Ok(()),
            false => {
                let said = last_words(&self.at(&format!("{SENDER}.log")));
                Err(Error::Work(format!("{} does not send: {said}", self.program.title)))
            }
        }
    }

    pub(super) fn rest(&self, span: Duration) -> Result<(), Error> {
        wait_until(Instant::now() + span, self.context.monitor, || false).map(drop)
    }

    /// Starts a TCP connection with Reno's congestion control that sends without end.
    pub(super) fn start_tcp(&mut self) -> Result<(), Error> {
        let doing = |error: std::io::Error| Error::doing("a TCP connection", error);
        let to = SocketAddr::from((Field::address(self.node(TCP_RECEIVER)), TCP_PORT));
        let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, TCP_PORT));
        let listener = self.field.on(self.node(TCP_RECEIVER), listen).and_then(|it| it);
        let listener = listener.map_err(doing)?;
        let connect = move || {
            let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
            setsockopt(&stream, TcpCongestion, &"reno".into())?;
            Ok(stream)
        };
        let stream: std::io::Result<TcpStream> =
            self.field.on(self.node(TCP_SENDER), connect).and_then(|it| it);
        let stream = stream.map_err(doing)?;
        let (mut reader, _) = listener.accept().map_err(doing)?;
        let mut writer = stream.try_clone().map_err(doing)?;
        // Both end with the connection.
        std::thread::spawn(move || while writer.write_all(&[0; 65_536]).is_ok() {});
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while reader.read(&mut buffer).is_ok_and(|len| len > 0) {}
        });
        self.connection = Some(stream);
        Ok(())
    }

    pub(super) fn reports(&self, name: &str, span: Duration) -> usize {
        let (node, tally) = (self.node(name), self.tally());
        let from = since(&tally, span);
        tally.reports.iter().filter(|(at, who)| *at >= from && *who == node).count()
    }

    /// How often the sender has named this receiver as the one that limits it, of all times that it
    /// has named one in the last `span`; and those times.
    pub(super) fn limiting(&self, name: &str, span: Duration) -> (f64, usize) {
        let (node, tally) = (self.node(name), self.tally());
        let from = since(&tally, span);
        let named: Vec<u32> =
            tally.limiting.iter().filter(|(at, _)| *at >= from).map(|(_, who)| *who).collect();
        let count = named.iter().filter(|who| tally.numbers.get(*who) == Some(&node)).count();
        (count as f64 / named.len() as f64, named.len())
    }

    /// Bits a second that reached `to` from `from` in the last `span`, headers counted.
    pub(super) fn bits_per_s(&self, from: &str, to: &str, span: Duration) -> f64 {
        let (from, to, tally) = (self.node(from), self.node(to), self.tally());
        let begin = since(&tally, span);
        let arrived = tally.arrived.iter();
        let arrived =
            arrived.filter(|(at, by, here, _)| *at >= begin && *by == from && *here == to);
        let bytes: u64 = arrived.map(|(_, _, _, bytes)| u64::from(*bytes)).sum();
        8.0 * bytes as f64 / span.as_secs_f64()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    fn node(&self, name: &str) -> NodeId {
        let host = self.hosts.iter().find(|(host, _)| host == name);
        host.expect("the scenario has the hosts that are asked for").1
    }

    /// The number that a peer's program is told to give a receiver: NORM's counts them from 2.
    fn number(&self, name: &str) -> u32 {
        let place = self.receivers.iter().position(|receiver| receiver == name);
        2 + place.expect("it is a receiver") as u32
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, host: &str, words: &[String]) -> Result<(), Error> {
        let (program, arguments) = words.split_first().expect("a command has a program");
        let failed = |error: std::io::Error| Error::doing(program, error);
        let mut command = Command::new(program);
        command.args(arguments);
        // UFTP stands still while it asks for the name of an address, which nobody here can tell.
        command.env("RES_OPTIONS", "timeout:1 attempts:1");
        let log = self.at(&format!("{host}.log"));
        let child = spawn(&self.field, self.node(host), command, &log).map_err(failed)?;
        self.children.push(child);
        Ok(())
    }

    /// Words of a command line of one host, which sends `path` or receives into it.
    fn words(&self, line: &str, host: &str, path: &Path) -> Vec<String> {
        let number = |name: &String| format!("0x{:08x}", self.number(name));
        command::words(line, |name| {
            vec![match name {
                "own" => text(self.context.own),
                "norm" => text(&self.context.tools.join(NORM.name)),
                "path" => text(path),
                "group" => Field::group().to_string(),
                "port" => PORT.to_string(),
                "interface" => Field::INTERFACE.to_string(),
                "receivers" => self.receivers.len().to_string(),
                "hosts" => self.receivers.iter().map(number).collect::<Vec<_>>().join(","),
                "name" => host.to_string(),
                "number" => self.number(host).to_string(),
                "hex" => number(&host.to_string()),
                name => unreachable!("no value is called {name}"),
            }]
        })
    }
}

impl Drop for PeerRun<'_> {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since(tally: &Tally, span: Duration) -> Time {
    let span = faircast_base::Duration::from_nanos(span.as_nanos() as u64);
    Time::ZERO + tally.latest.since(Time::ZERO + span)
}
