//! Sequence of faults: its plan, and a check that the session's rate recovers after each.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration as WallDuration;

use faircast_base::{NodeId, Purpose, Rng};
use serde::Serialize;

use super::plan::{Action, NARROW_BYTES, Plan, Who, distinct, push_flows, push_links, push_tables};
use super::relays::{self, RECEIVERS_MAX, RELAYS};
use super::{Fault, Request};
use crate::host::events;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) fault: Fault,
    pub(super) who: Who,
    pub(super) from: WallDuration,
    pub(super) to: WallDuration,
}

/// Time before the first fault, in which receivers join and the rate grows.
const WARM_UP: WallDuration = WallDuration::from_secs(12);

pub(super) const BACK_WITHIN: WallDuration = WallDuration::from_secs(10);

const RELAY_BACK_WITHIN: WallDuration = WallDuration::from_secs(2);

/// Time between the recovery limit and the next fault, as slack and to measure the next rate.
pub(super) const CALM: WallDuration = WallDuration::from_secs(5);

/// Share of the rate that counts as recovered: full links vary by a tenth each second.
const BACK_SHARE: f64 = 0.8;

/// Rate of each link to a receiver. The sender's link carries a copy for each receiver.
const LINK_BITS_PER_S: u64 = 8_000_000;
const SENDER_LINK_BITS_PER_S: u64 = 300_000_000;

impl Plan {
    /// Draws the plan. Odd seeds send by unicast; of four seeds the last two are sealed.
    pub(super) fn one_by_one(seed: u64, request: &Request) -> Self {
        let mut rng = Rng::new(seed, NodeId(3), Purpose::Fault);
        let targets = Self::targets('s', request, hosts, &mut rng);
        Self {
            unicast: seed % 2 == 1,
            sealed: request.key || seed % 4 >= 2,
            ..Self::sequence(&targets, request, &mut rng)
        }
    }

    /// Draws the hosts of the requested faults, or of all faults of a mode, in random order.
    pub(super) fn targets(
        mode: char,
        request: &Request,
        hosts: fn(Fault, u32, &mut Rng) -> Vec<Who>,
        rng: &mut Rng,
    ) -> Vec<(Fault, Who)> {
        let Request { only, receivers, .. } = request;
        let faults = if only.is_empty() { &Fault::of(mode) } else { only };
        let mut targets = Vec::new();
        for fault in faults {
            let hosts = hosts(*fault, *receivers, rng).into_iter();
            targets.extend(hosts.map(|who| (*fault, who)));
        }
        shuffle(&mut targets, rng);
        targets
    }

    pub(super) fn sequence(targets: &[(Fault, Who)], request: &Request, rng: &mut Rng) -> Self {
        let Request { receivers, relays, .. } = *request;
        let (mut trials, mut at) = (Vec::new(), WARM_UP);
        for &(fault, who) in targets {
            let to = at + length(fault, rng);
            trials.push(Trial { fault, who, from: at, to });
            at = to + BACK_WITHIN + CALM;
        }
        let most = LINK_BITS_PER_S / 8 * at.as_secs();
        let everybody = if relays { relays::everybody(receivers) } else { Who::all(receivers) };
        let scenario = scenario(&trials, everybody, rng);
        let actions = actions(&trials, receivers, relays, at);
        let faults: Vec<Fault> = targets.iter().map(|(fault, _)| *fault).collect();
        Self {
            faults: distinct(&faults),
            scenario,
            actions,
            bytes: request.size.map_or(most, |size| size.count()),
            trials,
            relays,
            // Longer than any program is stopped.
            give_up: WallDuration::from_secs(if relays { 30 } else { 60 }),
            ..Self::default()
        }
    }
}

pub(super) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

fn hosts(fault: Fault, receivers: u32, rng: &mut Rng) -> Vec<Who> {
    let receiver = Who::Receiver(rng.below(u64::from(receivers)) as u32);
    match fault {
        Fault::KillReceiver | Fault::StopReceiver | Fault::FullDisk => vec![receiver],
        Fault::KillSender | Fault::StopSender => vec![Who::Sender],
        Fault::Noise => vec![Who::Outsider],
        _ => vec![Who::Sender, receiver],
    }
}

