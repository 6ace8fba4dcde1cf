//! The receiving end of a session: which packets have come and which are missing, what is believed of
//! the source, the scheme's reports.

pub(crate) mod crowd;
pub(crate) mod dissent;
mod input;
mod losses;
pub(crate) mod naks;
mod output;
pub(crate) mod reach;
mod spm;
mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, Time, TimeoutKind};

use self::dissent::Dissent;
pub(crate) use self::input::{REORDER_DELAY, RepairLayer};
use self::losses::LoneNak;
use self::naks::Naks;
use self::reach::Reach;
pub use self::spm::SpmOrder;
use self::window::Window;
pub(crate) use self::window::start_over;
use crate::LossRecord;
use crate::congestion::common::lateness::Disorder;
use crate::congestion::{BoxFeedback, LateAcks, SchemeOptions};
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::{Negotiation, SchemeMismatch};
use crate::pgm::wire::{Packet, Spm, Tsi};
use crate::timers::{Timers, reasons};

/// The receiving end of a session: joins the one that it hears, finds out what is missing, and sends
/// the reports that its side of the scheme wants to send.
///
/// Packets go by their sequence number without wrap (`index`), which begins as the number on the
/// wire.
///
/// What every packet needs stands first and together: simulations have thousands of receivers, which
/// fit in no cache.
#[repr(C)]
pub(crate) struct ReceiverSession<R> {
    pub(crate) phase: ReceiverPhase,
    /// The numbers of the scheme's options, which every packet is looked through for.
    scheme_options: SchemeOptions,
    data_port: u16,
    /// Copies of the SPM request that are to be sent now.
    requests_due: Requests,
    /// Whether this receiver has acknowledged, so that it must say when it leaves.
    acknowledges: bool,
    leave_due: bool,
    /// Whether it was here when the session began, or can have all that was sent before.
    from_start: bool,
    feedback: BoxFeedback,
    /// Scheme that it speaks; `None` for any.
    negotiation: Option<Box<Negotiation>>,
    /// Mismatch of the schemes: the source is not listened to any more.
    mismatch: Option<Box<SchemeMismatch>>,
    source: Option<Source>,
    /// One past the last packet, once the source has said so.
    end: Option<u64>,
    /// The first packet that it wants.
    begin: u64,
    losses: LossRecord,
    /// Acknowledgements that are due for originals which came so late that others do not show them;
    /// `None` before the first.
    late_acks: Option<Box<LateAcks>>,
    /// Lateness of originals.
    pub(crate) disorder: Disorder,
    timers: Timers<Timer, 5>,
    /// Packets that are here and that are missing; `None` before the first packet is known.
    window: Option<Window>,
    /// Furthest packet that the source can have sent; `None` while the window is.
    reach: Option<Reach>,
    /// A NAK that is to go to the neighbours too.
    nak_copy: Option<Vec<u8>>,
    doubts: Doubts,
    pub(crate) repair: R,
    lone_nak: LoneNak,
    /// Boxed, since a packet that comes in order needs none of it.
    pub(crate) config: Box<ReceiverConfig>,
    /// All that is missing before this packet is being asked for or given up.
    declared: u64,
    /// The latest packet that was found missing.
    missing: Option<u64>,
    /// Gaps before this packet count as missing at [`Timer::Gaps`].
    suspected: u64,
    /// Packets that were passed by.
    lost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    tsi: Tsi,
    /// The source itself: where ACKs go, and whom NAKs name.
    node: NodeId,
    /// The last PGM hop, where NAKs go; known from the first SPM.
    path: Option<NodeId>,
    /// Moment at which another last hop was believed.
    path_changed: Option<Time>,
    /// When it last said something new: what came before anybody can repeat.
    heard: Time,
    /// When data came last that was newer than all before.
    advanced: Time,
}

