//! Delivery over networks that nobody named: any rate, delay, queue, group and trouble.

use std::fmt::Write as _;

use faircast_base::{Duration, Time};

use super::world::{Run, run};

/// A network of one middle link, with a scenario's other words as they are.
struct Net<'a> {
    rate: &'a str,
    delay: &'a str,
    queue: u32,
    /// More keys of the link towards the receivers, and of the one back.
    there: &'a str,
    back: &'a str,
    receivers: u32,
    packet: &'a str,
    duration: &'a str,
    /// More keys of the flow.
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

fn say(case: &str, run: &Run) {
    let t = &run.tally;
    println!(
        "{case:<28} done {:?} data {} rep {} missed {} naks {} aband {} cuts {} recmax {} ev {} bad {:?} reps {:?}",
        run.completed().map(|at| at.to_string()),
        t.data,
        t.repairs,
        t.missed.len(),
        t.naks,
        t.abandoned,
        t.cuts,
        t.recovery_max(),
        run.outcome.events,
        t.bad_input,
        t.representatives.len(),
    );
    let mut m = std::collections::BTreeMap::new();
    for s in &t.stalls {
        *m.entry(s.as_millis()).or_insert(0) += 1;
    }
    println!("   stalls {m:?}");
}

#[test]
fn every_path_delivers_all() {
    let cases: &[(&str, Net<'_>)] = &[
        ("64k", Net { rate: "64 kbit/s", duration: "400 s", flow: "data = \"200 kB\"", ..NET }),
        (
            "64k queue 2",
            Net {
                rate: "64 kbit/s",
                queue: 2,
                duration: "800 s",
                flow: "data = \"200 kB\"",
                ..NET
            },
        ),
        (
            "64k 800 ms",
            Net {
                rate: "64 kbit/s",
                delay: "800 ms",
                duration: "800 s",
                flow: "data = \"200 kB\"",
                ..NET
            },
        ),
        ("1M 0.1 ms queue 2", Net { rate: "1 Mbit/s", delay: "100 us", queue: 2, ..NET }),
        ("10M queue 2", Net { queue: 2, ..NET }),
        ("10M 800 ms q50", Net { delay: "800 ms", duration: "400 s", ..NET }),
        ("10M 800 ms q1000", Net { delay: "800 ms", queue: 1000, duration: "400 s", ..NET }),
        ("1M queue 1000", Net { rate: "1 Mbit/s", queue: 1000, ..NET }),
        (
            "1G 0.1 ms",
            Net {
                rate: "1 Gbit/s",
                delay: "100 us",
                queue: 1000,
                flow: "data = \"100 MB\"",
                ..NET
            },
        ),
        (
            "1G 100 ms",
            Net { rate: "1 Gbit/s", delay: "100 ms", queue: 1000, flow: "data = \"20 MB\"", ..NET },
        ),
        (
            "30 % loss",
            Net {
                there: "loss = 0.3",
                back: "loss = 0.3",
                duration: "1200 s",
                flow: "data = \"1 MB\"",
                ..NET
            },
        ),
        (
            "30 % loss there",
            Net { there: "loss = 0.3", duration: "600 s", flow: "data = \"1 MB\"", ..NET },
        ),
        (
            "30 % loss back",
            Net { back: "loss = 0.3", duration: "600 s", flow: "data = \"1 MB\"", ..NET },
        ),
        (
            "30 % loss far",
            Net {
                delay: "200 ms",
                there: "loss = 0.3",
                back: "loss = 0.3",
                duration: "6000 s",
                flow: "data = \"500 kB\"",
                ..NET
            },
        ),
        (
            "back dead 10 s",
            Net {
                back: "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"11 s\", loss = 0.0 } ]",
                ..NET
            },
        ),
        (
            "back dead from start 10 s",
            Net { back: "loss = 1.0\nchanges = [ { at = \"10 s\", loss = 0.0 } ]", ..NET },
        ),
        (
            "blackout 5 s",
            Net {
                there: "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"6 s\", loss = 0.0 } ]",
                back: "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"6 s\", loss = 0.0 } ]",
                ..NET
            },
        ),
        (
            "there dead 5 s",
            Net {
                there: "changes = [ { at = \"1 s\", loss = 1.0 }, { at = \"6 s\", loss = 0.0 } ]",
                ..NET
            },
        ),
        (
            "start dead 5 s",
            Net { there: "loss = 1.0\nchanges = [ { at = \"5 s\", loss = 0.0 } ]", ..NET },
        ),
        ("1 byte", Net { flow: "data = \"1 B\"", ..NET }),
        ("one packet", Net { flow: "data = \"1400 B\"", ..NET }),
        ("one packet and a byte", Net { flow: "data = \"1401 B\"", ..NET }),
        (
            "1 byte 30%",
            Net {
                there: "loss = 0.3",
                back: "loss = 0.3",
                flow: "data = \"1 B\"",
                receivers: 100,
                ..NET
            },
        ),
        ("tiny packets", Net { packet: "1 B", flow: "data = \"20 kB\"", ..NET }),
        (
            "rate rises",
            Net {
                rate: "64 kbit/s",
                there: "changes = [ { at = \"10 s\", rate = \"10 Mbit/s\" } ]",
                ..NET
            },
        ),
        (
            "rate falls",
            Net {
                there: "changes = [ { at = \"1 s\", rate = \"64 kbit/s\" }, { at = \"60 s\", rate = \"10 Mbit/s\" } ]",
                duration: "120 s",
                ..NET
            },
        ),
        (
            "delay jumps",
            Net {
                there: "changes = [ { at = \"1 s\", delay = \"700 ms\" } ]",
                back: "changes = [ { at = \"1 s\", delay = \"700 ms\" } ]",
                duration: "300 s",
                ..NET
            },
        ),
        ("asymmetric", Net { back: "", there: "", ..NET }),
        (
            "1000 receivers",
            Net { rate: "2 Mbit/s", receivers: 1000, flow: "data = \"3 MB\"", ..NET },
        ),
        (
            "1000 receivers 2 % loss",
            Net {
                rate: "2 Mbit/s",
                receivers: 1000,
                there: "loss = 0.02",
                flow: "data = \"1 MB\"",
                ..NET
            },
        ),
    ];
    let only = std::env::var("ONLY").ok();
    for (case, net) in cases {
        if only.as_ref().is_some_and(|only| !case.contains(only.as_str())) {
            continue;
        }
        let t = std::time::Instant::now();
        let run = net.run();
        say(case, &run);
        if t.elapsed().as_secs_f64() > 1.0 {
            println!("   wall {:?}", t.elapsed());
        }
    }
}
