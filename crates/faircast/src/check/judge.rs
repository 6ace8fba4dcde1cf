//! Findings from the tests with other hosts: reachability, path MTU, loss, speed, memberships.

use faircast_base::{Duration, Time};

use super::exchange::{BURST, Exchange, Peer, SIZES, STEADY, TestSettings, TrainResult};
use super::finding::{self as f, Finding, State};

pub(super) const MTU_USUAL: u32 = 1500;
const LOSS_MAX: f64 = 0.01;
const BURST_LOSS_MAX: f64 = 0.05;
const SILENCE: Duration = Duration::from_secs(10);

pub(super) fn findings(exchange: &Exchange, settings: &TestSettings, ended: Time) -> Vec<Finding> {
    if exchange.peers.is_empty() {
        let waited = settings.wait.as_secs_f64();
        let found =
            format!("none was heard within {waited:.0} s: none is there, or nothing arrives");
        return vec![f::OTHERS.found(false, found)];
    }
    let number = exchange.peers.len();
    let mut all = vec![f::OTHERS.found(true, format!("{number} heard"))];
    for peer in &exchange.peers {
        let name = peer.address.ip().to_string();
        all.extend(
            of_peer(exchange, settings, peer, ended).into_iter().map(|found| found.of(&name)),
        );
    }
    all
}

fn of_peer(exchange: &Exchange, settings: &TestSettings, peer: &Peer, ended: Time) -> Vec<Finding> {
    let arrives = match peer.heard_at {
        Some(_) => f::ARRIVES.found(true, "what it sends to the group"),
        None => f::ARRIVES.found(
            false,
            "it hears this host and answers, but what it sends to the group does not arrive here",
        ),
    };
    let mut all = vec![arrives];
    match (peer.hears_us, peer.answered_at) {
        (true, Some(_)) => {
            all.push(f::HEARD.found(true, "what this host sends to the group"));
            all.push(f::ANSWERS.found(true, "to this host's own address"));
        }
        (true, None) => {
            all.push(f::HEARD.found(true, "what this host sends to the group"));
            all.push(f::ANSWERS.found(false, "it hears this host; its answers do not arrive"));
        }
        (false, _) => {
            let found = "it has not heard what this host sends to the group";
            all.push(f::HEARD.found(false, found));
        }
    }
    all.push(path_mtu(settings, peer));
    let share = |name: &f::Check, train: u8, most: f64| {
        let lost = |outcome: TrainResult| {
            let arrived = outcome.received.min(outcome.total);
            (1.0 - f64::from(arrived) / f64::from(outcome.total.max(1)), outcome)
        };
        let known = trains(exchange, peer, train).map(|outcome| outcome.map(lost));
        both_ways(
            name,
            known,
            |(lost, _)| *lost <= most,
            |(lost, outcome)| {
                let rate = match train {
                    BURST => format!(", at {}", megabits(outcome)),
                    _ => String::new(),
                };
                format!("{:.1} % of {} lost{rate}", lost * 100.0, outcome.total)
            },
        )
    };
    all.push(share(&f::LOSS, STEADY, LOSS_MAX));
    all.push(share(&f::SPEED, BURST, BURST_LOSS_MAX));
    all.push(lasts(settings, peer, ended));
    all
}

fn trains(exchange: &Exchange, peer: &Peer, train: u8) -> [Option<TrainResult>; 2] {
    let place = usize::from(train);
    let total = exchange.total(train);
    [peer.out[place].map(|outcome| TrainResult { total, ..outcome }), peer.into[place]]
}

fn megabits(outcome: &TrainResult) -> String {
    let bits = f64::from(outcome.received) * f64::from(outcome.longest) * 8.0;
    let seconds = outcome.span_ns as f64 / 1e9;
    match seconds > 0.0 {
        true => format!("{:.1} Mbit/s", bits / seconds / 1e6),
        false => "no rate".into(),
    }
}

fn path_mtu(settings: &TestSettings, peer: &Peer) -> Finding {
    let place = usize::from(SIZES);
    let [out, into] = [peer.out[place], peer.into[place]]
        .map(|outcome| outcome.map(|outcome| outcome.longest).filter(|longest| *longest > 0));
    let wanted = settings.mtu.min(MTU_USUAL);
    let text = |longest: &u32| format!("up to {longest} bytes");
    let mut finding = both_ways(&f::PATH_MTU, [out, into], |longest| *longest >= wanted, text);
    if finding.state != State::Untested {
        finding.found += &format!(" (the own link takes {})", settings.mtu);
    }
    finding
}

fn both_ways<T>(
    check: &f::Check,
    [out, into]: [Option<T>; 2],
    is_right: impl Fn(&T) -> bool,
    text: impl Fn(&T) -> String,
) -> Finding {
    let known: Vec<(T, &str)> =
        out.map(|it| (it, "to it")).into_iter().chain(into.map(|it| (it, "from it"))).collect();
    if known.is_empty() {
        return check.untested("no packets came, or no answers");
    }
    let each: Vec<String> = known.iter().map(|(it, word)| format!("{word} {}", text(it))).collect();
    check.found(known.iter().all(|(it, _)| is_right(it)), each.join("; "))
}

fn lasts(settings: &TestSettings, peer: &Peer, ended: Time) -> Finding {
    let Some(long) = settings.long else {
        return f::LASTS.untested("whether switches forget them takes five minutes: --long");
    };
    let long = long.as_secs_f64();
    let until = peer.done_at.map_or(ended, |done| done.min(ended));
    let times = [peer.answered_at, peer.heard_at];
    let known: Vec<Time> = times.into_iter().flatten().collect();
    let Some(last) = known.iter().min().copied() else {
        return f::LASTS.untested("nothing arrived to begin with");
    };
    if until.since(last) > SILENCE {
        let found = format!("nothing arrives any more since {:.0} s", last.as_secs_f64());
        return f::LASTS.found(false, found);
    }
    match until.as_secs_f64() + 1.0 < long {
        true => f::LASTS.untested(format!(
            "the other host ended after {:.0} s: give it --long too",
            until.as_secs_f64()
        )),
        false => f::LASTS.found(true, format!("all arrives still after {long:.0} s")),
    }
}
