//! The source of an object over TRAM.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{BadInput, Bitrate, Cx, Duration, Event, NodeId, Time};

use super::Word;
use super::stream::ObjectStream;
use crate::object::source::members::Members;
use crate::object::{HostLoad, MemberState, ObjectSourceSetup, ObjectStatus, Part, Stage};
use crate::timers::{Reason, Timers};
use crate::tram::{TramSetup, TramSource};
use crate::{AppEvent, Datagram, Destination, Machine, Membership, Transmit};

/// How often the members are looked at, and the hash of the digests is asked for.
const TICK: Duration = Duration::from_millis(100);

/// The source of an object: it sends it once, repairs what its own members lack, and ends when all whom it waits
/// for have said that they have it.
pub struct TramObjectSource {
    tram: TramSource<ObjectStream>,
    members: Members,
    wait_for: u32,
    /// Who is waited for at the end, where that is said.
    names: BTreeSet<String>,
    give_up: Duration,
    begun: Option<Time>,
    phase: Phase,
    /// What it was told of its receivers, in messages.
    words: u64,
    /// The least rate that a member asks for at most, and who that is.
    limit: Option<(Bitrate, NodeId)>,
    reason: Option<String>,
    timers: Timers<Timer, 1>,
    events: VecDeque<AppEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Serving,
    /// Whoever is waited for has it, or is gone.
    Ending,
    Over,
}

/// Why it wakes up, beside the reasons of its session.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Tick,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Tick];

    fn number(self) -> usize {
        self as usize
    }
}

impl TramObjectSource {
    /// A source as `setup` describes it. An object that has no layout, or whose length is not known, makes one that
    /// fails at its start; there is no parity, and who is slow is removed as the options say.
    pub fn new(setup: ObjectSourceSetup<'_>) -> Self {
        let session = TramSetup::of(setup.tsi, setup.node, setup.start, setup.options);
        let stream = ObjectStream::new(setup.supply, setup.symbol_bytes);
        let mut timers = Timers::new();
        timers.arm(Timer::Tick, setup.start);
        Self {
            tram: TramSource::gated(&session, stream),
            members: Members::default(),
            wait_for: setup.wait_for,
            names: BTreeSet::new(),
            give_up: setup.give_up,
            begun: None,
            phase: Phase::Waiting,
            words: 0,
            limit: None,
            reason: None,
            timers,
            events: VecDeque::new(),
        }
    }

    fn take_word(&mut self, cx: &mut Cx<'_>, from: NodeId, bytes: &[u8]) -> Result<(), BadInput> {
        let word = Word::decode(bytes).ok_or(BadInput::Malformed)?;
        self.words += 1;
        let id = word.message.id;
        self.members.take(cx.now, from, word.message)?;
        if let Some(load) = word.load {
            self.members.note(id, load, word.limit);
        } else if word.limit.is_some() {
            self.members.note(id, Default::default(), word.limit);
        }
        self.review(cx);
        Ok(())
    }

    /// What has to be looked at from time to time, and after each word of a member.
    fn review(&mut self, cx: &mut Cx<'_>) {
        if let Some(reason) = self.tram.packets_mut().failed.take() {
            self.fail(cx, reason);
        }
        if self.phase != Phase::Serving {
            return;
        }
        self.tram.set_status_interval(self.members.status_interval(self.give_up));
        let come =
            [MemberState::Joined, MemberState::Receiving, MemberState::Done, MemberState::Failed];
        if self.begun.is_none() && self.members.count(&come) >= self.wait_for as usize {
            self.begin_content(cx);
        }
        let limit = self.members.least_limit();
        if limit != self.limit {
            self.limit = limit;
            self.tram.set_limit(cx.now, limit.map(|(limit, _)| limit));
        }
        let held = self.members.active() > 0
            && self.members.hold_the_end(cx.now, self.give_up, &self.names);
        if self.begun.is_some() && self.members.len() > 0 && !held && self.tram.has_sent_all() {
            let done = self.members.count(&[MemberState::Done]);
            if done == 0 {
                self.fail(cx, "no receiver has got it all".to_string());
                return;
            }
            self.phase = Phase::Ending;
            let bytes = self.tram.packets_mut().announcement().len(Part::Content);
            cx.emit(Event::Completed { bytes });
            self.events.push_back(AppEvent::Completed);
            self.tram.release(cx);
        }
    }

