//! Acknowledgements at pgmcc's sender: window and stall timer, round trips, loss detection from
//! bitmaps, and the response, reverted for late packets as TCP's by Eifel and RACK (src: RFC 4015;
//! RFC 8985 s7.4).

use faircast_base::{BadInput, Checked, CutReason, Cx, Duration, NodeId, Seq, SwitchReason, Time};

use super::election::RttSample;
use super::{FALSE_REPORT_EXCLUSION, PgmccSender};
use crate::congestion::common::lateness::{Lateness, bound};
use crate::congestion::common::stamp::{RTT_MAX, elapsed, milliseconds};
use crate::congestion::pgmcc::PgmccReport;
use crate::congestion::pgmcc::config::{BitmapScope, Profile, TimeoutMode};
use crate::congestion::pgmcc::ledger::{Fate, SentRecord};
use crate::congestion::pgmcc::window::Window;
use crate::congestion::{AckVector, Carrier};

impl PgmccSender {
    pub(super) fn on_ack(&mut self, cx: &mut Cx<'_>, from: NodeId, vector: AckVector) {
        let is_acker = self.election.acker_id() == Some(from);
        if !is_acker && self.config.profile == Profile::Draft {
            return; // src: pgmcc-draft s3: a former acker's counts only for the election.
        }
        // The window stands still while the application, or rate_max, does not fill it.
        let idle_room = self.is_app_limited && self.room() >= 1.0;
        let marked = self.mark_received(cx.now, from, is_acker, vector);
        self.spread.acknowledged(cx.now, marked);
        let lost = match self.config.designated_loss {
            true => self.judge_bitmap(cx.now, from, is_acker, vector),
            false => self.judge_by_history(vector),
        };
        if is_acker {
            self.response.on_feedback(vector.highest);
            self.check_honesty(cx, marked, lost.count + lost.unknown);
        }
        let growing = is_acker && lost.count == 0 && !self.response.is_suspended();
        if growing && !(self.config.is_improved() && idle_room) {
            let (before, opening) = (self.window.size, self.window.is_opening());
            self.window.grow(marked);
            if !opening {
                self.spread.together += self.window.size as u32 - before as u32;
            }
        } else {
            self.window.refund(marked);
        }
        let is_open = match self.config.profile {
            // Losses found after the feedback that ends a cut cut again (src: pgmcc-draft s2.2).
            Profile::Draft => lost.count > 0,
            // As TCP SACK: one cut for all packets sent before it (src: seada-helmy s4.1).
            _ => lost.latest.is_some_and(|seq| self.response.is_open(seq)),
        };
        let cuts = is_open && !self.response.is_suspended();
        if let Some(latest) = lost.latest {
            self.note_lost(cx.now, lost.count, latest);
        }
        if cuts {
            self.cut_for(lost.count);
            if self.config.timeout_after_cut {
                // src: ns-2.35 tcp/tcp-reno.cc: the new value is still backed off.
                self.arm_stall(cx.now);
            }
        }
        if lost.count > 0 && self.window.realign(self.ledger.flight) || cuts {
            self.trace_cut(cx, CutReason::Loss);
        }
        if is_acker {
            self.stall.expiries = 0;
        }
        if is_acker || marked > 0 {
            self.restart_stall(cx.now, vector, marked);
        }
    }

