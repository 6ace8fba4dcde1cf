//! Benchmarks of transfers, in ns per packet: `cargo bench -p faircast-proto --bench object`.

mod common;

use std::ops::Range;
use std::task::Poll;

use divan::Bencher;
use divan::counter::ItemsCount;
use faircast_base::{Cx, Duration, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::congestion::{boxed_control, boxed_feedback};
use faircast_proto::object::{
    Announcement, Fec, ObjectError, ObjectReceiver, ObjectReceiverSetup, ObjectSender as _,
    ObjectSource, ObjectSourceSetup, ObjectTaker as _, Part, Store, Supply, Verdict,
};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::pgm::negotiation::Negotiation;
use faircast_proto::pgm::wire::{Nla, Tsi};
use faircast_proto::{Datagram, Destination, Machine, Transmit};

use common::{Free, Silent, datagram};

fn main() {
    divan::main();
}

const SYMBOL: u16 = 1392;
const SOURCE: NodeId = NodeId(1);
const RECEIVER: NodeId = NodeId(2);

#[derive(Clone, Copy, Debug)]
enum Bytes {
    Zeros,
    Real,
}

const BOTH: [Bytes; 2] = [Bytes::Zeros, Bytes::Real];

#[divan::bench(args = BOTH)]
fn source_alone(bencher: Bencher<'_, '_>, bytes: Bytes) {
    each_packet(bencher, bytes, Fec::Auto, false);
}

#[divan::bench(args = BOTH)]
fn source_and_receiver(bencher: Bencher<'_, '_>, bytes: Bytes) {
    each_packet(bencher, bytes, Fec::Auto, true);
}

#[divan::bench(args = BOTH)]
fn source_with_half_as_much_parity(bencher: Bencher<'_, '_>, bytes: Bytes) {
    each_packet(bencher, bytes, Fec::Ratio(0.5), false);
}

#[divan::bench(args = BOTH)]
fn source_and_receiver_that_restores_each_block(bencher: Bencher<'_, '_>, bytes: Bytes) {
    let mut pair = Pair::new(bytes, Fec::Ratio(1.0 / 64.0));
    bencher.counter(ItemsCount::new(65u32)).bench_local(|| {
        for i in 0..65 {
            pair.packet(i != 0);
        }
    });
    assert!(pair.receiver_has_progressed());
}

fn each_packet(bencher: Bencher<'_, '_>, bytes: Bytes, fec: Fec, with_receiver: bool) {
    let mut pair = Pair::new(bytes, fec);
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| pair.packet(with_receiver));
    assert!(!with_receiver || pair.receiver_has_progressed());
}

struct Pair {
    source: ObjectSource,
    receiver: ObjectReceiver,
    now: Time,
    rng: Rng,
    buf: Vec<u8>,
}

impl Pair {
    fn new(bytes: Bytes, fec: Fec) -> Self {
        let options = Options::default();
        let (group, tsi) = (Nla::NULL, Tsi::default());
        let supply = Box::new(Pattern::new(bytes));
        let source = ObjectSourceSetup::new(SOURCE, group, tsi, supply, SYMBOL, &options);
        let source = ObjectSourceSetup { fec, give_up: Duration::from_secs(1 << 20), ..source };
        let store = Box::new(Pattern::new(bytes));
        let receiver = ObjectReceiverSetup::new(RECEIVER, group, tsi, store, &options);
        let silent = |_: &[(String, OptionValue)]| boxed_feedback(Silent);
        let negotiation = Negotiation::of("silent", &[], Box::new(silent));
        let mut pair = Self {
            source: ObjectSource::new(source, boxed_control(Free)),
            receiver: ObjectReceiver::new(receiver, negotiation),
            now: Time::ZERO,
            rng: Rng::new(1, SOURCE, Purpose::Machine(0)),
            buf: Vec::new(),
        };
        while !pair.step() {}
        // Begin at the start of a block, when buffers and tables have their final size.
        for _ in 0..100_000 {
            pair.packet(true);
        }
        let (symbols, parity) = pair.sent();
        let block = if fec == Fec::Auto { 64 } else { 64 + (parity * 64).div_ceil(symbols) };
        while !(pair.sent().0 + pair.sent().1).is_multiple_of(block) {
            pair.packet(true);
        }
        pair
    }

