//! Sending end of a transfer over PGM.

mod input;
pub(super) mod members;
mod packets;
mod pauses;
mod repairs;
mod slow;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, NodeId, Time};

use self::packets::ObjectPackets;
use self::pauses::{Pauses, Wait};
use self::slow::SlowMeter;
use super::course::Course;
use super::wire::{ENTRIES_MAX, ENTRIES_PER_OPTION, Entry};
use super::{
    HostLoad, ObjectSender, ObjectSourceInput, ObjectSourceSetup, ObjectStatus, PacketCounts, Part,
};
use crate::congestion::{BoxControl, Permit, Regime};
use crate::pgm::SourceConfig;
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::session::{DataPacket, SourceSession};
use crate::pgm::wire::{Encoder, OptionType, Received};
use crate::timers::{Timers, reasons};
use crate::{Datagram, FlowEvent, Interactive, Machine, Transmit};

/// Source of an object: sends its members what they request, and ends when all have it.
pub struct ObjectSource {
    session: SourceSession,
    packets: ObjectPackets,
    course: Course,
    slow: SlowMeter,
    pauses: Pauses,
    host: HostLoad,
    /// Least rate limit of a member, and the name under which it reports.
    limit: Option<(Bitrate, NodeId)>,
    limited_by: Option<NodeId>,
    timers: Timers<Timer, 1>,
    confirm: VecDeque<Entry>,
    /// Last confirmed run, which is not confirmed again at once.
    confirmed_run: Option<(Time, Entry)>,
    requests: u64,
    /// True if receivers know that nothing is left, and time of the last such announcement.
    is_exhaustion_sent: bool,
    exhausted_at: Time,
}

reasons! {
    enum Timer {
        Answers,
    }
}

impl ObjectSource {
    /// Creates a source under `control`. An object without a layout makes it fail at its start.
    pub fn new(setup: ObjectSourceSetup<'_>, control: BoxControl) -> Self {
        let mut config =
            SourceConfig::from_options(setup.node, setup.group, setup.tsi, setup.options);
        config.data_port = setup.data_port;
        config.start = setup.start;
        // A joining receiver needs an SPM to learn the object, even if no data is sent.
        if !setup.options.has("spm_interval") {
            config.settings.spm_interval = SPM_INTERVAL;
        }
        config.settings.linger = FIN_TIME;
        let course = Course::new(&setup);
        let status_interval = course.status_interval();
        let ObjectSourceSetup { supply, symbol_bytes, fec, slow, .. } = setup;
        fresh! {
            Self {
                session: SourceSession::new(config, control, false),
                packets: ObjectPackets::new(supply, symbol_bytes, fec, status_interval),
                course,
                slow: SlowMeter::new(slow),
                is_exhaustion_sent: true,
            }
            pauses, host, limit, limited_by, timers, confirm, confirmed_run, requests, exhausted_at
        }
    }

    /// Sets the scheme, and the scheme announcement in SPMs.
    #[must_use]
    pub fn speaking(mut self, scheme: &'static str, announced: Option<SchemeAnnouncement>) -> Self {
        self.session.scheme.speak(scheme, announced);
        self
    }

    pub(crate) fn staying(mut self, linger: Duration) -> Self {
        self.course.stay(linger);
        self
    }

    /// Writes an answer to a member, or else confirmations of requests.
    fn write_answer(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((node, answer)) = self.course.members.answers.pop_front() {
            return Some(self.session.write_spm_to(node, buf, |encoder| {
                self.packets.announce(encoder);
                encoder.raw_option(OptionType::MEMBER, 0, &answer.encode());
            }));
        }
        if self.confirm.is_empty() {
            return None;
        }
        let count = self.confirm.len().min(ENTRIES_MAX);
        let entries: Vec<Entry> = self.confirm.drain(..count).collect();
        Some(self.session.write_notice(buf, |encoder| {
            write_entries(encoder, OptionType::CONFIRM, &entries);
        }))
    }

    fn ask_probes(&mut self, now: Time, id: u64, range: (u32, u32)) {
        let control = self.session.control.as_ref();
        if control.permit_overhead(now) != Permit::Now || !self.course.members.may_probe(now, id) {
            return;
        }
        let rate = control.gauges().allowed_bits_per_s(self.packets.offer.layout.symbol_bytes);
        self.course.probes.ask(now, range, rate);
    }

