//! The link between two neighbours: frames arrive in order and whole though the network loses some, and no more are on their
//! way than it bears beside others.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, Time};

use super::arrivals::Arrivals;
use super::frame::{AckPace, Frame, FrameKind, HopPacket};
use super::guard::Guard;
use super::window::{Ack, Window};
use crate::credit::CAPSULE_BYTES;

/// Bytes in the place of as many at the beginning of a packet: on each link it has counts of its own.
#[derive(Clone, Copy, Debug)]
struct Begun {
    bytes: [u8; CAPSULE_BYTES],
    len: u8,
}

/// The frames of a link that may have to be sent again, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Frames {
    first: u32,
    frames: VecDeque<(HopPacket, Begun)>,
}

impl Frames {
    /// The number of the first of them.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// The number of the next.
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.frames.len() as u32)
    }

    /// Adds one, with `begun` in the place of as many bytes at its beginning.
    pub(super) fn push(&mut self, mut parcel: HopPacket, begun: &[u8]) {
        let begun = &begun[..begun.len().min(parcel.body.len())];
        let mut bytes = [0; CAPSULE_BYTES];
        let len = match bytes.get_mut(..begun.len()) {
            Some(place) => {
                place.copy_from_slice(begun);
                begun.len() as u8
            }
            None => {
                let mut whole = parcel.body.to_vec();
                whole[..begun.len()].copy_from_slice(begun);
                parcel.body = whole.into();
                0
            }
        };
        self.frames.push_back((parcel, Begun { bytes, len }));
    }

    /// Forgets frames before this number, which are not wanted any more.
    pub(super) fn forget_before(&mut self, seq: u32) {
        let count = seq.wrapping_sub(self.first) as usize;
        self.frames.drain(..count.min(self.frames.len()));
        self.first = seq;
    }

    fn get(&self, seq: u32) -> Option<&(HopPacket, Begun)> {
        self.frames.get(seq.wrapping_sub(self.first) as usize)
    }

    /// Writes the frame of this number.
    pub(super) fn write(&self, link: u16, seq: u32, guard: &mut Guard, out: &mut Vec<u8>) {
        if let Some((parcel, begun)) = self.get(seq) {
            let HopPacket { hops, group, origin, to, body } = parcel;
            let (begun, rest) = (&begun.bytes[..begun.len.into()], &body[begun.len.into()..]);
            let frame = Frame::control(FrameKind::Data, *group, begun);
            let frame = Frame { hops: *hops, link: (link, seq), origin: *origin, to: *to, ..frame };
            guard.write(&frame, out, |out| out.extend_from_slice(rest));
        }
    }
}

/// One end of a link.
#[derive(Debug)]
pub struct HopLink {
    window: Window,
    frames: Frames,
    arrivals: Arrivals,
}

impl HopLink {
    /// A link on which nothing was sent, by whose number both ends know that it is the same.
    pub fn new(id: u16) -> Self {
        let arrivals = Arrivals::new(id, 0, AckPace::PAIR);
        Self { window: Window::new(0), frames: Frames::default(), arrivals }
    }

    /// Its number.
    pub const fn id(&self) -> u16 {
        self.arrivals.link()
    }

    /// Whether the network bears another frame.
    pub fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// Frames that may be on their way, in frames.
    pub const fn window(&self) -> f64 {
        self.window.size()
    }

