//! Benchmarks of a report at the sender, whose cost must not grow with the group.
//! Run: `cargo bench -p faircast-proto --bench feedback`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Seq, Time};
use faircast_proto::congestion::Scheme;
use faircast_proto::congestion::ormcc::{Ormcc, OrmccReport};
use faircast_proto::congestion::pgmcc::{Pgmcc, PgmccReport};
use faircast_proto::congestion::tfmcc::{Tfmcc, TfmccReport};
use faircast_proto::congestion::{Carrier, Permit, SenderControl, Wire};
use faircast_proto::options::Options;
use faircast_proto::pgm::wire::data_overhead;

fn main() {
    divan::main();
}

const GROUPS: [u32; 5] = [10, 100, 1000, 10_000, 100_000];

type Announce<S> = <<S as Scheme>::Control as SenderControl>::Announce;
type Report<S> = <<S as Scheme>::Control as SenderControl>::Report;

/// Constructor of a receiver's report on the latest packet, sent 40 ms ago, with its number.
type Make<S> = fn(NodeId, Seq, &Announce<S>, u64) -> (Carrier, Report<S>);

fn per_report<S: Scheme>(bencher: Bencher<'_, '_>, receivers: u32, make: Make<S>) {
    let mut control = S::control(&Options::default());
    control.set_header(data_overhead(Announce::<S>::BYTES_MAX));
    let (mut trace, mut rng) = (NullTrace, Rng::new(1, NodeId(1), Purpose::Machine(0)));
    let (mut now, mut seq, mut count) = (Time::ZERO, Seq::new(0), 0u64);
    let mut latest = control.on_sent(&mut Cx::new(now, &mut rng, &mut trace), seq, 1400);
    now += Duration::from_millis(40);
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        count += 1;
        now += Duration::from_micros(10);
        let mut cx = Cx::new(now, &mut rng, &mut trace);
        if count.is_multiple_of(8) && control.permit(&mut cx, 1400, false) == Permit::Now {
            seq += 1;
            latest = control.on_sent(&mut cx, seq, 1400);
        }
        let node = NodeId(2 + (count % u64::from(receivers)) as u32);
        let (carrier, report) = make(node, seq, &latest, count);
        control.on_report(&mut cx, node, carrier, black_box(&report));
    });
}

fn varied(count: u64) -> f64 {
    (count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64
}

#[divan::bench(args = GROUPS)]
fn pgmcc(bencher: Bencher<'_, '_>, receivers: u32) {
    per_report::<Pgmcc>(bencher, receivers, |node, seq, latest, count| {
        let loss = (655.0 * varied(count)) as u16;
        let report = PgmccReport { echo_ms: latest.sent_ms, loss, receiver: Some(node) };
        (Carrier::Nak { first: seq }, report)
    });
}

#[divan::bench(args = GROUPS)]
fn ormcc(bencher: Bencher<'_, '_>, receivers: u32) {
    per_report::<Ormcc>(bencher, receivers, |node, seq, latest, count| {
        let report = OrmccReport {
            echo_us: latest.sent_us,
            rate: Some(1e5 + 1e6 * varied(count) as f32),
            receiver: Some(node),
            withdraws: false,
            congestion: true,
        };
        (Carrier::Nak { first: seq }, report)
    });
}

#[divan::bench(args = GROUPS)]
fn tfmcc(bencher: Bencher<'_, '_>, receivers: u32) {
    per_report::<Tfmcc>(bencher, receivers, |node, seq, latest, count| {
        let report = TfmccReport {
            receiver: Some(node),
            have_rtt: count.is_multiple_of(2),
            have_loss: true,
            leaving: false,
            on_nak: false,
            round: latest.round,
            sent_us: count as u32,
            echo_us: latest.sent_us,
            bits_per_s: 1e6 + 1e7 * varied(count) as f32,
        };
        (Carrier::Nak { first: seq }, report)
    });
}
