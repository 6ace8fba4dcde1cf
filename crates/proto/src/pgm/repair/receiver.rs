//! Receiver of a stream: requests missing packets by NAK, and delivers in order.

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

/// PGM receiver: requests missing packets, delivers in order, and sends its scheme's reports.
pub struct PgmReceiver {
    session: ReceiverSession<NakRepair>,
    refusal: Option<Box<Refusal>>,
    /// Watch for a black hole, while sent packets are missing here.
    watch: Option<Box<Watch>>,
}

#[derive(Default)]
#[repr(C)] // Hot fields first: see the receiver's session.
struct NakRepair {
    delivered_bytes: u64,
    events: Events,
    naks: Option<Naks>,
}

/// Events for the application. The first has its own field, since mostly there is only one.
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
        // Checked before it is taken, since taking writes memory.
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
    /// Creates a receiver with `feedback` as its half of the scheme. Settings are clamped.
    pub fn new(config: ReceiverConfig, feedback: BoxFeedback) -> Self {
        let repair = NakRepair::new(&config.settings);
        let session = ReceiverSession::new(config, feedback, repair);
        Self { session, refusal: None, watch: None }
    }

    /// Creates a receiver of one scheme. It follows announced settings, and ends at a mismatch.
    pub fn speaking(config: ReceiverConfig, negotiation: Negotiation) -> Self {
        let repair = NakRepair::new(&config.settings);
        let session = ReceiverSession::speaking(config, negotiation, repair);
        Self { session, refusal: None, watch: None }
    }

    #[cfg(test)]
    pub(crate) fn feedback(&self) -> &dyn crate::congestion::ErasedFeedback {
        self.session.feedback()
    }

    #[cfg(test)]
    pub(crate) fn missing_packets(&self) -> usize {
        self.session.repair.naks.as_ref().map_or(0, Naks::len)
    }

    /// Ends after the last packet, or at a scheme mismatch, reported to source and application.
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
            && let (Some(source), Some(mismatch)) = (session.source, session.mismatch())
        {
            let SchemeMismatch { sender, receiver, .. } = mismatch.clone();
            session.stop(ReceiverPhase::Ended);
            *refusal = Some(Refusal::begin(cx, session.config.spm_request_backoff));
            let event = StreamEvent::OtherScheme { node: source.node, sender, receiver };
            session.repair.events.push(event);
        }
    }

    fn lose_source(&mut self) {
        self.session.stop(ReceiverPhase::Lost);
        self.session.repair.events.push(FlowEvent::Gone.into());
    }

    #[inline]
    fn watch(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, taken: bool, bytes: u32) {
        match packet.body {
            Body::Odata(_) | Body::Rdata(_) if taken && self.watch.is_some() => {
                (self.watch, self.refusal) = (None, None);
            }
            // An SPM whose lead is not believed yet also shows that packets arrive.
            Body::Spm(_)
                if self.session.source.is_some_and(|source| source.tsi == packet.tsi()) =>
            {
                self.suspect(cx, &packet.body, bytes);
            }
            // A confirmation starts no watch: most losses are repaired before the next SPM.
            Body::Ncf(_) if taken && self.watch.is_some() => self.suspect(cx, &packet.body, bytes),
            _ => {}
        }
    }

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
        let Some(source) = self.session.source else { return };
        let sent = self.session.negotiation().and_then(Negotiation::packet_bytes);
        let hole = BlackHole { arrives, sent };
        self.session.repair.events.push(StreamEvent::BlackHole { node: source.node, hole });
        self.refusal = Some(Refusal::begin(cx, HOLE_SPREAD));
    }

    #[cold]
    fn write_refusal(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.refusal.as_mut()?.due = false;
        let (scheme, settings) = match (self.session.mismatch(), &self.watch) {
            (Some(mismatch), _) => (mismatch.receiver.to_string(), Vec::new()),
            (None, Some(watch)) => {
                let arrives = OptionValue::Integer(watch.arrives.into());
                let settings = [(ARRIVES.to_string(), arrives)].to_vec();
                (self.session.negotiation()?.scheme.to_string(), settings)
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
        if !self.session.takes_packets() {
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
        let refusal = self.refusal.as_ref().and_then(|refusal| refusal.next_at);
        let ended = self.session.phase == ReceiverPhase::Ended;
        let session = if ended { None } else { self.session.next_timeout() };
        refusal.into_iter().chain(session).min()
    }
}

impl NakRepair {
    fn new(settings: &PgmFlowSettings) -> Self {
        Self { naks: settings.reliable.then(|| Naks::new(settings)), ..Self::default() }
    }

    /// Reports the end to the application: `whole` is false if packets were given up.
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

/// Message that another scheme is used here, or that no data arrives; repeated, as unanswered.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    said: u32,
    next_at: Option<Time>,
    due: bool,
}

impl Refusal {
    /// Schedules the first message within `spread`, since many receivers may send it at once.
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
}

/// Number of messages, and interval: at 10 % loss all are lost once in a thousand times.
const REFUSALS: u32 = 3;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(300);

/// Spread of the first messages of receivers behind one black hole; chosen.
const HOLE_SPREAD: Duration = Duration::from_secs(1);
