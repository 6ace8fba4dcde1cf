//! Benchmarks of PGM, in nanoseconds per packet: `cargo bench -p faircast-proto --bench pgm`.

mod common;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Seq, Time};
use faircast_proto::Machine;
use faircast_proto::congestion::pgmcc::{PgmccConfig, PgmccReceiver, PgmccSender};
use faircast_proto::congestion::{
    AckVector, Arrival, Carrier, Permit, ReceiverFeedback, SenderControl, boxed_control,
    boxed_feedback,
};
use faircast_proto::content::Zeros;
use faircast_proto::pgm::wire::{
    Body, Data, Encoder, Header, Nla, OptionType, Packet, Tsi, checksum,
};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};

use common::{Free, Silent, datagram};

fn main() {
    divan::main();
}

fn each<T>(bencher: Bencher<'_, '_>, work: impl FnMut() -> T) {
    bencher.counter(ItemsCount::new(1u32)).bench_local(work);
}

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

fn endpoints(bencher: Bencher<'_, '_>, with_receiver: bool) {
    let mut trace = NullTrace;
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    let mut now = Time::ZERO;
    let config = SourceConfig::new(NodeId(1), Nla::NULL, Tsi::default());
    let mut source = PgmSource::new(config, Box::new(Zeros { len: None }), boxed_control(Free));
    let mut receiver = PgmReceiver::new(ReceiverConfig::new(Nla::NULL), boxed_feedback(Silent));
    let mut cx = Cx::new(now, &mut rng, &mut trace);
    source.handle_timeout(&mut cx);
    receiver.handle_timeout(&mut cx);
    let mut buf = Vec::new();
    each(bencher, || {
        now += Duration::from_micros(1);
        let mut cx = Cx::new(now, &mut rng, &mut trace);
        buf.clear();
        let transmit = source.poll_transmit(&mut cx, &mut buf).expect("it may always send");
        if with_receiver {
            receiver.handle_datagram(&mut cx, datagram(&buf, transmit.zeros));
            assert!(receiver.poll_transmit(&mut cx, &mut buf).is_none());
            while receiver.poll_event().is_some() {}
        }
        receiver.next_timeout()
    });
}

/// Measures pgmcc's two halves: send, receive, acknowledge. One packet of `lost_every` is lost.
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
        let mut cx = loop {
            let mut cx = Cx::new(now, &mut rng, &mut trace);
            sender.on_timeout(&mut cx);
            if sender.permit(&mut cx, 1400, false) == Permit::Now {
                break cx;
            }
            now = sender.next_timeout().expect("a timer is armed").max(now);
        };
        let announce = sender.on_sent(&mut cx, seq, 1400);
        let lost = seq.value() % lost_every == 1;
        bitmap = bitmap << 1 | u32::from(!lost);
        let mut reports = 0;
        if lost {
            receiver.on_missing(&mut cx, seq, seq);
        } else {
            let (repair, duplicate, congestion_experienced, reordering) =
                (false, false, false, None);
            let len = 1400;
            let arrival =
                Arrival { seq, len, repair, duplicate, congestion_experienced, reordering };
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

fn write_data(out: &mut Vec<u8>, len: u32) -> u32 {
    let body = Body::Odata(Data { sequence: Seq::new(13), trail: Seq::new(10) });
    let mut encoder = Encoder::new(out, &Header::downstream(Tsi::default(), 7500), &body);
    encoder.raw_option(OptionType::PGMCC_DATA, 0, &[1, 2, 3, 4, 0, 1, 0, 0, 10, 0, 0, 1]);
    encoder.payload(|_| len);
    encoder.finish()
}
