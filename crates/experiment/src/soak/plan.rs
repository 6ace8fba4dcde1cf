//! Plan of a round: its faults, all drawn from the round's seed before it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration as WallDuration;

use faircast_base::{NodeId, Purpose, Rng};

use super::relays::{self, RECEIVERS_MAX};
use super::sequence::Trial;
use super::{Fault, Request, WITH_HEADS};

/// Time from the start of a round in which faults begin. Single faults may last longer.
pub(super) const FAULT_PERIOD: WallDuration = WallDuration::from_secs(12);
const SCENARIO: &str = "1 h";

#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) faults: Vec<Fault>,
    /// TOML text of the networks and their impairments.
    pub(super) scenario: String,
    /// Actions on programs and hosts, at times since the start of the round, in order.
    pub(super) actions: Vec<(WallDuration, Action)>,
    /// Bytes of the first sender's files; the second sender has a quarter of this.
    pub(super) bytes: u64,
    /// Number of repair heads, the first receivers; `None` if any receiver may be one.
    pub(super) heads: Option<u32>,
    pub(super) trials: Vec<Trial>,
    pub(super) relays: bool,
    pub(super) relay_key: bool,
    pub(super) unicast: bool,
    pub(super) sealed: bool,
    pub(super) give_up: WallDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Starts the program, unless it runs.
    Start(Who),
    /// Starts the program with its monotonic clock twelve days ahead.
    StartAhead(Who),
    Kill(Who),
    /// Ends the program as Ctrl-C does.
    Leave(Who),
    /// Stops the process if true, else continues it.
    Stop(Who, bool),
    /// Sets the interface of the host up if true, else down.
    Interface(Who, bool),
    /// Starts the host that sends nonsense if true, else stops it.
    Noise(bool),
    /// Kills the program for good.
    Lose(Who),
    /// Gives the host another port behind its address translation.
    Remap(Who),
    /// Gives the host another address.
    Move(Who),
    /// Drops packets longer than this number of bytes from and to the host; none if `None`.
    Narrow(Who, Option<u32>),
    /// Fills the disk of the host if true, else makes room.
    Fill(Who, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Sender,
    Second,
    Outsider,
    ReadOnly,
    FullDisk,
    Receiver(u32),
    Relay(u32),
}

impl Who {
    pub(super) fn all(receivers: u32) -> Vec<Self> {
        let others = [Self::Sender, Self::Second, Self::Outsider, Self::ReadOnly, Self::FullDisk];
        others.into_iter().chain((0..receivers).map(Self::Receiver)).collect()
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Sender => "sender".into(),
            Self::Second => "second".into(),
            Self::Outsider => "outsider".into(),
            Self::ReadOnly => "read-only".into(),
            Self::FullDisk => "full-disk".into(),
            Self::Receiver(index) => format!("r{}", index + 1),
            Self::Relay(index) => format!("relay{}", index + 1),
        }
    }

    pub(super) fn node(self) -> NodeId {
        NodeId(match self {
            Self::Sender => 1,
            Self::Second => 2,
            Self::Outsider => 3,
            Self::ReadOnly => 4,
            Self::FullDisk => 5,
            Self::Receiver(index) => 6 + index,
            Self::Relay(index) => 6 + RECEIVERS_MAX + index,
        })
    }
}

impl Plan {
    pub(super) fn new(seed: u64, request: &Request) -> Self {
        match (request.relays, request.one_by_one) {
            (true, _) => Self::over_relays(seed, request),
            (false, true) => Self::one_by_one(seed, request),
            (false, false) => Self::at_once(seed, request),
        }
    }

