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
use super::member::{Membership, News};
use crate::FlowEvent;
use crate::object::layout::{BLOCK_SYMBOLS, BlockId, block_of, part_of};
use crate::object::path::PathMeter;
use crate::object::status::why_stalled;
use crate::object::wire::{Answer, Claim, Notice, PathMessage, REASON_MAX, SymbolName, end_of};
use crate::object::{
    Announcement, ObjectError, ObjectReceiverInput, ObjectReceiverSetup, ObjectResult,
    ObjectStatus, PacketCounts, Part, PathLimit, ReceiverFailure, Stage, Store, Verdict,
};
use crate::pgm::negotiation::SchemeMismatch;

/// Object at a receiver, from the first announcement to the end. The transport's end delivers
/// announcements and symbols, and requests what is [wanted](Want) next.
pub(crate) struct Assembly {
    pub(crate) store: Box<dyn Store>,
    pub(crate) phase: TransferPhase,
    pub(crate) notice: Option<Notice>,
    pub(crate) blocks: Blocks,
    pub(crate) member: Membership,
    /// One past the last block of content that the store takes by now.
    pub(crate) content_end: BlockId,
    pub(crate) load: LoadMeter,
    pub(crate) limit: Option<Bitrate>,
    pub(crate) path: PathMeter,
    wanted_probes: Option<(u32, u32)>,
    headers: u32,
    counts: PacketCounts,
    pub(crate) store_poll: StorePoll,
    mismatches: u32,
    bytes_found: u64,
    failure: Failure,
    events: VecDeque<FlowEvent>,
}

/// Polls of a store that searches for earlier content or verifies: soon at first, then seldom.
#[derive(Debug)]
pub(crate) struct StorePoll {
    pub(crate) at: Option<Time>,
    wait: Duration,
}

impl StorePoll {
    fn begin(&mut self) {
        self.wait = POLL_MIN;
    }

    fn plan(&mut self, now: Time) {
        self.at = Some(now + self.wait);
        self.wait = (self.wait * 2).min(POLL_MAX);
    }
}

#[derive(Debug, Default)]
struct Failure {
    reason: Option<String>,
    given_up_at: Option<Time>,
    is_stalled: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TransferPhase {
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
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Part(Part),
    /// All missing content and digests; with `fresh`, none of it may have been sent yet.
    Lacking {
        fresh: bool,
    },
    More(Range<BlockId>),
    Nothing,
}

impl Assembly {
    pub(crate) fn new(setup: ObjectReceiverSetup<'_>) -> Self {
        fresh! {
            Self {
                store: setup.store,
                member: Membership::new(setup.id, setup.node, setup.name),
                limit: setup.limit,
                headers: setup.headers,
                store_poll: StorePoll { at: None, wait: POLL_MIN },
            }
            phase, notice, blocks, content_end, load, path, wanted_probes, counts, mismatches,
            bytes_found, failure, events
        }
    }

    fn path_limit(&self) -> Option<PathLimit> {
        let limit = self.path.limit.filter(PathLimit::is_short)?;
        (!self.phase.is_over()).then_some(limit.with(self.headers))
    }

    pub(crate) fn look_at_path(&mut self, cx: &mut Cx<'_>) {
        if self.path.next_timeout().is_none_or(|at| at > cx.now) {
            return;
        }
        let before = self.path.limit;
        self.wanted_probes = self.path.on_timeout(cx.now);
        let has_new_limit = self.path.limit != before;
        if self.wanted_probes.is_some() || has_new_limit {
            self.member.speak_soon();
        }
        if has_new_limit && let Some(PathLimit { arrives, sent }) = self.path_limit() {
            cx.emit(Event::PathLimit { arrives, sent });
        }
    }

    pub(crate) fn take_path_messages(&mut self) -> [Option<PathMessage>; 2] {
        let asked = self.wanted_probes.take().map(|(low, high)| PathMessage::Ask { low, high });
        [asked, self.path.limit.map(PathMessage::Limit)]
    }

    pub(crate) fn wants_packets(&self) -> bool {
        matches!(self.phase, TransferPhase::Manifest | TransferPhase::Content) && !self.has_all()
    }

