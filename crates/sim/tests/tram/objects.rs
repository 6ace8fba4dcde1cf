//! Objects over the tree: every receiver completes, whenever it joined and whatever its head.

use faircast_base::{Duration, Time};

use super::world::World;

const ROWS: [&str; 4] = ["tram", "tram-pgmcc", "tram-tfmcc", "tram-ormcc"];

fn object(protocol: &'static str, loss: f64) -> World {
    let world = World { protocol, seconds: 600, ..World::with_loss(loss) };
    world.with("delivery = \"object\"")
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

#[test]
fn an_object_completes_everywhere_with_every_controller() {
    for protocol in ROWS {
        for loss in [0.0, 0.01, 0.05] {
            let run = object(protocol, loss).run(1);
            let case = format!("{protocol}, loss {loss}");
            run.assert_source_ends_last(&case);
            // 2 MB in symbols of 1392 bytes, and the source's repairs for its own members.
            let sent = run.heard.data_packets + run.heard.source_repairs;
            let useful = 2_000_000_f64 / 1392.0;
            assert!((sent as f64) < 1.35 * useful, "{case}: {sent} packets");
        }
    }
}

#[test]
fn the_bytes_of_a_file_arrive_as_they_are() {
    let file = concat!("{ file = \"", env!("CARGO_MANIFEST_DIR"), "/src/engine.rs\" }");
    for protocol in ROWS {
        let world = World { data: file, ..object(protocol, 0.02) };
        world.run(1).assert_whole(protocol, &[]);
    }
}

#[test]
fn an_object_arrives_though_a_head_dies() {
    for protocol in ROWS {
        let mut world = World { data: "6 MB", ..object(protocol, 0.01) };
        let heads = world.run(1).heads_at(at(6));
        let victim = *heads.first().unwrap_or_else(|| panic!("{protocol}: nobody is a head"));
        let dead = "loss = 0.01\noutages = [ { from = \"6 s\", to = \"1000 s\" } ]";
        world.host_links.insert(victim, dead.into());
        let run = world.run(1);
        run.assert_whole(&format!("{protocol}, m{victim}"), &[victim]);
        assert!(run.heard.source_done.is_some(), "{protocol}: who is silent is not waited for");
    }
}

#[test]
fn a_late_receiver_has_all_of_an_object_whatever_heads_keep() {
    let join = "join = [ { node = \"m3\", at = \"7 s\" }, { node = \"m9\", at = \"150 s\" }, \
                { node = \"m14\", at = \"1 s\", leave = \"8 s\" } ]";
    for protocol in ROWS {
        for late_join in ["", "late_join = \"none\"", "late_join = \"limited\""] {
            let mut world = World { data: "4 MB", flow: join.into(), ..object(protocol, 0.01) };
            world.options = format!(
                "members_max = 5, wait_for = 17, cache_packets = 300, delivery = \"object\", {late_join}"
            );
            let run = world.run(1);
            let case = format!("{protocol}, {late_join}");
            run.assert_whole(&case, &[14]);
            // A late receiver is as fast as the first ones, except for its unanswered requests.
            let (first, late) = (run.completed(1).unwrap(), run.completed(9).unwrap());
            let (first, late) = (first.as_secs_f64(), late.as_secs_f64() - 150.0);
            assert!(late < 1.5 * first + 5.0, "{case}: {late} s, {first} s of the first");
            assert_eq!(run.completed(14), None, "it left");
        }
    }
}

#[test]
fn a_source_that_is_not_to_linger_ends_when_all_have_it() {
    let mut world = object("tram", 0.0);
    let packets = |world: &World| {
        let run = world.run(1);
        run.assert_whole(&world.options, &[]);
        run.heard.host_bytes.values().sum::<u64>()
    };
    let stays = packets(&world);
    world = world.with("linger = \"0 s\"");
    let ends = packets(&world);
    assert!(ends < stays, "{ends} B instead of {stays}");
}
