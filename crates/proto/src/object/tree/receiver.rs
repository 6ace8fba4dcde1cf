//! The receiver of an object over TRAM: it keeps what comes in order, and says of itself what it has.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::task::Poll;

use faircast_base::{BadInput, Bitrate, Cx, Duration, Event, Time};

use super::Word;
use super::stream::{self, Kind};
use crate::object::layout::Layout;
use crate::object::receiver::load::LoadMeter;
use crate::object::receiver::member::{Membership, News};
use crate::object::receiver::stages::{POLL_MAX, POLL_MIN};
use crate::object::wire::{Answer, Claim, REASON_MAX, end_of};
use crate::object::{
    Announcement, HostLoad, ObjectError, ObjectReceiverSetup, ObjectStatus, Part, Stage, Store,
    Verdict,
};
use crate::timers::{Reason, Timers};
use crate::tram::{TramReceiver, TramSetup};
use crate::{AppEvent, Datagram, Machine, Transmit};

/// A receiver.
pub struct TramObjectReceiver {
    tram: TramReceiver,
    source: faircast_base::NodeId,
    store: Box<dyn Store>,
    phase: Phase,
    announcement: Option<Announcement>,
    /// Bytes of each part that have come.
    here: [u64; 3],
    /// Of the part that is coming.
    hasher: blake3::Hasher,
    /// Content that was there before: it is not written again.
    found: Vec<Range<u64>>,
    bytes_found: u64,
    /// A packet that waits until the store takes it.
    waiting: Option<(Vec<u8>, u32)>,
    member: Membership,
    load: LoadMeter,
    limit: Option<Bitrate>,
    packets: u64,
    timers: Timers<Timer, 1>,
    poll_wait: Duration,
    reason: Option<String>,
    events: VecDeque<AppEvent>,
}

/// Where a receiver is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The announcement and the manifest come.
    Manifest,
    /// The store looks what is there already.
    Opening,
    /// Content and digests come.
    Content,
    /// The store compares.
    Verifying,
    Done,
    Failed,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// Why it wakes up, beside the reasons of its session and its messages.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The store is asked again.
    Store,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Store];

    fn number(self) -> usize {
        self as usize
    }
}

impl TramObjectReceiver {
    /// A receiver as `setup` describes it, of an object that comes from the node `source`.
    pub fn new(setup: ObjectReceiverSetup<'_>, source: faircast_base::NodeId) -> Self {
        let session = TramSetup::of(setup.tsi, source, setup.start, setup.options);
        Self {
            tram: TramReceiver::kept(&session),
            source,
            store: setup.store,
            phase: Phase::Manifest,
            announcement: None,
            here: [0; 3],
            hasher: blake3::Hasher::new(),
            found: Vec::new(),
            bytes_found: 0,
            waiting: None,
            member: Membership::new(setup.id, setup.node, setup.name),
            load: LoadMeter::default(),
            limit: None,
            packets: 0,
            timers: Timers::new(),
            poll_wait: POLL_MIN,
            reason: None,
            events: VecDeque::new(),
        }
    }

    fn content_bytes(&self) -> u64 {
        let came = self.here[Part::Content as usize];
        let ahead = self.found.iter().map(|range| range.end - range.start.max(came).min(range.end));
        came + ahead.sum::<u64>()
    }

    fn len(&self, part: Part) -> u64 {
        self.announcement.map_or(0, |announcement| announcement.len(part))
    }

    fn has(&self, part: Part) -> bool {
        self.here[part as usize] == self.len(part)
    }

