//! The receiving end.

pub(crate) mod crowd;
pub(crate) mod dissent;
mod input;
mod losses;
pub(crate) mod naks;
mod negotiation;
mod output;
mod reach;
mod spm_order;
mod window;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, Time, TimeoutKind};

use self::dissent::Dissent;
use self::naks::Naks;
use self::negotiation::Refusal;
use self::reach::Reach;
pub use self::spm_order::SpmOrder;
use self::window::Window;
use super::{ReceiverConfig, Reliability};
use crate::congestion::{Feedback, SchemeOptions};
use crate::pgm::negotiation::{Negotiation, SchemeMismatch};
use crate::pgm::wire::{Packet, Spm, Tsi};
use crate::{AppEvent, Datagram, Machine, Transmit};

/// A PGM receiver: joins the session that it hears, asks for what is missing, delivers in order,
/// and sends the reports that its side of the scheme wants to send.
///
/// Packets go by their sequence number without wrap (`index`), which begins as the number on the
/// wire.
pub struct PgmReceiver {
    config: ReceiverConfig,
    /// Whether payload is somebody else's affair: it is neither kept nor delivered.
    listens_only: bool,
    feedback: Box<dyn Feedback + Send>,
    /// The numbers of its options, which every packet is looked through for.
    scheme_options: SchemeOptions,
    /// What it speaks; `None` for whatever comes.
    negotiation: Option<Box<Negotiation>>,
    /// What the source speaks, where that is something else: it is taken no notice of any more.
    mismatch: Option<SchemeMismatch>,
    /// What is said about that to the source.
    refusal: Refusal,
    phase: Phase,
    session: Option<Session>,
    /// What is here and what is not; `None` before it is known where to begin.
    window: Option<Window>,
    /// How far the source can have come; `None` while the window is.
    reach: Option<Box<Reach>>,
    doubts: Box<Doubts>,
    naks: Naks,
    /// All that is missing before this packet is in `naks` or given up.
    declared: u64,
    /// The latest packet that was found missing.
    missing: Option<u64>,
    /// When gaps before this packet count as missing, though too few later packets showed them.
    suspicion: Option<(Time, u64)>,
    /// When to ask for an SPM.
    request_at: Option<Time>,
    /// Copies of the SPM request that are to be sent now.
    requests_due: Requests,
    /// Where nothing is repaired: the NAK that is to be sent, and when the last one was heard or
    /// sent.
    lone_nak: Option<(Time, u64)>,
    lone_nak_due: Option<u64>,
    lone_nak_last: Option<Time>,
    /// A report that the scheme has ready for the next NAK.
    nak_report: Option<Vec<u8>>,
    /// A NAK that is to go to the neighbours too.
    nak_copy: Option<Vec<u8>>,
    /// Whether this receiver has acknowledged, so that it must say when it leaves.
    acknowledges: bool,
    leave_due: bool,
    /// One past the last packet, once the source has said so.
    end: Option<u64>,
    /// The first packet that it wants.
    begin: u64,
    /// Whether it was here when the session began, or can have all that was sent before.
    from_start: bool,
    lost: u64,
    delivered_bytes: u64,
    events: VecDeque<AppEvent>,
}

/// What is known of the source.
#[derive(Clone, Copy, Debug)]
struct Session {
    tsi: Tsi,
    /// The source itself: where ACKs go, and whom NAKs name.
    source: NodeId,
    /// The last PGM hop, where NAKs go; known from the first SPM.
    path: Option<NodeId>,
    /// When it last said something new: what came before anybody can repeat.
    heard: Time,
    /// When data came last that was newer than all before.
    advanced: Time,
}

/// Where a receiver is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its start.
    Waiting,
    /// Member of the group.
    Joined,
    /// It has all that there was; what it owes to the sender may still leave.
    Finished,
    /// The source is gone, as far as is known.
    Lost,
    /// It left, or does not speak what the source speaks.
    Ended,
}

