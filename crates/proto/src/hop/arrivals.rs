//! Frames that come over a link: put in order, and acknowledged.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::Time;

use super::frame::{AckPace, Frame, FrameKind, HopPacket};
use super::guard::Guard;
use super::window::{Ack, GIVE_UP, WINDOW_MAX};

/// Bytes of those that wait: with packets of the usual size as many as there may be.
const HELD_BYTES_MAX: usize = WINDOW_MAX * 1500;

/// The frames of a link that come to one end.
#[derive(Debug)]
pub(super) struct Arrivals {
    link: u16,
    pace: AckPace,
    expected: u32,
    /// What was expected, where nothing is held that came before it.
    next: Option<HopPacket>,
    held: BTreeMap<u32, HopPacket>,
    held_bytes: usize,
    gap_at: Option<Time>,
    unacknowledged: u16,
    ack_at: Option<Time>,
}

impl Arrivals {
    /// Those of a link of which the first that comes has the number `first`.
    pub(super) const fn new(link: u16, first: u32, pace: AckPace) -> Self {
        Self {
            link,
            pace,
            expected: first,
            next: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            gap_at: None,
            unacknowledged: 0,
            ack_at: None,
        }
    }

    /// Whether nothing has come.
    pub(super) fn is_unused(&self) -> bool {
        self.expected == 0 && self.next.is_none() && self.held.is_empty()
    }

    /// Whether all before this one has come, or it is the next.
    pub(super) const fn has_come_to(&self, seq: u32) -> bool {
        self.expected.wrapping_sub(seq).cast_signed() >= 0
    }

    /// The link that they are of.
    pub(super) const fn link(&self) -> u16 {
        self.link
    }

    /// From now on it acknowledges so often.
    pub(super) const fn set_pace(&mut self, pace: AckPace) {
        self.pace = pace;
    }

    /// Takes a frame with data. Returns whether it is news; [`take`](Self::take) gives what is in order.
    pub(super) fn on_frame(&mut self, now: Time, frame: &Frame<'_>) -> bool {
        let Frame { hops, group, origin, to, .. } = *frame;
        let parcel = HopPacket { hops, group, origin, to, body: frame.body.into() };
        self.on_parcel(now, frame.link.1, parcel)
    }

    /// Something has come under this number.
    pub(super) fn on_parcel(&mut self, now: Time, seq: u32, parcel: HopPacket) -> bool {
        let ahead = seq.wrapping_sub(self.expected);
        // Mostly it comes in order.
        let in_order = ahead == 0 && self.held.is_empty() && self.next.is_none();
        let fits = ahead == 0 || self.held_bytes + parcel.body.len() <= HELD_BYTES_MAX;
        let is_here = self.held.contains_key(&seq) || ahead == 0 && self.next.is_some();
        let is_new = (ahead as usize) < WINDOW_MAX && fits && !is_here;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let at_once = !is_new || ahead > 0 || self.gap_at.is_some();
        if at_once || self.unacknowledged >= self.pace.every {
            self.ack_at = Some(now);
        } else {
            self.ack_at.get_or_insert(now + self.pace.within);
        }
        if in_order {
            self.next = Some(parcel);
        } else if is_new {
            self.held_bytes += parcel.body.len();
            self.held.insert(seq, parcel);
            if ahead > 0 {
                self.gap_at.get_or_insert(now + GIVE_UP);
            } else if let Some(gap_at) = &mut self.gap_at {
                // A frame in order shows that nothing was given up: a forged frame from far ahead is no gap.
                *gap_at = now + GIVE_UP;
            }
        }
        is_new
    }

    /// The next thing in order.
    pub(super) fn take(&mut self) -> Option<HopPacket> {
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

    /// Passes by missing frames, which do not come any more.
    fn skip(&mut self) {
        let after = |seq: &&u32| seq.wrapping_sub(self.expected);
        self.expected = self.held.keys().min_by_key(after).copied().unwrap_or(self.expected);
    }

    /// All that has come and was not taken, though something before it is missing.
    pub(super) fn into_rest(mut self) -> impl Iterator<Item = HopPacket> {
        core::iter::from_fn(move || {
            self.take().or_else(|| {
                self.skip();
                self.take()
            })
        })
    }

    /// Takes the passing of time.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.gap_at.is_some_and(|at| at <= now) {
            // The sender has given the frame up.
            self.skip();
            self.gap_at = Some(now + GIVE_UP);
        }
    }

    /// The acknowledgement that is due.
    pub(super) fn poll_ack(&mut self, now: Time) -> Option<Ack> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.unacknowledged = 0;
        let mut ack = Ack::before(self.expected);
        self.held.keys().for_each(|seq| ack.add(*seq));
        Some(ack)
    }

    /// Writes the frame with it.
    pub(super) fn poll(&mut self, now: Time, guard: &mut Guard, out: &mut Vec<u8>) -> bool {
        let Some(ack) = self.poll_ack(now) else { return false };
        let frame = Frame { link: (self.link, 0), ..Frame::control(FrameKind::Ack, 0, &[]) };
        guard.write(&frame, out, |out| ack.encode(out));
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll`](Self::poll) have something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        [self.gap_at, self.ack_at].into_iter().flatten().min()
    }
}
