//! Daemons in this process, over links that can be cut, for tests of applications.
//!
//! Links are QUIC over UDP, through switches that drop the datagrams of a cut link. The seed
//! determines the faults and their times, but not the timing of an application's messages.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faircast_base::{NodeId, Purpose, Rng};
use faircast_hop::RelayKey;
use faircast_overlay::DaemonSettings;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::server::DaemonReport;
use crate::server::{ClientAddress, Server, ServerSettings, StartError, incarnation};

const DAEMONS_MAX: usize = 16;
const LOOK: Duration = Duration::from_millis(20);
/// Longest time until one view without faults: 90 s. Hold-downs last up to one minute.
const SETTLE_MAX: Duration = Duration::from_secs(90);
const DATAGRAM_BYTES: usize = 65_536;
/// Range of the pause between faults, and of the length of a fault, in milliseconds.
const PAUSE_MS: (u64, u64) = (200, 3000);
const FAULT_MS: (u64, u64) = (500, 8000);

/// Error of a rehearsal.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum RehearsalError {
    #[error("{0} daemons; expected 1 to {DAEMONS_MAX}")]
    Count(usize),
    /// A socket or a folder cannot be created.
    #[error("sockets of the rehearsal: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the daemons are not in one view 90 s after the last fault")]
    Apart,
}

/// Link of two daemons. The first one connects to the switch, which forwards datagrams.
#[derive(Debug)]
struct Link {
    ends: (usize, usize),
    /// True if datagrams in the direction from or to the first one are dropped.
    cut: Arc<[AtomicBool; 2]>,
    dialled: SocketAddr,
    task: JoinHandle<()>,
}

/// Fully connected daemons with injected faults.
#[derive(Debug)]
pub struct Rehearsal {
    servers: Vec<Option<Server>>,
    settings: Vec<ServerSettings>,
    links: Vec<Link>,
    folder: PathBuf,
    rng: Rng,
    began: Instant,
}

impl Rehearsal {
    /// Starts 1 to 16 daemons with faults from `seed`, and waits until they are in one view; fails
    /// if the system refuses a socket.
    pub async fn start(daemons: usize, seed: u64) -> Result<Self, RehearsalError> {
        if !(1..=DAEMONS_MAX).contains(&daemons) {
            return Err(RehearsalError::Count(daemons));
        }
        let name = format!("faircast-{}-{:x}", std::process::id(), incarnation());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        let mut rehearsal = Self {
            servers: Vec::new(),
            settings: Vec::new(),
            links: Vec::new(),
            folder,
            rng: Rng::new(seed, NodeId(0), Purpose::Fault),
            began: Instant::now(),
        };
        for at in 0..daemons {
            for other in 0..at {
                let target = rehearsal.settings[other].listen;
                rehearsal.links.push(Link::open((at, other), target).await?);
            }
            let dialled = rehearsal.links.iter().filter(|link| link.ends.0 == at);
            let settings = ServerSettings {
                name: format!("d{at}"),
                listen: (Ipv4Addr::LOCALHOST, 0).into(),
                peers: dialled.map(|link| link.dialled.to_string()).collect(),
                key: RelayKey::none(),
                clients: vec![ClientAddress::Unix(rehearsal.folder.join(format!("d{at}.sock")))],
                tls: None,
                limits: DaemonSettings::default(),
            };
            rehearsal.settings.push(settings);
            rehearsal.servers.push(None);
            rehearsal.restart(at).await?;
        }
        rehearsal.settle().await?;
        Ok(rehearsal)
    }

    /// Returns the addresses at which the daemons serve clients.
    pub fn addresses(&self) -> Vec<String> {
        self.settings.iter().map(|it| it.clients[0].to_string()).collect()
    }

    /// Ends a daemon, which must exist, as a crash does: peers and clients are not informed.
    pub fn kill(&mut self, daemon: usize) {
        self.servers[daemon] = None;
    }

    /// Restarts a daemon, which must exist, unless it is running; fails if the system does not
    /// release its addresses.
    pub async fn restart(&mut self, daemon: usize) -> Result<(), RehearsalError> {
        if self.servers[daemon].is_some() {
            return Ok(());
        }
        let mut settings = self.settings[daemon].clone();
        let end = Instant::now() + SETTLE_MAX;
        let server = loop {
            match Server::start(settings.clone()).await {
                // The tasks of a killed daemon have not closed their sockets yet.
                Err(StartError::Net(_) | StartError::Clients { .. }) if Instant::now() < end => {
                    tokio::time::sleep(LOOK).await;
                }
                started => break started?,
            }
        };
        // The switches need the same address after a restart.
        settings.listen = server.local_address();
        self.settings[daemon] = settings;
        self.servers[daemon] = Some(server);
        Ok(())
    }

