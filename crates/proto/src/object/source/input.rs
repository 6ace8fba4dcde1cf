//! Packet input of a transfer's source: messages, reports and requests.

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, Time};

use super::ObjectSource;
use super::members::Standing;
use crate::object::layout::{BlockId, part_of};
use crate::object::wire::{
    ENTRIES_MAX, Entry, MemberMessage, PathMessage, decode_limit, decode_load,
};
use crate::object::{MemberLoad, MemberState};
use crate::pgm::wire::{Body, OptionType, Packet, Received};

/// Waiting members from which on parity repairs a loss for another member too, and requests are
/// confirmed to the group.
const CROWD: usize = 8;

/// Longest run that is repaired block by block, so that equal requests coincide.
const SHORT_RUN: u64 = 4;

const COLLECT_MAX: Duration = Duration::from_millis(250);

/// Most waiting confirmations; receivers repeat requests without one.
const CONFIRM_MAX: usize = 16 * ENTRIES_MAX;

impl ObjectSource {
    pub(super) fn take_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        if !self.session.is_ours(packet) {
            return Err(BadInput::Foreign);
        }
        let wants = packet.options.has(OptionType::WANT);
        match packet.body {
            Body::Spmr => match packet.options.find(OptionType::MEMBER) {
                Some(option) => {
                    let load = match packet.options.find(OptionType::LOAD) {
                        Some(load) => decode_load(load.value).ok_or(BadInput::Malformed)?,
                        None => MemberLoad::default(),
                    };
                    let limit = match packet.options.find(OptionType::LIMIT) {
                        Some(limit) => Some(decode_limit(limit.value).ok_or(BadInput::Malformed)?),
                        None => None,
                    };
                    let outcome = self.take_member(cx, packet, option.value, (load, limit));
                    outcome.and_then(|id| self.take_path(cx, packet, id))
                }
                None => {
                    let outcome = self.session.take_request(cx, packet);
                    self.session.observe(cx);
                    outcome
                }
            },
            Body::Nnak(nak) if wants && !self.session.is_named_by(&nak) => Err(BadInput::Foreign),
            Body::Nak(_) | Body::Nnak(_) | Body::Ack(_) => self.take_feedback(cx, packet, wants),
            // Looped-back packets of this source, and packets for network elements.
            _ => Ok(()),
        }
    }

    fn take_feedback(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, wants: bool) -> Checked {
        let told = self.session.read_report(cx.now, packet)?;
        let reporter = told.and_then(|told| told.reporter);
        let through_elements = matches!(packet.body, Body::Nak(_));
        match self.course.members.standing_of(cx.now, packet.from, reporter, through_elements) {
            Standing::Unknown => return Err(BadInput::Foreign),
            // The member knows its standing from the answer to each of its messages.
            Standing::Unserved => return Ok(()),
            Standing::Member => {}
        }
        let rtt = told.and_then(|told| told.round_trip);
        if told.is_some() || !wants {
            let outcome = self.take_report(cx, packet);
            cx.check(outcome);
            self.session.observe(cx);
        } else {
            self.session.control.on_unreached_receiver(cx);
        }
        if !wants {
            return Ok(());
        }
        // Requests of unproven members harm no other member if none waits.
        let packets = &self.packets;
        let limited = !packets.is_exhausted() && self.course.members.is_unproven(packet.from);
        if !limited {
            return self.take_want(cx, packet, rtt);
        }
        if !self.course.members.has_spare(packets.sent.symbols + packets.sent.parity) {
            return Err(BadInput::TableFull);
        }
        let before = packets.repairs.waiting_symbols;
        let outcome = self.take_want(cx, packet, rtt);
        let after = self.packets.repairs.waiting_symbols;
        self.course.members.spend_spare(after.saturating_sub(before));
        outcome
    }

    fn take_report(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        match packet.body {
            Body::Nak(nak) => {
                // In a small group, a confirmation would only meet the queue that just overflowed.
                let members = &self.course.members;
                let few = members.active() < CROWD && members.by_node.contains_key(&packet.from);
                let told = self.session.take_nak(cx, packet, nak, !few)?;
                if let Some(told) = told.filter(|_| !few)
                    && !self.session.confirm(cx.now, packet, nak, told.round_trip)?
                {
                    return Err(BadInput::TableFull);
                }
                Ok(())
            }
            Body::Nnak(nak) => self.session.take_nak(cx, packet, nak, false).map(drop),
            Body::Ack(vector) => {
                let len = |index| self.packets.len(index);
                self.session.take_ack(cx, packet, vector, len)
            }
            _ => Ok(()),
        }
    }

    fn take_member(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        value: &[u8],
        (load, limit): (MemberLoad, Option<Bitrate>),
    ) -> Checked<u64> {
        let message = MemberMessage::decode(value).ok_or(BadInput::Malformed)?;
        let (id, reporter) = (message.id, message.reporter);
        let changed =
            self.course.members.take_message(cx.now, packet.from, packet.authenticated, message)?;
        self.course.members.note_reports(id, load, limit, None);
        let least =
            limit.map(|limit| (limit, reporter)).filter(|_| self.course.members.is_served(id));
        if let Some(own) = least.filter(|own| self.limit.is_none_or(|least| *own < least)) {
            self.obey(cx.now, Some(own));
        }
        self.session.control.on_unreached_receiver(cx);
        let quits = [MemberState::Done, MemberState::Left, MemberState::Failed];
        if changed.is_some_and(|state| quits.contains(&state)) {
            self.session.control.on_leave(cx, reporter);
        }
        self.review(cx);
        let members = self.course.members.all.values();
        // No member is left that needs the end repeated.
        if self.course.has_ended()
            && members.clone().all(|member| member.is_settled)
            && self.session.has_said_end()
        {
            self.session.finish();
        }
        Ok(id)
    }

    fn take_path(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, id: u64) -> Checked {
        let mut limit = None;
        for option in packet.options.iter().filter(|option| option.kind == OptionType::PATH) {
            match PathMessage::decode(option.value).ok_or(BadInput::Malformed)? {
                PathMessage::Ask { low, high } => self.ask_probes(cx.now, id, (low, high)),
                PathMessage::Limit(found) => limit = Some(found),
            }
        }
        // Losses due to packet length are no sign of congestion.
        if let Some(reporter) = self.course.members.note_path(cx.now, id, limit) {
            self.session.control.on_leave(cx, reporter);
        }
        Ok(())
    }

    fn take_want(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        rtt: Option<Duration>,
    ) -> Checked {
        if self.course.has_ended() {
            return Ok(());
        }
        self.requests += 1;
        let crossing = self.session.crossing_time(cx.now, rtt);
        let mut outcome = Ok(());
        let options = packet.options.iter().filter(|option| option.kind == OptionType::WANT);
        for option in options {
            let Some(entries) = Entry::decode_all(option.value) else {
                return Err(BadInput::Malformed);
            };
            for entry in entries {
                outcome = outcome.and(self.take_entry(cx.now, entry, crossing, rtt));
            }
        }
        outcome
    }

    fn take_entry(
        &mut self,
        now: Time,
        entry: Entry,
        crossing: Duration,
        rtt: Option<Duration>,
    ) -> Checked {
        let layout = self.packets.offer.layout;
        let (first, blocks) = match entry {
            Entry::Run { first, count } => (first, u64::from(count)),
            Entry::Block { block_id, .. } => (block_id, 1),
        };
        if !layout.has(first) || !layout.has(first + blocks - 1) {
            return Err(BadInput::Absurd);
        }
        let sends = self.packets.offer.may_send(part_of(first));
        match entry {
            Entry::Block { block_id, missing, .. } if sends => {
                let missing = missing & layout.mask(block_id);
                if missing == 0 {
                    return Err(BadInput::Absurd);
                }
                self.ask_block(now, block_id, missing, crossing, rtt)
            }
            Entry::Run { .. } if sends && blocks <= SHORT_RUN => {
                for block_id in first..first + blocks {
                    if !self.packets.recent_sweep.has(block_id, now, crossing) {
                        self.ask_block(now, block_id, layout.mask(block_id), crossing, rtt)?;
                    }
                }
                Ok(())
            }
            _ => {
                self.packets.request_run(first..first + blocks, now, crossing);
                let interval = self.session.confirm_interval(now, rtt);
                let is_again = |(at, last)| last == entry && now.since(at) < interval;
                if self.confirmed_run.is_some_and(is_again) {
                    return Ok(());
                }
                self.confirmed_run = Some((now, entry));
                self.confirm(entry)
            }
        }
    }

    fn ask_block(
        &mut self,
        now: Time,
        block_id: BlockId,
        missing: u64,
        crossing: Duration,
        rtt: Option<Duration>,
    ) -> Checked {
        if self.packets.planner.requested.contains(block_id) {
            return self.confirm(Entry::Block { block_id, missing, any: false });
        }
        let active = self.course.members.active();
        // A single member waits for no other requests.
        let wait = if active > 1 { self.session.longest_round_trip(now) } else { None };
        let due = now + wait.unwrap_or(Duration::ZERO).min(COLLECT_MAX);
        let interval = self.session.confirm_interval(now, rtt);
        let spans = (crossing, interval);
        let repairs = &mut self.packets.repairs;
        match repairs.ask(block_id, missing, (now, due), spans, active >= CROWD)? {
            Some(promise) => self.confirm(promise),
            None => Ok(()),
        }
    }

    fn confirm(&mut self, entry: Entry) -> Checked {
        if self.confirm.len() >= CONFIRM_MAX {
            return Err(BadInput::TableFull);
        }
        self.confirm.push_back(entry);
        Ok(())
    }
}
