//! Assembly of an object at a receiver over any transport, from manifest to verification.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use core::task::Poll;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, Event, Time};

use super::blocks::{Blocks, Taken};
use super::load::LoadMeter;
use super::member::Membership;
use crate::FlowEvent;
use crate::object::layout::{BLOCK_SYMBOLS, BlockId, block_of, part_of};
use crate::object::path::PathMeter;
use crate::object::status::why_stalled;
use crate::object::wire::{Claim, Notice, PathWord, REASON_MAX, SymbolName, end_of};
use crate::object::{
    Announcement, ObjectError, ObjectReceiverInput, ObjectReceiverSetup, ObjectResult,
    ObjectStatus, Part, PathLimit, Stage, Store, Verdict,
};

pub(in crate::object) struct Assembly {
    pub(in crate::object) store: Box<dyn Store>,
    pub(in crate::object) phase: TransferPhase,
    pub(in crate::object) notice: Option<Notice>,
    pub(in crate::object) blocks: Blocks,
    pub(in crate::object) member: Membership,
    /// One past the last block of content that the store takes by now.
    pub(in crate::object) content_end: BlockId,
    pub(in crate::object) load: LoadMeter,
    pub(in crate::object) limit: Option<Bitrate>,
    /// Measurement of packet lengths, and the bytes that drivers add to each packet.
    pub(in crate::object) path: PathMeter,
    pub(in crate::object) headers: u32,
    probes: Option<(u32, u32)>,
    pub(in crate::object) counts: Counts,
    /// Time of the next poll of the store, and the wait after it.
    poll_at: Option<Time>,
    poll_wait: Duration,
    mismatches: u32,
    bytes_found: u64,
    /// Time of the source's last message that it gave the object up.
    given_up: Option<Time>,
    pub(in crate::object) reason: Option<String>,
    stalled: bool,
    pub(in crate::object) events: VecDeque<FlowEvent>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::object) struct Counts {
    pub(in crate::object) symbols: u64,
    pub(in crate::object) parity: u64,
    pub(in crate::object) useless: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::object) enum TransferPhase {
    #[default]
    Listening,
    Manifest,
    Opening,
    Content,
    Verifying,
    Done,
    Failed,
}

impl TransferPhase {
    pub(in crate::object) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::object) enum Want {
    Part(Part),
    /// All missing content and digests; with `fresh`, none of it may have been sent yet.
    Lacking {
        fresh: bool,
    },
    More(Range<BlockId>),
    Nothing,
}

impl Assembly {
    pub(in crate::object) fn new(setup: ObjectReceiverSetup<'_>) -> Self {
        fresh! {
            Self {
                store: setup.store,
                member: Membership::new(setup.id, setup.node, setup.name),
                limit: setup.limit,
                headers: setup.headers,
                poll_wait: POLL_MIN,
            }
            phase, notice, blocks, content_end, load, path, probes, counts, poll_at, mismatches,
            bytes_found, given_up, reason, stalled, events
        }
    }

    pub(in crate::object) fn path_limit(&self) -> Option<PathLimit> {
        let short = self.path.limit.filter(PathLimit::is_short);
        short.filter(|_| !self.phase.is_over()).map(|limit| limit.with(self.headers))
    }

    pub(in crate::object) fn look_at_path(&mut self, cx: &mut Cx<'_>) {
        if self.path.next_timeout().is_none_or(|at| at > cx.now) {
            return;
        }
        let before = self.path.limit;
        self.probes = self.path.on_timeout(cx.now);
        let after = self.path.limit;
        if self.probes.is_some() || after != before {
            self.member.say();
        }
        if after != before
            && let Some(PathLimit { arrives, sent }) = self.path_limit()
        {
            cx.emit(Event::PathLimit { arrives, sent });
        }
    }

    pub(in crate::object) fn take_path_words(&mut self) -> [Option<PathWord>; 2] {
        let asked = self.probes.take().map(|(low, high)| PathWord::Ask { low, high });
        [asked, self.path.limit.map(PathWord::Limit)]
    }

    pub(in crate::object) fn wants_packets(&self) -> bool {
        matches!(self.phase, TransferPhase::Manifest | TransferPhase::Content) && !self.has_all()
    }

    pub(in crate::object) fn note_stalled(&mut self, now: Time) -> String {
        self.stalled = true;
        why_stalled(self.path_limit(), &self.load.load(now, 0).unwrap_or_default())
    }

    pub(in crate::object) fn content_bytes(&self) -> u64 {
        self.bytes_found + self.blocks.content_bytes
    }