/// What packets say against what is believed of the source.
#[derive(Debug)]
struct Doubts {
    spm_order: SpmOrder,
    /// The least trail beyond packets that are still wanted.
    trail: Dissent<u64>,
    /// Another last hop.
    path: Dissent<NodeId>,
    /// Another scheme, or other settings of it.
    scheme: Dissent<()>,
    settings: Dissent<()>,
    /// That the session goes on after its end.
    end: Dissent<()>,
}

impl Default for Doubts {
    fn default() -> Self {
        Self {
            spm_order: SpmOrder::default(),
            trail: Dissent::default(),
            path: Dissent::of_packets(PATH_PACKETS),
            scheme: Dissent::default(),
            settings: Dissent::default(),
            end: Dissent::of_packets(RESUME_PACKETS),
        }
    }
}

/// The two copies of an SPM request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    to_group: bool,
    to_source: bool,
}

impl PgmReceiver {
    /// A receiver with `feedback` as its side of the scheme. Settings out of their range are taken
    /// to its nearest end.
    pub fn new(mut config: ReceiverConfig, feedback: Box<dyn Feedback + Send>) -> Self {
        config.window_packets = config.window_packets.clamp(1, WINDOW_PACKETS_MAX);
        config.reorder_packets = config.reorder_packets.clamp(1, REORDER_PACKETS_MAX);
        for interval in [
            &mut config.nak_backoff,
            &mut config.nak_repeat,
            &mut config.nak_repair,
            &mut config.spm_request_backoff,
        ] {
            // A timer of no length would run out again and again in one moment.
            *interval = (*interval).max(INTERVAL_MIN);
        }
        Self {
            naks: Naks::new(&config),
            config,
            listens_only: false,
            scheme_options: feedback.options(),
            feedback,
            negotiation: None,
            mismatch: None,
            refusal: Refusal::default(),
            phase: Phase::Waiting,
            session: None,
            window: None,
            reach: None,
            doubts: Box::default(),
            declared: 0,
            missing: None,
            suspicion: None,
            request_at: None,
            requests_due: Requests::default(),
            lone_nak: None,
            lone_nak_due: None,
            lone_nak_last: None,
            nak_report: None,
            nak_copy: None,
            acknowledges: false,
            leave_due: false,
            end: None,
            begin: 0,
            from_start: false,
            lost: 0,
            delivered_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// A receiver that looks at sequence numbers alone, for its side of the scheme: it repairs
    /// nothing, and who takes the payload from the packets has asked for none of it here. It has
    /// no events for the application.
    pub(crate) fn listening(config: ReceiverConfig, negotiation: Negotiation) -> Self {
        let config = ReceiverConfig { reliability: Reliability::Unrepaired, ..config };
        Self { listens_only: true, ..Self::speaking(config, negotiation) }
    }

    /// A receiver that speaks one scheme: it follows the settings that the source announces, and
    /// ends where the source speaks another.
    pub fn speaking(config: ReceiverConfig, negotiation: Negotiation) -> Self {
        let feedback = negotiation.feedback();
        Self { negotiation: Some(Box::new(negotiation)), ..Self::new(config, feedback) }
    }

    /// Its side of the scheme, for tests and statistics.
    pub fn feedback(&self) -> &dyn Feedback {
        self.feedback.as_ref()
    }

    /// How many packets it is asking for.
    #[cfg(test)]
    pub(super) fn missing_packets(&self) -> usize {
        self.naks.len()
    }

    /// Packets that were given up.
    pub fn lost_packets(&self) -> u64 {
        self.lost
    }

    /// The source, once it has been heard.
    pub(crate) fn source(&self) -> Option<NodeId> {
        Some(self.session.as_ref()?.source)
    }

    /// When the source last said something new: an SPM or data that had not come before.
    pub(crate) fn heard(&self) -> Option<Time> {
        Some(self.session.as_ref()?.heard)
    }

    /// Whether an SPM that is new says that the newest packet which the source has sent is older than
    /// one that has been here for a while: then that one was of an earlier life of the source, and
    /// was under way for longer than the news of the new one.
    pub(crate) fn is_contradicted_by(&self, now: Time, spm: &Spm) -> bool {
        let (Some(session), Some((_, lead))) = (&self.session, spm.window()) else { return false };
        self.doubts.spm_order.is_newer(now, spm.sequence)
            && self.highest().is_some_and(|highest| highest.after(lead))
            && now.since(session.advanced) >= OVERTAKING_MAX
    }

    /// One past the last packet known to exist, and how many of those that count as missing have
    /// never come.
    pub(crate) fn extent(&self) -> (u64, u64) {
        (self.window.as_ref().map_or(self.begin, |window| window.known) - self.begin, self.lost)
    }

    /// The highest packet that was received.
    pub(crate) fn highest(&self) -> Option<Seq> {
        // Truncation is the wrap of sequence numbers.
        self.window.as_ref()?.highest.map(|index| Seq::new(index as u32))
    }

    /// Whether it still hears the source: after its start, and before an end.
    pub(crate) fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    fn path(&self) -> Option<NodeId> {
        self.session.as_ref()?.path
    }

    fn repairs(&self) -> bool {
        self.config.reliability == Reliability::Repaired
    }

    /// Takes a packet that its caller has decoded. Returns whether there was nothing wrong with it.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> bool {
        if !self.hears() {
            return false;
        }
        let outcome = self.take_packet(cx, datagram, packet);
        if let Err(reason) = outcome {
            cx.emit(Event::BadInput { reason });
        }
        outcome.is_ok()
    }

    /// Whether packets are listened to: a session that seems over may go on.
    fn hears(&self) -> bool {
        matches!(self.phase, Phase::Joined | Phase::Finished | Phase::Lost)
    }

    /// Hands the next packet to the application.
    fn deliver(&mut self, cx: &mut Cx<'_>, bytes: Vec<u8>, zeros: u32) {
        let Some(window) = &mut self.window else { return };
        let seq = window.next;
        window.pass_delivered();
        // A payload has at most 65535 bytes.
        let len = bytes.len() as u32 + zeros;
        if !self.listens_only {
            self.delivered_bytes += u64::from(len);
            cx.emit(Event::Delivered { seq, bytes: len });
            self.events.push_back(AppEvent::Delivered { bytes, zeros });
        }
        self.feedback.on_consumed(cx, len);
    }

    /// Delivers and passes by what now can be.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        while let Some(window) = &mut self.window
            && !window.is_tidy()
        {
            if let Some(held) = window.take_next() {
                self.deliver(cx, held.bytes, held.zeros);
            } else if window.next_is_given_up() {
                let next = window.next;
                self.lose_up_to(cx, next + 1);
            } else {
                break;
            }
        }
    }