    fn waits_for(&self) -> Wait {
        let packets = &self.packets;
        if !self.course.is_serving() || !packets.offer.begun {
            return Wait::Off;
        }
        if packets.chosen.is_none() {
            let growing = packets.offer.announcement.growing;
            return if growing { Wait::Content } else { Wait::RequestTimes };
        }
        let gauges = self.session.control.gauges();
        let capped = gauges.regime == Regime::Cap;
        Wait::Permit(gauges.regime, if capped { self.limited_by } else { gauges.representative })
    }

    fn poll_session(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let packets = &self.packets;
        let control = self.session.poll_control(cx.now, buf, |encoder| packets.announce(encoder));
        if control.is_some() {
            return control;
        }
        let symbol = self.next_symbol(cx, buf);
        let wait = if symbol.is_some() { Wait::Free } else { self.waits_for() };
        self.pauses.enter(cx.now, wait);
        symbol
    }

    fn next_symbol(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.session.is_active() {
            return None;
        }
        let sending = self.session.is_sending();
        let ready = if sending { self.packets.choose(cx.now) } else { None };
        if let Some((len, repair)) = ready
            && self.session.may_send(cx, len, false)
        {
            let (now, index) = (cx.now, self.session.next);
            let packet = DataPacket { again: None, len, last: false, repair };
            let read = |out: &mut Vec<u8>| self.packets.write(now, index, out);
            let transmit = self.session.write_data(cx, packet, buf, read);
            self.course.probes.note_data(buf.len() as u32 + transmit.zeros);
            return Some(transmit);
        }
        if ready.is_none()
            && sending
            && let Some(at) = self.packets.repairs.next_due().filter(|at| *at > cx.now)
        {
            self.session.wake_by(at);
        }
        self.session.rest(cx, ready.is_none());
        None
    }

    /// Announces once that nothing is left, at a limited rate.
    fn announce_exhaustion(&mut self, now: Time) {
        if !self.packets.is_exhausted() {
            self.is_exhaustion_sent = false;
        } else if !self.is_exhaustion_sent {
            let soonest = self.exhausted_at + EXHAUSTED_INTERVAL;
            if now < soonest {
                self.session.wake_by(soonest);
                return;
            }
            (self.is_exhaustion_sent, self.exhausted_at) = (true, now);
            self.session.announce_now(now);
        }
    }

    pub(super) fn review(&mut self, cx: &mut Cx<'_>) {
        let packets = &mut self.packets;
        packets.status_interval = self.course.status_interval();
        let content_bytes = packets.offer.layout.len(Part::Content);
        let turn = self.course.review(cx, &mut packets.offer.failed, content_bytes);
        if turn.begins {
            self.begin_content(cx.now);
        }
        if turn.ends {
            self.end(cx);
        }
    }

    fn begin_content(&mut self, now: Time) {
        self.packets.offer.begun = true;
        self.session.announce_now(now);
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.confirm.clear();
        self.course.end(cx.now, self.packets.offer.supply.is_repeatable());
        self.packets.chosen = None;
        self.session.close(cx.now);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        let offer = &mut self.packets.offer;
        let repeatable = offer.supply.is_repeatable();
        if !self.course.take_tick(cx.now, self.session.is_over(), repeatable) {
            return;
        }
        // Both are polled: the end of growing content comes with its digests.
        let (grown, known) = (offer.poll_growth(|_| true), offer.poll_digests());
        if grown || known {
            self.session.announce_now(cx.now);
        }
        if grown {
            self.course.watch.grown_at = Some(cx.now);
        }
        for reporter in self.course.lose_members(cx.now, &self.packets.offer.announcement) {
            self.session.control.on_leave(cx, reporter);
        }
        self.check_pace(cx);
        self.course.judge_end(cx.now, self.packets.offer.announcement.growing);
        self.review(cx);
    }

    fn check_pace(&mut self, cx: &mut Cx<'_>) {
        let (packets, members) = (&mut self.packets, &mut self.course.members);
        let busy = packets.offer.begun && !packets.is_exhausted() && members.active() > 1;
        let limiting = self.session.control.gauges().representative;
        let slow = self.slow.who_is_too_slow(cx.now, packets.payload_bytes, busy, limiting);
        if let Some(reporter) = slow
            && members.defer(reporter)
        {
            self.session.control.on_leave(cx, reporter);
        }
        let mut least = members.least_limit();
        while let Some((limit, reporter)) = least
            && packets.offer.begun
            && self.slow.is_below(limit)
            && members.active() > 1
            && members.defer(reporter)
        {
            self.session.control.on_leave(cx, reporter);
            least = members.least_limit();
        }
        self.obey(cx.now, least);
    }

