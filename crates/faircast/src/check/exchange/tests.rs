//! Checks of hosts on a made-up network: a function decides which packets arrive.

use super::*;
use crate::check::State;
use crate::check::judge::findings;

type Passes = fn(from: usize, to: usize, bytes: u32, by_group: bool, at_s: f64, count: u64) -> bool;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 4000))
}

fn settings(host: usize, long: Option<Duration>) -> TestSettings {
    let id = [7, 3, 11][host];
    TestSettings { id, wait: Duration::from_secs(5), long, rate_bps: 5_000_000, mtu: 1500 }
}

fn run(hosts: usize, long: Option<u64>, passes: Passes) -> Vec<(Exchange, f64)> {
    let long = long.map(Duration::from_secs);
    let mut all: Vec<Exchange> =
        (0..hosts).map(|host| Exchange::new(settings(host, long))).collect();
    let mut ended = vec![None; hosts];
    let (mut now, mut count) = (Time::ZERO, 0);
    while ended.iter().any(Option::is_none) {
        assert!(now < Time::ZERO + Duration::from_secs(1000), "it has no end");
        for host in 0..hosts {
            if ended[host].is_none() && all[host].is_over(now) {
                ended[host] = Some(now.as_secs_f64());
            }
            while ended[host].is_none()
                && let Some(sent) = all[host].poll(now)
            {
                deliver(&mut all, &ended, host, sent, now, passes, &mut count);
            }
        }
        now += Duration::from_micros(500);
    }
    all.into_iter().zip(ended.into_iter().flatten()).collect()
}

fn deliver(
    all: &mut [Exchange],
    ended: &[Option<f64>],
    from: usize,
    sent: Outgoing,
    now: Time,
    passes: Passes,
    count: &mut u64,
) {
    let bytes = sent.size.unwrap_or(76);
    for to in (0..all.len()).filter(|to| *to != from && ended[*to].is_none()) {
        if sent.to.is_some_and(|one| one != address(to)) {
            continue;
        }
        *count += 1;
        let by_group = sent.to.is_none();
        if !passes(from, to, bytes, by_group, now.as_secs_f64(), *count) {
            continue;
        }
        let answer = all[to].receive(now, sent.packet, address(from), bytes, by_group);
        if let Some(answer) = answer {
            assert!(sent.to.is_none() && answer.size.is_none(), "nothing is answered by more");
            deliver(all, ended, to, answer, now, passes, count);
        }
    }
}

fn wrong(exchange: &Exchange, ended_s: f64) -> Vec<String> {
    let found = findings(exchange, &exchange.settings, Time::from_secs_f64(ended_s));
    let wrong = found.into_iter().filter(|found| found.state == State::Wrong);
    wrong.map(|found| format!("{} {}", found.peer.unwrap_or_default(), found.check)).collect()
}

#[test]
fn a_good_network_is_found_to_be_good_and_soon() {
    for hosts in [2, 3] {
        for (exchange, ended) in run(hosts, None, |_, _, _, _, _, _| true) {
            assert_eq!(wrong(&exchange, ended), Vec::<String>::new());
            assert_eq!(exchange.peers.len(), hosts - 1);
            assert!(ended < 14.0, "{hosts} hosts take {ended} s");
            for peer in &exchange.peers {
                assert_eq!(peer.out[1].unwrap().longest, 1500);
                assert_eq!(peer.out[2].unwrap().received, STEADY_PACKETS);
                assert_eq!(peer.out[3].unwrap().received, exchange.total(BURST));
                assert_eq!(peer.into[3].unwrap().received, exchange.total(BURST));
            }
        }
    }
}

#[test]
fn each_fault_is_found_at_both_ends_by_its_name() {
    let cases: [(&str, Passes, [&[&str]; 2]); 7] = [
        ("nothing passes", |_, _, _, _, _, _| false, [&[" other hosts"], &[" other hosts"]]),
        (
            "one way only: a reverse-path filter, a firewall",
            |from, _, _, by_group, _, _| from == 0 || !by_group,
            [&["10.0.0.2 arrives here"], &["10.0.0.1 is heard there"]],
        ),
        (
            "no answers come to the first: a firewall",
            |_, to, _, by_group, _, _| by_group || to == 1,
            [&["10.0.0.2 answers come back"], &[]],
        ),
        (
            "1400 bytes in the middle",
            |_, _, bytes, _, _, _| bytes <= 1400,
            [&["10.0.0.2 MTU of the way"], &["10.0.0.1 MTU of the way"]],
        ),
        (
            "a seventh is lost on the way from the first",
            |from, _, _, by_group, _, count| from == 1 || !by_group || count % 7 != 0,
            [&["10.0.0.2 loss", "10.0.0.2 speed"], &["10.0.0.1 loss", "10.0.0.1 speed"]],
        ),
        (
            "a switch that lets every third packet of a burst pass",
            |from, _, bytes, _, at, count| {
                from == 1 || bytes != 1200 || !(5.1..=8.5).contains(&at) || count % 3 == 0
            },
            [&["10.0.0.2 speed"], &["10.0.0.1 speed"]],
        ),
        ("all is well", |_, _, _, _, _, _| true, [&[], &[]]),
    ];
    for (case, passes, want) in cases {
        for (host, (exchange, ended)) in run(2, None, passes).into_iter().enumerate() {
            let found = wrong(&exchange, ended);
            let want: Vec<_> = want[host].iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{case}: {host}");
        }
    }
}

#[test]
fn memberships_that_run_out_are_seen_by_who_looks_long_enough() {
    let forgotten: Passes = |_, _, _, by_group, at, _| !by_group || at < 260.0;
    for (exchange, ended) in run(2, Some(300), forgotten) {
        let found = wrong(&exchange, ended);
        assert!(found.len() == 1 && found[0].ends_with("memberships"), "{found:?}");
    }
    for (exchange, ended) in run(2, None, forgotten) {
        let all = findings(&exchange, &exchange.settings, Time::from_secs_f64(ended));
        let lasts = all.iter().find(|found| found.check == "memberships").unwrap();
        assert_eq!(lasts.state, State::Untested, "{lasts:?}");
    }
    for (exchange, ended) in run(2, Some(300), |_, _, _, _, _, _| true) {
        assert!((300.0..310.0).contains(&ended), "{ended}");
        assert_eq!(wrong(&exchange, ended), Vec::<String>::new());
    }
}

#[test]
fn floods_of_questions_are_answered_within_bounds() {
    let mut host = Exchange::new(settings(0, None));
    let mut answers = 0;
    for id in 1000..3000 {
        let packet =
            Packet { from: id, is_done: false, train: 0, body: Body::Question { heard: None } };
        answers += u32::from(host.receive(Time::ZERO, packet, address(1), 76, true).is_some());
        // Unicast questions get no answer: their source address may be forged.
        assert_eq!(host.receive(Time::ZERO, packet, address(1), 76, false), None);
    }
    assert_eq!((answers, host.peers.len()), (PEERS_MAX as u32, PEERS_MAX));
    let packet =
        Packet { from: 1000, is_done: false, train: 0, body: Body::Question { heard: None } };
    let more =
        (0..1000).filter(|_| host.receive(Time::ZERO, packet, address(1), 76, true).is_some());
    assert_eq!(more.count() as u32, ANSWERS_MAX - PEERS_MAX as u32);
}