    /// The packets from the next one up to `to`, none of them held, will never come.
    fn lose_up_to(&mut self, cx: &mut Cx<'_>, to: u64) {
        let Some(window) = &mut self.window else { return };
        let (from, traced_end) = (window.next, to.min(window.end()));
        window.pass_lost(to);
        if self.listens_only {
            self.lost += to - from;
            return;
        }
        // A trail may jump by 2^31; the trace names what could have been waited for.
        for seq in from..traced_end {
            cx.emit(Event::Abandoned { seq });
        }
        let count = to - from;
        self.lost += count;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(AppEvent::Lost { packets }) = self.events.back_mut() {
            *packets = packets.saturating_add(count);
        } else {
            self.events.push_back(AppEvent::Lost { packets: count });
        }
    }

    /// Ends where all that there was has been delivered or passed by.
    fn finish_if_complete(&mut self, cx: &mut Cx<'_>) {
        let Some(window) = &self.window else { return };
        if self.phase != Phase::Joined || self.end.is_none_or(|end| window.next < end) {
            return;
        }
        self.stop_timers();
        self.phase = Phase::Finished;
        if self.lost == 0 && self.from_start {
            cx.emit(Event::Completed { bytes: self.delivered_bytes });
            self.events.push_back(AppEvent::Completed);
        } else {
            self.events.push_back(AppEvent::Gone);
        }
    }