fn length(fault: Fault, rng: &mut Rng) -> WallDuration {
    let mut ms = |from: u64, to: u64| WallDuration::from_millis(from + rng.below(to - from));
    match fault {
        Fault::KillReceiver | Fault::KillSender | Fault::KillRelay => ms(200, 4_000),
        Fault::StopReceiver | Fault::StopSender | Fault::StopRelay => ms(1_000, 20_000),
        Fault::FullDisk => WallDuration::from_secs(6),
        Fault::Address | Fault::Rename | Fault::Remap | Fault::LoseReceiver => ms(500, 501),
        Fault::Idle => ms(2_000, 2_001),
        Fault::BlackHole => ms(2_000, 8_000),
        Fault::Outage => ms(200, 3_000),
        _ => WallDuration::from_secs(5),
    }
}

fn scenario(trials: &[Trial], everybody: Vec<Who>, rng: &mut Rng) -> String {
    let mut text = format!(
        "title = \"Does the rate come back after each fault?\"\nduration = \"1 h\"\nseed = {}\n",
        rng.bits() >> 1
    );
    // The node of a host is its index among all possible hosts.
    let last = everybody.iter().map(|who| who.node()).max().expect("there are hosts");
    let all = Who::all(RECEIVERS_MAX).into_iter().chain((0..RELAYS).map(Who::Relay));
    for who in all.take_while(|who| who.node() <= last) {
        let rate = match who {
            Who::Sender | Who::Relay(_) => SENDER_LINK_BITS_PER_S,
            _ => LINK_BITS_PER_S,
        };
        let wrong = wrong(trials.iter().filter(|trial| trial.who == who));
        push_links(&mut text, who, || {
            format!(
                "rate = \"{rate} bit/s\"\ndelay = \"5 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 50 }}\n{wrong}"
            )
        });
    }
    push_flows(&mut text, everybody.into_iter().map(Who::name));
    text
}

fn wrong<'a>(trials: impl Iterator<Item = &'a Trial>) -> String {
    let (mut changes, mut outages) = (Vec::new(), Vec::new());
    for Trial { fault, from, to, .. } in trials {
        let (from, to) = (from.as_millis(), to.as_millis());
        let (begin, end) = match fault {
            Fault::Loss => ("loss = 0.2", "loss = 0.0"),
            Fault::Reorder => (
                "reorder = { share = 0.25, delay = \"5 ms\" }",
                "reorder = { share = 0.0, delay = \"1 ms\" }",
            ),
            Fault::Duplicate => ("duplicate = 0.2", "duplicate = 0.0"),
            Fault::Corrupt => ("corrupt = 0.05", "corrupt = 0.0"),
            Fault::Outage => {
                outages.push(format!("{{ from = \"{from} ms\", to = \"{to} ms\" }}"));
                continue;
            }
            _ => continue,
        };
        changes.push(format!("{{ at = \"{from} ms\", {begin} }}"));
        changes.push(format!("{{ at = \"{to} ms\", {end} }}"));
    }
    let mut text = String::new();
    push_tables(&mut text, "changes", &changes);
    push_tables(&mut text, "outages", &outages);
    text
}

fn actions(
    trials: &[Trial],
    receivers: u32,
    relays: bool,
    end: WallDuration,
) -> Vec<(WallDuration, Action)> {
    let everybody = (0..if relays { RELAYS } else { 0 }).map(Who::Relay).chain([Who::Sender]);
    let everybody = everybody.chain((0..receivers).map(Who::Receiver));
    let mut actions: Vec<_> =
        everybody.map(|who| (WallDuration::ZERO, Action::Start(who))).collect();
    for Trial { fault, who, from, to } in trials {
        let who = *who;
        let (begin, finish) = match fault {
            Fault::KillReceiver | Fault::KillSender | Fault::KillRelay => {
                (Action::Kill(who), Action::Start(who))
            }
            Fault::StopReceiver | Fault::StopSender | Fault::StopRelay => {
                (Action::Stop(who, true), Action::Stop(who, false))
            }
            Fault::Interface => (Action::Interface(who, false), Action::Interface(who, true)),
            Fault::Noise => (Action::Noise(true), Action::Noise(false)),
            Fault::Idle => (Action::Start(who), Action::Stop(who, true)),
            Fault::BlackHole => {
                (Action::Narrow(who, Some(NARROW_BYTES)), Action::Narrow(who, None))
            }
            Fault::FullDisk => (Action::Fill(who, true), Action::Fill(who, false)),
            Fault::Address | Fault::Rename | Fault::Remap | Fault::LoseReceiver => {
                actions.push(match fault {
                    Fault::Remap => (*from, Action::Remap(who)),
                    Fault::LoseReceiver => (*from, Action::Lose(who)),
                    _ => (*from, Action::Move(who)),
                });
                continue;
            }
            _ => continue,
        };
        actions.extend([(*from, begin), (*to, finish)]);
        if *fault == Fault::FullDisk {
            // The owner frees the disk, ends the receiver and starts it again.
            actions.extend([(*to, Action::Leave(who)), (*to, Action::Start(who))]);
        }
    }
    actions.push((end, Action::Stop(Who::Sender, false)));
    actions
}

