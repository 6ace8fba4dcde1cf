//! Clause 9: packets are conserved on every link.

use faircast_base::DropReason;
use faircast_proto::stack::Stack;
use faircast_sim::catalog;

use crate::world::{World, plain, protocols, run};

fn worlds() -> Vec<(&'static str, World)> {
    let base = World::new(4, 20);
    let red = "rate = \"400 kbit/s\"\ndelay = \"30 ms\"\nqueue = { kind = \"red\", min = 2, max = 6, \
               weight = 0.05, packets = 40 }\nloss = 0.002\n";
    let bytes = "rate = \"400 kbit/s\"\ndelay = \"0 s\"\nqueue = { kind = \"droptail\", bytes = 4000 }\n\
                 drop_list = [3, 4, 50]\n";
    let moving = plain("500 kbit/s", 5)
        + "changes = [ { at = \"3 s\", rate = \"100 kbit/s\", delay = \"200 ms\" }, \
           { at = \"6 s\", rate = \"2 Mbit/s\", delay = \"1 ms\", loss = 0.1 }, \
           { at = \"6.5 s\", delay = \"0 s\" }, { at = \"9 s\", loss = 1.0 }, \
           { at = \"10 s\", loss = 0.0 } ]\n";
    let faulty = plain("500 kbit/s", 5)
        + "loss = 0.002\nburst_loss = { loss = 0.02, packets = 3 }\n\
           reorder = { share = 0.05, delay = \"30 ms\" }\nduplicate = 0.05\ncorrupt = 0.02\n\
           outages = [ { from = \"4 s\", to = \"4.5 s\" }, { from = \"8 s\", to = \"9 s\" } ]\n";
    vec![
        ("every fault", World { down: faulty.clone(), leaf: faulty, ..base.clone() }),
        ("lossy leaves", base.clone()),
        ("RED", World { down: red.into(), ..base.clone() }),
        ("byte queues and lists", World { down: bytes.into(), leaf: bytes.into(), ..base.clone() }),
        ("changes", World { down: moving.clone(), up: moving, ..base.clone() }),
    ]
}

fn check(case: &str, world: &World, protocol: Stack) -> Vec<DropReason> {
    let name = format!("{} with {case}", protocol.name());
    let (outcome, heard, _) = run(&world.scenario(protocol));
    let mut carried = 0;
    for (link, balance) in outcome.balances.iter().enumerate() {
        let counters = heard.counters.get(&link).copied().unwrap_or_default();
        let dropped = heard.drops.get(&link).copied().unwrap_or_default();
        assert_eq!(counters.dropped_packets, dropped, "{name}: link {link} says what it drops");
        assert_eq!(
            counters.offered_packets + balance.duplicated,
            balance.arrived + dropped + balance.under_way,
            "{name}: link {link}: {counters:?} {balance:?}"
        );
        assert!(counters.sent_packets <= counters.offered_packets);
        let said = heard.duplicated.get(&link).copied().unwrap_or_default();
        assert_eq!(balance.duplicated, said, "{name}: link {link} says what it doubles");
        carried += balance.arrived;
    }
    assert!(carried > 100, "{name}: {carried} packets");
    heard.drop_reasons
}

#[test]
fn what_is_offered_to_a_link_arrives_or_is_dropped_or_is_under_way() {
    let mut reasons = Vec::new();
    for (case, world) in worlds() {
        for protocol in protocols() {
            reasons.extend(check(case, &world, protocol));
        }
    }
    use DropReason::{Burst, Listed, Loss, Outage, QueueFull, RedEarly, RedForced};
    for reason in [Loss, QueueFull, RedEarly, RedForced, Listed, Burst, Outage] {
        assert!(reasons.contains(&reason), "no packet was dropped by {reason:?}");
    }
}

#[test]
fn packets_to_members_that_come_and_go_are_conserved_too() {
    for program in catalog().programs.iter().map(|entry| Some(entry.name)).chain([None]) {
        for protocol in protocols().iter().filter(|protocol| protocol.transport.multicast) {
            // Two receivers alternate every second, so that copies arrive after a leave.
            let mut stays = Vec::new();
            for second in 1..19 {
                let node = 1 + second % 2;
                let leave = 10 * second + 15;
                stays.push(format!(
                    "{{ node = \"m{node}\", at = \"{second} s\", leave = \"{}.{} s\" }}",
                    leave / 10,
                    leave % 10
                ));
            }
            let flow = format!("join = [ {} ]\n", stays.join(", "));
            let world = World { program, flow, ..World::new(4, 20) };
            let reasons = check(&format!("{program:?} and turns"), &world, *protocol);
            assert!(reasons.contains(&DropReason::Loss));
        }
    }
}