    fn mark_received(&mut self, now: Time, from: NodeId, is_acker: bool, vector: AckVector) -> u32 {
        let all = is_acker && self.config.bitmap_scope == BitmapScope::All;
        let mut marked = 0;
        let reaches = |lost: Seq| vector.highest.distance(lost) < 32;
        let shows_late = self.config.is_improved() && self.late.latest_lost.is_some_and(reaches);
        let unsettled = self.ledger.unsettled;
        for offset in (0..32).filter(|offset| vector.bitmap >> offset & 1 == 1) {
            let seq = vector.highest - offset;
            let joined = self.election.acker.as_ref().and_then(|acker| acker.joined);
            let known = joined.is_some_and(|joined| !seq.before(joined));
            if seq.before(unsettled) && known && !shows_late {
                continue;
            }
            let Some(&sent) = self.ledger.get(seq) else { continue };
            // Election calls belong to the receiver that answered.
            if all || sent.acker == Some(from) || is_acker && sent.acker.is_none() {
                // Another acker may have received the last one's losses.
                let lacked = sent.missed.is_some_and(|(_, by)| by == from);
                if lacked && self.config.is_improved() {
                    self.note_late(now, seq);
                }
                marked += u32::from(self.ledger.settle(seq, Fate::Acked));
            }
            if is_acker && let Some(acker) = &mut self.election.acker {
                let joined = acker.joined.unwrap_or(seq);
                acker.joined = Some(if seq.before(joined) { seq } else { joined });
            }
        }
        marked
    }

    fn restart_stall(&mut self, now: Time, vector: AckVector, marked: u32) {
        let restarts = match self.config.timeout_mode {
            TimeoutMode::Fixed => true,
            TimeoutMode::Tcp => marked > 0,
            // src: seada-helmy s4.1: only if the bitmap is complete. A repair fills the last hole.
            TimeoutMode::Reno => self.first_hole(vector).is_none(),
            TimeoutMode::Cumulative => {
                let first_hole = self.first_hole(vector).unwrap_or(vector.highest.next());
                self.stall.advances(first_hole)
            }
        };
        if restarts {
            self.stall.doublings = 0;
            self.stall.armed = None;
            if self.ledger.flight > 0 || self.room() < 1.0 {
                self.arm_stall(now);
            }
        }
    }

    fn first_hole(&self, vector: AckVector) -> Option<Seq> {
        let joined = self.election.acker.as_ref().and_then(|acker| acker.joined)?;
        (0..32).rev().map(|offset| (offset, vector.highest - offset)).find_map(|(offset, seq)| {
            let missing = vector.bitmap >> offset & 1 == 0;
            let expected = !seq.before(joined) && self.ledger.get(seq).is_some();
            (missing && expected).then_some(seq)
        })
    }

    fn check_honesty(&mut self, cx: &mut Cx<'_>, received: u32, lost: u32) {
        let Some(acker) = &mut self.election.acker else { return };
        acker.honesty.saw(cx.now, received, lost);
        if self.config.is_improved() && acker.honesty.is_exposed() {
            let id = acker.id;
            self.election.blacklist.add(id, cx.now + FALSE_REPORT_EXCLUSION);
            self.drop_acker(cx, SwitchReason::Lied);
        }
    }
}

const CLOCK_TOLERANCE_MS: i32 = 1;

impl PgmccSender {
    /// Returns the round trip of a report, if it has one; `Err` for an absurd echo.
    pub(super) fn measure(
        &self,
        now: Time,
        carrier: Carrier,
        report: &PgmccReport,
    ) -> Result<Option<RttSample>, ()> {
        let coarse = echoed_round_trip(now, report).ok_or(())?;
        let vector = match carrier {
            Carrier::Ack(vector) => vector,
            Carrier::Nak { first: named } | Carrier::NullNak { latest: named } => {
                let time = self.at_most_since(now, named, coarse);
                let packets = self.ledger.sent_after(now - time) + 1;
                return Ok(Some(RttSample { time, packets }));
            }
        };
        // The sender's record is finer than milliseconds; the echo exceeds it by the holding time.
        let Some(sent) = self.ledger.get(vector.highest) else { return Ok(None) };
        let held_ms = report.echo_ms.wrapping_sub(milliseconds(sent.at)) as i32;
        if held_ms < 0 {
            return Ok(None);
        }
        let held = Duration::from_millis(held_ms as u64);
        let time = now.since(sent.at).saturating_sub(held);
        let packets = self.ledger.next().distance(vector.highest).max(1) as u32;
        Ok(Some(RttSample { time, packets }))
    }

