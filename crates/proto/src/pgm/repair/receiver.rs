//! The receiver of a stream: it asks by NAK for what is missing, and delivers in order.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, Time};

use crate::black_hole::{BlackHole, Watch};
use crate::congestion::BoxFeedback;
use crate::content::Held;
use crate::options::OptionValue;
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::{ARRIVES, Negotiation, SchemeAnnouncement, SchemeMismatch};
use crate::pgm::options::PgmFlowSettings;
use crate::pgm::session::naks::Naks;
use crate::pgm::session::{ReceiverPhase, ReceiverSession, RepairLayer, start_over};
use crate::pgm::wire::{Body, OptionType, Payload, Received};
use crate::{Datagram, FlowEvent, Interactive, Machine, StreamEvent, StreamInput, Transmit};

/// A PGM receiver: joins the session that it hears, asks for what is missing, delivers in order,
/// and sends the reports that its side of the scheme wants to send.
pub struct PgmReceiver {
    session: ReceiverSession<NakRepair>,
    /// Message to the source, while it is repeated.
    refusal: Option<Box<Refusal>>,
    /// Watch for a black hole, while packets that were sent are not here.
    watch: Option<Box<Watch>>,
}

/// Repair by NAK, and delivery in order.
// What every packet needs stands first: see the receiver's session.
#[derive(Default)]
#[repr(C)]
struct NakRepair {
    delivered_bytes: u64,
    events: Events,
    /// `None` where nothing is repaired.
    naks: Option<Naks>,
}

/// What the application is to be told. The first event has its place here, since mostly there is one and
/// it is taken at once.
#[derive(Default)]
struct Events {
    first: Option<StreamEvent>,
    more: VecDeque<StreamEvent>,
}

