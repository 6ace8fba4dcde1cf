//! TRAM's tree with other controllers: what the tree and the scheme gain from each other.

use super::world::{Run, World};

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = faircast_proto::catalog::SCHEMES.iter();
    all.map(|scheme| (scheme.name, &*format!("tram-{}", scheme.name).leak()))
}

#[test]
fn every_scheme_has_its_row() {
    let catalog = faircast_sim::catalog();
    for scheme in faircast_proto::catalog::SCHEMES {
        let name = format!("tram-{}", scheme.name);
        let row = catalog.protocols.iter().find(|row| row.name() == name);
        let row = row.unwrap_or_else(|| panic!("no {name}"));
        let has = |key: &str| row.options().iter().filter(|spec| spec.name == key).count();
        assert!(scheme.own_options.iter().all(|spec| has(spec.name) == 1), "{name}");
        let count = (has("members_max"), has("rate_max"), has("window_growth"));
        assert_eq!(count, (1, 1, 0), "{name}");
    }
}

#[test]
fn everything_arrives_with_every_controller() {
    for (_, protocol) in pairs() {
        for (name, world) in [
            ("no loss", World::new()),
            ("1 %", World::with_loss(0.01)),
            ("5 %", World::with_loss(0.05)),
            ("least caches", World::with_loss(0.01).with("cache_packets = 16")),
            ("as in the paper", World::with_loss(0.01).with("defaults = \"paper\"")),
        ] {
            let run = World { protocol, seconds: 600, ..world }.run(1);
            run.assert_source_ends_last(&format!("{protocol}, {name}"));
        }
    }
}

#[test]
fn losses_at_one_site_are_repaired_there_with_every_controller() {
    for (_, protocol) in pairs() {
        let mut world = World { protocol, data: "3 MB", seconds: 600, ..World::new() };
        world.first_site_links = "loss = 0.05".into();
        let run = world.run(1);
        run.assert_whole(protocol, &[]);
        let of_site: u64 = (1..=5).filter_map(|host| run.heard.head_repairs.get(&host)).sum();
        let source = run.heard.source_repairs;
        assert!(of_site > 2 * source, "{protocol}: {of_site} repairs at the site, {source} above");
    }
}

struct Cost {
    words: f64,
    members: usize,
    repairs: f64,
}

fn cost(protocol: &'static str, sites: u32, options: &str) -> Cost {
    let options = options.to_string();
    let world = World { protocol, sites, hosts: 20, options, ..World::with_loss(0.01) };
    let run = World { data: "1 MB", seconds: 600, ..world }.run(1);
    run.assert_whole(&format!("{protocol}, {sites} sites"), &[]);
    let begun = run.heard.sent_at[0];
    let members = run.tree_at(begun).values().filter(|head| **head == 0).count();
    let heard = run.heard;
    let seconds = heard.sent_at.last().unwrap().since(begun).as_secs_f64();
    let words = (heard.reports + heard.acknowledgements) as f64 / seconds;
    let repairs = heard.source_repairs as f64 / heard.data_packets as f64;
    Cost { words, members, repairs }
}

#[test]
fn what_the_source_hears_does_not_grow_with_the_group_and_heads_repair() {
    for (scheme, protocol) in pairs() {
        let alone = cost(scheme, 6, "");
        let [small, large] = [6, 24].map(|sites| cost(protocol, sites, "members_max = 16"));
        println!(
            "{scheme}: {:.0} words a second, {:.2} repairs a packet, of 120",
            alone.words, alone.repairs
        );
        for (receivers, Cost { words, members, repairs }) in [(120, &small), (480, &large)] {
            println!(
                "{protocol}: {words:.0} words a second of {receivers}, {members} members, {repairs:.2} repairs"
            );
        }
        // A small group may leave places free at the source.
        let of_each = |cost: &Cost| cost.words / cost.members as f64;
        let grown = of_each(&large) / of_each(&small);
        assert!(grown < 1.5, "{protocol}: {grown:.2} times as much of each member");
        assert!(large.members <= 16, "{protocol}: {} members", large.members);
        let of_it = large.repairs / alone.repairs;
        assert!(of_it < 0.5, "{protocol}: {of_it:.2} of the repairs without a tree");
    }
}

/// Runs a session beside a TCP flow, on a path below TRAM's smallest window.
fn beside_tcp(protocol: &'static str) -> Run {
    let mut world = World { protocol, data: "unlimited", seconds: 150, ..World::with_loss(0.001) };
    world.options = String::new();
    world.flow =
        "[[flow]]\nname = \"tcp\"\nprotocol = \"tcp-newreno\"\nfrom = \"s\"\nto = [\"m1\"]\n\
                  packet = \"1400 B\"\n"
            .into();
    world.run(1)
}

fn share(run: &Run) -> f64 {
    let bytes = |flow: usize| run.outcome.deliveries[flow].iter().map(|(it, _)| it.bytes).min();
    bytes(0).unwrap() as f64 / bytes(1).unwrap() as f64
}

#[test]
fn beside_tcp_the_controller_decides_and_not_the_tree() {
    for (scheme, protocol) in pairs() {
        let (alone, steering) = (share(&beside_tcp(scheme)), share(&beside_tcp(protocol)));
        println!("{scheme}: {alone:.2} of TCP's over PGM, {steering:.2} over the tree");
        let ratio = steering / alone;
        assert!((0.6..1.7).contains(&ratio), "{scheme}: {ratio:.2} of what it has over PGM");
    }
    println!("tram: {:.2} of TCP's", share(&beside_tcp("tram")));
}
