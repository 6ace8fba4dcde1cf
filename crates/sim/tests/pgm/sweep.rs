//! Delivery over a sweep of networks: rates, delays, queues, group sizes and faults.

use std::fmt::Write as _;

use faircast_base::{Duration, Time};

use super::world::{Run, run};

#[derive(Clone, Copy)]
struct Net<'a> {
    rate: &'a str,
    delay: &'a str,
    queue: u32,
    there: &'a str,
    back: &'a str,
    receivers: u32,
    packet: &'a str,
    duration: &'a str,
    flow: &'a str,
}

const NET: Net<'static> = Net {
    rate: "10 Mbit/s",
    delay: "10 ms",
    queue: 50,
    there: "",
    back: "",
    receivers: 3,
    packet: "1400 B",
    duration: "60 s",
    flow: "data = \"2 MB\"",
};

impl Net<'_> {
    fn text(&self) -> String {
        let Net { rate, delay, queue, there, back, receivers, packet, duration, flow } = self;
        let mut text = format!("title = \"Does everything arrive?\"\nduration = \"{duration}\"\n");
        for (from, to, more) in [("s", "r", there), ("r", "s", back)] {
            let _ = write!(
                text,
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\n\
                 delay = \"{delay}\"\nqueue = {{ kind = \"droptail\", packets = {queue} }}\n{more}\n"
            );
        }
        let _ = write!(
            text,
            "[[link]]\nstar = {{ center = \"r\", leaves = [\"m{{1..{receivers}}}\"] }}\n\
             rate = \"1 Gbit/s\"\ndelay = \"10 us\"\n\
             [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\n\
             to = [\"m{{1..{receivers}}}\"]\npacket = \"{packet}\"\n{flow}\n"
        );
        text
    }

    fn run(&self) -> Run {
        run(&self.text(), 1)
    }
}

const BLACKOUT: &str = "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"6 s\", loss = 0.0 } ]";
const LOSSY: &str = "loss = 0.3";
const SLOWER: &str = "changes = [ { at = \"1 s\", rate = \"64 kbit/s\" }, \
                      { at = \"60 s\", rate = \"10 Mbit/s\" } ]";
const FARTHER: &str = "changes = [ { at = \"1 s\", delay = \"700 ms\" } ]";