    /// The round trip, smoothed; nothing before the first is known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.window.round_trip()
    }

    /// Sends something. Returns its number, or nothing where far too much is on its way.
    pub fn send(&mut self, now: Time, parcel: HopPacket) -> Option<u32> {
        self.send_begun(now, parcel, &[])
    }

    /// The same, with `begun` in the place of as many bytes at its beginning.
    pub(super) fn send_begun(&mut self, now: Time, parcel: HopPacket, begun: &[u8]) -> Option<u32> {
        let seq = self.window.send(now)?;
        self.frames.push(parcel, begun);
        Some(seq)
    }

    /// An acknowledgement has come.
    ///
    /// # Errors
    /// It is of what was never sent.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<(), BadInput> {
        let outcome = self.window.on_ack(now, ack);
        self.frames.forget_before(self.window.first());
        outcome.map(|_| ())
    }

    /// The next thing that came, in order.
    pub fn take(&mut self) -> Option<HopPacket> {
        self.arrivals.take()
    }

    /// Takes the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.window.handle_timeout(now);
        self.frames.forget_before(self.window.first());
        self.arrivals.handle_timeout(now);
    }

    /// Writes the frame of this number.
    pub fn write(&self, seq: u32, guard: &mut Guard, out: &mut Vec<u8>) {
        self.frames.write(self.id(), seq, guard, out);
    }

    /// Writes the frame that is due: something that is sent again, or an acknowledgement.
    pub fn poll(&mut self, now: Time, guard: &mut Guard, out: &mut Vec<u8>) -> bool {
        if let Some(seq) = self.poll_again(now) {
            self.write(seq, guard, out);
            return true;
        }
        self.arrivals.poll(now, guard, out)
    }

    /// The number of a frame that is to be sent again.
    fn poll_again(&mut self, now: Time) -> Option<u32> {
        self.window.again(now)
    }

    /// Whether nothing was sent, and nothing has come.
    pub(super) fn is_unused(&self) -> bool {
        self.frames.next() == 0 && self.arrivals.is_unused()
    }

    /// Takes a frame with data. Returns whether it is news; [`take`](Self::take) gives what is in order.
    pub fn on_frame(&mut self, now: Time, frame: &Frame<'_>) -> bool {
        self.arrivals.on_frame(now, frame)
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll`](Self::poll) have something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        self.window.next_timeout().into_iter().chain(self.arrivals.next_timeout()).min()
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::Destination;
    use faircast_base::{GroupId, NodeId};
    use proptest::prelude::*;

    fn parcel(number: u32) -> HopPacket {
        let to = Destination::Group(GroupId::SESSION);
        HopPacket { hops: 1, group: 0, origin: NodeId(1), to, body: Arc::new(number.to_be_bytes()) }
    }

    /// Sends for so many milliseconds over a path with this delay and a queue that gives a frame each so many
    /// microseconds; `loses` says of each frame and acknowledgement whether it is lost. Returns what came, in its order.
    fn run(
        ms: u64,
        delay_ms: u64,
        every_us: u64,
        queue: u64,
        mut loses: impl FnMut(Time) -> bool,
    ) -> (Vec<u32>, u32, HopLink) {
        let (mut link, mut other) = (HopLink::new(1), HopLink::new(1));
        let mut way: VecDeque<(Time, u32, HopPacket)> = VecDeque::new();
        let mut back: VecDeque<(Time, Ack)> = VecDeque::new();
        let (mut number, mut got, mut free_at) = (0, Vec::new(), Time::ZERO);
        for tick in 0..ms * 10 {
            let now = Time::ZERO + Duration::from_micros(tick * 100);
            while back.front().is_some_and(|(at, _)| *at <= now) {
                let (_, ack) = back.pop_front().unwrap();
                link.on_ack(now, &ack).unwrap();
            }
            link.handle_timeout(now);
            loop {
                let seq = link.window.again(now).or_else(|| {
                    link.has_room().then(|| {
                        number += 1;
                        link.send(now, parcel(number)).unwrap()
                    })
                });
                let Some(seq) = seq else { break };
                let waits = free_at.max(now) + Duration::from_micros(every_us);
                if !loses(now) && waits.since(now) <= Duration::from_micros(every_us * queue) {
                    free_at = waits;
                    let at = waits + Duration::from_millis(delay_ms);
                    way.push_back((at, seq, link.frames.get(seq).unwrap().0.clone()));
                }
            }
            while way.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, seq, parcel) = way.pop_front().unwrap();
                other.arrivals.on_parcel(now, seq, parcel);
                while let Some(parcel) = other.take() {
                    got.push(u32::from_be_bytes((&*parcel.body).try_into().unwrap()));
                }
            }
            other.handle_timeout(now);
            if let Some(ack) = other.arrivals.poll_ack(now)
                && !loses(now)
            {
                back.push_back((now + Duration::from_millis(delay_ms), ack));
            }
        }
        (got, number, link)
    }

    #[test]
    fn a_path_is_filled_and_its_queue_is_halved_again_and_again() {
        // A frame in 100 us, a round trip of 20 ms: 200 frames, and a queue of as many.
        let (got, _, link) = run(20_000, 10, 100, 200, |_| false);
        assert!(got.len() > 180_000, "{}", got.len());
        assert!(link.window() > 150.0 && link.window() < 450.0, "{}", link.window());
        assert!(got.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn beside_losses_it_sends_what_tcp_would() {
        // 1 in 100 lost, round trip 20 ms: about 1.22 / sqrt(p) frames in a round trip.
        let mut number = 0u32;
        let (got, ..) = run(60_000, 10, 1, 10_000, |_| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            number >> 16 < 655
        });
        let in_a_round_trip = got.len() as f64 / (60.0 / 0.021);
        assert!((8.0..17.0).contains(&in_a_round_trip), "{in_a_round_trip}");
    }

    proptest! {
        #[test]
        fn all_comes_in_order_whatever_is_lost_for_a_while(
            lost in proptest::collection::vec(any::<bool>(), 1..600),
            delay_ms in 0u64..30,
        ) {
            let mut lost = lost.into_iter().cycle();
            let second = Time::ZERO + Duration::from_secs(1);
            let loses = |now: Time| now < second && lost.next() == Some(true);
            let (got, number, _) = run(8000, delay_ms, 50, 300, loses);
            prop_assert!(got.len() > 1000, "{}", got.len());
            prop_assert!(number as usize >= got.len());
            prop_assert!(got.windows(2).all(|pair| pair[0] < pair[1]));
        }

        #[test]
        fn any_acknowledgement_is_borne(next in any::<u32>(), words in any::<[u64; 4]>(), sent in 0u32..50) {
            let mut link = HopLink::new(1);
            (0..sent).for_each(|number| { link.send(Time::ZERO, parcel(number)); });
            let now = Time::ZERO + Duration::from_millis(5);
            let mut ack = Ack::before(next);
            ack.mask[..4].copy_from_slice(&words);
            let _ = link.on_ack(now, &ack);
            link.handle_timeout(now + Duration::from_secs(1));
            while link.window.again(now).is_some() {}
            prop_assert!(link.frames.next() == sent && link.window.in_flight() <= sent as usize);
        }
    }
}
