//! What hosts that attack do: a transfer over real sockets while a host beside it attacks.
//!
//! A sender, two receivers and an attacker in network namespaces on one bridge. The attacker hears
//! the group and sends from whatever address it likes; it has no key. Each attack meets a transfer
//! of its own, which is measured before, while and after it lasts, and then has to end well.

mod attacker;
mod forge;
mod transfer;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faircast_proto::pgm::wire::PgmOption;
use serde::Serialize;

use crate::Error;
use crate::bench::{Request, Results, chosen, listing};
use crate::files::json;
use crate::host::{Network, Shape, enter, need_root};
use crate::monitor::{Monitor, Runs};
use crate::wire::ours;
use attacker::Attacker;
use forge::{Claim, Heard};
use transfer::{ATTACKER, GIVE_UP, GROUP, METRICS, Order, PORT, Pace, RECEIVERS, SENDER, Transfer};

/// What the suite asks.
const TITLE: &str = "What can a host on the network do to a transfer?";

/// What the sender may send at most, so that a busy machine does not decide.
const RATE_MBIT_PER_S: u64 = 100;

/// Times of a transfer: until it is steady, while it is measured before and after, how soon it must
/// be what it was, what is left then, and what its end may take.
const SETTLING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);
const RECOVERY: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(4);
const END_MAX: Duration = Duration::from_secs(30);

/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(10);

/// How long anything may take to begin.
const START_MAX: Duration = Duration::from_secs(20);

/// Of the rate before, that afterwards is the same: a second's progress is a point of measurement.
const SAME: f64 = 0.8;

/// What is on the wire for the rate of payload: headers of Ethernet, IP, UDP and PGM, and reports.
const WIRE_MAX: f64 = 1.1;

/// Of a flood of requests: what is left of the rate, of which a quarter is theirs and some goes while
/// thousands join; and what it may cost the sender, in cores.
const FLOODED: f64 = 0.4;
const FLOODED_CPU: f64 = 0.5;

/// How soon an honest request for metrics is answered.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// An attack.
struct Attack {
    id: &'static str,
    title: &'static str,
    kind: Kind,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Kind {
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
}

impl Kind {
    /// Whether it goes on for the time of a flood.
    fn is_flood(self) -> bool {
        use Kind::{Damage, Members, Sessions, SessionsFirst};
        matches!(self, Damage | Members | Sessions | SessionsFirst { .. })
    }
}

/// All of them.
const ATTACKS: &[Attack] = &[
    Attack { id: "nothing", title: "no attack, to compare with", kind: Kind::Nothing },
    Attack {
        id: "data",
        title: "one packet of data from 100 000 ahead",
        kind: Kind::Once(|heard| heard.data_ahead(100_000)),
    },
    Attack {
        id: "lead",
        title: "one SPM whose lead is 100 000 ahead",
        kind: Kind::Once(|heard| heard.spm_with(|spm| spm.lead += 100_000, None, None)),
    },
    Attack {
        id: "spm",
        title: "one SPM whose own number is 100 000 000 ahead",
        kind: Kind::Once(|heard| heard.spm_with(|spm| spm.sequence += 100_000_000, None, None)),
    },
    Attack {
        id: "fin",
        title: "one SPM that says that this is the end",
        kind: Kind::Once(|heard| heard.spm_with(|_| {}, Some(PgmOption::Fin), None)),
    },
    Attack {
        id: "rst",
        title: "one SPM that says that the source has given up",
        kind: Kind::Once(|heard| {
            let reset = PgmOption::Reset { abandoned: false, code: 1 };
            heard.spm_with(|_| {}, Some(reset), None)
        }),
    },
    Attack {
        id: "scheme",
        title: "one SPM of another scheme",
        kind: Kind::Once(|heard| heard.spm_with(|_| {}, None, Some(b"\x01\x07another"))),
    },
    Attack {
        id: "sealed",
        title: "one damaged datagram of a session with a key",
        kind: Kind::Sealed,
    },
    Attack {
        id: "damage",
        title: "6000 damaged packets a second in the source's name, for 10 s",
        kind: Kind::Damage,
    },
    Attack {
        id: "sessions",
        title: "3000 invented sessions a second, for 10 s",
        kind: Kind::Sessions,
    },
    Attack {
        id: "sessions-first",
        title: "the same before the receivers are started",
        kind: Kind::SessionsFirst { from: false },
    },
    Attack {
        id: "sessions-from",
        title: "the same, of receivers with --from",
        kind: Kind::SessionsFirst { from: true },
    },
    Attack {
        id: "member",
        title: "one invented receiver that never gets on, 95 packets a minute",
        kind: Kind::Member,
    },
    Attack {
        id: "members",
        title: "10 000 invented receivers with 8000 requests a second, for 10 s",
        kind: Kind::Members,
    },
    Attack {
        id: "connections",
        title: "145 silent connections to the port of metrics",
        kind: Kind::Connections,
    },
];

/// Something that had to be so.
#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    holds: bool,
    /// What was seen.
    seen: String,
}