#[test]
fn every_path_delivers_everything_to_everybody_in_time() {
    let size = |flow| Net { flow, ..NET };
    let slow = Net { rate: "64 kbit/s", duration: "100 s", flow: "data = \"200 kB\"", ..NET };
    let far = Net { delay: "800 ms", duration: "200 s", ..NET };
    let loss = Net { duration: "400 s", flow: "data = \"500 kB\"", ..NET };
    let late = "loss = 1.0\nchanges = [ { at = \"5 s\", loss = 0.0 } ]";
    let silent = "loss = 1.0\nchanges = [ { at = \"10 s\", loss = 0.0 } ]";
    let deaf = "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"11 s\", loss = 0.0 } ]";
    let byte = size("data = \"1 B\"");
    let many = Net { rate: "2 Mbit/s", receivers: 1000, flow: "data = \"1 MB\"", ..NET };
    let wide = |(delay, flow)| Net { rate: "1 Gbit/s", queue: 1000, delay, flow, ..NET };
    let slow_back = "changes = [ { at = \"0 s\", rate = \"64 kbit/s\" } ]";
    let lossy = |net| Net { there: LOSSY, back: LOSSY, ..net };
    let mbit = Net { rate: "1 Mbit/s", ..NET };
    let farther = Net { there: FARTHER, back: FARTHER, duration: "120 s", ..NET };
    let cases = [
        // The data takes 25.7 s at the link's rate, with headers.
        ("64 kbit/s: 96 % of the line", slow, 27),
        ("64 kbit/s, 1.6 s: and a start of a few round trips", Net { delay: "800 ms", ..slow }, 40),
        // A window of 2 to 3 loses each third packet.
        ("64 kbit/s, queue of 2: half of it", Net { queue: 2, ..slow }, 52),
        ("1 Mbit/s, 0.2 ms, queue of 2: half", Net { delay: "100 us", queue: 2, ..mbit }, 34),
        ("10 Mbit/s, queue of 2: a window of 2 to 8, TCP's too", Net { queue: 2, ..NET }, 16),
        ("1.6 s: the window grows by one a round trip, 47 of them", far, 90),
        ("1.6 s, queue of 1000: the same", Net { queue: 1000, ..far }, 90),
        ("1 Mbit/s, queue of 1000: the line, 16.9 s", Net { queue: 1000, ..mbit }, 18),
        ("1 Gbit/s, 0.2 ms: the line, 0.82 s", wide(("100 us", "data = \"100 MB\"")), 1),
        (
            "1 Gbit/s, 200 ms: one more a round trip, 80 of them",
            wide(("100 ms", "data = \"5 MB\"")),
            18,
        ),
        ("30 % loss both ways: stalls of 0.2 s for most losses", lossy(loss), 60),
        ("30 % loss there: the first four calls are lost, 45 s", Net { there: LOSSY, ..loss }, 75),
        ("30 % loss back: acknowledgements repeat themselves", Net { back: LOSSY, ..loss }, 3),
        ("30 % loss, 400 ms: 20 times as slow", lossy(Net { delay: "200 ms", ..loss }), 400),
        ("no feedback for 10 s: at most the last doubled timeout", Net { back: deaf, ..NET }, 21),
        ("no feedback at first for 10 s: the call of 21 s", Net { back: silent, ..NET }, 25),
        ("blackout of 5 s: as long again", Net { there: BLACKOUT, back: BLACKOUT, ..NET }, 13),
        ("nothing arrives for 5 s", Net { there: BLACKOUT, ..NET }, 13),
        ("nothing arrives at first: the call of 9 s", Net { there: late, ..NET }, 16),
        ("one byte", byte, 1),
        ("one packet", size("data = \"1400 B\""), 1),
        ("one packet and a byte", size("data = \"1401 B\""), 1),
        ("packets of one byte", Net { packet: "1 B", ..size("data = \"20 kB\"") }, 6),
        ("one byte, 30 % loss, 100 receivers", lossy(Net { receivers: 100, ..byte }), 30),
        ("the line slows down 150 times", Net { there: SLOWER, duration: "120 s", ..NET }, 63),
        ("the path becomes 35 times as long", farther, 70),
        ("acknowledgements are dropped on a slow way back", Net { back: slow_back, ..NET }, 30),
        ("1000 receivers", many, 6),
        ("1000 receivers, 2 % loss for all", Net { there: "loss = 0.02", ..many }, 12),
    ];
    for (case, net, within_s) in cases {
        let run = net.run();
        run.assert_complete(case);
        let at = run.completed().unwrap();
        assert!(at <= Time::ZERO + Duration::from_secs(within_s), "{case}: {at}");
    }
}

fn utilisation(net: &Net<'_>, bits_per_s: f64) -> (Run, f64) {
    let run = Net { duration: "120 s", flow: "", ..*net }.run();
    let packets =
        run.tally.sent_at.iter().filter(|at| **at >= Time::ZERO + Duration::from_secs(20));
    let share = packets.count() as f64 * 1400.0 * 8.0 / (bits_per_s * 100.0);
    (run, share)
}

#[test]
fn lines_are_kept_busy() {
    for (case, net, bits_per_s, least) in [
        // Headers are 5 % of a packet.
        ("a buffer above the path", Net { rate: "64 kbit/s", ..NET }, 64e3, 0.92),
        ("a buffer of twice the path", Net { rate: "10 Mbit/s", ..NET }, 10e6, 0.92),
        // A window that halves when path and buffer are full keeps 3/4 of a rate without a buffer.
        ("a buffer of a quarter of the path", Net { delay: "40 ms", queue: 15, ..NET }, 10e6, 0.70),
        ("a large buffer", Net { rate: "1 Mbit/s", queue: 1000, ..NET }, 1e6, 0.92),
        ("300 receivers", Net { rate: "1 Mbit/s", queue: 30, receivers: 300, ..NET }, 1e6, 0.85),
    ] {
        let (run, share) = utilisation(&net, bits_per_s);
        run.assert_intact(case);
        assert!(share >= least && share < 1.0, "{case}: {share}");
    }
}

