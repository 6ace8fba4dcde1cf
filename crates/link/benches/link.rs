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

#[divan::bench]
fn drop_tail_idle(bencher: Bencher<'_, '_>) {
    offer(bencher, &config(QueueConfig::DropTail { packets_max: 30 }), 1_100_000);
}

#[divan::bench]
fn drop_tail_overloaded(bencher: Bencher<'_, '_>) {
    offer(bencher, &config(QueueConfig::DropTail { packets_max: 30 }), 900_000);
}

#[divan::bench]
fn bytes_overloaded(bencher: Bencher<'_, '_>) {
    offer(bencher, &config(QueueConfig::DropTailBytes { bytes_max: 30_000 }), 900_000);
}

#[divan::bench]
fn red_overloaded(bencher: Bencher<'_, '_>) {
    offer(bencher, &config(QueueConfig::Red(RED)), 900_000);
}

#[divan::bench]
fn lossy(bencher: Bencher<'_, '_>) {
    let config = LinkConfig { loss: 0.01, ..config(QueueConfig::DropTail { packets_max: 30 }) };
    offer(bencher, &config, 1_100_000);
}

#[divan::bench]
fn every_fault(bencher: Bencher<'_, '_>) {
    let faults = Faults {
        burst_loss: BurstLoss { loss: 0.02, packets: 5.0 },
        reorder: Reorder { share: 0.02, delay: Duration::from_millis(5) },
        duplicate: 0.01,
        corrupt: 0.01,
        mtu: Some(1500),
        outages: Vec::new(),
    };
    let config = LinkConfig { faults, ..config(QueueConfig::DropTail { packets_max: 30 }) };
    offer(bencher, &config, 1_100_000);
}

/// Link with a rate change always ahead, so that each packet takes the slow path of the serialiser.
#[divan::bench]
fn changing_rate(bencher: Bencher<'_, '_>) {
    let change = |i: u64| LinkChange {
        at: Time::from_nanos(i * 10_000_000_000),
        rate: Some(Bitrate::from_bits_per_s(7_000_000 + i % 3 * 1_000_000)),
        delay: None,
        loss: None,
        faults: None,
    };
    let mut config = config(QueueConfig::DropTail { packets_max: 30 });
    config.changes = (1..200_000).map(change).collect();
    offer(bencher, &config, 1_100_000);
}