    /// Limits an echoed round trip to the time since packet `named` left, against forged packets.
    fn at_most_since(&self, now: Time, named: Seq, echoed: Duration) -> Duration {
        let Some(sent) = self.ledger.get(named) else { return echoed };
        let longest = now.since(sent.at);
        let tolerance = Duration::from_millis(CLOCK_TOLERANCE_MS as u64);
        if echoed <= longest + tolerance { echoed } else { longest }
    }

    pub(super) fn check_reach(&self, carrier: Carrier) -> Checked {
        let seq = match carrier {
            Carrier::Ack(vector) => vector.highest,
            Carrier::Nak { first: seq } | Carrier::NullNak { latest: seq } => seq,
        };
        if self.ledger.entries.is_empty() || !seq.before(self.ledger.next()) {
            return Err(BadInput::Absurd);
        }
        // Repairs are available as long as the endpoint keeps them, but acknowledgements expire.
        if matches!(carrier, Carrier::Ack(_)) && seq.before(self.ledger.base) {
            return Err(BadInput::OutOfWindow);
        }
        Ok(())
    }
}

pub(super) fn echoed_round_trip(now: Time, report: &PgmccReport) -> Option<Duration> {
    let max_ms = RTT_MAX.as_millis() as u32;
    let elapsed_ms = elapsed(milliseconds(now), report.echo_ms, CLOCK_TOLERANCE_MS, max_ms)?;
    Some(Duration::from_millis(u64::from(elapsed_ms)).min(now.since(Time::ZERO)))
}

const BITMAP_LEN: i32 = 32;

/// Later packets after which a missing one counts as lost (src: pgmcc-draft s2.2).
const LOSS_THRESHOLD: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    count: u32,
    unknown: u32,
    latest: Option<Seq>,
}

impl Lost {
    fn add(&mut self, seq: Seq) {
        (self.count, self.latest) = (self.count + 1, Some(seq));
    }
}

impl PgmccSender {
    fn judge_bitmap(&mut self, now: Time, from: NodeId, is_acker: bool, vector: AckVector) -> Lost {
        let tolerance = self.tolerance().filter(|_| self.config.is_improved());
        let rtt = self.election.rtt(from).unwrap_or_default();
        let mut lost = Lost::default();
        let mut seq = self.ledger.unsettled;
        while seq.before(vector.highest) {
            let distance = vector.highest.distance(seq);
            let sent = self.ledger.get(seq).filter(|sent| sent.fate == Fate::InFlight);
            // The packet named the receiver, or must have come to it.
            let counts = |sent: &&SentRecord| {
                sent.acker == Some(from) || is_acker && now.since(sent.at) >= rtt
            };
            if let Some(sent) = sent.filter(counts) {
                let missed = sent.missed.map(|(at, _)| at);
                if let Some((missed, tolerance)) = missed.zip(tolerance) {
                    // An earlier bitmap lacked the packet, and no later one has shown it.
                    if missed + tolerance <= now {
                        self.ledger.settle(seq, Fate::Lost);
                        lost.add(seq);
                    }
                } else if distance >= BITMAP_LEN {
                    // Beyond the bitmap, its acknowledgements were lost: unknown, not lost.
                    if self.ledger.settle(seq, Fate::Released) {
                        self.window.refund(1);
                        lost.unknown += 1;
                    }
                } else if vector.bitmap >> distance & 1 == 0 {
                    if let Some(sent) = self.ledger.get_mut(seq) {
                        sent.missed.get_or_insert((now, from));
                    }
                    let later = vector.bitmap & ((1u32 << distance) - 1);
                    if tolerance.is_none() && later.count_ones() >= LOSS_THRESHOLD {
                        self.ledger.settle(seq, Fate::Lost);
                        lost.add(seq);
                    }
                }
            }
            seq = seq.next();
        }
        lost
    }

    /// Judges by acknowledgements of all receivers or of the acker (src: seada-helmy s4.4).
    fn judge_by_history(&mut self, vector: AckVector) -> Lost {
        let mut lost = Lost::default();
        let limit = self.ledger.below_acked(vector.highest, LOSS_THRESHOLD);
        let mut seq = self.ledger.unsettled;
        while seq.before(limit) {
            let seen = vector.highest.distance(seq) < BITMAP_LEN
                || self.config.bitmap_scope == BitmapScope::Own;
            let fate = if seen { Fate::Lost } else { Fate::Released };
            if self.ledger.settle(seq, fate) && seen {
                lost.add(seq);
            }
            seq = seq.next();
        }
        lost
    }
}