    fn at_once(seed: u64, request: &Request) -> Self {
        let Request { receivers, only, .. } = request;
        let (receivers, heads) = (*receivers, request.scheme == WITH_HEADS);
        let mut rng = Rng::new(seed, NodeId(0), Purpose::Fault);
        // Swarm testing: each fault has probability 1/2, so that none hides all others. Faults
        // added later have draws of their own, so that old seeds keep their rounds.
        let mut later = Rng::new(seed, NodeId(2), Purpose::Fault);
        let drawn = Fault::ALL.iter().map(|(fault, ..)| *fault);
        let drawn = drawn.filter(|fault| match *fault < Fault::Partition {
            true => rng.chance(0.5),
            false => {
                let without = fault.is_of_heads() && !heads;
                later.chance(0.5) && !without && !fault.is_of_networks()
            }
        });
        let drawn: Vec<_> = drawn.collect();
        let faults = distinct(if only.is_empty() { &drawn } else { only });
        let size = (6 + rng.below(10)) * 1_000_000 + rng.below(1_000_000);
        let scenario = scenario(&faults, receivers, &mut rng);
        let actions = actions(&faults, receivers, &mut rng);
        let heads = faults.iter().any(|fault| fault.is_of_heads()).then(|| heads_of(receivers));
        Self {
            faults,
            scenario,
            actions,
            bytes: request.size.map_or(size, |size| size.count()),
            heads,
            sealed: request.key,
            give_up: GIVE_UP,
            ..Self::default()
        }
    }

    /// Returns the receivers without which a sender may end: they left, or were stopped too long.
    pub(super) fn departures(&self) -> Vec<Who> {
        let mut stopped = BTreeMap::new();
        let mut departures = Vec::new();
        for (at, action) in &self.actions {
            match action {
                Action::Stop(who, true) => drop(stopped.insert(*who, *at)),
                Action::Stop(who, false) => {
                    let since = stopped.remove(who);
                    if since.is_some_and(|since| *at - since + SLACK >= self.give_up) {
                        departures.push(*who);
                    }
                }
                Action::Lose(who) => departures.push(*who),
                Action::Leave(who) if self.trials.is_empty() => departures.push(*who),
                _ => {}
            }
        }
        departures.extend(stopped.into_keys());
        departures
    }

    pub(super) fn programs(&self, receivers: u32) -> Vec<Who> {
        match self.relays {
            true => relays::everybody(receivers),
            false => Who::all(receivers).into_iter().filter(|who| *who != Who::Outsider).collect(),
        }
    }
}

pub(super) fn distinct(faults: &[Fault]) -> Vec<Fault> {
    BTreeSet::from_iter(faults.iter().copied()).into_iter().collect()
}

fn heads_of(receivers: u32) -> u32 {
    receivers.div_ceil(2)
}

/// Longest silence of a receiver before a give-up: longer than an interface is down.
const GIVE_UP: WallDuration = WallDuration::from_secs(20);

/// Allowance for silence before a stop of a program and after its continuation: 5 s.
const SLACK: WallDuration = WallDuration::from_secs(5);

/// Longest IP packet on a path with a black hole: the minimum MTU of IPv6.
pub(super) const NARROW_BYTES: u32 = 1280;

const PARTITION_MS: [u64; 2] = [2_000, 12_000];

const INTERFACE_DOWN: WallDuration = WallDuration::from_secs(5);
const HEAD_STOPPED: WallDuration = WallDuration::from_secs(10);

fn moment(rng: &mut Rng, from_ms: u64, to_ms: u64) -> WallDuration {
    WallDuration::from_millis(from_ms + rng.below(to_ms - from_ms))
}

fn scenario(faults: &[Fault], receivers: u32, rng: &mut Rng) -> String {
    let everybody = Who::all(receivers);
    let end = FAULT_PERIOD.as_secs();
    let mut text = format!(
        "title = \"Does everything arrive whatever happens?\"\nduration = \"{SCENARIO}\"\n\
         seed = {}\n",
        rng.bits() >> 1
    );
    for who in &everybody {
        let rate = 10 + rng.below(30);
        let mut delay = 1 + rng.below(20);
        if faults.contains(&Fault::FarLoss) {
            // The path between two hosts has two links.
            delay = 125;
        }
        let cut = matches!(who, Who::Receiver(index) if 2 * index >= receivers)
            && faults.contains(&Fault::Partition);
        push_links(&mut text, *who, || {
            format!(
                "rate = \"{rate} Mbit/s\"\ndelay = \"{delay} ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 100 }}\n{}",
                wrong(faults, end, cut, rng)
            )
        });
    }
    push_flows(&mut text, everybody.into_iter().map(Who::name));
    text
}

