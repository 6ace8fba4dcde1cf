//! The receiving end of a transfer.

mod blocks;
mod input;
pub(super) mod load;
pub(super) mod member;
mod requests;
pub(super) mod stages;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Bitrate, Cx, Duration, Event, Time};

use self::blocks::Blocks;
use self::load::LoadMeter;
use self::member::Membership;
use self::requests::Requests;
use self::stages::POLL_MIN;
use super::layout::Key;
use super::source::write_entries;
use super::wire::{Claim, Notice, REASON_MAX, encode_limit, encode_load, end_of};
use super::{HostLoad, ObjectReceiverSetup, ObjectStatus, Part, Stage, Store};
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::Negotiation;
use crate::pgm::session::ReceiverSession;
use crate::pgm::session::dissent::Dissent;
use crate::pgm::wire::{OptionType, Received};
use crate::timers::{Reason, Timers};
use crate::{AppEvent, Datagram, Machine, Transmit};

/// The receiver of an object: joins, asks for what it lacks, restores blocks from parity, and says
/// when it is done.
///
/// Below it the session watches the sequence numbers for congestion control.
pub struct ObjectReceiver {
    session: ReceiverSession<()>,
    config: ReceiverConfig,
    store: Box<dyn Store>,
    phase: TransferPhase,
    /// What the source says of its object, once that is known.
    notice: Option<Notice>,
    blocks: Blocks,
    requests: Requests,
    member: Membership,
    /// One past the last block of content that is wanted by now: how far the store takes it.
    content_end: Key,
    load: LoadMeter,
    /// The rate that it asks for at most.
    limit: Option<Bitrate>,
    timers: Timers<Timer, 2>,
    /// How long the next wait for the store is.
    poll_wait: Duration,
    /// How often a part came that was not what had been announced.
    mismatches: u32,
    bytes_found: u64,
    counts: Counts,
    /// What the measure of loss has seen.
    seen: (u64, u64),
    reason: Option<String>,
    ending: Ending,
    doubts: Doubts,
    events: VecDeque<AppEvent>,
}

/// Whether the source has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It has not said so.
    Open,
    /// It has said so, and counts as gone soon unless it goes on.
    Said,
    /// It is gone.
    Gone,
}

/// Why it wakes up, beside the reasons of its session, its requests and its messages.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The store is asked again.
    Store,
    /// The source, which has said that it ends, counts as gone.
    SourceEnd,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Store, Self::SourceEnd];

    fn number(self) -> usize {
        self as usize
    }
}

/// What packets say against what is believed of the source.
#[derive(Debug, Default)]
struct Doubts {
    /// That it has been started again.
    epoch: Dissent<u32, EPOCH_PACKETS>,
    /// That it sends another object.
    object: Dissent<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    symbols: u64,
    parity: u64,
    useless: u64,
}

/// Where a receiver is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferPhase {
    /// Before its start, or without a source.
    Listening,
    /// The manifest is wanted.
    Manifest,
    /// The store looks what is there already.
    Opening,
    /// Content and digests are wanted.
    Content,
    /// The store compares.
    Verifying,
    /// All is there and intact.
    Done,
    /// It has ended without.
    Failed,
}

impl TransferPhase {
    fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

impl ObjectReceiver {
    /// A receiver as `setup` describes it, of the scheme that `negotiation` speaks.
    pub fn new(setup: ObjectReceiverSetup<'_>, negotiation: Negotiation) -> Self {
        let mut config = ReceiverConfig::from_options(setup.group, setup.options);
        config.tsi = Some(setup.tsi);
        config.data_port = setup.data_port;
        config.start = setup.start;
        Self {
            session: ReceiverSession::speaking(config.clone(), negotiation, ()),
            store: setup.store,
            phase: TransferPhase::Listening,
            notice: None,
            blocks: Blocks::default(),
            requests: Requests::new(&config),
            member: Membership::new(setup.id, setup.node, setup.name),
            content_end: 0,
            load: LoadMeter::default(),
            limit: None,
            timers: Timers::new(),
            poll_wait: POLL_MIN,
            mismatches: 0,
            bytes_found: 0,
            counts: Counts::default(),
            seen: (0, 0),
            reason: None,
            ending: Ending::Open,
            doubts: Doubts::default(),
            events: VecDeque::new(),
            config,
        }
    }

    /// Bytes of content that are here.
    fn content_bytes(&self) -> u64 {
        self.bytes_found + self.blocks.content_bytes
    }

    /// It cannot go on.
    fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        if self.phase.is_over() {
            return;
        }
        self.phase = TransferPhase::Failed;
        self.timers.disarm(Timer::Store);
        self.requests.clear();
        self.member.claim(cx, Claim::Failed, end_of(&reason, REASON_MAX));
        self.reason = Some(reason);
        self.events.push_back(AppEvent::Gone);
    }

    /// Nothing more is to be said: the scheme's side says that it leaves.
    fn rest(&mut self) {
        if self.session.is_joined() {
            self.session.close();
        }
    }

    /// A source that has fallen silent, or said that it ends.
    fn watch_source(&mut self, cx: &mut Cx<'_>) {
        let gone = self.config.start <= cx.now && !self.session.is_joined();
        if gone && !self.phase.is_over() {
            self.fail(cx, "the source has fallen silent".to_string());
        }
        if self.timers.take_due(Timer::SourceEnd, cx.now) {
            self.ending = Ending::Gone;
            if self.phase.is_over() {
                self.member.end();
            } else if !self.has_all() {
                self.fail(cx, "the source ended before everything was here".to_string());
            }
        }
    }

