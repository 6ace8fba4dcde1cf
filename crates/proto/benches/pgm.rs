//! Nanoseconds per packet of the PGM codec and endpoints: `cargo bench -p faircast-proto`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, GroupId, NodeId, NullTrace, Purpose, Rng, Seq, Time};
use faircast_proto::congestion::pgmcc::{PgmccConfig, PgmccReceiver, PgmccSender};
use faircast_proto::congestion::{
    AckVector, Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, SenderControl, Wire,
    boxed_control, boxed_feedback,
};
use faircast_proto::content::Zeros;
use faircast_proto::pgm::wire::Nla;
use faircast_proto::pgm::wire::{Body, Data, Encoder, Header, OptionType, Packet, Tsi, checksum};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::{Datagram, Destination, Machine};

fn main() {
    divan::main();
}

/// Measures one packet after the other.
fn each<T>(bencher: Bencher<'_, '_>, work: impl FnMut() -> T) {
    bencher.counter(ItemsCount::new(1u32)).bench_local(work);
}

/// A data packet without its payload, and with it.
fn packets() -> (Vec<u8>, u32, Vec<u8>) {
    let mut bytes = Vec::new();
    let zeros = write_data(&mut bytes, 1400);
    let mut full = bytes.clone();
    full.resize(bytes.len() + 1400, 0);
    (bytes, zeros, full)
}

#[divan::bench]
fn decode_odata_of_zeros(bencher: Bencher<'_, '_>) {
    let (bytes, zeros, _) = packets();
    each(bencher, || {
        Packet::decode(black_box(&bytes), zeros).map(|packet| {
            let option = packet.options.find(OptionType::PGMCC_DATA).map(|o| o.value[0]);
            (packet.body, option)
        })
    });
}

#[divan::bench]
fn decode_odata_of_1400_bytes(bencher: Bencher<'_, '_>) {
    let (_, _, full) = packets();
    each(bencher, || Packet::decode(black_box(&full), 0).is_ok());
}

#[divan::bench]
fn checksum_of_44_bytes(bencher: Bencher<'_, '_>) {
    let (bytes, ..) = packets();
    each(bencher, || checksum(black_box(&bytes)));
}

#[divan::bench]
fn checksum_of_1444_bytes(bencher: Bencher<'_, '_>) {
    let (_, _, full) = packets();
    each(bencher, || checksum(black_box(&full)));
}

#[divan::bench]
fn encode_odata_of_zeros(bencher: Bencher<'_, '_>) {
    let mut out = Vec::new();
    each(bencher, || {
        out.clear();
        write_data(black_box(&mut out), 1400)
    });
}

#[divan::bench]
fn source_alone(bencher: Bencher<'_, '_>) {
    endpoints(bencher, false);
}

#[divan::bench]
fn source_and_receiver(bencher: Bencher<'_, '_>) {
    endpoints(bencher, true);
}

/// A source and a receiver without loss or congestion control, the packet handed over by hand.
fn endpoints(bencher: Bencher<'_, '_>, with_receiver: bool) {
    let mut trace = NullTrace;
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    let mut now = Time::ZERO;
    let config = SourceConfig::new(NodeId(1), Nla::NULL, Tsi::default());
    let mut source = PgmSource::new(config, Box::new(Zeros { len: None }), boxed_control(Free));
    let mut receiver = PgmReceiver::new(ReceiverConfig::new(Nla::NULL), boxed_feedback(Silent));
    let mut cx = Cx { now, rng: &mut rng, trace: &mut trace };
    source.handle_timeout(&mut cx);
    receiver.handle_timeout(&mut cx);
    let mut buf = Vec::new();
    each(bencher, || {
        now += Duration::from_micros(1);
        let mut cx = Cx { now, rng: &mut rng, trace: &mut trace };
        buf.clear();
        let transmit = source.poll_transmit(&mut cx, &mut buf).expect("it may always send");
        if with_receiver {
            let datagram = Datagram {
                from: NodeId(1),
                to: Destination::Group(GroupId::SESSION),
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
}

/// pgmcc's two halves face to face: a packet is sent, arrives, and is acknowledged. One packet of
/// `lost_every` is lost.
#[divan::bench(args = [u32::MAX, 100])]
fn pgmcc_packet_and_report(bencher: Bencher<'_, '_>, lost_every: u32) {
    let config = PgmccConfig::default();
    let (mut sender, node) = (PgmccSender::new(config), NodeId(2));
    let mut receiver = PgmccReceiver::new(config, node);
    let mut trace = NullTrace;
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    let (mut now, mut seq, mut bitmap) = (Time::ZERO, Seq::new(0), 0u32);
    each(bencher, || {
        now += Duration::from_millis(10);
        // A sender that must wait for its timer waits no time here.
        let permitted = loop {
            let mut cx = Cx { now, rng: &mut rng, trace: &mut trace };
            sender.on_timeout(&mut cx);
            if sender.permit(&mut cx, 1400, false) == Permit::Now {
                break cx;
            }
            now = sender.next_timeout().expect("a timer is armed").max(now);
        };
        let mut cx = permitted;
        let announce = sender.on_sent(&mut cx, seq, 1400);
        let lost = seq.value() % lost_every == 1;
        bitmap = bitmap << 1 | u32::from(!lost);
        let mut reports = 0;
        if lost {
            receiver.on_missing(&mut cx, seq, seq);
        } else {
            let arrival = Arrival {
                seq,
                len: 1400,
                repair: false,
                duplicate: false,
                congestion_experienced: false,
            };
            receiver.on_data(&mut cx, &arrival, Some(&announce));
            receiver.on_timeout(&mut cx);
            while let Some((_, report)) = receiver.poll_report(&mut cx) {
                let vector = AckVector { highest: seq, bitmap };
                sender.on_report(&mut cx, node, Carrier::Ack(vector), &report);
                reports += 1;
            }
        }
        seq += 1;
        reports
    });
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
