//! Benchmarks of the cost of a packet at a link: `cargo bench -p faircast-link`.

use divan::Bencher;
use faircast_base::{Bitrate, Duration, NodeId, Purpose, Rng, Time};
use faircast_link::{
    BurstLoss, Faults, Link, LinkChange, LinkConfig, QueueConfig, RedConfig, Reorder, Streams,
};

fn main() {
    divan::main();
}

const RED: RedConfig = RedConfig {
    min: 5.0,
    max: 15.0,
    weight: 0.002,
    max_p: 0.1,
    gentle: true,
    packets_max: 50,
    mean_packet_bytes: 1000,
};

fn config(queue: QueueConfig) -> LinkConfig {
    LinkConfig {
        rate: Bitrate::from_bits_per_s(8_000_000),
        delay: Duration::from_millis(10),
        queue,
        loss: 0.0,
        changes: Vec::new(),
        drop_list: Vec::new(),
        faults: Faults::default(),
        timing: Default::default(),
    }
}

/// Offers a packet of 1000 B every `every_ns`; full load is one every 1 ms.
fn offer(bencher: Bencher<'_, '_>, config: &LinkConfig, every_ns: u64) {
    let mut link = Link::new(config, Streams { seed: 1, node: NodeId(0), link: 0 });
    let mut rng = Rng::new(1, NodeId(0), Purpose::Link(0));
    let mut now = Time::ZERO;
    bencher.counter(divan::counter::ItemsCount::new(1u32)).bench_local(|| {
        now += Duration::from_nanos(every_ns);
        link.offer(now, 1000, true, &mut rng)
    });
}

/// Cases: queue, loss and faults of the link, and time between packets.
fn case(name: &str) -> (LinkConfig, u64) {
    let drop_tail = config(QueueConfig::DropTail { packets_max: 30 });
    match name {
        "drop-tail, idle" => (drop_tail, 1_100_000),
        "drop-tail, overloaded" => (drop_tail, 900_000),
        "bytes, overloaded" => (config(QueueConfig::DropTailBytes { bytes_max: 30_000 }), 900_000),
        "RED, overloaded" => (config(QueueConfig::Red(RED)), 900_000),
        "lossy" => (LinkConfig { loss: 0.01, ..drop_tail }, 1_100_000),
        _ => {
            let faults = Faults {
                burst_loss: BurstLoss { loss: 0.02, packets: 5.0 },
                reorder: Reorder { share: 0.02, delay: Duration::from_millis(5) },
                duplicate: 0.01,
                corrupt: 0.01,
                mtu: Some(1500),
                outages: Vec::new(),
            };
            (LinkConfig { faults, ..drop_tail }, 1_100_000)
        }
    }
}

#[divan::bench(args = [
    "drop-tail, idle", "drop-tail, overloaded", "bytes, overloaded", "RED, overloaded", "lossy",
    "every fault",
])]
fn link(bencher: Bencher<'_, '_>, name: &str) {
    let (config, every_ns) = case(name);
    offer(bencher, &config, every_ns);
}

/// Link with a rate change always ahead, so that each packet takes the slow path of the serialiser.
#[divan::bench]
fn changing_rate(bencher: Bencher<'_, '_>) {
    let change = |i: u64| LinkChange {
        at: Time::from_nanos(i * 10_000_000_000),
        rate: Some(Bitrate::from_bits_per_s(7_000_000 + i % 3 * 1_000_000)),
        ..LinkChange::default()
    };
    let mut config = config(QueueConfig::DropTail { packets_max: 30 });
    config.changes = (1..200_000).map(change).collect();
    offer(bencher, &config, 1_100_000);
}
