//! Receiver of an object over TRAM: stores symbols, and reports what it has and lacks.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, NodeId, Time};

use super::stream::ANNOUNCEMENT;
use super::words::{Lacks, RANGES_MAX, Word, decode_probe};
use crate::object::layout::{BLOCK_SYMBOLS, Layout, first_symbol_of, part_of};
use crate::object::receiver::assembly::{Assembly, TransferPhase, Want};
use crate::object::receiver::blocks::{Blocks, Taken};
use crate::object::receiver::continues;
use crate::object::wire::{Answer, Claim, Notice, SymbolName};
use crate::object::{
    ObjectError, ObjectReceiverInput, ObjectReceiverSetup, ObjectResult, ObjectStatus, ObjectTaker,
    Part, ReceiverFailure,
};
use crate::pgm::session::dissent::Dissent;
use crate::stack::Stack;
use crate::tram::{DATA_HEADER, TramReceiver, TramSetup, TreeNegotiation, name_number};
use crate::{Datagram, FlowEvent, Interactive, Machine, StreamEvent, Transmit, passes_on};

/// Receiver of an object over TRAM.
pub struct TramObjectReceiver {
    tram: TramReceiver,
    source: NodeId,
    assembly: Assembly,
    /// Last packet taken from the session, and zeros that follow it.
    packet: Vec<u8>,
    zeros: u32,
    /// True if that packet waits, since the store cannot take it yet.
    is_packet_waiting: bool,
    is_request_due: bool,
    /// Packets without this object, with the last number. Floods are cheap: only duration counts.
    refused: Dissent<u64, { u32::MAX }>,
}

impl TramObjectReceiver {
    /// Creates a receiver for `setup`, of an object from node `source`.
    pub fn new(
        setup: ObjectReceiverSetup<'_>,
        source: NodeId,
        negotiation: TreeNegotiation,
    ) -> Self {
        let (head, name) = (setup.head, setup.name.as_str());
        let name = if name.is_empty() { 0 } else { name_number(name) };
        let session = TramSetup::of(setup.tsi, source, setup.start, setup.options);
        let session = TramSetup { head, name, ..session };
        fresh! {
            Self {
                tram: TramReceiver::kept(&session, setup.node, negotiation),
                source,
                assembly: Assembly::new(setup),
            }
            packet, zeros, is_packet_waiting, is_request_due, refused
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        if let Err(error) = self.step(cx).and_then(|()| self.take_packets(cx)) {
            self.fail(cx, error.reason);
        }
        if self.assembly.phase.is_over() {
            self.tram.pass_over(cx);
            while self.tram.poll_event().is_some() {}
        }
        if core::mem::take(&mut self.is_request_due) && !self.assembly.phase.is_over() {
            let claim = match self.assembly.phase {
                TransferPhase::Listening | TransferPhase::Manifest => Claim::Joined,
                _ => Claim::Receiving,
            };
            self.assembly.member.claim(cx, claim, String::new());
        }
    }

    fn lose_source(&mut self, cx: &mut Cx<'_>, reason: &str) {
        if self.assembly.lose_source(cx, reason, self.tram.heard_at()) {
            self.end(cx);
        }
    }

    fn step(&mut self, cx: &mut Cx<'_>) -> ObjectResult {
        let is_request_due = &mut self.is_request_due;
        self.assembly.advance(cx, &mut |_: &mut Cx<'_>, _: &Blocks, want| {
            // The message that content is wanted already lists what is missing.
            *is_request_due |= matches!(want, Want::Part(_) | Want::Lacking { fresh: false });
        })?;
        if self.assembly.phase == TransferPhase::Done {
            self.tram.release(cx);
        }
        Ok(())
    }

    fn take_packets(&mut self, cx: &mut Cx<'_>) -> ObjectResult {
        let mut taken = false;
        // Content is dropped during a search: waiting would close the window of all receivers.
        while !self.assembly.phase.is_over() {
            if !core::mem::take(&mut self.is_packet_waiting) {
                let Some(zeros) = self.tram.take_packet(&mut self.packet) else { break };
                (self.zeros, taken) = (zeros, true);
            }
            let packet = core::mem::take(&mut self.packet);
            let waits = self.take_packet(cx, &packet, self.zeros);
            self.packet = packet;
            self.is_packet_waiting = waits?;
            if self.is_packet_waiting {
                break;
            }
        }
        if taken {
            self.tram.after_progress(cx);
        }
        let wants = matches!(
            self.assembly.phase,
            TransferPhase::Listening | TransferPhase::Manifest | TransferPhase::Content
        );
        if !wants || self.is_packet_waiting {
            return Ok(());
        }
        while let Some(event) = self.tram.poll_event() {
            match event {
                // These packets are no longer repaired: the source sends their symbols in new ones.
                StreamEvent::Flow(FlowEvent::Lost { .. }) => self.is_request_due = true,
                StreamEvent::Flow(FlowEvent::Gone) if self.tram.is_pruned() => {
                    return Err(ObjectError::new(PRUNED));
                }
                StreamEvent::Flow(FlowEvent::Gone) => {
                    self.lose_source(cx, SILENT);
                    return Ok(());
                }
                _ => {}
            }
        }
        if self.tram.has_delivered_all() {
            self.lose_source(cx, ENDED);
        }
        Ok(())
    }