pub(super) fn push_links(text: &mut String, who: Who, mut settings: impl FnMut() -> String) {
    let name = who.name();
    for there in [true, false] {
        // The first names in the text define the order of the nodes.
        let ends = match there {
            true => format!("from = \"router\"\nto = \"{name}\""),
            false if who == Who::Sender => format!("to = \"router\"\nfrom = \"{name}\""),
            false => format!("from = \"{name}\"\nto = \"router\""),
        };
        let _ = write!(text, "[[link]]\n{ends}\n{}", settings());
    }
}

/// Adds a flow from each host to all others, which makes them hosts of the field.
pub(super) fn push_flows(text: &mut String, hosts: impl Iterator<Item = String>) {
    let hosts: Vec<String> = hosts.collect();
    for name in &hosts {
        let others = hosts.iter().filter(|to| *to != name).map(|to| format!("\"{to}\""));
        let to = others.collect::<Vec<_>>().join(", ");
        let _ = write!(
            text,
            "[[flow]]\nname = \"{name}\"\nprotocol = \"cbr\"\nfrom = \"{name}\"\nto = [{to}]\n"
        );
    }
}

/// Adds a list of tables to the settings of a link, unless the list is empty.
pub(super) fn push_tables(text: &mut String, key: &str, tables: &[String]) {
    if !tables.is_empty() {
        let _ = writeln!(text, "{key} = [ {} ]", tables.join(", "));
    }
}

fn wrong(faults: &[Fault], end: u64, cut: bool, rng: &mut Rng) -> String {
    let (mut text, mut calm) = (String::new(), String::new());
    let share = |fault, share: f64| if faults.contains(&fault) { share } else { 0.0 };
    let mut loss = share(Fault::HeavyLoss, 0.2).max(share(Fault::FarLoss, 0.1));
    let mut outage = None;
    for fault in faults {
        match fault {
            Fault::Loss => loss = loss.max(0.03 * rng.unit()),
            Fault::BurstLoss => {
                let packets = 2.0 + 8.0 * rng.unit();
                let loss = 0.02 * rng.unit();
                let _ =
                    writeln!(text, "burst_loss = {{ loss = {loss:.4}, packets = {packets:.2} }}");
                calm += ", burst_loss = { loss = 0.0, packets = 1 }";
            }
            Fault::Reorder => {
                let (share, delay) = (0.05 * rng.unit(), 1 + rng.below(10));
                let _ =
                    writeln!(text, "reorder = {{ share = {share:.4}, delay = \"{delay} ms\" }}");
                calm += ", reorder = { share = 0.0, delay = \"1 ms\" }";
            }
            Fault::Duplicate => {
                let _ = writeln!(text, "duplicate = {:.4}", 0.1 * rng.unit());
                calm += ", duplicate = 0.0";
            }
            Fault::Corrupt => {
                let _ = writeln!(text, "corrupt = {:.4}", 0.02 * rng.unit());
                calm += ", corrupt = 0.0";
            }
            Fault::Outage if rng.chance(0.3) => {
                let from = 500 + rng.below(end * 1000 - 3500);
                let to = from + 200 + rng.below(2800);
                outage = Some([from, to]);
            }
            _ => {}
        }
    }
    if loss > 0.0 {
        let _ = writeln!(text, "loss = {loss:.4}");
        calm += ", loss = 0.0";
    }
    if let Some([from, to]) = cut.then_some(PARTITION_MS).or(outage) {
        let _ = writeln!(text, "outages = [ {{ from = \"{from} ms\", to = \"{to} ms\" }} ]");
    }
    if !calm.is_empty() {
        let _ = writeln!(text, "changes = [ {{ at = \"{end} s\"{calm} }} ]");
    }
    text
}