    fn note_stalled(&mut self, now: Time) -> String {
        self.failure.is_stalled = true;
        why_stalled(self.path_limit(), &self.load.load(now, 0).unwrap_or_default())
    }

    pub(crate) fn content_bytes(&self) -> u64 {
        self.bytes_found + self.blocks.content_bytes
    }

    /// Returns the bytes to report: bytes of content, and before content bytes of the manifest.
    pub(crate) fn reported_bytes(&self) -> u64 {
        let manifest = self.blocks.layout.len(Part::Manifest);
        match self.phase {
            TransferPhase::Listening => 0,
            TransferPhase::Manifest if self.blocks.left(Part::Manifest) > 0 => {
                let PacketCounts { symbols, parity, repairs: useless, .. } = self.counts;
                let symbol = self.notice.map_or(0, |notice| notice.announcement.symbol_bytes);
                let here = (symbols + parity).saturating_sub(useless) * u64::from(symbol);
                here.min(manifest.saturating_sub(1))
            }
            TransferPhase::Manifest | TransferPhase::Opening => manifest,
            _ => self.content_bytes(),
        }
    }

    pub(crate) fn fail(&mut self, cx: &mut Cx<'_>, reason: String) -> bool {
        if self.phase.is_over() {
            return false;
        }
        self.phase = TransferPhase::Failed;
        self.store_poll.at = None;
        self.member.claim(cx, Claim::Failed, end_of(&reason, REASON_MAX));
        self.failure.reason = Some(reason);
        self.events.push_back(FlowEvent::Gone);
        true
    }

    /// Fails, since the source has another scheme. Returns true on failure.
    pub(crate) fn fail_mismatched(&mut self, cx: &mut Cx<'_>, mismatch: &SchemeMismatch) -> bool {
        let failed = self.fail(cx, mismatch.reason());
        if failed {
            self.failure.reason = Some(mismatch.to_string());
        }
        failed
    }

    /// Takes an answer of the source. Returns its news, and true if the receiver fails by it.
    pub(crate) fn take_answer(&mut self, cx: &mut Cx<'_>, answer: Answer) -> (News, bool) {
        let news = self.member.take_answer(cx, answer);
        let failed = match news {
            News::Refused => self.fail(cx, "the source has no room for more receivers".to_string()),
            News::Stalled => {
                let reason = self.note_stalled(cx.now);
                self.fail(cx, reason)
            }
            News::GivenUp => {
                // Perhaps forged: valid only if silence follows.
                self.failure.given_up_at = Some(cx.now);
                false
            }
            News::Nothing | News::Recalled | News::Noted => false,
        };
        (news, failed)
    }

    /// Handles the loss of the source, last received at `heard`. Returns true on failure.
    pub(crate) fn lose_source(
        &mut self,
        cx: &mut Cx<'_>,
        reason: &str,
        heard: Option<Time>,
    ) -> bool {
        let said = |at: Time| heard.is_none_or(|heard| heard <= at + GIVEN_UP_QUIET);
        let given_up = self.failure.given_up_at.filter(|at| said(*at));
        let reason = match given_up {
            Some(_) => GIVEN_UP.to_string(),
            None if self.member.stalled_answer_at.is_some() && !self.phase.is_over() => {
                self.note_stalled(cx.now)
            }
            None => reason.to_string(),
        };
        let news = self.fail(cx, reason);
        self.failure.given_up_at = given_up;
        news
    }

    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) -> bool {
        let early = !self.phase.is_over();
        if early {
            self.phase = TransferPhase::Failed;
            self.store_poll.at = None;
            self.failure.reason = Some("it was told to leave".to_string());
            self.member.leave(cx);
        }
        self.member.hurry(cx);
        early
    }

    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        self.store_poll.at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn poll_event(&mut self) -> Option<FlowEvent> {
        if let Some((bytes, zeros)) = self.store.poll_delivered() {
            return Some(FlowEvent::Delivered { bytes, zeros });
        }
        self.events.pop_front()
    }