    fn take_packet(&mut self, cx: &mut Cx<'_>, bytes: &[u8], zeros: u32) -> ObjectResult<bool> {
        if let Some((&ANNOUNCEMENT, rest)) = bytes.split_first() {
            let notice = Notice::decode(rest).map(|it| (it, Layout::new(&it.announcement)));
            let Some((notice, Some(layout))) = notice else { return self.refuse(cx) };
            return match &self.assembly.notice {
                Some(before) if !continues(&before.announcement, &notice.announcement) => {
                    self.refuse(cx)
                }
                _ => {
                    self.refused.contradict();
                    self.announced(cx, notice, layout).map(|()| false)
                }
            };
        }
        let symbol = SymbolName::decode(bytes).filter(|it| it.0.symbol < BLOCK_SYMBOLS);
        let Some((name, rest)) = symbol else { return self.refuse(cx) };
        let len = rest.len() as u64 + u64::from(zeros);
        match self.assembly.accepts(name, len) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(_) => return self.refuse(cx),
        }
        if part_of(name.block_id) == Part::Content && name.block_id >= self.assembly.content_end {
            self.step(cx)?;
            if name.block_id >= self.assembly.content_end {
                // If an earlier block is missing, this symbol is requested again instead.
                let waits = self.assembly.blocks.left(Part::Content) == 0;
                return Ok(waits);
            }
        }
        self.refused.contradict();
        let taken = self.assembly.take_symbol(cx, name, (rest, zeros))?;
        if taken == Taken::Completed {
            self.step(cx)?;
        }
        Ok(false)
    }

    /// Refuses a packet of no object or of another one. It may be forged, so it is requested again.
    fn refuse(&mut self, cx: &mut Cx<'_>) -> ObjectResult<bool> {
        cx.emit(Event::BadInput { reason: BadInput::Malformed });
        let number = self.tram.taken().saturating_sub(1);
        let wrong = self.refused.claim(cx.now, number, Duration::ZERO, |_| true);
        match (wrong, &self.assembly.notice) {
            (false, _) => Ok(false),
            (true, None) => Err(ObjectError::new(WRONG)),
            (true, Some(_)) => Err(ObjectError::new(OTHER)),
        }
    }

    fn announced(&mut self, cx: &mut Cx<'_>, notice: Notice, layout: Layout) -> ObjectResult {
        let before = self.assembly.notice.replace(notice);
        self.assembly.blocks.layout = layout;
        let Some(before) = before else {
            self.assembly.begin()?;
            self.assembly.member.join_once(cx);
            return self.step(cx);
        };
        let (old, new) = (before.announcement, notice.announcement);
        self.assembly.grow(cx, (&old, &new), &mut |_: &mut Cx<'_>, _: &Blocks, _| {})?;
        self.step(cx)?;
        // Missing symbols were sent before this receiver lacked them, or could take them.
        self.is_request_due |= notice.exhausted && self.assembly.phase == TransferPhase::Content;
        Ok(())
    }

    fn lacks(&self) -> Option<Lacks> {
        let blocks = &self.assembly.blocks;
        let mut lacking = blocks.lacking();
        match self.assembly.phase {
            TransferPhase::Manifest => {}
            TransferPhase::Content | TransferPhase::Verifying => {
                let end = blocks.layout.symbol_ids(Part::Content).end;
                lacking.insert(first_symbol_of(self.assembly.content_end).min(end)..end);
            }
            _ => return None,
        }

        lacking.limit(RANGES_MAX);
        Some(Lacks {
            after: self.tram.taken().saturating_sub(self.is_packet_waiting.into()),
            known: blocks.layout.symbol_ids(Part::Content).end,
            ranges: lacking.iter().take(RANGES_MAX).collect(),
        })
    }

    fn watch_scheme(&mut self, cx: &mut Cx<'_>) {
        if let Some(mismatch) = self.tram.mismatch()
            && self.assembly.fail_mismatched(cx, mismatch)
        {
            self.end(cx);
        }
    }

    fn given_up_until(&self) -> Option<Time> {
        let told =
            self.assembly.member.stalled_answer_at.filter(|_| !self.assembly.phase.is_over());
        told.map(|told| self.tram.heard_at().unwrap_or_default().max(told) + GIVEN_UP_SILENCE)
    }

    fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        if self.assembly.fail(cx, reason) {
            self.end(cx);
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.is_packet_waiting = false;
        self.tram.handle_close(cx);
    }

    fn note_length(&mut self, now: Time, len: u64) {
        let Assembly { notice, phase, path, .. } = &mut self.assembly;
        let symbol = notice.map(|notice| u64::from(notice.announcement.symbol_bytes));
        if len >= symbol.map_or(UNKNOWN_LONG, |symbol| DATA_HEADER as u64 + symbol) {
            path.on_long();
        } else if (*phase == TransferPhase::Listening || self.assembly.wants_packets())
            && self.tram.lacks_packets()
        {
            self.assembly.path.on_ahead(now);
        }
    }

    fn take_answer(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Checked {
        if let Some(probe) = decode_probe(bytes) {
            self.assembly.path.on_probe(cx.now, probe);
            return Ok(());
        }
        let answer = Answer::decode(bytes).ok_or(BadInput::Malformed)?;
        let (_, failed) = self.assembly.take_answer(cx, answer);
        if failed {
            self.end(cx);
        }
        Ok(())
    }

    fn poll_word(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (bytes, (packets, lost)) = (self.assembly.reported_bytes(), self.tram.extent());
        let message = self.assembly.member.take_due(bytes, (packets, lost))?;
        cx.emit(Event::SessionExtent { packets });
        let word = Word {
            path: self.assembly.take_path_messages(),
            message,
            load: self.assembly.load.load(cx.now, lost),
            limit: self.assembly.limit,
            lacks: self.lacks(),
            place: self.tram.place(),
        };
        Some(self.tram.word(cx, &word.encode(), buf))
    }
}

/// Silence after which a source that gave this receiver up, perhaps in a forgery, is gone.
const GIVEN_UP_SILENCE: Duration = Duration::from_secs(10);

/// Bytes from which on a packet is long, before the symbol length is known.
const UNKNOWN_LONG: u64 = 512;

const PRUNED: &str = "this receiver was too slow for the group, and was removed";
const SILENT: &str = "the source has fallen silent";
const ENDED: &str = "the source ended before everything was here";
const OTHER: &str = "the source now sends something else";
const WRONG: &str =
    "what comes is no object: the source is another program, or newer than this one";

impl ObjectTaker for TramObjectReceiver {
    fn status(&self) -> ObjectStatus {
        let status = self.assembly.status();
        let mismatch = self.tram.mismatch().cloned();
        ObjectStatus {
            heard: self.tram.heard_at(),
            failure: ReceiverFailure { mismatch, ..status.failure },
            place: Some(self.tram.place()),
            ..status
        }
    }

    fn awaits_note(&self) -> bool {
        self.assembly.member.awaits_note()
    }

    fn spoken(&self) -> Option<Stack> {
        self.tram.spoken()
    }

    fn serves(&self) -> bool {
        self.tram.has_members()
    }
}

impl Interactive for TramObjectReceiver {
    type Input = ObjectReceiverInput;

    fn handle_input(&mut self, _cx: &mut Cx<'_>, input: ObjectReceiverInput) {
        self.assembly.handle_input(input);
    }
}

impl Machine for TramObjectReceiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let len = datagram.bytes.len() as u64 + u64::from(datagram.zeros);
        if let Some(answer) = self.tram.answer_of(&datagram) {
            let outcome = match datagram.from == self.source {
                true => self.take_answer(cx, answer),
                false => Err(BadInput::Foreign),
            };
            cx.check(outcome);
        } else {
            // The source names an earlier packet as the latest: refused later ones were forged.
            if let Some(&refused) = self.refused.get()
                && self.tram.latest_of(&datagram).is_some_and(|latest| latest < refused)
            {
                self.refused.contradict();
            }
            self.tram.handle_datagram(cx, datagram);
            self.watch_scheme(cx);
            self.note_length(cx.now, len);
            // The source is known, so this receiver can join.
            if let Some(interval) = self.tram.status_interval() {
                self.assembly.member.join_once(cx);
                self.assembly.member.shorten_interval(cx, interval);
            }
        }
        self.advance(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.tram.handle_timeout(cx);
        self.assembly.take_due(cx.now);
        self.assembly.look_at_path(cx);
        self.advance(cx);
        if self.given_up_until().is_some_and(|at| at <= cx.now) {
            self.lose_source(cx, SILENT);
        }
        self.assembly.member.on_timeout(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.assembly.close(cx);
        self.end(cx);
    }

    passes_on!(tram: poll_membership);

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_word(cx, buf).or_else(|| self.tram.poll_transmit(cx, buf))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.assembly.poll_event()
    }

    fn next_timeout(&self) -> Option<Time> {
        let Self { assembly, tram, .. } = self;
        let path = assembly.path.next_timeout();
        let member = assembly.member.schedule.next_at;
        let all =
            [assembly.store_poll.at, member, path, self.given_up_until(), tram.next_timeout()];
        all.into_iter().flatten().min()
    }
}
