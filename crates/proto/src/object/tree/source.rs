//! Source of an object over TRAM.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, GroupId, NodeId, Time};

use super::stream::ObjectStream;
use super::words::{Word, encode_probe};
use crate::object::course::Course;
use crate::object::wire::{Claim, PathMessage};
use crate::object::{
    ObjectSender, ObjectSourceInput, ObjectSourceSetup, ObjectStatus, PacketCounts, Part,
};
use crate::options::OptionValue;
use crate::stack::Stack;
use crate::tram::{TramSetup, TramSource, steering_at};
use crate::{Datagram, Destination, FlowEvent, Interactive, Machine, Transmit, passes_on};
/// Source of an object: sends missing symbols, and ends after all awaited receivers.
pub struct TramObjectSource {
    tram: TramSource<ObjectStream>,
    course: Course,
    words: u64,
    limit: Option<(Bitrate, NodeId)>,
}

impl TramObjectSource {
    /// Creates a source for `setup`, over `tree`, without parity. An object without a layout fails.
    /// Every receiver begins with the next packet, regardless of `late_join`. Missing symbols are
    /// sent as new packets, since repairs have no congestion control and would repeat kept symbols.
    pub fn new(setup: ObjectSourceSetup<'_>, tree: Stack) -> Self {
        let none = OptionValue::Text("none".to_string());
        let options = setup.options.clone().with("late_join", none);
        let session = TramSetup::of(setup.tsi, setup.node, setup.start, &options);
        let session = TramSetup { steering: steering_at(tree, setup.node), ..session };
        let course = Course::new(&setup);
        let stream = ObjectStream::new(setup.supply, setup.symbol_bytes);
        Self { tram: TramSource::kept(&session, tree, stream), course, words: 0, limit: None }
    }

    pub(crate) fn staying(mut self, linger: Duration) -> Self {
        self.course.stay(linger);
        self
    }

    fn take_word(
        &mut self,
        cx: &mut Cx<'_>,
        (from, authenticated): (NodeId, bool),
        (number, bytes): (u64, &[u8]),
    ) -> Checked {
        let word = Word::decode(number, bytes).ok_or(BadInput::Malformed)?;
        self.words += 1;
        let Word { message, load, limit, lacks, path, place } = word;
        let (id, claim) = (message.id, message.claim);
        if self.course.has_ended() && !self.course.members.all.contains_key(&id) {
            return Ok(());
        }
        let members = &mut self.course.members;
        members.take_message(cx.now, from, authenticated, message)?;
        let mut found = None;
        for word in path.into_iter().flatten() {
            match word {
                PathMessage::Ask { low, high } if members.may_probe(cx.now, id) => {
                    let rate = Some(self.tram.bits_per_s());
                    self.course.probes.ask(cx.now, (low, high), rate);
                }
                PathMessage::Ask { .. } => {}
                PathMessage::Limit(limit) => found = Some(limit),
            }
        }
        members.note_path(cx.now, id, found);
        members.note_reports(id, load.unwrap_or_default(), limit, Some(place));
        if claim == Claim::Joined && lacks.is_none() {
            self.tram.packets.announce_again(cx.now);
        }
        if claim == Claim::Joined
            && self.course.has_begun()
            && let Some(name) = self.course.members.shared_name(id)
        {
            self.tram.note_anew(cx.now, name);
        }
        let members = &mut self.course.members;
        if let Some(lacks) = lacks.filter(|_| members.is_served(id)) {
            let stream = &mut self.tram.packets;
            members.note_taken(id, lacks.after, stream.log.end);
            // Thousands of members without progress may be invented.
            let limited = !stream.is_exhausted() && members.is_unproven(from);
            let sent = stream.symbols;
            stream.request(&lacks, |symbols| match limited {
                true => members.take_spare(sent, symbols),
                false => symbols,
            });
        }
        self.review(cx);
        Ok(())
    }

