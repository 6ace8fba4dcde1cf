//! The window of a link, by the rules of TCP (src: RFC 5681 s3): frames that may be on their way from one neighbour
//! to another, and the lost ones.
//!
//! Losses are found as with SACK (src: RFC 6675 s5) or, where frames come late, by a learnt time (src: RFC 8985
//! s6.2). The retry timer is that of TCP (src: RFC 6298).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, Time};

use crate::congestion::common::lateness::{Lateness, bound};
use crate::fields::Fields;

/// Frames on their way at most, and frames that wait for one before them.
pub(super) const WINDOW_MAX: usize = 2048;
/// With how many it begins (src: RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// So many later frames have come: this one is lost.
const LATER: u32 = 3;
/// Bounds of the retransmission timeout. Its least is not TCP's second, since what waits for a frame is a whole tree.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);
const TIMEOUT_FIRST: Duration = Duration::from_millis(500);
const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// A frame that has not got through for so long is not sent again, and what waits for it not held up any longer.
pub(super) const GIVE_UP: Duration = Duration::from_secs(4);
/// Longest wait of an acknowledgement for another frame, on a link of two: 2 ms.
pub(super) const ACK_DELAY: Duration = Duration::from_millis(2);
/// Frames after the first that is missing of which an acknowledgement says whether they came.
pub(super) const MASK_BITS: u32 = WINDOW_MAX as u32;
const MASK_WORDS: usize = WINDOW_MAX / 64;

/// Acknowledgement: all frames before `next` have come, and these after it.
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

    /// All before this one have come.
    pub(super) const fn before(next: u32) -> Self {
        Self { next, mask: [0; MASK_WORDS] }
    }

    /// This one has come too.
    pub(super) const fn add(&mut self, seq: u32) {
        let after = seq.wrapping_sub(self.next).wrapping_sub(1);
        if after < MASK_BITS {
            self.mask[after as usize / 64] |= 1 << (after % 64);
        }
    }

    fn has(&self, seq: u32) -> bool {
        let after = seq.wrapping_sub(self.next).wrapping_sub(1);
        after < MASK_BITS && self.mask[after as usize / 64] >> (after % 64) & 1 == 1
    }
}

/// State of a sent frame.
#[derive(Clone, Copy, Debug)]
struct Sent {
    first_at: Time,
    sent_at: Time,
    /// Time at which the frame was first missing among later ones that had arrived.
    missed: Option<Time>,
    again: bool,
    lost: bool,
    arrived: bool,
}

/// The frames that were sent to one neighbour and have not all arrived, by their numbers.
#[derive(Debug)]
pub(super) struct Window {
    sent: VecDeque<Sent>,
    /// The number of the first of them.
    first: u32,
    in_flight: usize,
    /// Number of lost frames that were not sent again.
    lost: usize,
    size: f64,
    threshold: f64,
    /// Losses before this number belong to a cut that has been made.
    recover: u32,
    /// Until all before that have arrived the window stays as it is.
    recovers: bool,
    round_trip: Option<(Duration, Duration)>,
    timeout: Duration,
    timeout_at: Option<Time>,
    lateness: Lateness,
    /// The window and its threshold before the last cut, and frames that it was made for and that have not come.
    undo: Option<(f64, f64, u32)>,
}

impl Window {
    /// One in which nothing was sent. The first frame has this number.
    pub(super) fn new(first: u32) -> Self {
        Self {
            sent: VecDeque::new(),
            first,
            in_flight: 0,
            lost: 0,
            size: WINDOW_FIRST,
            threshold: WINDOW_MAX as f64,
            recover: first,
            recovers: false,
            round_trip: None,
            timeout: TIMEOUT_FIRST,
            timeout_at: None,
            lateness: Lateness::default(),
            undo: None,
        }
    }

    /// The number of the oldest that has not arrived, or of the next where all have.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// Whether far too much is on its way.
    pub(super) fn is_full(&self) -> bool {
        self.sent.len() >= WINDOW_MAX
    }

    /// Frames on their way.
    #[cfg(test)]
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether something has not arrived.
    pub(super) fn waits(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether the network bears another frame.
    pub(super) fn has_room(&self) -> bool {
        (self.in_flight as f64) < self.size && !self.is_full()
    }

    /// Most frames on their way.
    pub(super) const fn size(&self) -> f64 {
        self.size
    }

    /// The round trip, smoothed; nothing before the first is known.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.map(|(smoothed, _)| smoothed)
    }