    /// Returns the bytes to report: bytes of content, and before content bytes of the manifest.
    pub(in crate::object) fn told_bytes(&self) -> u64 {
        let manifest = self.blocks.layout.len(Part::Manifest);
        match self.phase {
            TransferPhase::Listening => 0,
            TransferPhase::Manifest if self.blocks.left(Part::Manifest) > 0 => {
                let Counts { symbols, parity, useless } = self.counts;
                let symbol = self.notice.map_or(0, |notice| notice.announcement.symbol_bytes);
                let here = (symbols + parity).saturating_sub(useless) * u64::from(symbol);
                here.min(manifest.saturating_sub(1))
            }
            TransferPhase::Manifest | TransferPhase::Opening => manifest,
            _ => self.content_bytes(),
        }
    }

    pub(in crate::object) fn fail(&mut self, cx: &mut Cx<'_>, reason: String) -> bool {
        if self.phase.is_over() {
            return false;
        }
        self.phase = TransferPhase::Failed;
        self.poll_at = None;
        self.member.claim(cx, Claim::Failed, end_of(&reason, REASON_MAX));
        self.reason = Some(reason);
        self.events.push_back(FlowEvent::Gone);
        true
    }

    /// Notes a message, perhaps forged, that the source gave up: valid only if silence follows.
    pub(in crate::object) fn note_given_up(&mut self, now: Time) {
        self.given_up = Some(now);
    }

    /// Handles the loss of the source, last received at `heard`. Returns true on failure.
    pub(in crate::object) fn lose_source(
        &mut self,
        cx: &mut Cx<'_>,
        reason: &str,
        heard: Option<Time>,
    ) -> bool {
        let said = |at: Time| heard.is_none_or(|heard| heard <= at + GIVEN_UP_QUIET);
        let given_up = self.given_up.filter(|at| said(*at));
        let reason = match given_up {
            Some(_) => GIVEN_UP.to_string(),
            None if self.member.told_stalled.is_some() && !self.phase.is_over() => {
                self.note_stalled(cx.now)
            }
            None => reason.to_string(),
        };
        let news = self.fail(cx, reason);
        self.given_up = given_up;
        news
    }

    pub(in crate::object) fn close(&mut self, cx: &mut Cx<'_>) -> bool {
        let early = !self.phase.is_over();
        if early {
            self.phase = TransferPhase::Failed;
            self.poll_at = None;
            self.reason = Some("it was told to leave".to_string());
            if self.member.has_joined() {
                self.member.leave(cx);
            }
        }
        self.member.hurry(cx);
        early
    }

    pub(in crate::object) fn take_due(&mut self, now: Time) -> bool {
        self.poll_at.take_if(|at| *at <= now).is_some()
    }

    pub(in crate::object) fn next_timeout(&self) -> Option<Time> {
        self.poll_at
    }

    pub(in crate::object) fn poll_event(&mut self) -> Option<FlowEvent> {
        if let Some((bytes, zeros)) = self.store.poll_delivered() {
            return Some(FlowEvent::Delivered { bytes, zeros });
        }
        self.events.pop_front()
    }

    pub(in crate::object) fn handle_input(&mut self, input: ObjectReceiverInput) {
        match input {
            ObjectReceiverInput::Host(load) => self.load.note(load),
            ObjectReceiverInput::Discard => self.store.discard(),
        }
    }

