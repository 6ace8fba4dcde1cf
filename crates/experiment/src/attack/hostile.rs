//! Attacker thread: waits until it has received enough packets, then sends forged ones.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faircast_proto::pgm::wire::OptionType;
use serde::Deserialize;

use super::attacker::Attacker;
use super::forge::{Claim, Heard};
use super::transfer::{ATTACKER, GROUP, METRICS, PORT, RECEIVERS, SENDER};
use super::{Attack, FLOOD, Over};
use crate::host::{Network, enter};

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
    pub(super) fn start(attack: &'static Attack, network: &Network) -> Self {
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
            // Reception goes on until the start signal, so that the sequence numbers are current.
            let begins = |heard: &Heard| {
                told.go.load(Ordering::Relaxed) && has_enough(attack, heard, source, &receivers)
            };
            if !attacker.hear(&told.stop, &mut heard, begins)? {
                return Ok(Sent { count: 0, answered: None });
            }
            let honest = || {
                entered(&paths[1])?;
                time_of_metrics(SocketAddrV4::new(source, METRICS))
            };
            strike(attack.sends, &attacker, &heard, (source, receivers), &told.stop, honest)
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

fn has_enough(attack: &Attack, heard: &Heard, source: Ipv4Addr, receivers: &[Ipv4Addr]) -> bool {
    match attack.sends {
        Sends::Nothing | Sends::Connections => true,
        Sends::Settings => heard.tree.knows(source),
        _ if attack.over == Some(Over::Tram) => heard.tree.has(receivers),
        Sends::Sealed => !heard.sealed.is_empty(),
        _ => !heard.spm.is_empty() && (attack.first || !heard.data.is_empty()),
    }
}

fn strike(
    kind: Sends,
    attacker: &Attacker,
    heard: &Heard,
    (source, receivers): (Ipv4Addr, [Ipv4Addr; 2]),
    stop: &AtomicBool,
    honest: impl FnOnce() -> std::io::Result<Duration> + Send,
) -> std::io::Result<Sent> {
    let (tree, group) = (&heard.tree, attacker.group);
    let of = |host| tree.speaker(host).unwrap_or(SocketAddrV4::new(host, PORT));
    let speaker = tree.speaker(source).or(heard.source).unwrap_or(of(source));
    let own = SocketAddrV4::new(attacker.here, PORT);
    let once = |packet: &[u8]| attacker.send(speaker, group, packet).map(|()| 1);
    let flood = |per_second, send: &mut dyn FnMut(u32) -> std::io::Result<()>| {
        Attacker::flood(per_second, FLOOD, stop, send)
    };
    let mut answered = None;
    let count = match kind {
        Sends::Nothing => 0,
        Sends::Data => once(&heard.data_ahead(100_000))?,
        Sends::Lead => once(&heard.spm_with(|spm| spm.lead += 100_000, None, None))?,
        Sends::Spm => once(&heard.spm_with(|spm| spm.sequence += 100_000_000, None, None))?,
        Sends::Fin => once(&heard.spm_with(|_| {}, Some(OptionType::FIN), None))?,
        Sends::Rst => once(&heard.spm_with(|_| {}, Some(OptionType::RST), None))?,
        Sends::Scheme => once(&heard.spm_with(|_| {}, None, Some(b"\x01\x07another")))?,
        Sends::Sealed => once(&heard.sealed_damaged())?,
        Sends::Damage => {
            flood(6000.0, &mut |number| attacker.send(speaker, group, &heard.damaged(number)))?
        }
        Sends::Sessions => {
            flood(3000.0, &mut |number| attacker.send(own, group, &heard.other_session(number)))?
        }
        Sends::Member => {
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
        Sends::Members => flood(8000.0, &mut |number| {
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
        Sends::Connections => {
            let to = SocketAddr::from((source, METRICS));
            let connect = |_| TcpStream::connect_timeout(&to, Duration::from_secs(5));
            let open = (0..CONNECTIONS).map(connect).collect::<std::io::Result<Vec<_>>>()?;
            let took = std::thread::scope(|scope| scope.spawn(honest).join());
            answered = took.ok().and_then(Result::ok);
            open.len() as u32
        }
        Sends::End => once(&tree.end(source))?,
        Sends::Ahead => once(&tree.ahead(source, AHEAD))?,
        Sends::Removal => {
            let send = |host| attacker.send(speaker, of(host), &tree.removal(source));
            receivers.into_iter().try_for_each(send).map(|()| 2)?
        }
        Sends::Goodbye => {
            let send = |host| attacker.send(of(host), speaker, &tree.goodbye(host));
            receivers.into_iter().try_for_each(send).map(|()| 2)?
        }
        Sends::Settings => {
            flood(2.0, &mut |_| attacker.send(speaker, group, &tree.settings(source)))?
        }
        Sends::Repeats => {
            let socket = UdpSocket::bind((attacker.here, 0))?;
            let [bind, ack] = tree.member();
            flood(PER_SECOND, &mut |number| {
                let packet = if number < 2 { &bind } else { &ack };
                socket.send_to(packet, speaker).map(|_| ())
            })?
        }
        Sends::Catalogue => {
            let hosts = [source, receivers[0], receivers[1]];
            flood(PER_SECOND, &mut |number| {
                let (host, packet) = tree.any(&hosts, number as usize);
                let from = host.map_or(own, of);
                attacker.send(from, group, &packet)?;
                hosts
                    .iter()
                    .filter(|to| host != Some(**to))
                    .try_for_each(|to| attacker.send(from, of(*to), &packet))
            })?
        }
    };
    Ok(Sent { count, answered })
}

/// Distance of forged data from the newest packet, in packets; rate on a tree, in packets/s.
const AHEAD: i64 = 50;
const PER_SECOND: f64 = 20.0;

const MEMBERS: u32 = 10_000;
const CONNECTIONS: u32 = 145;

fn time_of_metrics(at: SocketAddrV4) -> std::io::Result<Duration> {
    let begun = Instant::now();
    loop {
        let answer = || {
            let mut stream = TcpStream::connect_timeout(&at.into(), Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(
                b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            )?;
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