    fn begin_content(&mut self, cx: &mut Cx<'_>) {
        self.begun = Some(cx.now);
        self.members.begin();
        self.tram.open_gate(cx);
    }

    fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        if matches!(self.phase, Phase::Over | Phase::Ending) {
            return;
        }
        self.reason = Some(reason);
        self.phase = Phase::Ending;
        self.events.push_back(AppEvent::Gone);
        self.tram.release(cx);
        self.tram.handle_close(cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        if !self.timers.take_due(Timer::Tick, cx.now) {
            return;
        }
        if self.phase == Phase::Waiting {
            self.phase = Phase::Serving;
        }
        if self.tram.is_over() {
            self.phase = Phase::Over;
            return;
        }
        self.timers.arm(Timer::Tick, cx.now + TICK);
        let age = cx.now.since(Time::ZERO);
        if age >= self.give_up {
            self.members.lose_silent(Time::ZERO + age.saturating_sub(self.give_up));
        }
        self.review(cx);
    }
}

impl Machine for TramObjectSource {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Over) {
            return;
        }
        match self.tram.word_of(&datagram) {
            None => self.tram.handle_datagram(cx, datagram),
            Some(word) => {
                if let Err(reason) = self.take_word(cx, datagram.from, word) {
                    cx.emit(Event::BadInput { reason });
                }
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.tram.handle_timeout(cx);
        self.tick(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Waiting | Phase::Serving => self.fail(cx, "it was told to end".to_string()),
            Phase::Ending | Phase::Over => self.tram.handle_close(cx),
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.tram.poll_membership()
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((node, answer)) = self.members.poll_answer() {
            return Some(self.tram.answer(cx, Destination::Node(node), &answer.encode(), buf));
        }
        let transmit = self.tram.poll_transmit(cx, buf)?;
        if self.tram.packets_mut().failed.is_some() {
            // What could not be read is not sent.
            buf.clear();
            self.review(cx);
            return self.tram.poll_transmit(cx, buf);
        }
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        while self.tram.poll_event().is_some() {}
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = self.timers.next().filter(|_| self.phase != Phase::Over);
        self.tram.next_timeout().into_iter().chain(own).min()
    }
}

impl TramObjectSource {
    /// How it stands. Costs time in proportion to the number of members.
    pub fn status(&self) -> ObjectStatus {
        let total = self.tram.packets().announcement().len(Part::Content);
        let stage = match self.phase {
            _ if self.reason.is_some() => Stage::Failed,
            Phase::Waiting => Stage::Gathering,
            Phase::Serving if self.begun.is_none() => Stage::Gathering,
            Phase::Serving if self.tram.has_sent_all() => Stage::Verifying,
            Phase::Serving => Stage::Sending,
            Phase::Ending | Phase::Over => Stage::Finished,
        };
        let counts = self.tram.counts();
        ObjectStatus {
            stage,
            begun: self.begun,
            bytes_total: Some(total),
            bytes_done: self.members.least_bytes().unwrap_or(0).min(total),
            symbols: counts.packets + counts.repairs,
            repairs: counts.repairs,
            requests: self.words,
            rate_bits_per_s: Some(counts.bits_per_s),
            limiting: self.limit.map(|(_, reporter)| reporter),
            members: self.members.statuses(),
            reason: self.reason.clone(),
            ..ObjectStatus::default()
        }
    }

    /// How its thread has spent its time so far: it makes nothing of that.
    pub fn note_host(&mut self, _load: HostLoad) {}

    /// Begins to send content to whoever is there.
    pub fn begin(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Serving && self.begun.is_none() {
            self.begin_content(cx);
        } else {
            // At its start then.
            self.wait_for = 0;
        }
    }

    /// At the end only receivers of these names are waited for. By default it is those who were there when content
    /// began.
    pub fn wait_for_names(&mut self, names: BTreeSet<String>) {
        self.names = names;
    }

    /// Strikes the member `id` off, because the application knows that another one has taken its place. Should it
    /// speak again it is a member again.
    pub fn dismiss(&mut self, cx: &mut Cx<'_>, id: u64) {
        self.members.remove(id);
        self.review(cx);
    }
}

impl fmt::Debug for TramObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TramObjectSource")
            .field("phase", &self.phase)
            .field("members", &self.members.len())
            .finish_non_exhaustive()
    }
}