/// What came of an attack.
#[derive(Debug, Serialize)]
struct Outcome {
    id: &'static str,
    title: &'static str,
    /// Packets or connections of the attacker.
    sent: u32,
    /// `None` where receivers are started only when the attack has begun.
    before: Option<Pace>,
    during: Option<Pace>,
    after: Pace,
    checks: Vec<Check>,
    /// The last thing that was said by who has not done its work, where a check does not hold.
    last_words: Option<String>,
}

impl Outcome {
    fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

fn attacks(request: &Request) -> Result<Vec<&'static Attack>, Error> {
    chosen("attack", "row", ATTACKS, |attack| attack.id, request.only.as_deref())
}

/// What there is to run.
pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let attacks = attacks(request)?.into_iter();
    Ok(listing("attack", TITLE, attacks.map(|attack| ("", attack.id, attack.title))))
}

/// Runs the attacks.
pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let attacks = attacks(request)?;
    need_root("attack")?;
    Network::remove_leftovers();
    let hosts = 1 + RECEIVERS.len() as u32;
    let network = Network::make("attack", hosts, Shape::default(), &request.own)?;
    let (count, weight) = (attacks.len(), attacks.len() as u64);
    monitor.begin(Runs { name: "attack", count, weight, long: true });
    let mut outcomes = Vec::new();
    for attack in attacks {
        outcomes.push(meet(attack, &network, request, monitor)?);
        monitor.ended(1);
    }
    monitor.finish();
    let json = json(&outcomes);
    Ok(Results {
        table: table(&outcomes),
        files: vec![("attack.json".into(), json.clone())],
        json,
        holds: outcomes.iter().all(Outcome::holds),
        ..Results::default()
    })
}

