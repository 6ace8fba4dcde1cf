//! Receiving end of a session: packets, beliefs about the source, and the scheme's reports.

pub(crate) mod dissent;
mod gaps;
mod input;
pub(crate) mod naks;
mod output;
pub(crate) mod reach;
mod scheme;
mod spm;
mod suppression;
mod window;

use alloc::boxed::Box;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, Time, TimeoutKind};

use self::dissent::Dissent;
use self::gaps::Gaps;
pub(crate) use self::gaps::REORDER_DELAY;
pub(crate) use self::input::RepairLayer;
use self::naks::Naks;
use self::reach::Reach;
use self::scheme::ReceiverScheme;
pub use self::spm::SpmOrder;
use self::suppression::LoneNak;
use self::window::Window;
pub(crate) use self::window::start_over;
use crate::LossRecord;
use crate::congestion::BoxFeedback;
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::Negotiation;
use crate::pgm::wire::{Spm, Tsi};
use crate::timers::{Timers, reasons};

/// Receiving end of a session. Packets are identified by their number without wrap (`index`).
/// Fields that every packet needs come first: simulations have thousands of receivers.
#[repr(C)]
pub(crate) struct ReceiverSession<R> {
    pub(crate) phase: ReceiverPhase,
    data_port: u16,
    spm_requests_due: SpmRequests,
    scheme: ReceiverScheme,
    pub(crate) source: Option<Source>,
    extent: Extent,
    gaps: Gaps,
    timers: Timers<Timer, 5>,
    window: Option<Window>,
    /// Numbers that the source can have sent by now; `None` before the first packet is known.
    reach: Option<Reach>,
    doubts: Doubts,
    pub(crate) repair: R,
    lone_nak: LoneNak,
    /// Boxed, since a packet that comes in order needs none of it.
    pub(crate) config: Box<ReceiverConfig>,
}

/// Packets of the session that concern this receiver, and those of them that it never got.
#[derive(Default)]
#[repr(C)]
struct Extent {
    end: Option<u64>,
    begin: u64,
    losses: LossRecord,
    /// True if the receiver was present when the session began, or can get all earlier packets.
    is_from_start: bool,
    given_up: u64,
}