    /// A frame is sent. Returns its number, or nothing where far too much is on its way.
    pub(super) fn send(&mut self, now: Time) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let seq = self.first.wrapping_add(self.sent.len() as u32);
        let (first_at, sent_at) = (now, now);
        let (missed, again, lost, arrived) = (None, false, false, false);
        self.sent.push_back(Sent { first_at, sent_at, missed, again, lost, arrived });
        self.in_flight += 1;
        self.timeout_at.get_or_insert(now + self.timeout);
        Some(seq)
    }

    /// An acknowledgement has come. Returns whether something has arrived that was sent once.
    ///
    /// # Errors
    /// It is of what was never sent.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<bool, BadInput> {
        let before = ack.next.wrapping_sub(self.first);
        if before as usize > self.sent.len() {
            // Old ones are behind: that is far ahead here.
            return if before > u32::MAX / 2 { Ok(false) } else { Err(BadInput::Absurd) };
        }
        let was_full = self.in_flight as f64 + 1.0 >= self.size / 2.0;
        let (mut came, mut sample, mut highest) = (0, None, None);
        let round_trip = self.round_trip();
        let mut late = 0;
        // Mostly nothing is missing.
        let told = if ack.mask == [0; MASK_WORDS] { before } else { before + MASK_BITS + 1 };
        for (place, sent) in self.sent.iter_mut().enumerate().take(told as usize) {
            let seq = self.first.wrapping_add(place as u32);
            if (place as u32) < before || ack.has(seq) {
                highest = Some(seq);
                if !sent.arrived {
                    sent.arrived = true;
                    if let Some(missed) = sent.missed {
                        // Within half a round trip of its retransmission comes the original (src: RFC 3522).
                        let soon = round_trip.is_some_and(|it| now.since(sent.sent_at) < it / 2);
                        if !sent.again || soon {
                            self.lateness.came(now.since(missed), bound(round_trip));
                            late += u32::from(sent.again || sent.lost);
                        }
                    }
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
        self.take_back(late);
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
                self.size += if self.size < self.threshold { came } else { came / self.size };
                self.size = self.size.min(WINDOW_MAX as f64);
            }
        }
        Ok(sample.is_some())
    }

    /// Those are lost after which enough others have arrived; `highest` is the place of the last that has.
    fn find_losses(&mut self, now: Time, highest: u32) {
        let retry_after = self.round_trip.map_or(TIMEOUT_FIRST, |(mean, vary)| mean + vary * 2);
        let tolerance = self.lateness.tolerance(bound(self.round_trip()));
        let (mut newest, mut lost) = (None, 0);
        for place in 0..highest {
            let sent = &mut self.sent[place as usize];
            if sent.arrived || sent.lost {
                continue;
            }
            let missed = *sent.missed.get_or_insert(now);
            let by_later = place + LATER <= highest;
            let is_lost = match tolerance {
                _ if sent.again => by_later && now.since(sent.sent_at) > retry_after,
                Some(tolerance) => missed + tolerance <= now,
                None => by_later,
            };
            if is_lost {
                sent.lost = true;
                self.in_flight -= 1;
                self.lost += 1;
                lost += 1;
                newest = Some(self.first.wrapping_add(place));
            }
        }
        if lost > 0 {
            self.lateness.lost(now);
        }
        if let Some((.., alleged)) = &mut self.undo {
            *alleged += lost;
        }
        if let Some(newest) = newest
            && newest.wrapping_sub(self.recover).cast_signed() >= 0
        {
            self.undo = Some((self.size, self.threshold, lost));
            self.cut();
            (self.size, self.recovers) = (self.threshold, true);
        }
    }

    /// Notes that `late` frames which counted as lost have come. A cut for late frames alone is undone.
    fn take_back(&mut self, late: u32) {
        let Some((size, threshold, alleged)) = &mut self.undo else { return };
        *alleged = alleged.saturating_sub(late);
        if *alleged == 0 && late > 0 {
            (self.size, self.threshold) = (self.size.max(*size), self.threshold.max(*threshold));
            self.recovers = false;
            self.undo = None;
        }
    }

    fn cut(&mut self) {
        self.threshold = (self.size / 2.0).max(2.0);
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
    pub(super) fn again(&mut self, now: Time) -> Option<u32> {
        if self.lost == 0 || self.in_flight as f64 >= self.size {
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

    /// Whether it was lost once at least, and is not known to have arrived.
    pub(super) fn has_lost(&self, seq: u32) -> bool {
        let sent = self.place(seq).map(|place| self.sent[place]);
        sent.is_some_and(|sent| !sent.arrived && (sent.lost || sent.again))
    }

    fn place(&self, seq: u32) -> Option<usize> {
        let place = seq.wrapping_sub(self.first) as usize;
        (place < self.sent.len()).then_some(place)
    }

    /// Notes that a frame is sent again, since others lack it.
    pub(super) fn sends_again(&mut self, now: Time, seq: u32) {
        let Some(place) = self.place(seq).filter(|place| !self.sent[*place].arrived) else {
            return;
        };
        let sent = &mut self.sent[place];
        self.in_flight += usize::from(sent.lost);
        self.lost -= usize::from(sent.lost);
        (sent.lost, sent.again, sent.sent_at) = (false, true, now);
    }

    /// Takes the passing of time.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.timeout_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let is_over = |it: &Sent| it.arrived || now.since(it.first_at) >= GIVE_UP;
        while self.sent.front().is_some_and(is_over) {
            self.sent.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        (self.in_flight, self.lost) = (0, 0);
        if !self.sent.is_empty() {
            self.cut();
            self.undo = None;
            (self.size, self.recovers) = (1.0, false);
            self.sent.iter_mut().for_each(|sent| sent.lost = !sent.arrived);
            self.lost = self.sent.iter().filter(|sent| sent.lost).count();
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
            self.timeout_at = Some(now + self.timeout);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.timeout_at
    }
}
