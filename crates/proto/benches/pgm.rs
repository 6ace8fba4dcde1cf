//! Nanoseconds per packet of the PGM codec and endpoints: `cargo bench -p faircast-proto`.

use std::hint::black_box;
use std::time::Instant;

use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Seq, Time};
use faircast_proto::content::Zeros;
use faircast_proto::control::{
    Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, SenderControl, Wire,
};
use faircast_proto::endpoint::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::wire::pgm::Nla;
use faircast_proto::wire::pgm::{Body, Data, Encoder, Header, OptionType, Packet, Tsi, checksum};
use faircast_proto::{Datagram, Destination, Machine};

fn main() {
    let mut bytes = Vec::new();
    let zeros = write_data(&mut bytes, 1400);
    let mut full = bytes.clone();
    full.resize(bytes.len() + 1400, 0);
    measure("decode ODATA, payload of zeros", || {
        Packet::decode(black_box(&bytes), zeros).map(|packet| {
            let option = packet.options.find(OptionType::PGMCC_DATA).map(|o| o.value[0]);
            (packet.body, option)
        })
    });
    measure("decode ODATA, 1400 bytes", || Packet::decode(black_box(&full), 0).is_ok());
    measure("checksum of 1444 bytes", || checksum(black_box(&full)));
    measure("checksum of 44 bytes", || checksum(black_box(&bytes)));
    let mut out = Vec::new();
    measure("encode ODATA, payload of zeros", || {
        out.clear();
        write_data(black_box(&mut out), 1400)
    });
    measure_endpoints();
}

/// A source and a receiver without loss, the packet handed over by hand.
fn measure_endpoints() {
    let mut trace = NullTrace;
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    let mut now = Time::ZERO;
    let config = SourceConfig::new(NodeId(1), Nla::NULL, Tsi::default());
    let mut source = PgmSource::new(config, Box::new(Zeros { len: None }), Free);
    let mut receiver = PgmReceiver::new(ReceiverConfig::new(Nla::NULL), Silent);
    let mut cx = Cx { now, rng: &mut rng, trace: &mut trace };
    source.handle_timeout(&mut cx);
    receiver.handle_timeout(&mut cx);
    let mut buf = Vec::new();
    let mut run = |name: &str, with_receiver: bool| {
        measure(name, || {
            now += Duration::from_micros(1);
            let mut cx = Cx { now, rng: &mut rng, trace: &mut trace };
            buf.clear();
            let transmit = source.poll_transmit(&mut cx, &mut buf).expect("it may always send");
            if with_receiver {
                let datagram = Datagram {
                    from: NodeId(1),
                    to: Destination::Group,
                    bytes: &buf,
                    zeros: transmit.zeros,
                    congestion_experienced: false,
                };
                receiver.handle_datagram(&mut cx, datagram);
                assert!(receiver.poll_transmit(&mut cx, &mut buf).is_none());
                while receiver.poll_event().is_some() {}
            }
            receiver.next_timeout()
        });
    };
    run("source and receiver, a packet", true);
    run("source alone, a packet", false);
    println!("{:<40} {:>8} bytes", "a receiver without losses", size_of::<PgmReceiver<Silent>>());
}

/// Nothing on the wire.
struct Nothing;

impl Wire for Nothing {
    const OPTION: u8 = OptionType::PGMCC_DATA;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 12]);
    }

    fn decode(_bytes: &[u8]) -> Option<Self> {
        Some(Self)
    }
}

/// A control that permits everything.
struct Free;

impl SenderControl for Free {
    type Announce = Nothing;
    type Report = Nothing;

    fn permit(&mut self, _cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        Permit::Now
    }

    fn on_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Nothing {
        Nothing
    }

    fn on_repair_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Option<Nothing> {
        None
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, _: &Nothing) {}

    fn on_leave(&mut self, _cx: &mut Cx<'_>, _from: NodeId) {}

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// A receiver's side that never reports.
struct Silent;

impl ReceiverFeedback for Silent {
    type Announce = Nothing;
    type Report = Nothing;

    fn on_data(&mut self, _cx: &mut Cx<'_>, _arrival: &Arrival, _announce: Option<&Nothing>) {}

    fn on_missing(&mut self, _cx: &mut Cx<'_>, _first: Seq, _last: Seq) {}

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, Nothing)> {
        None
    }

    fn report_for_nak(&mut self, _cx: &mut Cx<'_>) -> Option<Nothing> {
        None
    }

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

fn write_data(out: &mut Vec<u8>, len: u32) -> u32 {
    let body = Body::Odata(Data { sequence: Seq::new(13), trail: Seq::new(10) });
    let mut encoder = Encoder::new(out, &Header::downstream(Tsi::default(), 7500), &body);
    encoder.raw_option(OptionType::PGMCC_DATA, 0, &[1, 2, 3, 4, 0, 1, 0, 0, 10, 0, 0, 1]);
    encoder.payload(|_| len);
    encoder.finish()
}

/// Prints the best of several rounds: what disturbs a measurement only ever adds to it.
fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    const CALLS: u32 = 200_000;
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(work());
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(CALLS) * 1e9);
    }
    println!("{name:<40} {best:>8.1} ns");
}