    /// Takes what has come, as far as the store does.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        while !self.phase.is_over() {
            match self.step(cx) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.fail(cx, error.reason),
            }
        }
    }

    /// Does one thing; returns whether there may be more to do.
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<bool, ObjectError> {
        match self.phase {
            Phase::Opening => return self.poll_open(cx),
            Phase::Verifying => return self.poll_verify(cx),
            _ => {}
        }
        let packet = match self.waiting.take() {
            Some(packet) => packet,
            None => loop {
                match self.tram.poll_event() {
                    Some(AppEvent::Delivered { bytes, zeros }) => break (bytes, zeros),
                    Some(AppEvent::Lost { .. }) => {
                        let reason = "parts of it are not repaired any more: start it earlier, or let the sender use \
                                      late_join = full";
                        return Err(ObjectError { reason: reason.to_string() });
                    }
                    Some(AppEvent::Gone) => {
                        let reason = match self.tram.is_pruned() {
                            true => "this receiver was too slow for the group, and was removed",
                            false => "the source has fallen silent",
                        };
                        return Err(ObjectError { reason: reason.to_string() });
                    }
                    Some(_) => {}
                    None if self.tram.has_delivered_all() && self.phase != Phase::Failed => {
                        let reason = "the source ended before everything was here";
                        return Err(ObjectError { reason: reason.to_string() });
                    }
                    None => return Ok(false),
                }
            },
        };
        self.take_packet(cx, packet)
    }

    fn take_packet(
        &mut self,
        cx: &mut Cx<'_>,
        (bytes, zeros): (Vec<u8>, u32),
    ) -> Result<bool, ObjectError> {
        let wrong = || ObjectError { reason: WRONG.to_string() };
        let (&[kind], rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
        let kind = Kind::ALL.into_iter().find(|it| it.number() == kind).ok_or_else(wrong)?;
        match kind {
            Kind::Announcement => {
                let announcement = stream::decode(rest).ok_or_else(wrong)?;
                self.announced(announcement)?;
                self.member.join_once(cx);
            }
            Kind::Symbol(part) => {
                let offset = self.here[part as usize];
                let end = offset + rest.len() as u64 + u64::from(zeros);
                let early = part != Part::Manifest && self.phase == Phase::Manifest;
                if end > self.len(part) || early {
                    return Err(wrong());
                }
                if part == Part::Content && self.store.window()? < end {
                    self.waiting = Some((bytes, zeros));
                    self.poll_later(cx.now);
                    self.tram.hold(cx, true);
                    return Ok(false);
                }
                self.tram.hold(cx, false);
                self.packets += 1;
                // They are ascending and apart.
                let next = self.found.partition_point(|range| range.end < end);
                let known = self.found.get(next).is_some_and(|range| range.start <= offset);
                if part != Part::Content || !known {
                    self.store.write(part, offset, rest, zeros)?;
                }
                if part != Part::Content {
                    self.hasher.update(rest);
                    for _ in 0..zeros {
                        self.hasher.update(&[0]);
                    }
                }
                self.here[part as usize] = end;
            }
        }
        self.check_parts(cx)
    }

    fn announced(&mut self, announcement: Announcement) -> Result<(), ObjectError> {
        let wrong = || ObjectError { reason: WRONG.to_string() };
        match &mut self.announcement {
            None => {
                Layout::new(&announcement).filter(|_| !announcement.growing).ok_or_else(wrong)?;
                self.store.announce(&announcement)?;
                self.announcement = Some(announcement);
            }
            Some(before) => {
                let same = Announcement { digests: before.digests, ..announcement };
                if same != *before {
                    return Err(wrong());
                }
                *before = announcement;
            }
        }
        Ok(())
    }

    /// Whether a part has just become whole, and what follows.
    fn check_parts(&mut self, cx: &mut Cx<'_>) -> Result<bool, ObjectError> {
        let Some(announcement) = self.announcement else { return Ok(true) };
        if self.phase == Phase::Manifest && self.has(Part::Manifest) {
            let hash = self.hasher.finalize();
            self.hasher = blake3::Hasher::new();
            if self.len(Part::Manifest) > 0 && hash != announcement.object {
                return Err(ObjectError { reason: mismatch("manifest") });
            }
            self.phase = Phase::Opening;
            self.poll_wait = POLL_MIN;
        } else if self.phase == Phase::Content
            && let Some(digests) = announcement.digests
            && self.has(Part::Content)
            && self.has(Part::Digests)
        {
            if self.len(Part::Digests) > 0 && self.hasher.finalize() != digests {
                return Err(ObjectError { reason: mismatch("list of digests") });
            }
            self.phase = Phase::Verifying;
            self.poll_wait = POLL_MIN;
        }
        let _ = cx;
        Ok(true)
    }

    fn poll_open(&mut self, cx: &mut Cx<'_>) -> Result<bool, ObjectError> {
        // A recording of a session must not take hold of the store.
        let opened = match self.member.welcome {
            true => self.store.open()?,
            false => Poll::Pending,
        };
        let Poll::Ready(found) = opened else {
            self.tram.hold(cx, true);
            self.poll_later(cx.now);
            return Ok(false);
        };
        self.tram.hold(cx, false);
        self.timers.disarm(Timer::Store);
        self.phase = Phase::Content;
        self.load.begin();
        self.bytes_found = found.iter().map(|range| range.end - range.start).sum();
        self.found = found;
        self.member.claim(cx, Claim::Receiving, String::new());
        self.check_parts(cx)
    }

    fn poll_later(&mut self, now: Time) {
        self.timers.arm(Timer::Store, now + self.poll_wait);
        self.poll_wait = (self.poll_wait * 2).min(POLL_MAX);
    }

    fn poll_verify(&mut self, cx: &mut Cx<'_>) -> Result<bool, ObjectError> {
        let verdict = self.store.verify()?;
        self.load.compare(cx.now, verdict == Poll::Pending);
        match verdict {
            Poll::Pending => self.poll_later(cx.now),
            Poll::Ready(Verdict::Intact) => {
                self.timers.disarm(Timer::Store);
                self.phase = Phase::Done;
                cx.emit(Event::Completed { bytes: self.len(Part::Content) });
                self.events.push_back(AppEvent::Completed);
                self.member.claim(cx, Claim::Done, String::new());
                self.tram.release(cx);
            }
            Poll::Ready(Verdict::Damaged(_)) => {
                let reason =
                    "what was written here is not what had come: is the disk sound? Start it again";
                return Err(ObjectError { reason: reason.to_string() });
            }
        }
        Ok(false)
    }

    /// It cannot go on.
    fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        if self.phase.is_over() {
            return;
        }
        self.phase = Phase::Failed;
        self.timers.disarm(Timer::Store);
        self.member.claim(cx, Claim::Failed, end_of(&reason, REASON_MAX));
        self.reason = Some(reason);
        self.events.push_back(AppEvent::Gone);
        self.tram.handle_close(cx);
    }

    fn take_answer(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<(), BadInput> {
        let answer = Answer::decode(bytes).ok_or(BadInput::Malformed)?;
        if self.member.take(cx, answer) == News::Refused {
            self.fail(cx, "the source takes no more receivers".to_string());
        }
        Ok(())
    }

    fn poll_word(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let message = self.member.take_due(self.content_bytes())?;
        let load = self.load.load(cx.now, self.tram.lost());
        let word = Word { message, load, limit: self.limit };
        Some(self.tram.word(cx, &word.encode(), buf))
    }
}

