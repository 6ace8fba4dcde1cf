//! The link between two neighbours: frames arrive in order and whole though the network loses some, and no more are on their
//! way than it bears beside others, by the rules of TCP (src: RFC 5681 s3). What is lost it finds as with SACK (src: RFC 6675 s5), and its retry timer is that of
//! TCP (src: RFC 6298).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, NodeId, Time};

use super::frame::{Frame, FrameKind};
use super::guard::Guard;
use crate::Destination;
use crate::credit::CAPSULE_BYTES;
use crate::fields::Fields;

/// Frames on their way at most, and frames that wait for one before them.
const WINDOW_MAX: usize = 2048;
/// Bytes of those that wait: with packets of the usual size as many as there may be.
const HELD_BYTES_MAX: usize = WINDOW_MAX * 1500;
/// With how many it begins (src: RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// So many later frames have come: this one is lost.
const LATER: u32 = 3;
/// Bounds of the retransmission timeout. Its least is not TCP's second, since what waits for a frame is a whole tree.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);
const TIMEOUT_FIRST: Duration = Duration::from_millis(500);
const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// A frame that has not got through for so long is not sent again, and what waits for it not held up any longer.
const GIVE_UP: Duration = Duration::from_secs(4);
/// How long an acknowledgement may wait for another frame, and after how many it is sent at once.
const ACK_DELAY: Duration = Duration::from_millis(2);
const ACK_EVERY: u32 = 4;
/// Frames after the first that is missing of which an acknowledgement says whether they came.
const MASK_BITS: u32 = WINDOW_MAX as u32;
const MASK_WORDS: usize = WINDOW_MAX / 64;

/// What a frame on a link carries, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopPacket {
    /// Relays that may still pass it on.
    pub hops: u8,
    /// The group.
    pub group: u64,
    /// Who sent it.
    pub origin: NodeId,
    /// To whom.
    pub to: Destination,
    /// The packet, which all links that bring it share.
    pub body: Arc<[u8]>,
}

/// Bytes in the place of as many at the beginning of a packet: on each link it has counts of its own.
#[derive(Clone, Copy, Debug)]
struct Begun {
    bytes: [u8; CAPSULE_BYTES],
    len: u8,
}

/// A frame that is on its way.
#[derive(Debug)]
struct Sent {
    parcel: HopPacket,
    begun: Begun,
    first_at: Time,
    sent_at: Time,
    again: bool,
    lost: bool,
    arrived: bool,
}

/// What an acknowledgement says: all frames before `next` have come, and these after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) next: u32,
    pub(super) mask: [u64; MASK_WORDS],
}

impl Ack {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.next.to_be_bytes());
        // Mostly nothing is missing.
        let used = self.mask.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.mask[..used].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let next = fields.u32()?;
        let mut mask = [0; MASK_WORDS];
        if fields.0.len() > MASK_WORDS * 8 {
            return None;
        }
        for word in mask.iter_mut().take(fields.0.len().div_ceil(8)) {
            *word = fields.u64()?;
        }
        Some(Self { next, mask })
    }

    fn has(&self, seq: u32) -> bool {
        let after = seq.wrapping_sub(self.next).wrapping_sub(1);
        after < MASK_BITS && self.mask[after as usize / 64] >> (after % 64) & 1 == 1
    }
}

/// One end of a link.
#[derive(Debug)]
pub struct HopLink {
    /// By which both ends know that it is the same.
    id: u16,
    // What is sent.
    sent: VecDeque<Sent>,
    /// The number of the first of them.
    first: u32,
    in_flight: usize,
    /// Those of them that are lost, and were not sent again.
    lost: usize,
    window: f64,
    threshold: f64,
    /// Losses before this number belong to a cut that has been made.
    recover: u32,
    /// Until all before that have arrived the window stays as it is.
    recovers: bool,
    round_trip: Option<(Duration, Duration)>,
    timeout: Duration,
    timeout_at: Option<Time>,
    // What comes.
    expected: u32,
    /// What was expected, where nothing is held that came before it.
    next: Option<HopPacket>,
    held: BTreeMap<u32, HopPacket>,
    held_bytes: usize,
    gap_at: Option<Time>,
    unacknowledged: u32,
    ack_at: Option<Time>,
}

