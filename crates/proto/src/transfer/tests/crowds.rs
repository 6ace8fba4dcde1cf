//! What a transfer costs as the group grows.

use faircast_base::Duration;

use super::world::*;
use crate::transfer::Fec;

/// Overhead in data, and packets of each receiver, of an object for so many receivers that each
/// lose one packet in a hundred.
fn cost(receivers: usize, fec: Fec) -> (f64, f64) {
    let choices = Choices { fec, give_up: Duration::from_secs(600), ..Choices::default() };
    let mut world = World::new(128_000, receivers, &choices, 9).with_network(losing_data(0.01));
    world.spacing = Duration::from_millis(1);
    world.run_to_end(s(600));
    world.assert_all_complete();
    let feedback: u64 = world.receivers.iter().map(|host| host.sent).sum();
    let status = world.source.machine.status();
    let (overhead, each) = (world.overhead(), feedback as f64 / receivers as f64);
    let last = world.receivers.iter().filter_map(|host| host.completed_at()).max().unwrap();
    std::println!(
        "{receivers:5} {fec:?}: {overhead:.3} sent/useful, {each:.2} packets a receiver, \
         {} requests, {} + {} symbols, {last}",
        status.requests,
        status.symbols,
        status.parity
    );
    (overhead, each)
}

#[test]
fn parity_keeps_the_cost_of_a_large_group_low() {
    for (receivers, with, without) in
        [(1, 1.03, 1.03), (10, 1.10, 1.15), (100, 1.15, 1.9), (1000, 1.25, 3.5)]
    {
        let (overhead, each) = cost(receivers, Fec::Auto);
        assert!(overhead < with, "{receivers} with parity: {overhead}");
        let (plain, plain_each) = cost(receivers, Fec::Off);
        assert!(plain < without, "{receivers} without parity: {plain}");
        if receivers >= 10 {
            assert!(overhead < plain, "{receivers}: {overhead} {plain}");
        }
        // One receiver acknowledges each packet.
        let acks = 1500.0 / receivers as f64;
        assert!(each - acks < 40.0, "{receivers}: {each}");
        assert!(plain_each - acks * without < 80.0, "{receivers}: {plain_each}");
    }
}
