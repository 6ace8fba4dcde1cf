//! Attacker thread: waits until it has received enough packets, then sends forged ones.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use faircast_lab::lan::Lan;
use faircast_proto::pgm::wire::OptionType;
use serde::Deserialize;

use super::attacker::Attacker;
use super::forge::{Captured, Claim};
use super::transfer::{ATTACKER, GROUP, METRICS, PORT, RECEIVERS, SENDER};
use super::{Attack, FLOOD, Over};
use crate::host::http_get;

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sends {
    Nothing,
    Data,
    Lead,
    Spm,
    Fin,
    Rst,
    Scheme,
    Sealed,
    Damage,
    Sessions,
    Member,
    Members,
    Connections,
    End,
    Ahead,
    Removal,
    Goodbye,
    Settings,
    Repeats,
    Catalogue,
}

pub(super) struct Sent {
    pub(super) count: u32,
    pub(super) answered: Option<Duration>,
}

/// Thread of the attacker. It begins after `go` is set, and ends early after `stop` is set.
pub(super) struct Hostile {
    pub(super) go: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    pub(super) thread: JoinHandle<io::Result<Sent>>,
}

impl Hostile {
    pub(super) fn start(attack: &'static Attack, lan: &Lan) -> io::Result<Self> {
        let (go, stop) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (is_begun, is_stopped) = (Arc::clone(&go), Arc::clone(&stop));
        let (gate, receiver_gate) = (lan.gate(ATTACKER)?, lan.gate(RECEIVERS[0])?);
        let [source, here] = [SENDER, ATTACKER].map(|host| lan.address(host));
        let receivers = RECEIVERS.map(|host| lan.address(host));
        let thread = std::thread::spawn(move || {
            gate.enter()?;
            let attacker = Attacker::new(SocketAddrV4::new(GROUP, PORT), here)?;
            let mut captured = Captured::default();
            // Reception goes on until the start signal, so that the sequence numbers are current.
            let begins = |captured: &Captured| {
                is_begun.load(Ordering::Relaxed) && has_enough(attack, captured, source, &receivers)
            };
            if !attacker.capture(&is_stopped, &mut captured, begins)? {
                return Ok(Sent { count: 0, answered: None });
            }
            let honest = || {
                receiver_gate.enter()?;
                time_of_metrics(SocketAddrV4::new(source, METRICS))
            };
            let (attacker, captured, stop) = (&attacker, &captured, &*is_stopped);
            Strike { attacker, captured, source, receivers, stop }.run(attack.sends, honest)
        });
        Ok(Self { go, stop, thread })
    }

    pub(super) fn end(self) -> io::Result<Sent> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the attacker's thread ended badly")))
    }
}

fn has_enough(
    attack: &Attack,
    captured: &Captured,
    source: Ipv4Addr,
    receivers: &[Ipv4Addr],
) -> bool {
    match attack.sends {
        Sends::Nothing | Sends::Connections => true,
        Sends::Settings => captured.tree.endpoint(source).is_some(),
        _ if attack.over == Some(Over::Tram) => captured.tree.has_data_and(receivers),
        Sends::Sealed => !captured.sealed.is_empty(),
        _ => !captured.spm.is_empty() && (attack.first || !captured.data.is_empty()),
    }
}

struct Strike<'a> {
    attacker: &'a Attacker,
    captured: &'a Captured,
    source: Ipv4Addr,
    receivers: [Ipv4Addr; 2],
    stop: &'a AtomicBool,
}