/// A transfer that meets an attack.
fn meet(
    attack: &Attack,
    network: &Network,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<Outcome, Error> {
    let failed = |error: std::io::Error| Error::doing(attack.id, error);
    let kind = attack.kind;
    let lasts = if kind.is_flood() { FLOOD } else { RECOVERY };
    let span = SETTLING + MEASURED + lasts + RECOVERY + MEASURED + REST;
    let order = Order {
        program: request.program.as_ref().unwrap_or(&request.own).clone(),
        bytes: RATE_MBIT_PER_S * 125_000 * span.as_secs(),
        rate: format!("{RATE_MBIT_PER_S}Mbit/s"),
        key: matches!(kind, Kind::Sealed),
        from: matches!(kind, Kind::SessionsFirst { from: true }),
        scheme: ours(request),
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let mut transfer = Transfer::new(network, folder.path(), order, monitor)?;
    let hostile = Hostile::start(kind, network);
    let late = matches!(kind, Kind::SessionsFirst { .. });
    transfer.start_sender()?;
    let mut before = None;
    if !late {
        transfer.start_receivers()?;
        let deadline = Instant::now() + START_MAX;
        if !transfer.wait_until(deadline, |transfer| transfer.runs())? {
            let said = transfer.last_words();
            return Err(Error::Work(format!("{}: does not begin: {said}", attack.id)));
        }
        transfer.rest(SETTLING)?;
        let from = transfer.count();
        transfer.rest(MEASURED)?;
        before = Some((from, transfer.count()));
    }
    let begun = transfer.count();
    hostile.go();
    let mut started = Instant::now();
    if late {
        transfer.rest(Duration::from_secs(1))?;
        started = Instant::now();
        transfer.start_receivers()?;
    }
    transfer.rest(lasts.saturating_sub(started.elapsed()))?;
    transfer.wait_until(Instant::now() + END_MAX, |_| hostile.is_over() || !kind.is_flood())?;
    let (over, during) = (Instant::now(), transfer.count());
    if late {
        transfer.wait_until(over + START_MAX, |transfer| transfer.runs())?;
    }
    if kind.is_flood() {
        transfer.rest(RECOVERY)?;
    }
    let from = transfer.count();
    transfer.rest(MEASURED)?;
    let to = transfer.count();
    let deadline = Instant::now() + END_MAX;
    transfer.wait_until(deadline, |transfer| transfer.complete_at().is_some())?;
    // Whoever was invented goes on until the sender has ended.
    let deadline = Instant::now() + GIVE_UP + END_MAX / 3;
    let complete = transfer.complete_at();
    if complete.is_some() {
        transfer.wait_until(deadline, Transfer::sender_has_ended)?;
    }
    let ended = complete.map(|at| at.elapsed());
    let Sent { count, answered } = hostile.end().map_err(failed)?;
    let before = before.map(|(from, to)| transfer.pace(from, to));
    let after = transfer.pace(from, to);
    let during = (!late).then(|| transfer.pace(begun, during));
    let joined = transfer.joined_at(RECEIVERS.len());
    let (known, warnings) = (transfer.joined(), transfer.warnings());
    let last_words = transfer.last_words();
    let well = transfer.end();

    let mut checks = Vec::new();
    let mut check = |what, holds, seen: String| checks.push(Check { what, holds, seen });
    let mbit = |rate: f64| format!("{rate:.1} Mbit/s");
    let rate = RATE_MBIT_PER_S as f64;
    let usual = before.map_or(rate, |pace| pace.mbit_per_s);
    let attacked = count > 0 || matches!(kind, Kind::Nothing);
    check("its rate again", after.mbit_per_s >= SAME * usual, mbit(after.mbit_per_s));
    check("was attacked", attacked, format!("{count} sent"));
    let whole = transfer.copies_are_whole();
    check("whole copies", whole, if whole { "equal" } else { "a copy differs" }.into());
    let seen = match ended {
        Some(ended) => format!("{:.1} s after the last copy", ended.as_secs_f64()),
        None => "it was ended".into(),
    };
    check("the sender's end", well, seen);
    let wire = during.unwrap_or(after).wire_mbit_per_s.max(after.wire_mbit_per_s);
    check("rate on the wire", wire <= WIRE_MAX * rate, mbit(wire));
    match kind {
        Kind::Members => {
            let pace = during.expect("receivers were there before");
            check("most of its rate", pace.mbit_per_s >= FLOODED * usual, mbit(pace.mbit_per_s));
            check("CPU", pace.cpu <= FLOODED_CPU, format!("{:.2} cores", pace.cpu));
            check("invented ones known", known > RECEIVERS.len(), format!("{known} joined"));
        }
        Kind::Member => {
            check("invented one known", known > RECEIVERS.len(), format!("{known} joined"));
        }
        Kind::Sealed => {
            let seen = warnings.first().cloned().unwrap_or_default();
            check("no warning", warnings.is_empty(), seen);
        }
        Kind::SessionsFirst { from } => {
            let since = if from { started } else { over };
            let took = joined.map(|at| at.saturating_duration_since(since));
            let seen = took.map_or("never".into(), |took| format!("{:.1} s", took.as_secs_f64()));
            check("heard soon", took.is_some_and(|took| took <= RECOVERY), seen);
        }
        Kind::Connections => {
            let holds = answered.is_some_and(|took| took <= ANSWER_MAX);
            let seen =
                answered.map_or("never".into(), |took| format!("{:.2} s", took.as_secs_f64()));
            check("metrics soon", holds, seen);
        }
        _ => {}
    }
    let last_words = checks.iter().any(|check| !check.holds).then_some(last_words);
    let (id, title) = (attack.id, attack.title);
    Ok(Outcome { id, title, sent: count, before, during, after, checks, last_words })
}

/// What an attacker has done.
struct Sent {
    count: u32,
    /// How soon an honest request was answered meanwhile.
    answered: Option<Duration>,
}

/// A thread in the attacker's namespace.
struct Hostile {
    signals: Arc<Signals>,
    thread: std::thread::JoinHandle<std::io::Result<Sent>>,
}

#[derive(Default)]
struct Signals {
    go: AtomicBool,
    stop: AtomicBool,
}

impl Hostile {
    fn start(kind: Kind, network: &Network) -> Self {
        let signals = Arc::<Signals>::default();
        let told = Arc::clone(&signals);
        let paths = [ATTACKER, RECEIVERS[0]].map(|host| network.path(host));
        let [source, here] =
            [SENDER, ATTACKER].map(|host| network.address(host).parse().expect("an address"));
        let thread = std::thread::spawn(move || {
            let entered =
                |path| enter(path).map_err(|error| std::io::Error::other(error.to_string()));
            entered(&paths[0])?;
            let attacker = Attacker::new(SocketAddrV4::new(GROUP, PORT), here)?;
            let mut heard = Heard::default();
            // It hears what it needs, and then until it is to begin: its numbers must not be old.
            let begins = |heard: &Heard| told.go.load(Ordering::Relaxed) && has_enough(kind, heard);
            if !attacker.hear(&told.stop, &mut heard, begins)? {
                return Ok(Sent { count: 0, answered: None });
            }
            let honest = || {
                entered(&paths[1])?;
                time_of_metrics(SocketAddrV4::new(source, METRICS))
            };
            strike(kind, &attacker, &heard, source, &told.stop, honest)
        });
        Self { signals, thread }
    }

    fn go(&self) {
        self.signals.go.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    fn end(self) -> std::io::Result<Sent> {
        self.signals.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(std::io::Error::other("the attacker's thread ended badly")))
    }
}

/// Whether what was heard is all that an attack is made from.
fn has_enough(kind: Kind, heard: &Heard) -> bool {
    match kind {
        Kind::Sealed => !heard.sealed.is_empty(),
        Kind::SessionsFirst { .. } => !heard.spm.is_empty(),
        _ if heard.spm.is_empty() || heard.data.is_empty() => false,
        _ => true,
    }
}

/// Attacks.
fn strike(
    kind: Kind,
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
        Kind::Nothing => 0,
        Kind::Once(forge) => attacker.send(speaker, group, &forge(heard)).map(|()| 1)?,
        Kind::Sealed => attacker.send(speaker, group, &heard.sealed_damaged()).map(|()| 1)?,
        Kind::Damage => Attacker::flood(6000.0, FLOOD, stop, |number| {
            attacker.send(speaker, group, &heard.damaged(number))
        })?,
        Kind::Sessions | Kind::SessionsFirst { .. } => {
            Attacker::flood(3000.0, FLOOD, stop, |number| {
                attacker.send(own, group, &heard.other_session(number))
            })?
        }
        Kind::Member => {
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
        Kind::Members => Attacker::flood(8000.0, FLOOD, stop, |number| {
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
        Kind::Connections => {
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

/// Characters of what a program said last; `--json` has all of it.
const WORDS_SHOWN: usize = 120;

/// What came of all attacks, a line for each, and below it what does not hold.
fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<15} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}  {:<5} {}\n",
        "attack", "before", "during", "after", "wire", "CPU", "CPU", "", "checked"
    );
    let shown = |pace: Option<Pace>, value: fn(&Pace) -> f64, digits: usize| {
        pace.as_ref().map_or("-".into(), |pace| format!("{:.digits$}", value(pace)))
    };
    let rate = |pace| shown(pace, |pace| pace.mbit_per_s, 1);
    let cpu = |pace| shown(pace, |pace| pace.cpu, 2);
    for outcome in outcomes {
        let Outcome { before, during, after, .. } = outcome;
        let what: Vec<&str> = outcome.checks.iter().map(|check| check.what).collect();
        let _ = writeln!(
            text,
            "{:<15} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}  {:<5} {}",
            outcome.id,
            rate(*before),
            rate(*during),
            rate(Some(*after)),
            shown(*during, |pace| pace.wire_mbit_per_s, 1),
            cpu(*before),
            cpu(*during),
            if outcome.holds() { "holds" } else { "FAILS" },
            what.join(", ")
        );
        for check in outcome.checks.iter().filter(|check| !check.holds) {
            let _ = writeln!(text, "    {}: {}", check.what, check.seen);
        }
        if let Some(words) = &outcome.last_words {
            let words: String = words.chars().take(WORDS_SHOWN).collect();
            let _ = writeln!(text, "    last said: {words}");
        }
    }
    let held = outcomes.iter().filter(|outcome| outcome.holds()).count();
    let _ = write!(
        text,
        "{held} of {} hold. Mbit/s of content at the slower receiver, of {RATE_MBIT_PER_S} allowed; \
         what left the sender\nmeanwhile; cores that the sender took before and meanwhile.\n",
        outcomes.len()
    );
    text
}
