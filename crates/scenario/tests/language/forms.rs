//! Forms of the language, and their meaning.

use faircast_base::{Bytes, Duration, Time};
use faircast_link::{BurstLoss, FaultChange, Faults, Outage, QueueConfig, Reorder, Timing};
use faircast_scenario::{Data, Overrides, Scenario};

use crate::{GOOD, catalog, parse, parse_with};

fn with_links(links: &str, from: &str, to: &str) -> Scenario {
    let text = format!(
        "duration = \"9 s\"\n{links}\n[[flow]]\nname = \"f\"\nprotocol = \"pgmcc\"\n\
         from = \"{from}\"\nto = [\"{to}\"]\n"
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn directions(scenario: &Scenario) -> Vec<String> {
    let name = |id: faircast_base::NodeId| scenario.nodes[id.index()].name.clone();
    scenario.links.iter().map(|link| format!("{}>{}", name(link.from), name(link.to))).collect()
}

const LIKE: &str = "rate = \"1 Mbit/s\"\ndelay = \"1 ms\"";

#[test]
fn a_receiver_speaks_what_its_flow_does_unless_it_is_said() {
    let speaks = "speaks = [ { node = \"mr{2..3}\", protocol = \"pgmcc\" } ]\njoin = [";
    let scenario = parse(&GOOD.replacen("join = [", speaks, 1)).unwrap();
    let flow = &scenario.flows[0];
    assert_eq!(flow.speaks.iter().map(|speaks| speaks.node).collect::<Vec<_>>(), flow.to[1..]);
    assert!(flow.to.iter().all(|node| flow.spoken_by(*node).name() == "pgmcc"));
    assert_eq!(scenario.flows[1].spoken_by(flow.to[1]).name(), "tcp-reno");
}

#[test]
fn a_tree_of_repair_heads_may_be_given() {
    let of_tree = GOOD.replacen("protocol = \"pgmcc\"", "protocol = \"tram\"", 1);
    let of_tree = of_tree.replacen("options = { acker_bias = 0.6666, timeout = \"4 s\" }", "", 1);
    let read = |heads: &str| parse(&of_tree.replacen("join = [", &format!("{heads}\njoin = ["), 1));
    let tree =
        "heads = [ { node = \"mr1\", head = \"ms\" }, { node = \"mr{2..3}\", head = \"mr1\" } ]";
    let flow = &read(tree).unwrap().flows[0];
    let [first, second, third] = flow.to[..] else { panic!("{:?}", flow.to) };
    let given = [(first, flow.sender()), (second, first), (third, first)];
    assert_eq!(flow.heads, given.into());
    for (heads, problem) in [
        ("[ { node = \"mr1\", head = \"mr1\" } ]", "\"mr1\" is its own head"),
        (
            "[ { node = \"mr1\", head = \"mr2\" }, { node = \"mr2\", head = \"mr3\" }, \
             { node = \"mr3\", head = \"mr1\" } ]",
            "\"mr3\" is its own head, itself or through others; expected a tree",
        ),
        ("[ { node = \"mr1\", head = \"r1\" } ]", "\"r1\" cannot be a head"),
        ("[ { node = \"ms\", head = \"mr1\" } ]", "\"ms\" is no receiver of this flow"),
        ("[ { node = \"mr1\", head = [\"mr2\", \"mr3\"] } ]", "one node"),
        (
            "[ { node = [\"mr1\", \"mr1\"], head = \"mr2\" } ]",
            "\"mr1\" has two heads; allowed: one",
        ),
    ] {
        let error = read(&format!("heads = {heads}")).unwrap_err().to_string();
        assert!(error.contains(problem), "{heads}: {error}");
    }
    let error = parse(&GOOD.replacen("join = [", &format!("{tree}\njoin = ["), 1)).unwrap_err();
    assert!(error.to_string().contains("pgmcc, which has no repair heads; tram has"), "{error}");
}

#[test]
fn every_value_of_the_good_scenario_arrives() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!(scenario.title, "Do pgmcc and TCP share one bottleneck?");
    assert_eq!((scenario.duration, scenario.seed), (Duration::from_secs(300), 7));
    assert_eq!(scenario.warmup, Duration::from_secs(10));
    assert_eq!(scenario.text, GOOD);

    let bottleneck = &scenario.links[0].config;
    assert_eq!(bottleneck.rate.bits_per_s(), 500_000);
    assert_eq!(bottleneck.delay, Duration::from_millis(50));
    assert_eq!(bottleneck.queue, QueueConfig::DropTail { packets_max: 30 });
    assert_eq!(bottleneck.changes[0].rate.unwrap().bits_per_s(), 3_000_000);
    assert_eq!(bottleneck.changes[1].at, Time::ZERO + Duration::from_secs(60));
    assert_eq!((bottleneck.changes[1].loss, bottleneck.changes[1].delay), (Some(0.01), None));
    // Defaults: 50 packets, as in ns-2, and for RED the largest packet of all flows.
    assert_eq!(scenario.links[2].config.queue, QueueConfig::DropTail { packets_max: 50 });
    let QueueConfig::Red(red) = scenario.links[6].config.queue else { panic!("no RED") };
    assert_eq!((red.min, red.max, red.weight, red.max_p), (5.0, 15.0, 0.002, 0.1));
    assert_eq!((red.gentle, red.packets_max, red.mean_packet_bytes), (true, 50, 1400));

    let r2 = scenario.nodes.iter().find(|node| node.name == "r2").unwrap();
    let program = r2.program.as_ref().unwrap();
    assert_eq!(
        (program.name.as_str(), program.options.bool("suppress")),
        ("pgm-element", Some(true))
    );

    let [mcc, first, second] = scenario.flows.as_slice() else { panic!("three flows") };
    assert_eq!((mcc.name.as_str(), mcc.to.len()), ("mcc", 3));
    assert_eq!((mcc.header, mcc.packet), (Some(Bytes::new(0)), Bytes::new(1400)));
    assert_eq!(mcc.join[0].leave, Some(Time::ZERO + Duration::from_secs(40)));
    assert_eq!(mcc.options.duration("timeout"), Some(Duration::from_secs(4)));
    assert_eq!(mcc.raw_options.len(), 2);
    assert_eq!((first.name.as_str(), second.name.as_str()), ("tcp-1", "tcp-2"));
    assert_eq!((&first.from, &first.to), (&second.from, &second.to));
    assert_eq!(first.data, Data::Size(Bytes::new(30_000_000)));
    assert_eq!((first.header, first.stop, first.join.len()), (None, None, 0));
}

#[test]
fn links_come_in_the_order_of_the_file_each_with_its_way_back() {
    let scenario = with_links(
        &format!(
            "[[link]]\nbetween = [\"a\", \"b\"]\n{LIKE}\n\
             [[link]]\nstar = {{ center = \"b\", leaves = [\"c{{1..2}}\", \"d\"] }}\n{LIKE}\n\
             [[link]]\nfrom = \"a\"\nto = \"d\"\n{LIKE}\nloss = 1"
        ),
        "a",
        "d",
    );
    let want = ["a>b", "b>a", "b>c1", "c1>b", "b>c2", "c2>b", "b>d", "d>b", "a>d"];
    assert_eq!(directions(&scenario), want);
    assert_eq!((scenario.links[7].config.loss, scenario.links[8].config.loss), (0.0, 1.0));
}

#[test]
fn a_tree_numbers_each_level_through() {
    let tree = "tree = { root = \"s\", fanout = [2, 3, 2], prefix = \"n\" }";
    let scenario = with_links(&format!("[[link]]\n{tree}\n{LIKE}"), "s", "n3-{1..12}");
    assert_eq!(scenario.nodes.len(), 1 + 2 + 6 + 12);
    assert_eq!(scenario.flows[0].to.len(), 12);
    let directions = directions(&scenario);
    assert_eq!(directions.len(), 2 * 20);
    for link in ["s>n1-2", "n1-1>n2-3", "n1-2>n2-4", "n2-4>n3-7", "n3-12>n2-6"] {
        assert!(directions.iter().any(|have| have == link), "{link} is not in {directions:?}");
    }
}

#[test]
fn queues_in_bytes_are_written_as_a_number_or_a_size() {
    for (written, bytes_max) in [("50000", 50_000), ("\"50 kB\"", 50_000), ("\"64 KiB\"", 65_536)] {
        let queue = format!("queue = {{ kind = \"droptail\", bytes = {written} }}");
        let link = format!("[[link]]\nbetween = [\"a\", \"b\"]\n{LIKE}\n{queue}");
        let scenario = with_links(&link, "a", "b");
        assert_eq!(scenario.links[1].config.queue, QueueConfig::DropTailBytes { bytes_max });
    }
}

#[test]
fn faults_are_read_with_their_units_and_are_off_by_default() {
    let link = |keys: &str| {
        let link = format!("[[link]]\nbetween = [\"a\", \"b\"]\n{LIKE}\n{keys}");
        with_links(&link, "a", "b").links[1].config.clone()
    };
    assert_eq!(link("").faults, Faults::default());
    let all = link(
        "burst_loss = { loss = 0.02, packets = 5 }\nduplicate = 0.01\ncorrupt = 0.001\n\
         reorder = { share = 0.02, delay = \"5 ms\" }\nmtu = \"1280 B\"\n\
         outages = [ { from = \"1 s\", to = \"2 s\" }, { from = \"2 s\", to = \"1 h\" } ]\n\
         changes = [ { at = \"3 s\", mtu = \"65535 B\", duplicate = 0, burst_loss = { loss = 1, packets = 1 } } ]",
    );
    let second = |s| Time::ZERO + Duration::from_secs(s);
    let want = Faults {
        burst_loss: BurstLoss { loss: 0.02, packets: 5.0 },
        reorder: Reorder { share: 0.02, delay: Duration::from_millis(5) },
        duplicate: 0.01,
        corrupt: 0.001,
        mtu: Some(1280),
        outages: vec![
            Outage { from: second(1), to: second(2) },
            Outage { from: second(2), to: second(3600) },
        ],
    };
    assert_eq!(all.faults, want);
    let change = FaultChange {
        duplicate: Some(0.0),
        mtu: Some(65_535),
        burst_loss: Some(BurstLoss { loss: 1.0, packets: 1.0 }),
        ..FaultChange::default()
    };
    assert_eq!(all.changes[0].faults, Some(change));
    assert_eq!(all.changes[0].loss, None);
    assert_eq!(all.timing, Timing::default());
    let timed = link("tick = \"10 ms\"\njitter = \"0.5 ms\"").timing;
    let want = Timing { tick: Duration::from_millis(10), jitter: Duration::from_micros(500) };
    assert_eq!(timed, want);
}

#[test]
fn what_a_flow_leaves_out_has_a_default() {
    let link = format!("[[link]]\nbetween = [\"a\", \"b\"]\n{LIKE}\ndrop_list = [3, 28]");
    let scenario = with_links(&link, "a", "b");
    let flow = &scenario.flows[0];
    assert_eq!((flow.packet, flow.header, flow.start), (Bytes::new(1400), None, Time::ZERO));
    assert_eq!((flow.stop, &flow.data), (None, &Data::Unlimited));
    assert_eq!((scenario.title.as_str(), scenario.seed), ("t", 1));
    assert_eq!(scenario.warmup, Duration::ZERO);
    assert_eq!(scenario.links[0].config.drop_list, [3, 28]);
}

#[test]
fn random_moments_come_from_the_seed_and_lie_in_their_range() {
    let uniform = "start = { uniform = [\"1 s\", \"6 s\"] }\ncount = 200 #";
    let text = GOOD.replacen("start = \"1 s\"", uniform, 1).replacen("count = 2\n", "", 1);
    let starts = |seed| -> Vec<f64> {
        let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
        let scenario = Scenario::parse("t.toml".as_ref(), &text, &overrides, &catalog()).unwrap();
        assert_eq!(scenario.seed, seed);
        scenario.flows[1..].iter().map(|flow| flow.start.as_secs_f64()).collect()
    };
    let first = starts(1);
    assert_eq!(first.len(), 200);
    assert!(first.iter().all(|start| (1.0..6.0).contains(start)));
    let mean = first.iter().sum::<f64>() / 200.0;
    // The standard error is 5 / sqrt(12 * 200) = 0.1.
    assert!((mean - 3.5).abs() < 0.4, "mean {mean}");
    assert_eq!(first, starts(1));
    assert_ne!(first, starts(2));
}

#[test]
fn many_receivers_join_at_random_with_one_entry() {
    let join = "join = [ { node = \"mr{1..3}\", at = { uniform = [\"20 s\", \"30 s\"] } } ]";
    let old = "join = [ { node = \"mr3\", at = \"20 s\", leave = \"40 s\" } ]";
    let scenario = parse(&GOOD.replacen(old, join, 1)).unwrap();
    let times: Vec<f64> = scenario.flows[0].join.iter().map(|join| join.at.as_secs_f64()).collect();
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|at| (20.0..30.0).contains(at)));
    assert!(times[0] != times[1] && times[1] != times[2]);
}