impl HopLink {
    /// A link on which nothing was sent.
    pub fn new(id: u16) -> Self {
        Self {
            id,
            sent: VecDeque::new(),
            first: 0,
            in_flight: 0,
            lost: 0,
            window: WINDOW_FIRST,
            threshold: WINDOW_MAX as f64,
            recover: 0,
            recovers: false,
            round_trip: None,
            timeout: TIMEOUT_FIRST,
            timeout_at: None,
            expected: 0,
            next: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            gap_at: None,
            unacknowledged: 0,
            ack_at: None,
        }
    }

    /// Its number.
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Whether the network bears another frame.
    pub fn has_room(&self) -> bool {
        (self.in_flight as f64) < self.window && self.sent.len() < WINDOW_MAX
    }

    /// Frames that may be on their way, in frames.
    pub const fn window(&self) -> f64 {
        self.window
    }

    /// The round trip, smoothed; nothing before the first is known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.map(|(smoothed, _)| smoothed)
    }

    /// Sends something. Returns its number, or nothing where far too much is on its way.
    pub fn send(&mut self, now: Time, parcel: HopPacket) -> Option<u32> {
        self.send_begun(now, parcel, &[])
    }

    /// The same, with `begun` in the place of as many bytes at its beginning.
    pub(super) fn send_begun(
        &mut self,
        now: Time,
        mut parcel: HopPacket,
        begun: &[u8],
    ) -> Option<u32> {
        if self.sent.len() >= WINDOW_MAX {
            return None;
        }
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
        let begun = Begun { bytes, len };
        let seq = self.first.wrapping_add(self.sent.len() as u32);
        let (again, lost, arrived) = (false, false, false);
        self.sent.push_back(Sent {
            parcel,
            begun,
            first_at: now,
            sent_at: now,
            again,
            lost,
            arrived,
        });
        self.in_flight += 1;
        self.timeout_at.get_or_insert(now + self.timeout);
        Some(seq)
    }

    /// What was sent under this number.
    fn sent(&self, seq: u32) -> Option<&Sent> {
        self.sent.get(seq.wrapping_sub(self.first) as usize)
    }

    /// An acknowledgement has come.
    ///
    /// # Errors
    /// It is of what was never sent.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<(), BadInput> {
        let before = ack.next.wrapping_sub(self.first);
        if before as usize > self.sent.len() {
            // Old ones are behind: that is far ahead here.
            return if before > u32::MAX / 2 { Ok(()) } else { Err(BadInput::Absurd) };
        }
        let was_full = self.in_flight as f64 + 1.0 >= self.window / 2.0;
        let (mut came, mut sample, mut highest) = (0, None, None);
        // Mostly nothing is missing.
        let told = if ack.mask == [0; MASK_WORDS] { before } else { before + MASK_BITS + 1 };
        for (place, sent) in self.sent.iter_mut().enumerate().take(told as usize) {
            let seq = self.first.wrapping_add(place as u32);
            if (place as u32) < before || ack.has(seq) {
                highest = Some(seq);
                if !sent.arrived {
                    sent.arrived = true;
                    came += 1;
                    self.in_flight -= usize::from(!sent.lost);
                    self.lost -= usize::from(sent.lost);
                    sent.lost = false;
                    sample = Some(now.since(sent.sent_at)).filter(|_| !sent.again).or(sample);
                }
            }
        }
        if let Some(sample) = sample {
            self.measure(sample);
        }
        while self.sent.front().is_some_and(|sent| sent.arrived) {
            self.sent.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.recovers &= self.recover.wrapping_sub(self.first).cast_signed() > 0;
        let highest = highest.map_or(0, |seq| seq.wrapping_sub(self.first));
        // Where all up to there has arrived it lies behind.
        self.find_losses(now, if highest as usize > self.sent.len() { 0 } else { highest });
        if came > 0 {
            self.timeout_at = (!self.sent.is_empty()).then_some(now + self.timeout);
            if was_full && !self.recovers {
                let came = f64::from(came);
                self.window += if self.window < self.threshold { came } else { came / self.window };
                self.window = self.window.min(WINDOW_MAX as f64);
            }
        }
        Ok(())
    }

    /// Those are lost after which enough others have arrived; `highest` is the place of the last that has.
    fn find_losses(&mut self, now: Time, highest: u32) {
        let retry_after = self.round_trip.map_or(TIMEOUT_FIRST, |(mean, vary)| mean + vary * 2);
        let mut newest = None;
        for place in 0..highest.saturating_sub(LATER - 1) {
            let sent = &mut self.sent[place as usize];
            let is_old = !sent.again || now.since(sent.sent_at) > retry_after;
            if !sent.arrived && !sent.lost && is_old {
                sent.lost = true;
                self.in_flight -= 1;
                self.lost += 1;
                newest = Some(self.first.wrapping_add(place));
            }
        }
        if let Some(newest) = newest
            && newest.wrapping_sub(self.recover).cast_signed() >= 0
        {
            self.cut();
            (self.window, self.recovers) = (self.threshold, true);
        }
    }

    fn cut(&mut self) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.recover = self.first.wrapping_add(self.sent.len() as u32);
    }

    fn measure(&mut self, sample: Duration) {
        let (mean, vary) = match self.round_trip {
            None => (sample, sample / 2),
            Some((mean, vary)) => {
                let off = sample.saturating_sub(mean) + mean.saturating_sub(sample);
                ((mean * 7 + sample) / 8, (vary * 3 + off) / 4)
            }
        };
        self.round_trip = Some((mean, vary));
        self.timeout = (mean + vary * 4 + ACK_DELAY).clamp(TIMEOUT_MIN, TIMEOUT_MAX);
    }

    /// The number of a frame that is to be sent again now.
    fn again(&mut self, now: Time) -> Option<u32> {
        if self.lost == 0 || self.in_flight as f64 >= self.window {
            return None;
        }
        let place = self.sent.iter().position(|sent| sent.lost)?;
        let sent = &mut self.sent[place];
        (sent.lost, sent.again, sent.sent_at) = (false, true, now);
        self.in_flight += 1;
        self.lost -= 1;
        self.timeout_at.get_or_insert(now + self.timeout);
        Some(self.first.wrapping_add(place as u32))
    }

    /// Something has come under this number. Returns whether it is news; [`take`](Self::take) gives what is in order.
    fn on_parcel(&mut self, now: Time, seq: u32, parcel: HopPacket) -> bool {
        let ahead = seq.wrapping_sub(self.expected);
        // Mostly it comes in order.
        let in_order = ahead == 0 && self.held.is_empty() && self.next.is_none();
        let fits = ahead == 0 || self.held_bytes + parcel.body.len() <= HELD_BYTES_MAX;
        let is_here = self.held.contains_key(&seq) || ahead == 0 && self.next.is_some();
        let is_new = (ahead as usize) < WINDOW_MAX && fits && !is_here;
        self.unacknowledged += 1;
        let at_once = !is_new || ahead > 0 || self.gap_at.is_some();
        if at_once || self.unacknowledged >= ACK_EVERY {
            self.ack_at = Some(now);
        } else {
            self.ack_at.get_or_insert(now + ACK_DELAY);
        }
        if in_order {
            self.next = Some(parcel);
        } else if is_new {
            self.held_bytes += parcel.body.len();
            self.held.insert(seq, parcel);
            if ahead > 0 {
                self.gap_at.get_or_insert(now + GIVE_UP);
            }
        }
        is_new
    }

    /// The next thing in order.
    pub fn take(&mut self) -> Option<HopPacket> {
        if let Some(parcel) = self.next.take() {
            self.expected = self.expected.wrapping_add(1);
            return Some(parcel);
        }
        let parcel = self.held.remove(&self.expected)?;
        self.held_bytes -= parcel.body.len();
        self.expected = self.expected.wrapping_add(1);
        if self.held.is_empty() {
            self.gap_at = None;
        }
        Some(parcel)
    }

    /// Takes the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            while self.sent.front().is_some_and(|it| now.since(it.first_at) >= GIVE_UP) {
                self.sent.pop_front();
                self.first = self.first.wrapping_add(1);
            }
            (self.in_flight, self.lost) = (0, 0);
            if !self.sent.is_empty() {
                self.cut();
                (self.window, self.recovers) = (1.0, false);
                self.sent.iter_mut().for_each(|sent| sent.lost = !sent.arrived);
                self.lost = self.sent.iter().filter(|sent| sent.lost).count();
                self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
                self.timeout_at = Some(now + self.timeout);
            }
        }
        if self.gap_at.is_some_and(|at| at <= now) {
            // Whoever sent it has given it up.
            let after = |seq: &&u32| seq.wrapping_sub(self.expected);
            self.expected = self.held.keys().min_by_key(after).copied().unwrap_or(self.expected);
            self.gap_at = Some(now + GIVE_UP);
        }
    }

    /// The acknowledgement that is due.
    fn poll_ack(&mut self, now: Time) -> Option<Ack> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.unacknowledged = 0;
        let mut mask = [0; MASK_WORDS];
        for seq in self.held.keys() {
            let after = seq.wrapping_sub(self.expected).wrapping_sub(1);
            if after < MASK_BITS {
                mask[after as usize / 64] |= 1 << (after % 64);
            }
        }
        Some(Ack { next: self.expected, mask })
    }

    /// Writes the frame of this number.
    pub fn write(&self, seq: u32, guard: &mut Guard, out: &mut Vec<u8>) {
        if let Some(Sent { parcel, begun, .. }) = self.sent(seq) {
            let (kind, link) = (FrameKind::Data, (self.id, seq));
            let HopPacket { hops, group, origin, to, body } = parcel;
            let (begun, rest) = (&begun.bytes[..begun.len.into()], &body[begun.len.into()..]);
            let frame = Frame::control(kind, *group, begun);
            let frame = Frame { hops: *hops, link, origin: *origin, to: *to, ..frame };
            guard.write(&frame, out, |out| out.extend_from_slice(rest));
        }
    }

    /// Writes the frame that is due: something that is sent again, or an acknowledgement.
    pub fn poll(&mut self, now: Time, guard: &mut Guard, out: &mut Vec<u8>) -> bool {
        if let Some(seq) = self.again(now) {
            self.write(seq, guard, out);
            return true;
        }
        let Some(ack) = self.poll_ack(now) else { return false };
        let frame = Frame { link: (self.id, 0), ..Frame::control(FrameKind::Ack, 0, &[]) };
        guard.write(&frame, out, |out| ack.encode(out));
        true
    }

    /// Takes a frame with data. Returns whether it is news; [`take`](Self::take) gives what is in order.
    pub fn on_frame(&mut self, now: Time, frame: &Frame<'_>) -> bool {
        let Frame { hops, group, origin, to, .. } = *frame;
        let parcel = HopPacket { hops, group, origin, to, body: frame.body.into() };
        self.on_parcel(now, frame.link.1, parcel)
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll`](Self::poll) have something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.timeout_at, self.gap_at, self.ack_at].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::GroupId;
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
                let seq = link.again(now).or_else(|| {
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
                    way.push_back((at, seq, link.sent(seq).unwrap().parcel.clone()));
                }
            }
            while way.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, seq, parcel) = way.pop_front().unwrap();
                other.on_parcel(now, seq, parcel);
                while let Some(parcel) = other.take() {
                    got.push(u32::from_be_bytes((&*parcel.body).try_into().unwrap()));
                }
            }
            other.handle_timeout(now);
            if let Some(ack) = other.poll_ack(now)
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
            let mut mask = [0; MASK_WORDS];
            mask[..4].copy_from_slice(&words);
            let _ = link.on_ack(now, &Ack { next, mask });
            link.handle_timeout(now + Duration::from_secs(1));
            while link.again(now).is_some() {}
            prop_assert!(link.sent.len() <= sent as usize);
        }
    }
}