    /// The share of packets lost since the last message.
    fn measure_loss(&mut self) {
        let (all, lost) = self.session.extent();
        let (new, missing) = (all.saturating_sub(self.seen.0), lost.saturating_sub(self.seen.1));
        if new > 0 {
            let share = (missing.min(new)) as f64 / new as f64;
            self.member.loss += (share - self.member.loss) / 4.0;
            self.seen = (all, lost);
        }
    }

    fn write_message(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        let bytes = self.content_bytes();
        let message = self.member.take_due(bytes)?;
        let mut value = Vec::new();
        message.encode(&mut value);
        let load = self.load.load(now, self.session.extent().1).map(|load| encode_load(&load));
        let limit = self.limit.map(encode_limit);
        self.session.write_request(buf, |encoder| {
            encoder.raw_option(OptionType::MEMBER, 0, &value);
            if let Some(load) = load {
                encoder.raw_option(OptionType::LOAD, 0, &load);
            }
            if let Some(limit) = limit {
                encoder.raw_option(OptionType::LIMIT, 0, &limit);
            }
        })
    }

    fn write_want(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.requests.has_due() || !self.may_ask() {
            return None;
        }
        let entries = self.requests.take_due(&self.blocks);
        if entries.is_empty() {
            return None;
        }
        self.session.write_null_nak(cx, buf, |encoder| {
            write_entries(encoder, OptionType::WANT, &entries);
        })
    }

    /// Whether requests would be heard.
    fn may_ask(&self) -> bool {
        self.member.welcome && !self.member.deferred && self.session.source().is_some()
    }
}

impl Machine for ObjectReceiver {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !self.session.is_joined() {
            return;
        }
        let outcome = Received::decode(&datagram).and_then(|packet| self.take_packet(cx, &packet));
        if let Err(reason) = outcome {
            cx.emit(Event::BadInput { reason });
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.session.on_timeout(cx);
        self.watch_source(cx);
        if self.timers.take_due(Timer::Store, cx.now) {
            self.advance(cx);
        }
        if self.member.next_timeout().is_some_and(|at| at <= cx.now) {
            self.measure_loss();
            if self.member.on_timeout(cx) {
                self.rest();
            }
        }
        if self.requests.next_timeout().is_some_and(|at| at <= cx.now) {
            let can_ask = self.may_ask();
            self.requests.on_timeout(cx, &mut self.blocks, can_ask);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        if !self.phase.is_over() {
            self.phase = TransferPhase::Failed;
            self.requests.clear();
            self.timers.disarm(Timer::Store);
            self.reason = Some("it was told to leave".to_string());
            if self.member.has_joined() {
                self.member.leave(cx);
            }
        }
        self.member.hurry(cx);
        // What it owes is said first (see `poll_transmit`), and a last word until it is noted: were it
        // lost, the source would wait for long.
        if !self.member.has_due() && !self.member.awaits_note() {
            self.rest();
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(message) = self.write_message(cx.now, buf) {
            return Some(message);
        }
        let alone = self.ending == Ending::Gone && self.phase.is_over();
        if self.member.has_left() || alone {
            self.rest();
        }
        if let Some(want) = self.write_want(cx, buf) {
            return Some(want);
        }
        self.session.next_packet(cx, buf)
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        if let Some((bytes, zeros)) = self.store.poll_delivered() {
            return Some(AppEvent::Delivered { bytes, zeros });
        }
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let session = self.session.next_timeout()?;
        let (member, requests) = (self.member.next_timeout(), self.requests.next_timeout());
        let others = [self.timers.next(), member, requests];
        Some(others.into_iter().flatten().fold(session, Time::min))
    }
}

impl ObjectReceiver {
    /// How it stands.
    pub fn status(&self) -> ObjectStatus {
        let stage = match self.phase {
            TransferPhase::Listening | TransferPhase::Manifest | TransferPhase::Opening => {
                Stage::Gathering
            }
            TransferPhase::Content => Stage::Sending,
            TransferPhase::Verifying => Stage::Verifying,
            TransferPhase::Done => Stage::Finished,
            TransferPhase::Failed => Stage::Failed,
        };
        ObjectStatus {
            stage,
            bytes_total: self.notice.map(|notice| notice.announcement.len(Part::Content)),
            growing: self.notice.is_some_and(|notice| notice.announcement.growing),
            bytes_done: self.content_bytes(),
            bytes_found: self.bytes_found,
            symbols: self.counts.symbols,
            parity: self.counts.parity,
            repairs: self.counts.useless,
            requests: self.requests.sent,
            rtt: self.requests.round_trip(),
            heard: self.session.heard(),
            answers: self.member.answers,
            mismatch: self.session.mismatch().cloned(),
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

/// A source that has said that it ends is gone where it says nothing else for so long: one that goes
/// on says so each second.
const END_QUIET: Duration = Duration::from_secs(3);

/// SPMs in a row that must tell of a new start of the source.
const EPOCH_PACKETS: u32 = 2;

impl fmt::Debug for ObjectReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectReceiver")
            .field("phase", &self.phase)
            .field("requests", &self.requests)
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}