    pub(in crate::object) fn status(&self) -> ObjectStatus {
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
            answers: self.member.answers,
            given_up: self.phase == TransferPhase::Failed && self.given_up.is_some(),
            reason: self.reason.clone(),
            path: self.path_limit(),
            stalled: self.stalled,
            ..ObjectStatus::default()
        }
    }

    pub(in crate::object) fn begin(&mut self) -> ObjectResult {
        let Some(notice) = self.notice else { return Ok(()) };
        self.store.announce(&notice.announcement)?;
        self.phase = TransferPhase::Manifest;
        self.blocks.want_part(Part::Manifest);
        Ok(())
    }

    pub(in crate::object) fn grow(
        &mut self,
        cx: &mut Cx<'_>,
        (old, new): (&Announcement, &Announcement),
        ask: Ask<'_>,
    ) -> ObjectResult {
        if !old.growing || old.lens == new.lens && old.growing == new.growing {
            return Ok(());
        }
        self.store.grow(new)?;
        if self.phase == TransferPhase::Content {
            if !new.growing {
                self.blocks.want_part(Part::Digests);
                let block_ids = self.blocks.layout.block_ids(Part::Digests);
                ask(cx, &self.blocks, Want::More(block_ids));
            }
            return self.advance(cx, ask);
        }
        Ok(())
    }

    pub(in crate::object) fn has_place(&self, name: SymbolName, bytes: u64) -> Checked<bool> {
        let Some(notice) = self.notice.filter(|_| !self.phase.is_over()) else { return Ok(false) };
        let layout = &self.blocks.layout;
        if notice.announcement.growing && !layout.has(name.block_id) {
            // Other receivers already know the greater length.
            return Ok(false);
        }
        let parity = name.symbol >= BLOCK_SYMBOLS;
        if !layout.has(name.block_id) || !parity && name.symbol >= layout.symbols(name.block_id) {
            return Err(BadInput::Absurd);
        }
        if bytes != u64::from(layout.symbol_len(name.block_id, name.symbol)) {
            return Err(BadInput::Malformed);
        }
        let placed = matches!(self.phase, TransferPhase::Content | TransferPhase::Verifying);
        Ok(placed || part_of(name.block_id) == Part::Manifest)
    }

    pub(in crate::object) fn take_symbol(
        &mut self,
        cx: &mut Cx<'_>,
        name: SymbolName,
        (bytes, zeros): (&[u8], u32),
    ) -> ObjectResult<Taken> {
        let before = self.blocks.content_bytes;
        let symbol = (name.block_id, name.symbol);
        let taken = self.blocks.take(self.store.as_mut(), symbol, bytes, zeros)?;
        if name.symbol >= BLOCK_SYMBOLS {
            self.counts.parity += 1;
        } else {
            self.counts.symbols += 1;
        }
        self.counts.useless += u64::from(taken == Taken::Useless);
        if taken == Taken::Completed {
            self.member.note_progress();
        }
        let fresh = self.blocks.content_bytes - before;
        if fresh > 0 {
            let block = u64::from(block_of(name.block_id)) * u64::from(BLOCK_SYMBOLS);
            let seq = block + u64::from(name.symbol.min(BLOCK_SYMBOLS - 1));
            // At most the 64 symbols of a block, of less than 2^16 bytes each.
            cx.emit(Event::Delivered { seq, bytes: fresh as u32 });
        }
        Ok(taken)
    }

    /// Continues after a completed step, and passes what is wanted next to `ask`.
    pub(in crate::object) fn advance(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        match self.phase {
            TransferPhase::Manifest if self.has_manifest() => self.check_manifest(cx, ask),
            TransferPhase::Opening => self.poll_open(cx, ask),
            TransferPhase::Content if self.has_all() => self.check_digests(cx, ask),
            TransferPhase::Content => self.widen(cx, ask),
            TransferPhase::Verifying => self.poll_verify(cx, ask),
            _ => Ok(()),
        }
    }

    /// Returns true if the manifest is complete and from a present source, not a recording.
    fn has_manifest(&self) -> bool {
        let empty = self.blocks.layout.len(Part::Manifest) == 0;
        self.blocks.left(Part::Manifest) == 0 && (self.member.welcome || empty)
    }

    pub(in crate::object) fn has_all(&self) -> bool {
        let layout = &self.blocks.layout;
        let known = self.notice.is_some_and(|notice| {
            let Announcement { growing, digests, .. } = notice.announcement;
            let all_wanted = self.content_end == layout.block_ids(Part::Content).end;
            let digests = digests.is_some() || layout.len(Part::Digests) == 0;
            !growing && all_wanted && digests
        });
        // A replayed recording has everything but a welcome for this receiver.
        known
            && self.member.welcome
            && self.blocks.left(Part::Content) == 0
            && self.blocks.left(Part::Digests) == 0
    }

    fn matches(&mut self, part: Part, wanted: &[u8; 32]) -> ObjectResult<bool> {
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), Vec::new());
        let (len, mut offset) = (self.blocks.layout.len(part), 0);
        while offset < len {
            // At most as large as the piece.
            let piece = (len - offset).min(HASHED_AT_ONCE) as u32;
            buffer.clear();
            self.store.read(part, offset, piece, &mut buffer)?;
            hasher.update(&buffer);
            offset += u64::from(piece);
        }
        Ok(hasher.finalize() == *wanted)
    }

    /// Requests a part again that differs from the announcement, at most [`MISMATCHES_MAX`] times.
    fn mismatch(&mut self, cx: &mut Cx<'_>, part: Part, ask: Ask<'_>) -> ObjectResult {
        self.mismatches += 1;
        if self.mismatches > MISMATCHES_MAX {
            let what = if part == Part::Manifest { "manifest" } else { "list of digests" };
            let reason = alloc::format!("the {what} that came is not the one that was announced");
            return Err(ObjectError { reason });
        }
        self.blocks.want_part(part);
        ask(cx, &self.blocks, Want::Part(part));
        Ok(())
    }

    fn check_manifest(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let Some(notice) = self.notice else { return Ok(()) };
        let empty = self.blocks.layout.len(Part::Manifest) == 0;
        let hash = notice.announcement.object;
        // Without a manifest the source chose an arbitrary identity.
        if !empty && !self.matches(Part::Manifest, &hash)? {
            return self.mismatch(cx, Part::Manifest, ask);
        }
        self.phase = TransferPhase::Opening;
        self.poll_wait = POLL_MIN;
        self.poll_open(cx, ask)
    }

    fn poll_open(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let found = match self.store.open()? {
            Poll::Pending => {
                self.poll_later(cx.now);
                return Ok(());
            }
            Poll::Ready(found) => found,
        };
        let Some(notice) = self.notice else { return Ok(()) };
        self.poll_at = None;
        self.phase = TransferPhase::Content;
        self.load.begin();
        let layout = self.blocks.layout;
        self.content_end = layout.whole_blocks_end(self.store.window()?);
        self.blocks.want(layout.block_ids(Part::Content).start..self.content_end);
        self.blocks.want_part(Part::Digests);
        let before = self.blocks.content_lacking();
        found.iter().for_each(|range| self.blocks.found(range));
        self.bytes_found = before - self.blocks.content_lacking();
        self.member.identity = self.store.identity();
        self.member.claim(cx, Claim::Receiving, String::new());
        let fresh = notice.position.is_none();
        ask(cx, &self.blocks, Want::Lacking { fresh });
        self.advance(cx, ask)
    }

    fn widen(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let layout = self.blocks.layout;
        let takes_until = layout.whole_blocks_end(self.store.window()?);
        if takes_until > self.content_end {
            let more = core::mem::replace(&mut self.content_end, takes_until)..takes_until;
            self.blocks.want(more.clone());
            ask(cx, &self.blocks, Want::More(more));
        }
        if takes_until < layout.block_ids(Part::Content).end && self.poll_at.is_none() {
            self.poll_at = Some(cx.now + POLL_MAX);
        }
        Ok(())
    }

    fn poll_later(&mut self, now: Time) {
        self.poll_at = Some(now + self.poll_wait);
        self.poll_wait = (self.poll_wait * 2).min(POLL_MAX);
    }

    fn check_digests(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let Some(notice) = self.notice else { return Ok(()) };
        if self.blocks.layout.len(Part::Digests) > 0
            && let Some(hash) = notice.announcement.digests
            && !self.matches(Part::Digests, &hash)?
        {
            return self.mismatch(cx, Part::Digests, ask);
        }
        self.phase = TransferPhase::Verifying;
        self.poll_wait = POLL_MIN;
        ask(cx, &self.blocks, Want::Nothing);
        self.poll_verify(cx, ask)
    }

    fn poll_verify(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let verdict = self.store.verify()?;
        self.load.compare(cx.now, verdict == Poll::Pending);
        match verdict {
            Poll::Pending => self.poll_later(cx.now),
            Poll::Ready(Verdict::Intact) => {
                self.poll_at = None;
                self.phase = TransferPhase::Done;
                let bytes = self.content_bytes();
                cx.emit(Event::Completed { bytes });
                self.events.push_back(FlowEvent::Completed);
                self.member.claim(cx, Claim::Done, String::new());
            }
            Poll::Ready(Verdict::Damaged(ranges)) => {
                self.poll_at = None;
                self.phase = TransferPhase::Content;
                let before = self.blocks.content_lacking();
                ranges.iter().for_each(|range| self.blocks.damaged(range));
                let lost = self.blocks.content_lacking() - before;
                if lost == 0 {
                    let reason = "the content is damaged, and nobody knows where".to_string();
                    return Err(ObjectError { reason });
                }
                self.blocks.content_bytes = self.content_bytes().saturating_sub(lost);
                self.bytes_found = 0;
                ask(cx, &self.blocks, Want::Lacking { fresh: false });
            }
        }
        Ok(())
    }
}

const GIVEN_UP: &str =
    "its sender has given it up: what was to be sent has changed, or cannot be sent twice";

/// Longest activity of a source after it gave up: a source repeats its end for 1 s.
const GIVEN_UP_QUIET: Duration = Duration::from_secs(3);

type Ask<'a> = &'a mut dyn FnMut(&mut Cx<'_>, &Blocks, Want);

/// First and longest interval between two polls of a store that searches or verifies.
pub(in crate::object) const POLL_MIN: Duration = Duration::from_millis(1);
pub(in crate::object) const POLL_MAX: Duration = Duration::from_millis(20);

const HASHED_AT_ONCE: u64 = 1 << 16;

/// Most mismatches of a part with its announcement. A damaged packet passes its checksum once in
/// 2^16, and some symbols may be forged.
const MISMATCHES_MAX: u32 = 16;