    /// Cuts the link of two daemons in the direction from `from` to `to`, or in both directions.
    pub fn cut(&mut self, from: usize, to: usize, both: bool) {
        self.set(true, |a, b| (a, b) == (from, to) || both && (b, a) == (from, to));
    }

    /// Cuts all links between the daemons in `side` and the others.
    pub fn part(&mut self, side: &[usize]) {
        self.set(true, |a, b| side.contains(&a) != side.contains(&b));
    }

    /// Restores all links.
    pub fn mend(&mut self) {
        self.set(false, |_, _| true);
    }

    fn set(&self, is_cut: bool, is_meant: impl Fn(usize, usize) -> bool) {
        for Link { ends: (a, b), cut, .. } in &self.links {
            for (way, (from, to)) in [(*a, *b), (*b, *a)].into_iter().enumerate() {
                if is_meant(from, to) {
                    cut[way].store(is_cut, Ordering::Relaxed);
                }
            }
        }
    }

    /// Restores all links and daemons; fails if they are not in one view within 90 s.
    pub async fn settle(&mut self) -> Result<(), RehearsalError> {
        self.mend();
        for daemon in 0..self.servers.len() {
            self.restart(daemon).await?;
        }
        let end = Instant::now() + SETTLE_MAX;
        loop {
            let reports = self.reports().await;
            let is_one = |it: &DaemonReport| {
                it.settled && it.members.len() == self.servers.len() && it.view == reports[0].view
            };
            if reports.len() == self.servers.len() && reports.iter().all(is_one) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(RehearsalError::Apart);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns the states of the running daemons.
    pub async fn reports(&self) -> Vec<DaemonReport> {
        let mut reports = Vec::new();
        for server in self.servers.iter().flatten() {
            reports.extend(server.inquiry().report().await);
        }
        reports
    }

    /// Injects faults for `span`, each described to `tell`, then [settles](Self::settle).
    pub async fn faults(
        &mut self,
        span: Duration,
        mut tell: impl FnMut(&str),
    ) -> Result<(), RehearsalError> {
        let (count, end) = (self.servers.len() as u64, Instant::now() + span);
        let mut said = |it: &Self, text: String| {
            tell(&format!("{:.1} s: {text}", it.began.elapsed().as_secs_f64()));
        };
        while Instant::now() < end {
            let (at, other) = (self.rng.below(count) as usize, self.rng.below(count) as usize);
            let (kind, both) = (self.rng.below(3), self.rng.chance(0.5));
            let is_in = |it: &usize| *it == at || *it != other && self.rng.chance(0.5);
            let side: Vec<usize> = (0..count as usize).filter(is_in).collect();
            let [pause, length] = [PAUSE_MS, FAULT_MS]
                .map(|(least, most)| Duration::from_millis(least + self.rng.below(most - least)));
            tokio::time::sleep(pause).await;
            match kind {
                0 => {
                    self.kill(at);
                    said(self, format!("d{at} is killed"));
                }
                1 if at != other => {
                    self.cut(at, other, both);
                    let ways = if both { "in both directions" } else { "in one direction" };
                    said(self, format!("the link from d{at} to d{other} is cut {ways}"));
                }
                _ => {
                    self.part(&side);
                    let names: Vec<String> = side.iter().map(|it| format!("d{it}")).collect();
                    said(self, format!("{} cut off from the others", names.join(", ")));
                }
            }
            tokio::time::sleep(length).await;
            self.mend();
            self.restart(at).await?;
            said(self, "the fault is over".to_string());
        }
        self.settle().await?;
        said(self, "all daemons are in one view".to_string());
        Ok(())
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.task.abort());
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Link {
    async fn open(ends: (usize, usize), target: SocketAddr) -> io::Result<Self> {
        let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (cut, dialled) = (Arc::<[AtomicBool; 2]>::default(), near.local_addr()?);
        let task = tokio::spawn(pass((near, far), cut.clone(), target));
        Ok(Self { ends, cut, dialled, task })
    }
}

async fn pass((near, far): (UdpSocket, UdpSocket), cut: Arc<[AtomicBool; 2]>, target: SocketAddr) {
    let (mut there, mut back) = (vec![0; DATAGRAM_BYTES], vec![0; DATAGRAM_BYTES]);
    let mut dialler = None;
    loop {
        tokio::select! {
            Ok((len, from)) = near.recv_from(&mut there) => {
                dialler = Some(from);
                if !cut[0].load(Ordering::Relaxed) {
                    let _ = far.send_to(&there[..len], target).await;
                }
            }
            Ok((len, _)) = far.recv_from(&mut back) => {
                if let Some(to) = dialler.filter(|_| !cut[1].load(Ordering::Relaxed)) {
                    let _ = near.send_to(&back[..len], to).await;
                }
            }
            // An ICMP error of an earlier datagram: the daemon at the other end is not running.
            else => tokio::time::sleep(LOOK).await,
        }
    }
}