    pub(crate) fn handle_input(&mut self, input: ObjectReceiverInput) {
        match input {
            ObjectReceiverInput::Host(load) => self.load.note(load),
            ObjectReceiverInput::Discard => self.store.discard(),
        }
    }

    pub(crate) fn status(&self) -> ObjectStatus {
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
            packets: self.counts,
            answers: self.member.answers,
            failure: ReceiverFailure {
                given_up: self.phase == TransferPhase::Failed && self.failure.given_up_at.is_some(),
                stalled: self.failure.is_stalled,
                mismatch: None,
            },
            reason: self.failure.reason.clone(),
            path: self.path_limit(),
            ..ObjectStatus::default()
        }
    }

    pub(crate) fn begin(&mut self) -> ObjectResult {
        let Some(notice) = self.notice else { return Ok(()) };
        self.store.begin(&notice.announcement)?;
        self.phase = TransferPhase::Manifest;
        self.blocks.want_part(Part::Manifest);
        Ok(())
    }

    pub(crate) fn grow(
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

    pub(crate) fn accepts(&self, name: SymbolName, bytes: u64) -> Checked<bool> {
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

    pub(crate) fn take_symbol(
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
        self.counts.repairs += u64::from(taken == Taken::Useless);
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
    pub(crate) fn advance(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
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

    pub(crate) fn has_all(&self) -> bool {
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
            return Err(ObjectError::new(reason));
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
        self.store_poll.begin();
        self.poll_open(cx, ask)
    }

    fn poll_open(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let found = match self.store.open()? {
            Poll::Pending => {
                self.store_poll.plan(cx.now);
                return Ok(());
            }
            Poll::Ready(found) => found,
        };
        let Some(notice) = self.notice else { return Ok(()) };
        self.store_poll.at = None;
        self.phase = TransferPhase::Content;
        self.load.begin();
        let layout = self.blocks.layout;
        self.content_end = layout.whole_blocks_end(self.store.window_end()?);
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
        let takes_until = layout.whole_blocks_end(self.store.window_end()?);
        if takes_until > self.content_end {
            let more = core::mem::replace(&mut self.content_end, takes_until)..takes_until;
            self.blocks.want(more.clone());
            ask(cx, &self.blocks, Want::More(more));
        }
        if takes_until < layout.block_ids(Part::Content).end && self.store_poll.at.is_none() {
            self.store_poll.at = Some(cx.now + POLL_MAX);
        }
        Ok(())
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
        self.store_poll.begin();
        ask(cx, &self.blocks, Want::Nothing);
        self.poll_verify(cx, ask)
    }

    fn poll_verify(&mut self, cx: &mut Cx<'_>, ask: Ask<'_>) -> ObjectResult {
        let verdict = self.store.verify()?;
        self.load.compare(cx.now, verdict == Poll::Pending);
        match verdict {
            Poll::Pending => self.store_poll.plan(cx.now),
            Poll::Ready(Verdict::Intact) => {
                self.store_poll.at = None;
                self.phase = TransferPhase::Done;
                let bytes = self.content_bytes();
                cx.emit(Event::Completed { bytes });
                self.events.push_back(FlowEvent::Completed);
                self.member.claim(cx, Claim::Done, String::new());
            }
            Poll::Ready(Verdict::Damaged(ranges)) => {
                self.store_poll.at = None;
                self.phase = TransferPhase::Content;
                let before = self.blocks.content_lacking();
                ranges.iter().for_each(|range| self.blocks.damaged(range));
                let lost = self.blocks.content_lacking() - before;
                if lost == 0 {
                    let reason = "the content is damaged, and nobody knows where".to_string();
                    return Err(ObjectError::new(reason));
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
pub(crate) const POLL_MIN: Duration = Duration::from_millis(1);
pub(crate) const POLL_MAX: Duration = Duration::from_millis(20);

const HASHED_AT_ONCE: u64 = 1 << 16;

/// Most mismatches of a part with its announcement. A damaged packet passes its checksum once in
/// 2^16, and some symbols may be forged.
const MISMATCHES_MAX: u32 = 16;