impl Extent {
    /// Notes packet `index`, which may be marked as the first (`syn`) or the last (`fin`).
    fn note_data(&mut self, index: u64, syn: bool, fin: bool) {
        if syn && index == self.begin {
            self.is_from_start = true;
        }
        if fin {
            self.end = Some(index + 1);
        } else if self.end.is_some_and(|end| index >= end) {
            self.end = None;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) tsi: Tsi,
    /// Node of the source: destination of ACKs, and source address in NAKs.
    pub(crate) node: NodeId,
    /// Last PGM hop, destination of NAKs; known from the first SPM.
    last_hop: Option<NodeId>,
    last_hop_changed_at: Option<Time>,
    /// Time of the last new packet; replays do not count.
    heard_at: Time,
    /// Time of the last data packet that was newer than all before.
    advanced_at: Time,
}

reasons! {
    enum Timer {
        Start,
        Gaps,
        SpmRequest,
        LoneNak,
        Expiry,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReceiverPhase {
    #[default]
    Waiting,
    Joined,
    /// Complete; pending reports may still be sent.
    Finished,
    Lost,
    /// The application has closed the receiver, or the scheme is another one.
    Ended,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Doubts {
    /// Least claimed trail beyond packets that are still wanted.
    trail: Dissent<u64>,
    /// Claim of SPMs that the latest received packets were never sent.
    beyond: Dissent<()>,
    last_hop: Dissent<NodeId, LAST_HOP_PACKETS>,
    end: Dissent<(), RESUME_PACKETS>,
    spm_order: SpmOrder,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SpmRequests {
    to_group: bool,
    to_source: bool,
}

impl<R: RepairLayer> ReceiverSession<R> {
    /// Creates a session with `repair` above it. Settings are clamped to their ranges.
    pub(crate) fn new(config: ReceiverConfig, feedback: BoxFeedback, repair: R) -> Self {
        let config = config.bounded();
        let mut timers = Timers::default();
        timers.arm(Timer::Start, config.start);
        fresh! {
            Self {
                lone_nak: LoneNak::new(&config.settings),
                data_port: config.data_port,
                config: Box::new(config),
                repair,
                scheme: ReceiverScheme::new(feedback),
                timers,
            }
            phase, spm_requests_due, source, extent, gaps, window, reach, doubts
        }
    }

    /// Creates a session of one scheme. It follows announced settings, and ignores other schemes.
    pub(crate) fn speaking(config: ReceiverConfig, negotiation: Negotiation, repair: R) -> Self {
        let feedback = negotiation.feedback();
        let mut session = Self::new(config, feedback, repair);
        session.scheme.negotiation = Some(Box::new(negotiation));
        session
    }

    #[cfg(test)]
    pub(crate) fn feedback(&self) -> &dyn crate::congestion::ErasedFeedback {
        self.scheme.feedback.as_ref()
    }

    pub(crate) fn heard_at(&self) -> Option<Time> {
        Some(self.source.as_ref()?.heard_at)
    }

    /// Returns true if a new SPM names a latest packet older than one that came a while ago.
    pub(crate) fn is_contradicted_by(&self, now: Time, spm: &Spm) -> bool {
        let (Some(source), Some((_, lead))) = (&self.source, spm.window()) else { return false };
        self.doubts.spm_order.is_newer(now, spm.sequence)
            && self.highest().is_some_and(|highest| highest.after(lead))
            && now.since(source.advanced_at) >= OVERTAKING_MAX
    }

    /// Returns the number of packets sent since this receiver joined, and of those lost.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let known = self.window.as_ref().map_or(0, |window| window.known);
        (known.saturating_sub(self.extent.losses.from()), self.extent.losses.lost())
    }

    pub(crate) fn highest(&self) -> Option<Seq> {
        // Truncation is the wrap of sequence numbers.
        self.window.as_ref()?.highest.map(|index| Seq::new(index as u32))
    }

    /// Returns the packets sent after the latest received one; `None` if no sent packet is missing.
    pub(crate) fn behind(&self) -> Option<u64> {
        let window = self.window.as_ref()?;
        let ahead = window.known
            - window.highest.map_or(self.extent.begin, |highest| highest + 1).min(window.known);
        (ahead > 0 || window.next < window.known).then_some(ahead)
    }

    pub(crate) fn negotiation(&self) -> Option<&Negotiation> {
        self.scheme.negotiation.as_deref()
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.phase == ReceiverPhase::Joined
    }

    pub(crate) fn is_complete(&self) -> bool {
        let next = self.window.as_ref().map(|window| window.next);
        self.phase == ReceiverPhase::Joined && self.extent.end.is_some_and(|end| next >= Some(end))
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.extent.given_up == 0 && self.extent.is_from_start
    }

    fn last_hop(&self) -> Option<NodeId> {
        self.source.as_ref()?.last_hop
    }

    pub(crate) fn takes_packets(&self) -> bool {
        matches!(self.phase, ReceiverPhase::Joined | ReceiverPhase::Finished | ReceiverPhase::Lost)
    }

    pub(crate) fn stop(&mut self, phase: ReceiverPhase) {
        self.phase = phase;
        self.ask_nothing();
        self.timers.disarm_all();
    }

    pub(crate) fn finish(&mut self, cx: &mut Cx<'_>) {
        self.scheme.feedback.on_timeout(cx);
        self.stop(ReceiverPhase::Finished);
    }

    fn ask_nothing(&mut self) {
        if let Some(naks) = self.repair.naks_mut() {
            naks.end_from(0);
        }
        for timer in [Timer::Gaps, Timer::SpmRequest, Timer::LoneNak] {
            self.timers.disarm(timer);
        }
        self.spm_requests_due = SpmRequests::default();
        (self.lone_nak.planned, self.lone_nak.due) = (None, None);
    }

    fn note_new_packet(&mut self, now: Time) {
        if let Some(source) = &mut self.source {
            source.heard_at = now;
            // On expiry the timer is compared with `heard_at`, so that packets need not move it.
            if !self.timers.is_armed(Timer::Expiry) {
                self.timers.arm(Timer::Expiry, now + self.config.expiry);
            }
        }
    }

    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.timers.take_due(Timer::Start, cx.now) {
            self.phase = ReceiverPhase::Joined;
        }
        if self.phase != ReceiverPhase::Joined {
            return;
        }
        if self.timers.take_due(Timer::Expiry, cx.now) {
            let expiry = self.config.expiry;
            let at = self.heard_at().map_or(cx.now, |heard| heard + expiry);
            if at <= cx.now {
                let after_ns = expiry.as_nanos();
                cx.emit(Event::Timeout { kind: TimeoutKind::SessionExpiry, after_ns });
                return self.stop(ReceiverPhase::Lost);
            }
            self.timers.arm(Timer::Expiry, at);
        }
        if self.timers.take_due(Timer::Gaps, cx.now) {
            self.declare(cx, self.gaps.suspected_end);
            self.suspect(cx);
        }
        self.expire_naks(cx);
        if self.timers.take_due(Timer::SpmRequest, cx.now) {
            self.spm_requests_due = SpmRequests { to_group: true, to_source: true };
            self.request_later(cx);
        }
        if self.scheme.next_timeout().is_some_and(|at| at <= cx.now) {
            self.scheme.feedback.on_timeout(cx);
        }
    }

    /// Leaves the session. The driver handles the group membership.
    pub(crate) fn close(&mut self) {
        if self.phase == ReceiverPhase::Joined {
            self.scheme.is_leave_due =
                self.scheme.feedback.on_leaving() || self.scheme.acknowledges;
        }
        self.stop(ReceiverPhase::Ended);
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        if self.phase != ReceiverPhase::Joined {
            return self.timers.next();
        }
        let mut next = self.timers.next().unwrap_or(Time::MAX);
        if let Some(at) = self.scheme.next_timeout() {
            next = next.min(at);
        }
        if let Some(at) = self.repair.naks().and_then(Naks::next_timeout) {
            next = next.min(at);
        }
        (next < Time::MAX).then_some(next)
    }
}

/// SPMs that must name another last hop, and packets that must show that a session continues.
const LAST_HOP_PACKETS: u32 = 2;
const RESUME_PACKETS: u32 = 3;

/// Time after a change of the last hop in which an unconfirmed NAK casts doubt on it; chosen.
const LAST_HOP_DOUBTED: Duration = Duration::from_secs(30);

/// Longest delay of an SPM behind data that was sent after it.
const OVERTAKING_MAX: Duration = Duration::from_secs(2);