    /// The source is gone without having said that this is the end.
    fn lose_source(&mut self) {
        self.stop_timers();
        self.phase = Phase::Lost;
        if !self.listens_only {
            self.events.push_back(AppEvent::Gone);
        }
    }

    fn stop_timers(&mut self) {
        self.naks.clear();
        self.suspicion = None;
        self.request_at = None;
        self.requests_due = Requests::default();
        self.lone_nak = None;
        self.lone_nak_due = None;
    }

    fn expires_at(&self) -> Option<Time> {
        self.session.as_ref().map(|session| session.heard + self.config.expiry)
    }
}

impl Machine for PgmReceiver {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !self.hears() {
            return;
        }
        match Packet::decode(datagram.bytes, datagram.zeros) {
            Ok(packet) => {
                self.handle_packet(cx, &datagram, &packet);
            }
            Err(error) => cx.emit(Event::BadInput { reason: error.into() }),
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Waiting && self.config.start <= cx.now {
            self.phase = Phase::Joined;
        }
        self.refusal.on_timeout(cx);
        if self.phase != Phase::Joined {
            return;
        }
        if self.expires_at().is_some_and(|at| at <= cx.now) {
            let after_ns = self.config.expiry.as_nanos();
            cx.emit(Event::Timeout { kind: TimeoutKind::SessionExpiry, after_ns });
            self.lose_source();
            return;
        }
        self.expire_suspicion(cx);
        self.expire_naks(cx);
        self.expire_request(cx);
        if self.mismatch.is_none() && self.feedback.next_timeout().is_some_and(|at| at <= cx.now) {
            self.feedback.on_timeout(cx);
        }
        self.finish_if_complete(cx);
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {
        // That a member comes or goes is the driver's to say: it joins the group.
        if self.phase == Phase::Joined {
            self.leave_due = self.feedback.on_leaving() || self.acknowledges;
        }
        self.stop_timers();
        self.phase = Phase::Ended;
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.next_packet(cx, buf)
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        let event = self.events.pop_front();
        if event.is_some() && self.events.is_empty() {
            start_over(&mut self.events);
        }
        event
    }

    fn next_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Waiting => return Some(self.config.start),
            Phase::Ended => return self.refusal.next_timeout(),
            Phase::Finished | Phase::Lost => return None,
            Phase::Joined => {}
        }
        // Asked after every packet: no list is made, and what is never set costs a comparison.
        let speaks = self.mismatch.is_none();
        let feedback = if speaks { self.feedback.next_timeout() } else { None };
        let mut next = feedback.unwrap_or(Time::MAX);
        let waits = [
            self.naks.next_timeout(),
            self.suspicion.map(|(at, _)| at),
            self.request_at,
            self.lone_nak.map(|(at, _)| at),
            self.expires_at(),
        ];
        for at in waits {
            next = next.min(at.unwrap_or(Time::MAX));
        }
        (next < Time::MAX).then_some(next)
    }
}

impl fmt::Debug for PgmReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmReceiver")
            .field("phase", &self.phase)
            .field("session", &self.session)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// SPMs in a row that must name another last hop, and packets after the end of a session that show
/// that it goes on.
const PATH_PACKETS: u32 = 2;
const RESUME_PACKETS: u32 = 3;

/// Most packets of a receive window.
const WINDOW_PACKETS_MAX: u32 = 1 << 20;

/// Most later packets that a receiver waits for before it calls one missing.
const REORDER_PACKETS_MAX: u32 = 16;

/// An SPM does not arrive so much later than data that was sent after it.
const OVERTAKING_MAX: Duration = Duration::from_secs(2);

/// Elements that an empty queue keeps memory for.
const KEPT_MAX: usize = 16;

/// Begins an empty queue anew. One repair may release hundreds of packets: receivers, of which there
/// may be thousands, would keep memory for that, and go round in it with every packet that comes.
fn start_over<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT_MAX {
        *queue = VecDeque::new();
    } else {
        // Where the queue is empty already this takes it back to the front of its memory.
        queue.clear();
    }
}

/// Shortest interval of a timer that repeats.
const INTERVAL_MIN: Duration = Duration::from_micros(1);
