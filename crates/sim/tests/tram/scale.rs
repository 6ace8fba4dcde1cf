//! Growth of a group, and what its source hears and sends.

use super::world::World;

/// A group with heads of 16 members, of which each loses one packet of a hundred by itself.
fn group(sites: u32) -> World {
    let options = "members_max = 16".into();
    World { sites, hosts: 20, data: "1 MB", options, ..World::with_loss(0.01) }
}

#[test]
fn feedback_at_the_source_does_not_grow_with_the_group() {
    let acknowledgements = |sites| {
        let run = group(sites).run(1);
        run.assert_whole(&format!("{sites} sites"), &[]);
        run.heard.acknowledgements as f64 / run.heard.data_packets as f64
    };
    // With 240 receivers the source has as many members as it takes, and all of them are heads.
    let (small, large) = (acknowledgements(12), acknowledgements(50));
    assert!(large < small * 1.5, "{small:.2} acknowledgements a packet, and {large:.2} for 1000");
}

#[test]
fn heads_repair_what_each_receiver_has_lost_by_itself() {
    let run = group(50).run(1);
    run.assert_whole("1000 receivers", &[]);
    // Nearly every packet is lost by somebody: 1 - 0.99^1000.
    let share = run.heard.source_repairs as f64 / run.heard.data_packets as f64;
    assert!(share < 0.3, "{share:.3} repairs of the source for each packet");
    let heads: u64 = run.heard.head_repairs.values().sum();
    assert!(heads as f64 > 5.0 * run.heard.data_packets as f64, "{heads} repairs by heads");
}