#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: BTreeMap<Who, Vec<(WallDuration, f64)>>,
    counters: BTreeMap<Who, (f64, f64)>,
    late: Vec<(WallDuration, WallDuration)>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Recovery {
    fault: &'static str,
    host: String,
    fault_s: f64,
    /// Sender's rate before the first fault of the round, and before this fault.
    first_bits_per_s: f64,
    before_bits_per_s: f64,
    /// Time from the fault's end until all rates were back; null if not before the next fault.
    back_s: Option<f64>,
    back_max_s: f64,
    last: String,
    /// Time for which the machine was stalled while the rate had to recover.
    machine_late_s: f64,
}

impl Recovery {
    pub(super) fn problem(&self) -> Option<String> {
        let allowed = self.back_max_s + self.machine_late_s;
        if self.back_s.is_some_and(|back| back <= allowed) {
            return None;
        }
        // A rate without processor time means nothing.
        if self.back_s.is_none() && self.machine_late_s > CALM.as_secs_f64() {
            return None;
        }
        Some(format!(
            "{} at {}: the rate of {:.1} Mbit/s was not back at {} after {allowed:.1} s",
            self.fault,
            self.host,
            self.first_bits_per_s / 1e6,
            self.last
        ))
    }

    pub(super) fn note(&self) -> String {
        let Self { fault, host, fault_s, before_bits_per_s, machine_late_s, .. } = self;
        let back = match self.back_s {
            Some(back) => format!("back after {back:.1} s ({})", self.last),
            None => format!("not back at {}", self.last),
        };
        let late = match *machine_late_s >= 0.1 {
            true => format!(", the machine stood still for {machine_late_s:.1} s"),
            false => String::new(),
        };
        let before = before_bits_per_s / 1e6;
        format!("{fault} at {host} for {fault_s:.1} s: {before:.1} Mbit/s before, {back}{late}")
    }
}

/// Samples whose median is a rate: single seconds vary too much.
const WINDOW: usize = 3;

impl Rates {
    pub(super) fn read(&mut self, who: Who, now: WallDuration, said: &str) {
        for event in events(said).filter(|event| event["event"] == "progress") {
            let bytes = match who {
                Who::Sender => &event["bytes_sent"],
                _ => &event["bytes_received"],
            };
            let (Some(seconds), Some(bytes)) = (event["seconds"].as_f64(), bytes.as_f64()) else {
                continue;
            };
            let before = self.counters.insert(who, (seconds, bytes));
            let (since, from) =
                before.filter(|it| it.0 < seconds && it.1 <= bytes).unwrap_or_default();
            let rate = (bytes - from) * 8.0 / (seconds - since).max(1e-3);
            self.samples.entry(who).or_default().push((now, rate));
        }
    }

    pub(super) fn note_late(&mut self, now: WallDuration, late: WallDuration) {
        self.late.push((now, late));
    }

    fn of(&self, who: Who, times: Range<WallDuration>) -> Vec<(WallDuration, f64)> {
        let all = self.samples.get(&who).into_iter().flatten();
        all.filter(|(at, _)| times.contains(at)).copied().collect()
    }

    fn before(&self, who: Who, at: WallDuration) -> f64 {
        median(self.of(who, at.saturating_sub(CALM)..at).iter().map(|(_, rate)| *rate).collect())
    }