fn actions(faults: &[Fault], receivers: u32, rng: &mut Rng) -> Vec<(WallDuration, Action)> {
    let mut actions = vec![(WallDuration::ZERO, Action::Start(Who::Sender))];
    let late = faults.contains(&Fault::JoinLeave).then(|| receiver(receivers, rng));
    let apart = u64::from(faults.contains(&Fault::JoinEverySecond));
    for index in 0..receivers {
        let who = Who::Receiver(index);
        if Some(who) != late {
            let comes = WallDuration::from_secs(apart * u64::from(index));
            actions.push((comes, Action::Start(who)));
        }
    }
    for fault in faults {
        actions.extend(fault_actions(*fault, receivers, late, rng));
    }
    // At the end all receivers run. The stable sort keeps the order of equal times.
    let last = actions.iter().map(|(at, _)| *at).max().unwrap_or_default().max(FAULT_PERIOD);
    for who in (0..receivers).map(Who::Receiver) {
        actions.push((last, Action::Stop(who, false)));
        actions.push((last, Action::Start(who)));
    }
    actions.sort_by_key(|(at, _)| *at);
    actions
}

fn receiver(receivers: u32, rng: &mut Rng) -> Who {
    Who::Receiver(rng.below(receivers.into()) as u32)
}

fn receiver_or_sender(receivers: u32, rng: &mut Rng) -> Who {
    if rng.chance(0.25) { Who::Sender } else { receiver(receivers, rng) }
}

/// Draws the actions of a fault. `late` is the receiver that joins late and leaves.
fn fault_actions(
    fault: Fault,
    receivers: u32,
    late: Option<Who>,
    rng: &mut Rng,
) -> Vec<(WallDuration, Action)> {
    let early = moment(rng, 1_500, 7_000);
    let away = moment(rng, 200, 4_000);
    let (begin, end_at, end) = match fault {
        Fault::KillReceiver | Fault::Clock => {
            let who = receiver(receivers, rng);
            let start = if fault == Fault::Clock { Action::StartAhead } else { Action::Start };
            (Action::Kill(who), early + away, start(who))
        }
        Fault::KillSender => (Action::Kill(Who::Sender), early + away, Action::Start(Who::Sender)),
        Fault::StopReceiver => {
            let who = receiver(receivers, rng);
            // Mostly short, sometimes as long as a sender waits for a silent receiver.
            let longest = if rng.chance(0.25) { 30_000 } else { 6_000 };
            let end = early + moment(rng, 1_000, longest);
            (Action::Stop(who, true), end, Action::Stop(who, false))
        }
        Fault::Interface => {
            let (who, end) = (receiver_or_sender(receivers, rng), early + INTERFACE_DOWN);
            (Action::Interface(who, false), end, Action::Interface(who, true))
        }
        Fault::StopHead => {
            let (head, end) = (receiver(heads_of(receivers), rng), early + HEAD_STOPPED);
            (Action::Stop(head, true), end, Action::Stop(head, false))
        }
        Fault::StopSender => {
            let end = early + moment(rng, 1_000, 6_000);
            (Action::Stop(Who::Sender, true), end, Action::Stop(Who::Sender, false))
        }
        Fault::BlackHole => {
            let who = receiver(receivers, rng);
            let narrow = Action::Narrow(who, Some(NARROW_BYTES));
            (narrow, early + away, Action::Narrow(who, None))
        }
        Fault::JoinLeave => {
            let who = late.expect("drawn before");
            let comes = moment(rng, 500, 2_000);
            let leaves = comes + moment(rng, 1_000, 5_000);
            let starts = [comes, leaves + away].map(|at| (at, Action::Start(who)));
            return vec![starts[0], (leaves, Action::Leave(who)), starts[1]];
        }
        Fault::KillHead => return vec![(early, Action::Kill(receiver(heads_of(receivers), rng)))],
        Fault::KillHeads => {
            let killed = (0..heads_of(receivers).div_ceil(2)).map(Who::Receiver);
            return killed.map(|head| (early, Action::Kill(head))).collect();
        }
        Fault::Address => return vec![(early, Action::Move(receiver_or_sender(receivers, rng)))],
        Fault::Noise => {
            return vec![(early / 2, Action::Noise(true)), (FAULT_PERIOD, Action::Noise(false))];
        }
        Fault::SecondSender => return vec![(early / 2, Action::Start(Who::Second))],
        Fault::ReadOnly => return vec![(WallDuration::ZERO, Action::Start(Who::ReadOnly))],
        Fault::FullDisk => return vec![(WallDuration::ZERO, Action::Start(Who::FullDisk))],
        _ => return Vec::new(),
    };
    vec![(early, begin), (end_at, end)]
}