fn mismatch(what: &str) -> String {
    alloc::format!("the {what} that came is not the one that was announced")
}

/// Why packets of a source are no object.
const WRONG: &str =
    "what comes is no object: the source is another program, or newer than this one";

impl Machine for TramObjectReceiver {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if let Some(answer) = self.tram.answer_of(&datagram) {
            let outcome = match datagram.from == self.source {
                true => self.take_answer(cx, answer),
                false => Err(BadInput::Foreign),
            };
            if let Err(reason) = outcome {
                cx.emit(Event::BadInput { reason });
            }
        } else {
            self.tram.handle_datagram(cx, datagram);
            // The source has been heard: time to say that this end is here.
            if let Some(interval) = self.tram.status_interval() {
                self.member.join_once(cx);
                self.member.shorten_interval(cx, interval);
            }
        }
        self.advance(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.tram.handle_timeout(cx);
        self.timers.take_due(Timer::Store, cx.now);
        self.advance(cx);
        if self.member.next_timeout().is_some_and(|at| at <= cx.now) {
            self.member.loss = self.tram.loss();
            self.member.on_timeout(cx);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        if !self.phase.is_over() {
            self.phase = Phase::Failed;
            self.timers.disarm(Timer::Store);
            self.reason = Some("it was told to leave".to_string());
            if self.member.has_joined() {
                self.member.leave(cx);
            }
        }
        self.member.hurry(cx);
        self.tram.release(cx);
        self.tram.handle_close(cx);
    }

    fn poll_membership(&mut self) -> Option<crate::Membership> {
        self.tram.poll_membership()
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_word(cx, buf).or_else(|| self.tram.poll_transmit(cx, buf))
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        if let Some((bytes, zeros)) = self.store.poll_delivered() {
            return Some(AppEvent::Delivered { bytes, zeros });
        }
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = [self.timers.next(), self.member.next_timeout(), self.tram.next_timeout()];
        own.into_iter().flatten().min()
    }
}

impl TramObjectReceiver {
    /// How it stands.
    pub fn status(&self) -> ObjectStatus {
        let stage = match self.phase {
            Phase::Manifest | Phase::Opening => Stage::Gathering,
            Phase::Content => Stage::Sending,
            Phase::Verifying => Stage::Verifying,
            Phase::Done => Stage::Finished,
            Phase::Failed => Stage::Failed,
        };
        ObjectStatus {
            stage,
            bytes_total: self.announcement.map(|announcement| announcement.len(Part::Content)),
            bytes_done: self.content_bytes(),
            bytes_found: self.bytes_found,
            symbols: self.packets,
            heard: self.tram.heard_at(),
            answers: self.member.answers,
            reason: self.reason.clone(),
            ..ObjectStatus::default()
        }
    }

    /// Asks its source to send no faster than this; to be said before it begins.
    pub fn set_limit(&mut self, limit: Option<Bitrate>) {
        self.limit = limit;
    }

    /// How its thread has spent its time so far; told now and then by a driver that knows.
    pub fn note_host(&mut self, load: HostLoad) {
        self.load.note(load);
    }
}

impl fmt::Debug for TramObjectReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TramObjectReceiver")
            .field("phase", &self.phase)
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}
