//! The stages of a receiver: manifest, what the store has already, content, comparison.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::task::Poll;

use faircast_base::{Cx, Duration, Event, Time};

use super::{ObjectReceiver, Timer, TransferPhase};
use crate::AppEvent;
use crate::object::wire::Claim;
use crate::object::{Announcement, ObjectError, Part, Verdict};

impl ObjectReceiver {
    /// Goes on where something has come to its end: the manifest, the store's search, all content.
    pub(in crate::object) fn advance(&mut self, cx: &mut Cx<'_>) {
        let outcome = match self.phase {
            TransferPhase::Manifest if self.has_manifest() => self.check_manifest(cx),
            TransferPhase::Opening => self.poll_open(cx),
            TransferPhase::Content if self.has_all() => self.check_digests(cx),
            TransferPhase::Content => self.widen(cx),
            TransferPhase::Verifying => self.poll_verify(cx),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            self.fail(cx, error.reason);
        }
    }

    /// Whether the manifest is here, and came from a source that is there: what a recording of one
    /// says must not take hold of the store. Without a manifest there is nothing to take hold of.
    fn has_manifest(&self) -> bool {
        let empty = self.blocks.layout.len(Part::Manifest) == 0;
        self.blocks.left(Part::Manifest) == 0 && (self.member.welcome || empty)
    }

    pub(in crate::object) fn has_all(&self) -> bool {
        let layout = &self.blocks.layout;
        let known = self.notice.is_some_and(|notice| {
            let Announcement { growing, digests, .. } = notice.announcement;
            let all_wanted = self.content_end == layout.keys(Part::Content).end;
            let digests = digests.is_some() || layout.len(Part::Digests) == 0;
            !growing && all_wanted && digests
        });
        // A recording of a session has everything but a welcome for this receiver.
        known
            && self.member.welcome
            && self.blocks.left(Part::Content) == 0
            && self.blocks.left(Part::Digests) == 0
    }

    /// Whether a part that has come whole is the one that was announced.
    fn matches(&mut self, part: Part, wanted: &[u8; 32]) -> Result<bool, ObjectError> {
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

    /// A part is not what was announced: it is asked for again, some times.
    fn mismatch(&mut self, cx: &mut Cx<'_>, part: Part) -> Result<(), ObjectError> {
        self.mismatches += 1;
        if self.mismatches > MISMATCHES_MAX {
            let what = if part == Part::Manifest { "manifest" } else { "list of digests" };
            let reason = alloc::format!("the {what} that came is not the one that was announced");
            return Err(ObjectError { reason });
        }
        self.blocks.want_part(part);
        self.requests.want(cx, self.blocks.layout.keys(part), false);
        Ok(())
    }

    fn check_manifest(&mut self, cx: &mut Cx<'_>) -> Result<(), ObjectError> {
        let Some(notice) = self.notice else { return Ok(()) };
        let empty = self.blocks.layout.len(Part::Manifest) == 0;
        let hash = notice.announcement.object;
        // Without a manifest the name of an object is whatever its source chose.
        if !empty && !self.matches(Part::Manifest, &hash)? {
            return self.mismatch(cx, Part::Manifest);
        }
        self.phase = TransferPhase::Opening;
        self.poll_wait = POLL_MIN;
        self.poll_open(cx)
    }

    fn poll_open(&mut self, cx: &mut Cx<'_>) -> Result<(), ObjectError> {
        let found = match self.store.open()? {
            Poll::Pending => {
                self.poll_later(cx.now);
                return Ok(());
            }
            Poll::Ready(found) => found,
        };
        let Some(notice) = self.notice else { return Ok(()) };
        self.timers.disarm(Timer::Store);
        self.phase = TransferPhase::Content;
        self.load.begin();
        let layout = self.blocks.layout;
        self.content_end = layout.reach(self.store.window()?);
        self.blocks.want(layout.keys(Part::Content).start..self.content_end);
        self.blocks.want_part(Part::Digests);
        let before = self.blocks.content_lacking();
        found.iter().for_each(|range| self.blocks.found(range));
        self.bytes_found = before - self.blocks.content_lacking();
        self.member.claim(cx, Claim::Receiving, String::new());
        let fresh = notice.position.is_none();
        self.requests.want_lacking(cx, &self.blocks, fresh);
        self.advance(cx);
        Ok(())
    }

    /// Wants what there is of content by now and the store can take.
    fn widen(&mut self, cx: &mut Cx<'_>) -> Result<(), ObjectError> {
        let layout = self.blocks.layout;
        let reach = layout.reach(self.store.window()?);
        if reach > self.content_end {
            let more = core::mem::replace(&mut self.content_end, reach)..reach;
            self.blocks.want(more.clone());
            self.requests.want_more(cx, more);
        }
        if reach < layout.keys(Part::Content).end && !self.timers.is_armed(Timer::Store) {
            self.timers.arm(Timer::Store, cx.now + POLL_MAX);
        }
        Ok(())
    }

    fn poll_later(&mut self, now: Time) {
        self.timers.arm(Timer::Store, now + self.poll_wait);
        self.poll_wait = (self.poll_wait * 2).min(POLL_MAX);
    }

    fn check_digests(&mut self, cx: &mut Cx<'_>) -> Result<(), ObjectError> {
        let Some(notice) = self.notice else { return Ok(()) };
        if self.blocks.layout.len(Part::Digests) > 0
            && let Some(hash) = notice.announcement.digests
            && !self.matches(Part::Digests, &hash)?
        {
            return self.mismatch(cx, Part::Digests);
        }
        self.phase = TransferPhase::Verifying;
        self.poll_wait = POLL_MIN;
        self.requests.clear();
        self.poll_verify(cx)
    }

    fn poll_verify(&mut self, cx: &mut Cx<'_>) -> Result<(), ObjectError> {
        let verdict = self.store.verify()?;
        self.load.compare(cx.now, verdict == Poll::Pending);
        match verdict {
            Poll::Pending => self.poll_later(cx.now),
            Poll::Ready(Verdict::Intact) => {
                self.timers.disarm(Timer::Store);
                self.phase = TransferPhase::Done;
                let bytes = self.content_bytes();
                cx.emit(Event::Completed { bytes });
                self.events.push_back(AppEvent::Completed);
                self.member.claim(cx, Claim::Done, String::new());
            }
            Poll::Ready(Verdict::Damaged(ranges)) => {
                self.timers.disarm(Timer::Store);
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
                self.requests.want_lacking(cx, &self.blocks, false);
            }
        }
        Ok(())
    }
}

/// How soon and, in the end, how often a store is asked whether it has come to its end: little is
/// found or compared in a moment, and much takes long.
pub(in crate::object) const POLL_MIN: Duration = Duration::from_millis(1);
pub(in crate::object) const POLL_MAX: Duration = Duration::from_millis(20);

/// How much of a part is hashed at once.
const HASHED_AT_ONCE: u64 = 1 << 16;

/// How often a part may come that is not the one announced: a wrong checksum is right once in 2^16,
/// and some symbols may have been forged.
const MISMATCHES_MAX: u32 = 16;