impl Strike<'_> {
    fn run(
        &self,
        kind: Sends,
        honest: impl FnOnce() -> io::Result<Duration> + Send,
    ) -> io::Result<Sent> {
        let (attacker, tree, speaker) =
            (self.attacker, &self.captured.tree, self.endpoint(self.source));
        let mut answered = None;
        let count = match kind {
            Sends::Nothing => 0,
            Sends::Connections => {
                let to = SocketAddr::from((self.source, METRICS));
                let connect = |_| TcpStream::connect_timeout(&to, Duration::from_secs(5));
                let open = (0..CONNECTIONS).map(connect).collect::<io::Result<Vec<_>>>()?;
                let took = std::thread::scope(|scope| scope.spawn(honest).join());
                answered = took.ok().and_then(Result::ok);
                open.len() as u32
            }
            Sends::Removal | Sends::Goodbye => {
                for host in self.receivers {
                    let at = self.endpoint(host);
                    let (from, to, name) = match kind {
                        Sends::Removal => (speaker, at, self.source),
                        _ => (at, speaker, host),
                    };
                    attacker.send(from, to, &tree.packet(kind, name))?;
                }
                self.receivers.len() as u32
            }
            _ => match self.packet(kind) {
                Some(packet) => attacker.send(speaker, attacker.group, &packet).map(|()| 1)?,
                None => self.flood(kind)?,
            },
        };
        Ok(Sent { count, answered })
    }

    fn endpoint(&self, host: Ipv4Addr) -> SocketAddrV4 {
        let sender = self.captured.source.filter(|at| *at.ip() == host);
        let known = self.captured.tree.endpoint(host).or(sender);
        known.unwrap_or(SocketAddrV4::new(host, PORT))
    }

    /// Returns the packet of an attack by one packet to the group, in the source's name.
    fn packet(&self, kind: Sends) -> Option<Vec<u8>> {
        let (captured, tree) = (self.captured, &self.captured.tree);
        Some(match kind {
            Sends::Data => captured.data_ahead(100_000),
            Sends::Lead => captured.spm_with(|spm| spm.lead += 100_000, None, None),
            Sends::Spm => captured.spm_with(|spm| spm.sequence += 100_000_000, None, None),
            Sends::Fin => captured.spm_with(|_| {}, Some(OptionType::FIN), None),
            Sends::Rst => captured.spm_with(|_| {}, Some(OptionType::RST), None),
            Sends::Scheme => captured.spm_with(|_| {}, None, Some(b"\x01\x07another")),
            Sends::Sealed => captured.sealed_damaged(),
            Sends::End | Sends::Ahead => tree.packet(kind, self.source),
            _ => return None,
        })
    }

    fn flood(&self, kind: Sends) -> io::Result<u32> {
        let Self { attacker, captured, source, receivers, stop } = *self;
        let (tree, group, speaker) = (&captured.tree, attacker.group, self.endpoint(self.source));
        let own = SocketAddrV4::new(attacker.here, PORT);
        let member_socket = || UdpSocket::bind((attacker.here, 0));
        let flood = |per_second, send: &mut dyn FnMut(u32) -> io::Result<()>| {
            Attacker::flood(per_second, FLOOD, stop, send)
        };
        match kind {
            Sends::Damage => flood(6000.0, &mut |number| {
                attacker.send(speaker, group, &captured.damaged(number))
            }),
            Sends::Sessions => flood(3000.0, &mut |number| {
                attacker.send(own, group, &captured.other_session(number))
            }),
            Sends::Member => {
                let socket = member_socket()?;
                Attacker::flood(95.0 / 60.0, Duration::MAX, stop, |number| {
                    let packet = match number {
                        0 => captured.member(0, Claim::Joined, 1),
                        number if number.is_multiple_of(2) => captured.want(*group.ip(), 0),
                        number => captured.member(0, Claim::Receiving, 1 + number),
                    };
                    socket.send_to(&packet, speaker).map(|_| ())
                })
            }
            Sends::Members => flood(8000.0, &mut |number| {
                let member = number % MEMBERS;
                let [high, low] = (member as u16).to_be_bytes();
                let from = SocketAddrV4::new(Ipv4Addr::new(10, 77, 64 + high, low), PORT);
                let packet = match number < MEMBERS {
                    true => captured.member(member, Claim::Joined, 1),
                    // Blocks that were sent in the first seconds.
                    false => captured.want(*group.ip(), number * 7919 % 600),
                };
                attacker.send(from, speaker, &packet)
            }),
            Sends::Settings => {
                flood(2.0, &mut |_| attacker.send(speaker, group, &tree.packet(kind, source)))
            }
            Sends::Repeats => {
                let (socket, [bind, ack]) = (member_socket()?, tree.member());
                flood(PER_SECOND, &mut |number| {
                    let packet = if number < 2 { &bind } else { &ack };
                    socket.send_to(packet, speaker).map(|_| ())
                })
            }
            Sends::Catalogue => {
                let hosts = [source, receivers[0], receivers[1]];
                flood(PER_SECOND, &mut |number| {
                    let (host, packet) = tree.any(&hosts, number as usize);
                    let from = host.map_or(own, |host| self.endpoint(host));
                    attacker.send(from, group, &packet)?;
                    let mut others = hosts.iter().filter(|to| host != Some(**to));
                    others.try_for_each(|to| attacker.send(from, self.endpoint(*to), &packet))
                })
            }
            _ => Ok(0),
        }
    }
}

/// Rate of forged packets on a tree, in packets/s.
const PER_SECOND: f64 = 20.0;

const MEMBERS: u32 = 10_000;
const CONNECTIONS: u32 = 145;

fn time_of_metrics(at: SocketAddrV4) -> io::Result<Duration> {
    let begun = Instant::now();
    loop {
        match http_get(at.into(), "metrics", Duration::from_secs(30)) {
            Ok(text) if text.starts_with("HTTP/1.1 200") => return Ok(begun.elapsed()),
            _ if begun.elapsed() > Duration::from_secs(60) => {
                return Err(io::Error::other("no answer"));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