    pub(super) fn obey(&mut self, now: Time, least: Option<(Bitrate, NodeId)>) {
        if least != self.limit {
            self.limit = least;
            let binds = self.session.control.set_limit(now, least.map(|(limit, _)| limit));
            self.limited_by = least.filter(|_| binds).map(|(_, reporter)| reporter);
        }
    }
}

pub(super) fn write_entries(encoder: &mut Encoder<'_>, kind: u8, entries: &[Entry]) {
    let mut value = Vec::new();
    for some in entries.chunks(ENTRIES_PER_OPTION) {
        value.clear();
        some.iter().for_each(|entry| entry.encode(&mut value));
        encoder.raw_option(kind, 0, &value);
    }
}

impl ObjectSender for ObjectSource {
    fn status(&self) -> ObjectStatus {
        let packets = &self.packets;
        let gauges = self.session.control.gauges();
        let status = self.course.status(&packets.offer.announcement, packets.is_exhausted());
        ObjectStatus {
            packets: PacketCounts { requests: self.requests, ..packets.sent },
            rate_bits_per_s: gauges.allowed_bits_per_s(packets.offer.layout.symbol_bytes),
            rtt: gauges.rtt,
            limiting: self
                .limited_by
                .filter(|_| gauges.regime == Regime::Cap)
                .or(gauges.representative),
            limits: self.pauses.limits(&self.host, &status.members),
            ..status
        }
    }
}

impl Interactive for ObjectSource {
    type Input = ObjectSourceInput;

    fn handle_input(&mut self, cx: &mut Cx<'_>, input: ObjectSourceInput) {
        match input {
            ObjectSourceInput::Begin if self.course.begin(cx.now) => self.begin_content(cx.now),
            ObjectSourceInput::Begin => {}
            ObjectSourceInput::ExcuseSilence => self.course.watch.excused_at = cx.now,
            ObjectSourceInput::Dismiss { id } => {
                if let Some(reporter) = self.course.members.remove(id) {
                    self.session.control.on_leave(cx, reporter);
                }
                self.review(cx);
            }
            ObjectSourceInput::Host(load) => self.host = load,
        }
    }
}

impl Machine for ObjectSource {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.course.is_waiting() || self.session.is_over() {
            return;
        }
        let outcome = Received::decode(&datagram).and_then(|packet| self.take_packet(cx, &packet));
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.course.start(cx.now) {
            // Random number of 24 bits: a receiver that knows another number detects the restart.
            self.packets.epoch = cx.rng.below(1 << 24) as u32;
        }
        self.session.on_timeout(cx);
        if self.session.has_lingered(cx.now, false) {
            self.session.finish();
        }
        self.tick(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.course.close();
        self.end(cx);
    }

    fn handle_new_path(&mut self, cx: &mut Cx<'_>) {
        self.session.take_new_path(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.timers.disarm(Timer::Answers);
        if let Some(probe) = self.course.probes.poll(cx.now) {
            let transmit = self.session.write_notice(buf, |encoder| {
                encoder.pad_options(OptionType::PROBE, &probe.encode(), probe.size as usize);
            });
            self.session.control.on_overhead(cx.now, buf.len() as u32);
            return Some(transmit);
        }
        match self.session.control.permit_overhead(cx.now) {
            Permit::Now => {
                if let Some(answer) = self.write_answer(buf) {
                    self.session.control.on_overhead(cx.now, buf.len() as u32);
                    return Some(answer);
                }
            }
            Permit::At(at) => {
                let answers = &self.course.members.answers;
                if !answers.is_empty() || !self.confirm.is_empty() {
                    self.timers.arm(Timer::Answers, at);
                }
            }
            Permit::Blocked => {}
        }
        if let Some(transmit) = self.poll_session(cx, buf) {
            return Some(transmit);
        }
        if self.course.is_serving() {
            let exhausted = self.packets.is_exhausted();
            // Digests may be all that is left to send. Growing content announces its length first.
            let growing = self.packets.offer.announcement.growing;
            if exhausted && !growing && self.packets.offer.poll_digests() {
                self.session.announce_now(cx.now);
            }
            self.announce_exhaustion(cx.now);
            return self.poll_session(cx, buf);
        }
        None
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.course.outcome.event.take()
    }

    fn next_timeout(&self) -> Option<Time> {
        let session = self.session.next_timeout()?;
        let own = [self.timers.next(), self.course.next_timeout()];
        Some(own.into_iter().flatten().fold(session, Time::min))
    }
}

const SPM_INTERVAL: Duration = Duration::from_secs(1);

const FIN_TIME: Duration = Duration::from_secs(1);

/// Least interval between two SPMs that announce that nothing is left.
const EXHAUSTED_INTERVAL: Duration = Duration::from_millis(20);
