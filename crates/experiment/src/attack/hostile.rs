//! The thread that attacks: what it waits to hear, and what it sends then.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::FLOOD;
use super::attacker::Attacker;
use super::forge::{Claim, Heard};
use super::transfer::{ATTACKER, GROUP, METRICS, PORT, RECEIVERS, SENDER};
use crate::host::{Network, enter};

#[derive(Clone, Copy)]
pub(super) enum Attempt {
    /// Nothing.
    Nothing,
    /// One packet in the name of the source.
    Once(fn(&Heard) -> Vec<u8>),
    /// One damaged datagram of a sealed session in the name of the source.
    Sealed,
    /// Damaged packets in its name.
    Damage,
    /// Packets of sessions that there are none of.
    Sessions,
    /// The same before receivers are there, which may be told whom to hear.
    SessionsFirst { from: bool },
    /// One receiver that there is none of, for as long as anybody hears it.
    Member,
    /// Many of them, that ask for much.
    Members,
    /// Connections to the port of metrics that say nothing.
    Connections,
    /// Packets of TRAM.
    Tree(TreeAttack),
}

/// Forgeries in a TRAM session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeAttack {
    /// End of the session: one packet to the group, in the name of the source.
    End,
    /// Data from far ahead: one packet to the group, in the name of the source.
    Ahead,
    /// Removal: one packet to each receiver, in the name of the source.
    Removal,
    /// A goodbye in the name of each receiver.
    Goodbye,
    /// Settings of another scheme before receivers are there.
    Settings,
    /// An invented member that says the same all the time.
    Member,
    /// Packets of all kinds in all names.
    Catalogue,
}

impl Attempt {
    pub(super) fn is_flood(self) -> bool {
        use Attempt::{Damage, Members, Sessions, SessionsFirst, Tree};
        use TreeAttack::{Catalogue, Member, Settings};
        matches!(
            self,
            Damage
                | Members
                | Sessions
                | SessionsFirst { .. }
                | Tree(Settings | Member | Catalogue)
        )
    }

    /// True if the attack begins before receivers are there.
    pub(super) fn is_first(self) -> bool {
        matches!(self, Self::SessionsFirst { .. } | Self::Tree(TreeAttack::Settings))
    }
}

pub(super) struct Sent {
    pub(super) count: u32,
    /// How soon an honest request was answered meanwhile.
    pub(super) answered: Option<Duration>,
}

/// A thread in the attacker's namespace.
pub(super) struct Hostile {
    signals: Arc<Signals>,
    thread: std::thread::JoinHandle<std::io::Result<Sent>>,
}

#[derive(Default)]
struct Signals {
    go: AtomicBool,
    stop: AtomicBool,
}

impl Hostile {
    pub(super) fn start(kind: Attempt, network: &Network) -> Self {
        let signals = Arc::<Signals>::default();
        let told = Arc::clone(&signals);
        let paths = [ATTACKER, RECEIVERS[0]].map(|host| network.path(host));
        let address = |host| network.address(host).parse().expect("an address");
        let [source, here] = [SENDER, ATTACKER].map(address);
        let receivers = RECEIVERS.map(address);
        let thread = std::thread::spawn(move || {
            let entered =
                |path| enter(path).map_err(|error| std::io::Error::other(error.to_string()));
            entered(&paths[0])?;
            let attacker = Attacker::new(SocketAddrV4::new(GROUP, PORT), here)?;
            let mut heard = Heard::default();
            // It hears what it needs, and then until it is to begin: its numbers must not be old.
            let begins = |heard: &Heard| {
                told.go.load(Ordering::Relaxed) && has_enough(kind, heard, source, &receivers)
            };
            if !attacker.hear(&told.stop, &mut heard, begins)? {
                return Ok(Sent { count: 0, answered: None });
            }
            let honest = || {
                entered(&paths[1])?;
                time_of_metrics(SocketAddrV4::new(source, METRICS))
            };
            if let Attempt::Tree(kind) = kind {
                let count = strike_tree(kind, &attacker, &heard, (source, receivers), &told.stop)?;
                return Ok(Sent { count, answered: None });
            }
            strike(kind, &attacker, &heard, source, &told.stop, honest)
        });
        Self { signals, thread }
    }

    pub(super) fn go(&self) {
        self.signals.go.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn end(self) -> std::io::Result<Sent> {
        self.signals.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(std::io::Error::other("the attacker's thread ended badly")))
    }
}

/// Whether what was heard is all that an attack is made from.
fn has_enough(kind: Attempt, heard: &Heard, source: Ipv4Addr, receivers: &[Ipv4Addr]) -> bool {
    match kind {
        Attempt::Nothing | Attempt::Connections => true,
        Attempt::Tree(TreeAttack::Settings) => heard.tree.knows(source),
        Attempt::Tree(_) => heard.tree.has(receivers),
        Attempt::Sealed => !heard.sealed.is_empty(),
        Attempt::SessionsFirst { .. } => !heard.spm.is_empty(),
        _ if heard.spm.is_empty() || heard.data.is_empty() => false,
        _ => true,
    }
}