fn pace(run: &Run, from_s: u64, to_s: u64) -> f64 {
    run.tally.sent_between(from_s, to_s) as f64 / (to_s - from_s) as f64
}

#[test]
fn a_session_outlives_receivers_that_come_and_go() {
    let net = Net { rate: "1 Mbit/s", queue: 30, duration: "60 s", ..NET };
    let full = 1e6 / (8.0 * 1468.0);
    let member =
        |n, at, leave| format!("{{ node = \"m{n}\", at = \"{at} s\", leave = \"{leave} s\" }}");
    let with = |joins: &[String]| {
        let flow = format!("join = [ {} ]", joins.join(", "));
        Net { flow: &flow, ..net }.run()
    };
    let run = with(&[member(1, 0, 20), member(2, 0, 30), member(3, 0, 40)]);
    run.assert_intact("leaving in turn");
    assert!(pace(&run, 5, 40) > 0.8 * full, "{}", pace(&run, 5, 40));
    assert!(pace(&run, 50, 60) < 1.0, "nobody is there: calls for an acker only");
    let run = with(&[
        member(1, 0, 20),
        member(2, 0, 20),
        member(3, 0, 20),
        member(1, 30, 58),
        member(2, 31, 58),
    ]);
    run.assert_intact("coming back");
    let bytes: Vec<_> = run.receivers().iter().map(|(delivery, _)| delivery.bytes).collect();
    assert!(bytes[0] > bytes[2] + 500_000 && bytes[1] > bytes[2] + 500_000, "{bytes:?}");
    // A call is sent after 3, 6, 12 ... s, so an answer comes by 45 s.
    assert!(pace(&run, 46, 57) > 0.8 * full, "{}", pace(&run, 46, 57));
    let lossy = Net { there: "loss = 0.01", ..net };
    let flow = format!("join = [ {}, {} ]", member(2, 10, 50), member(3, 20, 50));
    let run = Net { flow: &flow, ..lossy }.run();
    run.assert_intact("joining late");
    assert!(run.tally.recovery_max() < Duration::from_secs(3), "{}", run.tally.recovery_max());
    assert!(run.receivers()[2].0.bytes > 300_000);
}

#[test]
fn an_acker_that_falls_silent_is_replaced() {
    let text = "title = \"Who takes over?\"\nduration = \"60 s\"\n\
        [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
        [[link]]\nbetween = [\"r\", \"m1\"]\nrate = \"500 kbit/s\"\ndelay = \"50 ms\"\n\
        queue = { kind = \"droptail\", packets = 20 }\n\
        changes = [ { at = \"20 s\", loss = 1.0 } ]\n\
        [[link]]\nbetween = [\"r\", \"m2\"]\nrate = \"1 Mbit/s\"\ndelay = \"5 ms\"\n\
        queue = { kind = \"droptail\", packets = 20 }\n\
        [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"m1\", \"m2\"]\n\
        packet = \"1400 B\"\n";
    let run = run(text, 1);
    run.assert_intact("the rest");
    assert!((38.0..44.0).contains(&pace(&run, 5, 20)), "{}", pace(&run, 5, 20));
    // Two timeouts, the second doubled, then a new acker with a link of 85 packets per second.
    assert!(pace(&run, 30, 60) > 70.0, "{}", pace(&run, 30, 60));
}

#[test]
fn ten_thousand_receivers_share_one_lossy_link() {
    let net = Net {
        rate: "2 Mbit/s",
        receivers: 10_000,
        there: "loss = 0.01",
        flow: "data = \"200 kB\"",
        ..NET
    };
    let run = net.run();
    run.assert_complete("10 000 receivers");
    let tally = &run.tally;
    assert!(!tally.missed.is_empty());
    // At first the group size is unknown; the reverse path drops most of the 10 000 NAKs.
    assert!(tally.naks_per_loss() < 1000.0, "{}", tally.naks_per_loss());
    assert!(tally.repairs_per_loss() < 1.5, "{}", tally.repairs_per_loss());
}