#[derive(Debug, Default)]
pub(super) struct Late {
    lateness: Lateness,
    pub(super) latest_lost: Option<Seq>,
    pub(super) cut: Option<Undo>,
}

#[derive(Debug)]
pub(super) struct Undo {
    window: Window,
    answered_end: Option<Seq>,
    end: Seq,
    lost: u32,
}

/// Response to losses: at most one cut of the window for the losses of a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossResponse {
    /// Packet whose feedback ends the suspension of W (src: pgmcc-draft s2.2).
    pub(super) suspended_until: Option<Seq>,
    /// End of the packets whose losses are answered: they cut no more.
    pub(super) answered_end: Option<Seq>,
}

impl LossResponse {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended_until.is_some()
    }

    /// Suspends W until feedback for `next`, the next packet to send, and answers earlier losses.
    pub(super) fn suspend(&mut self, next: Seq) {
        (self.suspended_until, self.answered_end) = (Some(next), Some(next));
    }

    /// Ends the suspension if the acker's bitmap reaches up to its packet.
    pub(super) fn on_feedback(&mut self, rx_max: Seq) {
        self.suspended_until.take_if(|until| !rx_max.before(*until));
    }

    pub(super) fn is_open(&self, seq: Seq) -> bool {
        self.answered_end.is_none_or(|end| !seq.before(end))
    }
}

impl PgmccSender {
    pub(super) fn tolerance(&self) -> Option<Duration> {
        self.late.lateness.tolerance(bound(self.stall.rtt.srtt()))
    }

    pub(super) fn note_lost(&mut self, now: Time, count: u32, latest: Seq) {
        self.late.lateness.lost(now);
        let before = self.late.latest_lost.unwrap_or(latest);
        self.late.latest_lost = Some(before.max(latest));
        if let Some(undo) = &mut self.late.cut {
            undo.lost += count;
        }
    }

    pub(super) fn cut_for(&mut self, lost: u32) {
        let (window, answered_end) = (self.window, self.response.answered_end);
        self.cut();
        let end = self.ledger.next();
        self.late.cut =
            Some(Undo { window, answered_end, end, lost }).filter(|_| self.config.is_improved());
    }

    /// Notes a packet that an earlier bitmap lacked. Reverts the cut once all its packets came.
    pub(super) fn note_late(&mut self, now: Time, seq: Seq) {
        let bound = bound(self.stall.rtt.srtt());
        let Some(sent) = self.ledger.get_mut(seq).filter(|sent| !sent.repaired) else { return };
        let Some((missed, _)) = sent.missed.take() else { return };
        let late = now.since(missed);
        self.late.lateness.came(late, bound);
        if sent.fate != Fate::Lost || late > bound {
            return;
        }
        sent.fate = Fate::Acked;
        let Some(undo) = self.late.cut.as_mut().filter(|undo| seq.before(undo.end)) else { return };
        undo.lost = undo.lost.saturating_sub(1);
        if undo.lost == 0
            && let Some(undo) = self.late.cut.take()
        {
            self.window.undo_cut(&undo.window);
            // No cut is made while another one suspends the window.
            self.response = LossResponse { answered_end: undo.answered_end, suspended_until: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_packets_sent_before_a_cut_are_answered() {
        let mut response = LossResponse::default();
        assert!(!response.is_suspended() && response.is_open(Seq::new(0)));
        response.suspend(Seq::new(10));
        response.on_feedback(Seq::new(9));
        assert!(response.is_suspended());
        response.on_feedback(Seq::new(10));
        assert!(!response.is_suspended());
        assert_eq!([9, 10].map(|seq| response.is_open(Seq::new(seq))), [false, true]);
    }
}