fn strike(
    kind: Attempt,
    attacker: &Attacker,
    heard: &Heard,
    source: Ipv4Addr,
    stop: &AtomicBool,
    honest: impl FnOnce() -> std::io::Result<Duration> + Send,
) -> std::io::Result<Sent> {
    let group = attacker.group;
    let speaker = heard.source.unwrap_or(SocketAddrV4::new(source, PORT));
    let own = SocketAddrV4::new(attacker.here, PORT);
    let mut answered = None;
    let count = match kind {
        Attempt::Nothing | Attempt::Tree(_) => 0,
        Attempt::Once(forge) => attacker.send(speaker, group, &forge(heard)).map(|()| 1)?,
        Attempt::Sealed => attacker.send(speaker, group, &heard.sealed_damaged()).map(|()| 1)?,
        Attempt::Damage => Attacker::flood(6000.0, FLOOD, stop, |number| {
            attacker.send(speaker, group, &heard.damaged(number))
        })?,
        Attempt::Sessions | Attempt::SessionsFirst { .. } => {
            Attacker::flood(3000.0, FLOOD, stop, |number| {
                attacker.send(own, group, &heard.other_session(number))
            })?
        }
        Attempt::Member => {
            let socket = UdpSocket::bind((attacker.here, 0))?;
            Attacker::flood(95.0 / 60.0, Duration::MAX, stop, |number| {
                let packet = match number {
                    0 => heard.member(0, Claim::Joined, 1),
                    number if number.is_multiple_of(2) => heard.want(*group.ip(), 0),
                    number => heard.member(0, Claim::Receiving, 1 + number),
                };
                socket.send_to(&packet, speaker).map(|_| ())
            })?
        }
        Attempt::Members => Attacker::flood(8000.0, FLOOD, stop, |number| {
            let member = number % MEMBERS;
            let [high, low] = (member as u16).to_be_bytes();
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 77, 64 + high, low), PORT);
            let packet = match number < MEMBERS {
                true => heard.member(member, Claim::Joined, 1),
                // Blocks that were sent in the first seconds.
                false => heard.want(*group.ip(), number * 7919 % 600),
            };
            attacker.send(from, speaker, &packet)
        })?,
        Attempt::Connections => {
            let to = SocketAddr::from((source, METRICS));
            let connect = |_| TcpStream::connect_timeout(&to, Duration::from_secs(5));
            let open = (0..CONNECTIONS).map(connect).collect::<std::io::Result<Vec<_>>>()?;
            let took = std::thread::scope(|scope| scope.spawn(honest).join());
            answered = took.ok().and_then(Result::ok);
            open.len() as u32
        }
    };
    Ok(Sent { count, answered })
}

fn strike_tree(
    kind: TreeAttack,
    attacker: &Attacker,
    heard: &Heard,
    (source, receivers): (Ipv4Addr, [Ipv4Addr; 2]),
    stop: &AtomicBool,
) -> std::io::Result<u32> {
    let (tree, group) = (&heard.tree, attacker.group);
    let speaker = tree.speaker(source).unwrap_or(SocketAddrV4::new(source, PORT));
    let of = |host| tree.speaker(host).unwrap_or(SocketAddrV4::new(host, PORT));
    match kind {
        TreeAttack::End => attacker.send(speaker, group, &tree.end(source)).map(|()| 1),
        TreeAttack::Ahead => attacker.send(speaker, group, &tree.ahead(source, AHEAD)).map(|()| 1),
        TreeAttack::Removal => {
            let send = |host| attacker.send(speaker, of(host), &tree.removal(source));
            receivers.into_iter().try_for_each(send).map(|()| 2)
        }
        TreeAttack::Goodbye => {
            let send = |host| attacker.send(of(host), speaker, &tree.goodbye(host));
            receivers.into_iter().try_for_each(send).map(|()| 2)
        }
        TreeAttack::Settings => Attacker::flood(2.0, FLOOD, stop, |_| {
            attacker.send(speaker, group, &tree.settings(source))
        }),
        TreeAttack::Member => {
            let socket = UdpSocket::bind((attacker.here, 0))?;
            let [bind, ack] = tree.member();
            Attacker::flood(PER_SECOND, FLOOD, stop, |number| {
                let packet = if number < 2 { &bind } else { &ack };
                socket.send_to(packet, speaker).map(|_| ())
            })
        }
        TreeAttack::Catalogue => {
            let hosts = [source, receivers[0], receivers[1]];
            Attacker::flood(PER_SECOND, FLOOD, stop, |number| {
                let (host, packet) = tree.any(&hosts, number as usize);
                let from = host.map_or(SocketAddrV4::new(attacker.here, PORT), of);
                attacker.send(from, group, &packet)?;
                // A packet in a host's name does not go to that host.
                hosts
                    .iter()
                    .filter(|to| host != Some(**to))
                    .try_for_each(|to| attacker.send(from, of(*to), &packet))
            })
        }
    }
}

/// Distance of forged data from the newest packet, in packets; and rate of an attack on a tree, in packets a second.
const AHEAD: i64 = 50;
const PER_SECOND: f64 = 20.0;

/// Receivers that are invented, and connections that are opened.
const MEMBERS: u32 = 10_000;
const CONNECTIONS: u32 = 145;

/// How long an honest request takes, which comes again as those of a monitoring do.
fn time_of_metrics(at: SocketAddrV4) -> std::io::Result<Duration> {
    let begun = Instant::now();
    loop {
        let answer = || {
            let mut stream = TcpStream::connect_timeout(&at.into(), Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        };
        match answer() {
            Ok(text) if text.starts_with("HTTP/1.1 200") => return Ok(begun.elapsed()),
            _ if begun.elapsed() > Duration::from_secs(60) => {
                return Err(std::io::Error::other("no answer"));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