    /// Returns the number of packets that carry symbols, and that carry parity.
    fn sent(&self) -> (u64, u64) {
        let packets = self.source.status().packets;
        (packets.symbols, packets.parity)
    }

    fn receiver_has_progressed(&self) -> bool {
        self.receiver.status().bytes_done > 0
    }

    fn step(&mut self) -> bool {
        self.now += Duration::from_millis(1);
        let mut trace = NullTrace;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut trace);
        self.source.handle_timeout(&mut cx);
        self.receiver.handle_timeout(&mut cx);
        loop {
            self.buf.clear();
            if self.receiver.poll_transmit(&mut cx, &mut self.buf).is_none() {
                break;
            }
            let to = Destination::Node(SOURCE);
            self.source.handle_datagram(&mut cx, Datagram::new(RECEIVER, to, &self.buf));
        }
        loop {
            self.buf.clear();
            let Some(transmit) = self.source.poll_transmit(&mut cx, &mut self.buf) else {
                return false;
            };
            self.receiver.handle_datagram(&mut cx, datagram(&self.buf, transmit.zeros));
            if transmit.payload_len > 0 {
                return true;
            }
        }
    }

    fn packet(&mut self, arrives: bool) -> Option<Time> {
        self.now += Duration::from_micros(1);
        let mut trace = NullTrace;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut trace);
        let transmit: Transmit = loop {
            self.buf.clear();
            let transmit = self.source.poll_transmit(&mut cx, &mut self.buf);
            let transmit = transmit.expect("it may always send");
            if transmit.payload_len > 0 {
                break transmit;
            }
        };
        if !arrives {
            return self.source.next_timeout();
        }
        self.receiver.handle_datagram(&mut cx, datagram(&self.buf, transmit.zeros));
        while self.receiver.poll_event().is_some() {}
        self.receiver.next_timeout()
    }
}

struct Pattern(Bytes, Vec<u8>);

impl Pattern {
    fn new(bytes: Bytes) -> Self {
        Self(bytes, (0..1 << 20).map(|i: u32| (i % 251) as u8).collect())
    }

    fn append(&self, offset: u64, len: u32, out: &mut Vec<u8>) {
        let at = (offset % ((1 << 20) - (1 << 17))) as usize;
        out.extend_from_slice(&self.1[at..at + len as usize]);
    }
}

impl Supply for Pattern {
    fn len(&self, part: Part) -> u64 {
        if part == Part::Content { 1 << 46 } else { 0 }
    }

    fn object(&self) -> [u8; 32] {
        [0; 32]
    }

    fn digests(&mut self) -> Result<Option<[u8; 32]>, ObjectError> {
        Ok(None)
    }

    fn read(
        &mut self,
        _part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<u32, ObjectError> {
        match self.0 {
            Bytes::Zeros => Ok(len),
            Bytes::Real => {
                self.append(offset, len, out);
                Ok(0)
            }
        }
    }
}

impl Store for Pattern {
    fn begin(&mut self, _: &Announcement) -> Result<(), ObjectError> {
        Ok(())
    }

    fn write(&mut self, _: Part, _: u64, bytes: &[u8], _: u32) -> Result<(), ObjectError> {
        divan::black_box(bytes);
        Ok(())
    }

    fn read(
        &mut self,
        _part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), ObjectError> {
        match self.0 {
            Bytes::Zeros => out.resize(out.len() + len as usize, 0),
            Bytes::Real => self.append(offset, len, out),
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Poll<Vec<Range<u64>>>, ObjectError> {
        Ok(Poll::Ready(Vec::new()))
    }

    fn verify(&mut self) -> Result<Poll<Verdict>, ObjectError> {
        Ok(Poll::Ready(Verdict::Intact))
    }
}