#[test]
fn a_receiver_may_come_back_after_leaving() {
    let again = "leave = \"40 s\" }, { node = \"mr3\", at = \"50 s\" }";
    let scenario = parse(&GOOD.replacen("leave = \"40 s\" }", again, 1)).unwrap();
    assert_eq!(scenario.flows[0].join.len(), 2);
}

#[test]
fn set_changes_the_tree_before_it_is_checked_and_is_noted_in_the_text() {
    let set = [
        "duration = 250 s",
        "link.0.rate=\"1 Mbit/s\"",
        "link.0.queue.packets=10",
        "flow.mcc.options.profile=draft",
        "flow.1.count=5",
        "flow.mcc.to=[\"mr{2..3}\"]",
    ];
    let scenario = parse_with(GOOD, &set).unwrap();
    assert_eq!(scenario.duration, Duration::from_secs(250));
    assert_eq!(scenario.links[1].config.rate.bits_per_s(), 1_000_000);
    assert_eq!(scenario.links[0].config.queue, QueueConfig::DropTail { packets_max: 10 });
    assert_eq!(scenario.flows[0].options.text("profile"), Some("draft"));
    assert_eq!((scenario.flows.len(), scenario.flows[0].to.len()), (6, 2));
    assert!(scenario.text.starts_with(GOOD));
    assert!(scenario.text.ends_with("# --set flow.mcc.to=[\"mr{2..3}\"]\n"), "{}", scenario.text);
    assert_eq!(parse(&scenario.text).unwrap().duration, Duration::from_secs(300));
}

#[test]
fn the_largest_topologies_are_read() {
    let star =
        format!("[[link]]\nstar = {{ center = \"s\", leaves = [\"r{{1..99999}}\"] }}\n{LIKE}");
    let scenario = with_links(&star, "s", "r{1..99999}");
    assert_eq!((scenario.nodes.len(), scenario.links.len()), (100_000, 199_998));
    assert_eq!(scenario.flows[0].to.len(), 99_999);

    // A long chain, where recursion would overflow the stack.
    let chain: String = (0..50_000)
        .map(|i| format!("[[link]]\nbetween = [\"c{i}\", \"c{}\"]\n{LIKE}\n", i + 1))
        .collect();
    let scenario = with_links(&chain, "c0", "c50000");
    assert_eq!(scenario.links.len(), 100_000);
}