    /// Returns the recovery after each fault. Over relays, the affected receiver is not judged.
    pub(super) fn judge(&self, trials: &[Trial], receivers: u32, relays: bool) -> Vec<Recovery> {
        let first = trials.first().map_or(WallDuration::ZERO, |trial| trial.from);
        let judged = trials.iter().enumerate().map(|(i, trial)| {
            let next = trials.get(i + 1).map_or(trial.to + BACK_WITHIN + CALM, |next| next.from);
            let back = |who| {
                let wanted = self.before(who, first);
                let is_back = |some: &&[(WallDuration, f64)]| {
                    wanted > 0.0
                        && median(some.iter().map(|it| it.1).collect()) >= BACK_SHARE * wanted
                };
                let after = self.of(who, trial.to..next);
                after.windows(WINDOW).find(is_back).map(|some| {
                    // A rate that recovers within a sample leaves a part of its bytes there.
                    let [(half, rate), (full, _), ..] = some else { return WallDuration::ZERO };
                    let part = (rate / wanted).min(1.0);
                    half.saturating_sub(trial.to + (*full - *half).mul_f64(part))
                })
            };
            let programs = [Who::Sender].into_iter().chain((0..receivers).map(Who::Receiver));
            let programs =
                programs.filter(|who| !relays || *who != trial.who || *who == Who::Sender);
            let backs = programs.map(|who| (who, back(who)));
            let last = backs.max_by_key(|(_, back)| back.unwrap_or(WallDuration::MAX));
            let (last, back) = last.expect("there is a sender");
            let back_max = match trial.fault {
                Fault::KillRelay => RELAY_BACK_WITHIN,
                _ => BACK_WITHIN,
            };
            let within = trial.to..trial.to + back_max;
            let late = self.late.iter().filter(|(at, _)| within.contains(at));
            Recovery {
                fault: trial.fault.name(),
                host: trial.who.name(),
                fault_s: (trial.to - trial.from).as_secs_f64(),
                first_bits_per_s: self.before(Who::Sender, first),
                before_bits_per_s: self.before(Who::Sender, trial.from),
                back_s: back.map(|back| back.as_secs_f64()),
                back_max_s: back_max.as_secs_f64(),
                last: last.name(),
                machine_late_s: late.map(|(_, late)| late.as_secs_f64()).sum(),
            }
        });
        judged.collect()
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> WallDuration {
        WallDuration::from_secs(s)
    }

    #[test]
    fn a_rate_that_comes_back_late_or_never_is_a_problem_unless_the_machine_was_late() {
        let trials = [Trial { fault: Fault::Loss, who: Who::Sender, from: s(10), to: s(15) }];
        let progress = |what: &str, second: u64, bytes: f64| {
            format!("{{\"event\":\"progress\",\"seconds\":{second},\"bytes_{what}\":{bytes}}}\n")
        };
        // First second at the rate, share of the rate, stall; true if one of two receivers is late.
        for (back, share, late, one, holds, after) in [
            (18, 0.9, 0, false, true, Some(1.875)),
            (26, 0.9, 0, false, true, Some(9.875)),
            (27, 0.9, 0, false, false, Some(10.875)),
            (27, 0.9, 0, true, false, Some(10.875)),
            (27, 0.9, 3, false, true, Some(10.875)),
            (18, 0.7, 0, false, false, None),
            (18, 0.7, 0, true, false, None),
            (18, 0.7, 6, false, true, None),
        ] {
            let mut rates = Rates::default();
            let (mut late_bytes, mut bytes) = (0.0, 0.0);
            for second in 0..30 {
                let rate = match second {
                    0..10 => 8e6,
                    _ if second >= back => share * 8e6,
                    _ => 1e6,
                };
                late_bytes += rate / 8.0;
                bytes += if one { 1e6 } else { rate / 8.0 };
                rates.read(Who::Sender, s(second), &progress("sent", second + 1, bytes));
                rates.read(Who::Receiver(0), s(second), &progress("received", second + 1, bytes));
                let line = progress("received", second + 1, late_bytes);
                rates.read(Who::Receiver(1), s(second), &line);
            }
            rates.read(Who::Sender, s(30), "no event\n{\"event\":\"summary\"}\n");
            rates.note_late(s(20), s(late));
            let judged = rates.judge(&trials, 2, false);
            assert_eq!(judged[0].back_s, after, "{back} {share} {late} {one}");
            assert_eq!(judged[0].problem().is_none(), holds, "{back} {share} {late} {one}");
            assert_eq!(judged[0].last, "r2");
        }
        let mut rates = Rates::default();
        for (second, line) in [(1, (5, 5e6)), (2, (6, 6e6)), (4, (1, 1e6)), (5, (2, 2e6))] {
            rates.read(Who::Sender, s(second), &progress("sent", line.0, line.1));
        }
        let all = rates.of(Who::Sender, s(0)..s(9));
        assert!(all.iter().all(|(_, rate)| *rate == 8e6) && all.len() == 4, "{all:?}");
        let silent = Rates::default().judge(&trials, 2, false);
        assert!(silent[0].problem().is_some() && silent[0].note().contains("not back"));
    }
}