impl Events {
    fn push(&mut self, event: StreamEvent) {
        match self.first {
            None => self.first = Some(event),
            Some(_) => self.more.push_back(event),
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<StreamEvent> {
        // Looked at before it is taken, since that writes.
        self.first.as_ref()?;
        let event = self.first.take()?;
        if !self.more.is_empty() {
            self.first = self.more.pop_front();
            if self.more.is_empty() {
                start_over(&mut self.more);
            }
        }
        Some(event)
    }

    fn last_mut(&mut self) -> Option<&mut StreamEvent> {
        self.more.back_mut().or(self.first.as_mut())
    }
}

impl PgmReceiver {
    /// A receiver with `feedback` as its side of the scheme. Settings out of their range are taken
    /// to its nearest end.
    pub fn new(config: ReceiverConfig, feedback: BoxFeedback) -> Self {
        let repair = NakRepair::new(&config.settings);
        let session = ReceiverSession::new(config, feedback, repair);
        Self { session, refusal: None, watch: None }
    }

    /// A receiver that speaks one scheme: it follows the settings that the source announces, and
    /// ends where the source speaks another.
    pub fn speaking(config: ReceiverConfig, negotiation: Negotiation) -> Self {
        let repair = NakRepair::new(&config.settings);
        let session = ReceiverSession::speaking(config, negotiation, repair);
        Self { session, refusal: None, watch: None }
    }

    #[cfg(test)]
    pub(in crate::pgm) fn feedback(&self) -> &dyn crate::congestion::Feedback {
        self.session.feedback()
    }

    #[cfg(test)]
    pub(crate) fn missing_packets(&self) -> usize {
        self.session.repair.naks.as_ref().map_or(0, Naks::len)
    }

    /// Ends where all that there was has been delivered or passed by, or where the source speaks
    /// another scheme: then both sides are told.
    fn end_if_over(&mut self, cx: &mut Cx<'_>) {
        if self.session.is_complete() || self.session.mismatch().is_some() {
            self.end(cx);
        }
    }

    #[cold]
    fn end(&mut self, cx: &mut Cx<'_>) {
        let Self { session, refusal, .. } = self;
        if session.is_complete() {
            session.finish(cx);
            let whole = session.is_whole();
            session.repair.end(cx, whole);
        } else if session.is_joined()
            && let (Some(node), Some(mismatch)) = (session.source(), session.mismatch())
        {
            let SchemeMismatch { sender, receiver, .. } = mismatch.clone();
            session.stop(ReceiverPhase::Ended);
            *refusal = Some(Refusal::begin(cx, session.config.spm_request_backoff));
            session.repair.events.push(StreamEvent::OtherScheme { node, sender, receiver });
        }
    }

    /// The source is gone without having said that this is the end.
    fn lose_source(&mut self) {
        self.session.stop(ReceiverPhase::Lost);
        self.session.repair.events.push(FlowEvent::Gone.into());
    }

    /// Looks whether short packets arrive and data does not.
    #[inline]
    fn watch(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, taken: bool, bytes: u32) {
        match packet.body {
            Body::Odata(_) | Body::Rdata(_) if taken && self.watch.is_some() => self.end_watch(),
            // An SPM with a lead that is not believed yet is a packet that arrives too.
            Body::Spm(_) if self.session.is_of(packet) => self.suspect(cx, &packet.body, bytes),
            // Most losses are repaired before the next SPM.
            Body::Ncf(_) if taken && self.watch.is_some() => self.suspect(cx, &packet.body, bytes),
            _ => {}
        }
    }

    #[cold]
    fn end_watch(&mut self) {
        (self.watch, self.refusal) = (None, None);
    }

    /// A packet of `bytes` without data has come.
    fn suspect(&mut self, cx: &mut Cx<'_>, body: &Body, bytes: u32) {
        let Some(ahead) = self.session.behind() else { return };
        let watch = self.watch.get_or_insert_default();
        watch.note(bytes);
        match body {
            Body::Spm(spm) if watch.on_spm(cx.now, spm.sequence, ahead) => {}
            Body::Ncf(_) => return watch.on_confirmation(cx.now),
            _ => return,
        }
        let arrives = watch.arrives;
        let Some(node) = self.session.source() else { return };
        let sent = self.session.negotiation().and_then(Negotiation::packet_bytes);
        let hole = BlackHole { arrives, sent };
        self.session.repair.events.push(StreamEvent::BlackHole { node, hole });
        self.refusal = Some(Refusal::begin(cx, HOLE_SPREAD));
    }

    /// Tells the source that another scheme is spoken here, or that no data arrives.
    #[cold]
    fn write_refusal(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.refusal.as_mut()?.due = false;
        let (scheme, settings) = match (self.session.mismatch(), &self.watch) {
            (Some(mismatch), _) => (mismatch.receiver.to_string(), Vec::new()),
            (None, Some(watch)) => {
                let arrives = OptionValue::Integer(watch.arrives.into());
                (
                    self.session.negotiation()?.scheme.to_string(),
                    [(ARRIVES.to_string(), arrives)].to_vec(),
                )
            }
            (None, None) => return None,
        };
        let value = SchemeAnnouncement { scheme, settings }.encode()?;
        self.session.write_request(buf, |encoder| {
            encoder.raw_option(OptionType::SCHEME, 0, &value);
        })
    }
}

impl Interactive for PgmReceiver {
    type Input = StreamInput;

    /// Does nothing: PGM has no window by which a receiver could make its source wait.
    fn handle_input(&mut self, _cx: &mut Cx<'_>, _input: StreamInput) {}
}

impl Machine for PgmReceiver {
    type Event = StreamEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !self.session.hears() {
            return;
        }
        match &Received::decode(&datagram) {
            Ok(packet) => {
                let taken = self.session.handle_packet(cx, packet);
                if self.session.is_joined() {
                    self.watch(cx, packet, taken, datagram.bytes.len() as u32);
                }
                if taken && self.session.is_joined() && packet.options.has(OptionType::RST) {
                    self.lose_source();
                }
                self.end_if_over(cx);
            }
            Err(reason) => cx.emit(Event::BadInput { reason: *reason }),
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(refusal) = &mut self.refusal {
            refusal.on_timeout(cx);
        }
        let joined = self.session.is_joined();
        self.session.on_timeout(cx);
        if joined && !self.session.is_joined() {
            self.lose_source();
        }
        self.end_if_over(cx);
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {
        self.session.close();
    }

    fn handle_new_path(&mut self, cx: &mut Cx<'_>) {
        if self.session.is_joined() {
            self.session.want_spm(cx);
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.refusal.as_ref().is_some_and(|refusal| refusal.due)
            && let Some(refusal) = self.write_refusal(buf)
        {
            return Some(refusal);
        }
        self.session.next_packet(cx, buf)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.session.repair.events.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        let refusal = self.refusal.as_ref().and_then(|refusal| refusal.next_timeout());
        match self.session.phase {
            ReceiverPhase::Ended => refusal,
            _ => match self.session.next_timeout() {
                Some(at) => Some(refusal.map_or(at, |refusal| refusal.min(at))),
                None => refusal,
            },
        }
    }
}

impl NakRepair {
    fn new(settings: &PgmFlowSettings) -> Self {
        Self { naks: settings.reliable.then(|| Naks::new(settings)), ..Self::default() }
    }

    /// All that there was has been delivered, or passed by where it is not the `whole`.
    fn end(&mut self, cx: &mut Cx<'_>, whole: bool) {
        if whole {
            cx.emit(Event::Completed { bytes: self.delivered_bytes });
        }
        let event = if whole { FlowEvent::Completed } else { FlowEvent::Gone };
        self.events.push(event.into());
    }
}

impl RepairLayer for NakRepair {
    fn naks(&self) -> Option<&Naks> {
        self.naks.as_ref()
    }

    fn naks_mut(&mut self) -> Option<&mut Naks> {
        self.naks.as_mut()
    }

    fn keep(&self, payload: &Payload<'_>) -> Held {
        Held { bytes: payload.bytes.to_vec(), zeros: payload.zeros }
    }

    fn deliver(&mut self, cx: &mut Cx<'_>, index: u64, held: Held) {
        let Held { bytes, zeros } = held;
        // A payload has at most 65535 bytes.
        let len = bytes.len() as u32 + zeros;
        self.delivered_bytes += u64::from(len);
        cx.emit(Event::Delivered { seq: index, bytes: len });
        self.events.push(FlowEvent::Delivered { bytes, zeros }.into());
    }

    fn lose(&mut self, cx: &mut Cx<'_>, from: u64, to: u64) {
        cx.emit(Event::Abandoned { seq: from, count: to - from });
        let count = u32::try_from(to - from).unwrap_or(u32::MAX);
        if let Some(StreamEvent::Flow(FlowEvent::Lost { packets })) = self.events.last_mut() {
            *packets = packets.saturating_add(count);
        } else {
            self.events.push(FlowEvent::Lost { packets: count }.into());
        }
    }
}

/// Message to the source that another scheme is spoken here, or that no data arrives. The source does not answer, so
/// the message is repeated.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    said: u32,
    next_at: Option<Time>,
    due: bool,
}

impl Refusal {
    /// A message that begins within `spread`, since many receivers may have reason for it at one moment.
    fn begin(cx: &mut Cx<'_>, spread: Duration) -> Box<Self> {
        let next_at = Some(cx.now + cx.rng.up_to(spread));
        Box::new(Self { next_at, said: 0, due: false })
    }

    fn on_timeout(&mut self, cx: &Cx<'_>) {
        if self.next_at.is_some_and(|at| at <= cx.now) {
            self.due = true;
            self.said += 1;
            self.next_at = (self.said < REFUSALS).then_some(cx.now + REFUSAL_INTERVAL);
        }
    }

    const fn next_timeout(&self) -> Option<Time> {
        self.next_at
    }
}

/// Number of messages, and time between two: at a loss of 10 % all are lost once in a thousand times.
const REFUSALS: u32 = 3;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(300);

/// Time in which the receivers behind one black hole send their first messages; chosen.
const HOLE_SPREAD: Duration = Duration::from_secs(1);
