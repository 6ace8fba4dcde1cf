//! Cost-benefit flow control of daemons during link faults, verified by the checker.

use std::collections::BTreeMap;
use std::path::Path;

use faircast_base::{ClientAct, ClientNote, LinkNote, Time};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved, catalog};
use faircast_trace::{Record, Sink};

/// Packets of a full queue, M in the paper.
const FULL: u32 = 100;

#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    sent: BTreeMap<u32, u64>,
    delivered: u64,
    late: u64,
    queue_max: u32,
    price_max: u32,
}

const SETTLED_S: f64 = 10.0;
/// Second up to which clients send; later messages are still delivered.
const SENDS_S: f64 = 60.0;

impl Sink for Seen {
    fn record(&mut self, _: &Record) {}

    fn note(&mut self, at: Time, note: &ClientNote) {
        self.lines.push(note.line.clone());
        match note.act {
            ClientAct::Sent { .. } => *self.sent.entry(note.client).or_default() += 1,
            ClientAct::Delivered { .. } => {
                self.delivered += 1;
                let counts = (SENDS_S - 10.0..SENDS_S).contains(&at.as_secs_f64());
                self.late += u64::from(counts);
            }
            _ => {}
        }
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        // QUIC's first slow start ends with many losses: the link sends nothing for a second.
        if at.as_secs_f64() < SETTLED_S {
            return;
        }
        self.queue_max = self.queue_max.max(note.packets_max);
        self.price_max = self.price_max.max(note.price_milli);
    }
}

/// Chain at 2 Mbit/s: `a` sends to `far`, `b` to `near`; of `far` there are `members` more at `c`.
fn chain_with(members: u32, link: &str, clients: u32, options: &str, service: &str) -> Scenario {
    let sender = |name: &str, node: &str| {
        format!(
            "[[client]]\nname = \"{name}\"\nnode = \"{node}\"\ncount = {clients}\n\
             start = \"5 s\"\nsend = {{ groups = \"{name}\", service = \"{service}\", \
             size = \"1400 B\", rate = \"1 Mbit/s\", stop = \"{SENDS_S} s\" }}\n"
        )
    };
    let more = match members {
        0 => String::new(),
        count => format!(
            "[[client]]\nname = \"more\"\nnode = \"c\"\ncount = {count}\ngroups = [\"far\"]\n"
        ),
    };
    let text = format!(
        "title = \"prices\"\nduration = \"100 s\"\n\
         [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"2 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 50 }}\n\
         [[link]]\nbetween = [\"b\", \"c\"]\nrate = \"2 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 50 }}\n{link}\n\
         [[daemon]]\nnode = \"a\"\npeers = \"b\"\noptions = {{ {options} }}\n\
         [[daemon]]\nnode = \"b\"\npeers = \"c\"\noptions = {{ {options} }}\n\
         [[daemon]]\nnode = \"c\"\noptions = {{ {options} }}\n\
         [[client]]\nname = \"member\"\nnode = \"c\"\ngroups = [\"far\", \"near\"]\n{more}{}{}",
        sender("far", "a"),
        sender("near", "b"),
    );
    let (path, none) = (Path::new("prices.toml"), Overrides::default());
    Scenario::parse(path, &text, &none, &catalog()).unwrap_or_else(|error| panic!("{error}"))
}

fn chain(link: &str, clients: u32, options: &str, service: &str) -> Scenario {
    chain_with(0, link, clients, options, service)
}

fn run(scenario: &Scenario) -> Seen {
    let mut seen = Seen::default();
    Simulation::new(scenario, &Builtin, &mut seen).unwrap().run(&mut Unobserved);
    super::verify(&seen.lines);
    seen
}

const PAPER: &str = "profile = \"paper\"";

#[test]
fn prices_bound_queues_and_no_message_is_lost_whatever_happens_to_a_link() {
    let late = "outages = [{ from = \"15 s\", to = \"45 s\" }]";
    let slow = "changes = [{ at = \"20 s\", rate = \"20 kbit/s\" }, \
                { at = \"30 s\", rate = \"2 Mbit/s\" }]";
    // Keys of link b to c, clients of each flow, service, and true if the view never changes.
    for (what, link, clients, service, is_whole) in [
        ("nothing", "", 10, "fifo", true),
        ("ordered messages", "", 10, "agreed", true),
        ("one client each", "", 1, "fifo", true),
        ("200 clients in one instant", "", 100, "fifo", true),
        ("prices late by 1 s", "outages = [{ from = \"30 s\", to = \"31 s\" }]", 10, "fifo", true),
        ("prices late by 30 s", late, 10, "fifo", false),
        ("a hundredth of the rate for 10 s", slow, 10, "fifo", false),
    ] {
        let seen = run(&chain(link, clients, PAPER, service));
        let sent: u64 = seen.sent.values().sum();
        assert!(seen.queue_max < 3 * FULL, "{what}: {}", seen.queue_max);
        assert!(seen.price_max > 1000, "{what}: links have a price");
        assert!(!is_whole || seen.delivered == sent, "{what}: {} of {sent}", seen.delivered);
        // Messages of 1400 bytes at 2 Mbit/s for 10 s: 1785.
        assert!(seen.late > 1400, "{what}: {}", seen.late);
    }
}

#[test]
fn a_group_with_more_receivers_gets_more_of_a_link_where_receivers_count() {
    // Ten far members, one near member; limits of the near flow's messages as a share of the far's.
    for (benefit, least, most) in
        [("throughput", 0.35, 0.65), ("receivers", 0.75, 1.0), ("concave", 0.35, 0.65)]
    {
        let options = format!("{PAPER}, benefit = \"{benefit}\"");
        let scenario = chain_with(9, "", 10, &options, "fifo");
        let seen = run(&scenario);
        let is_far = |index: &u32| {
            let mut clients = scenario.daemons.iter().flat_map(|it| &it.clients);
            let of = clients.find(|it| it.index == *index);
            of.is_some_and(|it| it.name.starts_with("far"))
        };
        let sent: u64 = seen.sent.values().sum();
        let far: u64 = seen.sent.iter().filter(|it| is_far(it.0)).map(|it| it.1).sum();
        let share = far as f64 / sent as f64;
        assert!((least..=most).contains(&share), "{benefit}: {share}");
        // All savings of 20 clients, spent while the link is free, in addition to a full queue.
        assert!(seen.queue_max < 5 * FULL, "{benefit}: {}", seen.queue_max);
    }
}