    fn review(&mut self, cx: &mut Cx<'_>) {
        self.tram.set_status_interval(self.course.status_interval());
        let offer = &mut self.tram.packets.offer;
        let content_bytes = offer.announcement.len(Part::Content);
        let turn = self.course.review(cx, &mut offer.failed, content_bytes);
        let limit = self.course.members.least_limit();
        if limit != self.limit {
            self.limit = limit;
            self.tram.set_limit(cx.now, limit.map(|(limit, _)| limit));
        }
        if turn.begins {
            self.begin_content(cx.now);
        }
        if turn.ends {
            self.end(cx);
        }
    }

    fn begin_content(&mut self, now: Time) {
        self.tram.packets.offer.begun = true;
        // Packets sent while receivers joined say nothing about the path.
        self.tram.start_anew(now, self.limit.map(|(limit, _)| limit));
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.course.end(cx.now, self.tram.packets.offer.supply.is_repeatable());
        self.tram.handle_close(cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        let repeatable = self.tram.packets.offer.supply.is_repeatable();
        if !self.course.take_tick(cx.now, self.tram.is_over(), repeatable) {
            return;
        }
        self.course.start(cx.now);
        let stream = &mut self.tram.packets;
        stream.poll_digests();
        if stream.poll_growth(cx.now) {
            self.course.watch.grown_at = Some(cx.now);
        }
        let announced = &self.tram.packets.offer.announcement;
        self.course.lose_members(cx.now, announced);
        self.course.judge_end(cx.now, announced.growing);
        self.review(cx);
    }

    fn poll_answer(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((node, answer)) = self.course.members.answers.pop_front() {
            return Some(self.tram.answer(cx, Destination::Node(node), &answer.encode(), buf));
        }
        let bytes = encode_probe(&self.course.probes.poll(cx.now)?);
        Some(self.tram.answer(cx, Destination::Group(GroupId::SESSION), &bytes, buf))
    }
}

impl ObjectSender for TramObjectSource {
    fn status(&self) -> ObjectStatus {
        let stream = &self.tram.packets;
        let place = self.tram.place();
        ObjectStatus {
            packets: PacketCounts {
                symbols: stream.symbols + place.repairs,
                parity: 0,
                repairs: place.repairs,
                requests: self.words,
            },
            rate_bits_per_s: Some(self.tram.bits_per_s()),
            limiting: self.limit.map(|(_, reporter)| reporter),
            place: Some(place),
            ..self.course.status(&stream.offer.announcement, stream.is_exhausted())
        }
    }
}

impl Interactive for TramObjectSource {
    type Input = ObjectSourceInput;

    fn handle_input(&mut self, cx: &mut Cx<'_>, input: ObjectSourceInput) {
        match input {
            ObjectSourceInput::Begin if self.course.begin(cx.now) => self.begin_content(cx.now),
            ObjectSourceInput::Begin | ObjectSourceInput::Host(_) => {}
            ObjectSourceInput::ExcuseSilence => self.course.watch.excused_at = cx.now,
            ObjectSourceInput::Dismiss { id } => {
                self.course.members.remove(id);
                self.review(cx);
            }
        }
    }
}

impl Machine for TramObjectSource {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.course.is_waiting() || self.tram.is_over() {
            return;
        }
        match self.tram.word_of(&datagram) {
            None => self.tram.handle_datagram(cx, datagram),
            Some(word) => {
                let outcome = self.take_word(cx, (datagram.from, datagram.authenticated), word);
                cx.check(outcome);
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.tram.handle_timeout(cx);
        self.tick(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.course.close();
        self.end(cx);
    }

    passes_on!(tram: poll_membership);

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(answer) = self.poll_answer(cx, buf) {
            return Some(answer);
        }
        let transmit = self.tram.poll_transmit(cx, buf)?;
        self.course.probes.note_data(buf.len() as u32 + transmit.zeros);
        if self.tram.packets.offer.failed.is_some() {
            buf.clear();
            self.review(cx);
            return self.tram.poll_transmit(cx, buf);
        }
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        while self.tram.poll_event().is_some() {}
        self.course.outcome.event.take()
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = self.course.next_timeout().filter(|_| !self.tram.is_over());
        self.tram.next_timeout().into_iter().chain(own).min()
    }
}