reasons! {
    enum Timer {
        Start,
        /// Gaps that too few later packets have shown count as missing.
        Gaps,
        SpmRequest,
        /// Report of a loss without a request.
        LoneNak,
        /// The source counts as gone.
        Expiry,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReceiverPhase {
    #[default]
    Waiting,
    Joined,
    /// Complete; owed reports may still leave.
    Finished,
    /// The source is gone, as far as is known.
    Lost,
    /// Left, or of another scheme than the source.
    Ended,
}

/// What packets say against what is believed of the source.
// What every packet needs stands first: see the receiver's session.
#[derive(Debug, Default)]
#[repr(C)]
struct Doubts {
    /// The least trail beyond packets that are still wanted.
    trail: Dissent<u64>,
    /// That packets which are known were not sent.
    beyond: Dissent<()>,
    /// Another scheme, or other settings of it.
    scheme: Dissent<()>,
    settings: Dissent<()>,
    /// Another last hop.
    path: Dissent<NodeId, PATH_PACKETS>,
    /// That the session goes on after its end.
    end: Dissent<(), RESUME_PACKETS>,
    spm_order: SpmOrder,
}

/// The two copies of an SPM request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    to_group: bool,
    to_source: bool,
}

impl<R: RepairLayer> ReceiverSession<R> {
    /// A session with `feedback` as its side of the scheme, and `repair` above it. Settings out of
    /// their range are taken to its nearest end.
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
                scheme_options: feedback.options(),
                feedback,
                timers,
            }
            negotiation, mismatch, phase, source, window, reach, doubts, declared, missing,
            suspected, disorder, late_acks, requests_due, nak_copy, acknowledges, leave_due, end,
            begin, from_start, lost, losses
        }
    }

    /// One that speaks one scheme: it follows the settings that the source announces, and takes
    /// nothing from a source that speaks another.
    pub(crate) fn speaking(config: ReceiverConfig, negotiation: Negotiation, repair: R) -> Self {
        let feedback = negotiation.feedback();
        Self { negotiation: Some(Box::new(negotiation)), ..Self::new(config, feedback, repair) }
    }

    /// Its side of the scheme, for tests and statistics.
    #[cfg(test)]
    pub(crate) fn feedback(&self) -> &dyn crate::congestion::Feedback {
        self.feedback.as_ref()
    }

    pub(crate) fn source(&self) -> Option<NodeId> {
        Some(self.source.as_ref()?.node)
    }

    /// When the source last said something new: an SPM or data that had not come before.
    pub(crate) fn heard(&self) -> Option<Time> {
        Some(self.source.as_ref()?.heard)
    }

    /// Whether an SPM that is new says that the newest packet which the source has sent is older than
    /// one that has been here for a while: then that one was of an earlier life of the source, and
    /// was under way for longer than the news of the new one.
    pub(crate) fn is_contradicted_by(&self, now: Time, spm: &Spm) -> bool {
        let (Some(source), Some((_, lead))) = (&self.source, spm.window()) else { return false };
        self.doubts.spm_order.is_newer(now, spm.sequence)
            && self.highest().is_some_and(|highest| highest.after(lead))
            && now.since(source.advanced) >= OVERTAKING_MAX
    }

    /// Packets that are known to have been sent since this receiver took part, and those of them that were lost.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let known = self.window.as_ref().map_or(0, |window| window.known);
        (known.saturating_sub(self.losses.from()), self.losses.lost())
    }

    pub(crate) fn highest(&self) -> Option<Seq> {
        // Truncation is the wrap of sequence numbers.
        self.window.as_ref()?.highest.map(|index| Seq::new(index as u32))
    }

    /// True if `packet` is of the session that this receiver has joined.
    pub(crate) fn is_of(&self, packet: &Packet<'_>) -> bool {
        self.source.is_some_and(|source| source.tsi == packet.tsi())
    }

    /// Packets that were sent after the latest that came; `None` if no sent packet is missing.
    pub(crate) fn behind(&self) -> Option<u64> {
        let window = self.window.as_ref()?;
        let ahead = window.known
            - window.highest.map_or(self.begin, |highest| highest + 1).min(window.known);
        (ahead > 0 || window.next < window.known).then_some(ahead)
    }

    /// Its side of the negotiation, where it speaks one scheme.
    pub(crate) fn negotiation(&self) -> Option<&Negotiation> {
        self.negotiation.as_deref()
    }

    /// Whether it still hears the source: after its start, and before an end.
    pub(crate) fn is_joined(&self) -> bool {
        self.phase == ReceiverPhase::Joined
    }

    /// Whether all that there was has been delivered or passed by.
    pub(crate) fn is_complete(&self) -> bool {
        let next = self.window.as_ref().map(|window| window.next);
        self.phase == ReceiverPhase::Joined && self.end.is_some_and(|end| next >= Some(end))
    }

    /// Whether nothing of the session was lost.
    pub(crate) fn is_whole(&self) -> bool {
        self.lost == 0 && self.from_start
    }

    fn path(&self) -> Option<NodeId> {
        self.source.as_ref()?.path
    }

    /// Whether packets are listened to: a session that seems over may go on.
    pub(crate) fn hears(&self) -> bool {
        matches!(self.phase, ReceiverPhase::Joined | ReceiverPhase::Finished | ReceiverPhase::Lost)
    }

    /// Its timers stop: nothing is asked for any more, for the reason that `phase` tells.
    pub(crate) fn stop(&mut self, phase: ReceiverPhase) {
        self.phase = phase;
        self.ask_nothing();
        self.timers.disarm_all();
    }

    /// All that there was is here. What the scheme holds back until the end of this moment leaves now,
    /// since no timer runs any more.
    pub(crate) fn finish(&mut self, cx: &mut Cx<'_>) {
        self.feedback.on_timeout(cx);
        self.stop(ReceiverPhase::Finished);
    }

    fn ask_nothing(&mut self) {
        if let Some(naks) = self.repair.naks_mut() {
            naks.end_from(0);
        }
        for timer in [Timer::Gaps, Timer::SpmRequest, Timer::LoneNak] {
            self.timers.disarm(timer);
        }
        self.requests_due = Requests::default();
        self.lone_nak.clear();
    }

    /// The source has said something new.
    fn note_heard(&mut self, now: Time) {
        if let Some(source) = &mut self.source {
            source.heard = now;
            // Where it runs out it looks how long ago that was, so that packets need not move it.
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
        if self.timers.take_due(Timer::Expiry, cx.now) && !self.expires_later(cx.now) {
            let after_ns = self.config.expiry.as_nanos();
            cx.emit(Event::Timeout { kind: TimeoutKind::SessionExpiry, after_ns });
            self.stop(ReceiverPhase::Lost);
            return;
        }
        self.expire_gaps(cx);
        self.expire_naks(cx);
        self.expire_request(cx);
        if self.mismatch.is_none() && self.feedback.next_timeout().is_some_and(|at| at <= cx.now) {
            self.feedback.on_timeout(cx);
        }
    }

    /// Whether the source has been heard since the timer was armed: then it runs out that much later.
    fn expires_later(&mut self, now: Time) -> bool {
        let at = self.heard().map_or(now, |heard| heard + self.config.expiry);
        if at > now {
            self.timers.arm(Timer::Expiry, at);
        }
        at > now
    }

    /// It leaves. That a member comes or goes is the driver's to say: it joins the group.
    pub(crate) fn close(&mut self) {
        if self.phase == ReceiverPhase::Joined {
            self.leave_due = self.feedback.on_leaving() || self.acknowledges;
        }
        self.stop(ReceiverPhase::Ended);
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        if self.phase != ReceiverPhase::Joined {
            return self.timers.next();
        }
        let mut next = self.timers.next().unwrap_or(Time::MAX);
        if self.mismatch.is_none()
            && let Some(at) = self.feedback.next_timeout()
        {
            next = next.min(at);
        }
        if let Some(at) = self.repair.naks().and_then(Naks::next_timeout) {
            next = next.min(at);
        }
        (next < Time::MAX).then_some(next)
    }
}

/// SPMs in a row that must name another last hop, and packets after the end of a session that show
/// that it goes on.
const PATH_PACKETS: u32 = 2;
const RESUME_PACKETS: u32 = 3;

/// Time after a change of the last hop in which a NAK without a confirmation makes it doubtful; chosen.
const PATH_DOUBTED: Duration = Duration::from_secs(30);

/// An SPM does not arrive so much later than data that was sent after it.
const OVERTAKING_MAX: Duration = Duration::from_secs(2);
