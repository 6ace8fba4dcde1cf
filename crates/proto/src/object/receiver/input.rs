//! Packet input of a transfer's receiver: SPMs and notices, answers, confirmations and symbols.

use alloc::string::ToString;

use faircast_base::{BadInput, Checked, Cx, Duration, Time};

use super::assembly::TransferPhase;
use super::blocks::{Blocks, Taken};
use super::member::News;
use super::{END_QUIET, Ending, ObjectReceiver, Timer};
use crate::object::layout::{Layout, part_of};
use crate::object::wire::{Answer, Entry, Notice, Probe, SYMBOL_HEADER, SymbolName};
use crate::object::{Announcement, Part};
use crate::pgm::wire::{Body, OptionType, Packet, Received, Spm};

impl ObjectReceiver {
    pub(super) fn take_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        let port = packet.header.data_port(packet.kind()) == self.config.data_port;
        if !port || self.config.tsi.is_some_and(|tsi| tsi != packet.tsi()) {
            return Err(BadInput::Foreign);
        }
        match packet.body {
            Body::Odata(data) => {
                let before = self.session.highest();
                let believed = self.session.handle_packet(cx, packet);
                let highest = self.session.highest();
                let newest = highest != before && highest == Some(data.sequence);
                let len = packet.payload.bytes.len() + packet.payload.zeros as usize;
                let full =
                    self.assembly.notice.map_or(0, |notice| notice.announcement.symbol_bytes);
                if len >= SYMBOL_HEADER + usize::from(full) {
                    self.assembly.path.meter.on_long();
                    self.long = Some(data.sequence);
                }
                if newest {
                    self.go_on();
                }
                self.watch_scheme(cx);
                // Joins before the first SPM, which may come late: only members' reports count.
                if self.assembly.notice.is_none()
                    && self.assembly.phase == TransferPhase::Listening
                    && believed
                {
                    self.assembly.member.join_once(cx);
                }
                self.take_symbol(cx, packet, newest)
            }
            Body::Spm(spm) => self.take_spm(cx, packet, spm),
            Body::Ncf(_) if packet.options.has(OptionType::PROBE) => {
                let probe = packet.options.find(OptionType::PROBE);
                let probe = probe.and_then(|option| Probe::decode(option.value));
                self.assembly.path.meter.on_probe(cx.now, probe.ok_or(BadInput::Malformed)?);
                Ok(())
            }
            Body::Ncf(nak) if packet.options.has(OptionType::CONFIRM) => {
                if !self.config.group.is_group(nak.group) {
                    return Err(BadInput::Foreign);
                }
                self.take_confirmation(cx, packet)
            }
            _ => {
                self.session.handle_packet(cx, packet);
                Ok(())
            }
        }
    }

    fn watch_scheme(&mut self, cx: &mut Cx<'_>) {
        if let Some(mismatch) = self.session.mismatch()
            && self.assembly.fail_mismatched(cx, mismatch)
        {
            self.requests.clear();
        }
    }

    fn is_new_start(&mut self, now: Time, notice: &Notice) -> bool {
        let epoch = notice.epoch;
        if self.assembly.notice.is_none_or(|known| known.epoch == epoch) {
            self.doubts.epoch.contradict();
            return false;
        }
        self.doubts.epoch.claim(now, epoch, Duration::ZERO, |other| *other == epoch)
    }

    fn take_spm(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, spm: Spm) -> Checked {
        self.session.read_announced(packet)?;
        let notice = match packet.options.find(OptionType::OBJECT) {
            Some(option) => Notice::decode(option.value).ok_or(BadInput::Malformed)?,
            None => {
                self.session.handle_packet(cx, packet);
                self.watch_scheme(cx);
                return Ok(());
            }
        };
        let again = self.is_new_start(cx.now, &notice);
        if again {
            self.begin_again(cx);
        } else if self.assembly.notice.is_some_and(|known| known.epoch != notice.epoch) {
            return Err(BadInput::Foreign);
        } else if self.session.is_contradicted_by(cx.now, &spm) {
            // A packet of an earlier start came after the restart was believed.
            self.listen_anew(cx);
        }
        let fresh = self.session.handle_packet(cx, packet);
        self.watch_scheme(cx);
        if fresh && self.assembly.wants_packets() {
            let long = *self.long.get_or_insert(spm.lead);
            if spm.lead.after(long) {
                self.assembly.path.meter.on_ahead(cx.now);
            }
        }
        let outcome = match self.assembly.notice {
            None if fresh => self.take_first_notice(cx, notice),
            Some(known) if fresh => self.take_notice(cx, known.announcement, notice),
            _ => Ok(()),
        };
        if let Some(option) = packet.options.find(OptionType::MEMBER) {
            let answer = Answer::decode(option.value).ok_or(BadInput::Malformed)?;
            self.take_answer(cx, answer);
        }
        let over = packet.options.has(OptionType::FIN) || packet.options.has(OptionType::RST);
        if !over && fresh {
            self.go_on();
        } else if over && self.ending == Ending::Open {
            self.ending = Ending::Said;
            self.timers.arm(Timer::SourceEnd, cx.now + END_QUIET);
        }
        outcome
    }

    fn go_on(&mut self) {
        self.ending = Ending::Open;
        self.timers.disarm(Timer::SourceEnd);
    }

    /// Handles a restart of the source: packet numbers are new, received content stays.
    fn begin_again(&mut self, cx: &mut Cx<'_>) {
        self.listen_anew(cx);
        if self.assembly.notice.is_some() && !self.assembly.phase.is_over() {
            self.requests.restart(cx, &self.assembly.blocks);
            self.assembly.member.join(cx);
        }
    }

    /// Forgets packet numbers, but not the number of losses.
    fn listen_anew(&mut self, cx: &mut Cx<'_>) {
        self.earlier = self.extent();
        self.session.restart(cx);
    }

    fn take_first_notice(&mut self, cx: &mut Cx<'_>, notice: Notice) -> Checked {
        if self.assembly.phase != TransferPhase::Listening {
            return Ok(());
        }
        self.assembly.blocks.layout = Layout::new(&notice.announcement).ok_or(BadInput::Absurd)?;
        self.assembly.notice = Some(notice);
        self.assembly.member.set_interval(notice.status_interval);
        self.assembly.member.join_once(cx);
        if let Err(error) = self.assembly.begin() {
            self.fail(cx, error.reason);
            return Ok(());
        }
        self.requests.want(cx, self.assembly.blocks.layout.block_ids(Part::Manifest), false);
        self.advance(cx);
        Ok(())
    }

    fn take_notice(&mut self, cx: &mut Cx<'_>, old: Announcement, notice: Notice) -> Checked {
        let new = notice.announcement;
        if !continues(&old, &new) {
            if self.doubts.object.claim(cx.now, (), Duration::ZERO, |()| true) {
                self.fail(cx, "the source now sends something else".to_string());
            }
            return Err(BadInput::Foreign);
        }
        let layout = Layout::new(&new).ok_or(BadInput::Absurd)?;
        self.doubts.object.contradict();
        self.assembly.blocks.layout = layout;
        self.assembly.notice = Some(notice);
        self.assembly.member.shorten_interval(cx, notice.status_interval);
        if self.assembly.phase.is_over() {
            return Ok(());
        }
        let requests = &mut self.requests;
        let mut ask = |cx: &mut Cx<'_>, blocks: &Blocks, want| requests.take(cx, blocks, want);
        if let Err(error) = self.assembly.grow(cx, (&old, &new), &mut ask) {
            self.fail(cx, error.reason);
            return Ok(());
        }
        if notice.exhausted && !self.assembly.member.deferred {
            let sent = [true, notice.begun, notice.begun && new.digests.is_some()];
            let reordering = self.session.reordering_tolerance();
            self.requests.on_exhausted(cx, &mut self.assembly.blocks, sent, reordering);
        }
        if new.digests.is_some() && old.digests.is_none() {
            self.advance(cx);
        }
        Ok(())
    }

    fn take_answer(&mut self, cx: &mut Cx<'_>, answer: Answer) {
        let before = self.may_ask();
        let (news, failed) = self.assembly.take_answer(cx, answer);
        if self.may_ask() && !before {
            self.requests.on_welcome(cx.now);
        }
        match news {
            // Everything may be here already, with only the welcome missing.
            News::Nothing => self.advance(cx),
            News::Recalled => {
                if self.assembly.notice.is_some() {
                    self.requests.restart(cx, &self.assembly.blocks);
                }
            }
            News::Refused | News::Stalled if failed => self.requests.clear(),
            News::Refused | News::Stalled | News::GivenUp => {}
            News::Noted => self.rest(),
        }
    }

    fn take_confirmation(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Checked {
        let Some(notice) = self.assembly.notice else { return Ok(()) };
        let options = packet.options.iter().filter(|option| option.kind == OptionType::CONFIRM);
        for option in options {
            for entry in Entry::decode_all(option.value).ok_or(BadInput::Malformed)? {
                let (Entry::Run { first: block_id, .. } | Entry::Block { block_id, .. }) = entry;
                if !self.assembly.blocks.layout.has(block_id) {
                    if notice.announcement.growing {
                        continue;
                    }
                    return Err(BadInput::Absurd);
                }
                self.requests.on_confirmed(cx.now, &self.assembly.blocks, entry);
            }
        }
        Ok(())
    }

    fn take_symbol(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, newest: bool) -> Checked {
        let Some(_) = self.assembly.notice.filter(|_| !self.assembly.phase.is_over()) else {
            return Ok(());
        };
        let (name, bytes) = SymbolName::decode(packet.payload.bytes).ok_or(BadInput::Malformed)?;
        let zeros = packet.payload.zeros;
        if !self.assembly.accepts(name, bytes.len() as u64 + u64::from(zeros))? {
            return Ok(());
        }
        if newest && !name.repair {
            let reordering = self.session.reordering_tolerance();
            self.requests.on_swept(cx, &mut self.assembly.blocks, name.block_id, reordering);
        }
        if part_of(name.block_id) == Part::Content && name.block_id >= self.assembly.content_end {
            // The store cannot take it yet; the symbol is for other receivers.
            return Ok(());
        }
        let taken = match self.assembly.take_symbol(cx, name, (bytes, zeros)) {
            Ok(taken) => taken,
            Err(error) => {
                self.fail(cx, error.reason);
                return Ok(());
            }
        };
        match taken {
            Taken::Completed => {
                self.requests.on_complete(cx.now, name.block_id, name.repair);
                self.advance(cx);
            }
            Taken::Fresh if name.repair => self.requests.on_progress(cx.now, name.block_id),
            Taken::Fresh | Taken::Useless => {}
            Taken::NoRoom => return Err(BadInput::TableFull),
        }
        Ok(())
    }
}

/// Returns true if `new` announces the same object as `old`, or the object to which it has grown.
pub(crate) fn continues(old: &Announcement, new: &Announcement) -> bool {
    let [manifest, content, _] = old.lens;
    let same = (old.symbol_bytes, old.object) == (new.symbol_bytes, new.object);
    let grown = old.growing && manifest == new.lens[0] && content <= new.lens[1];
    same && (grown || (old.lens, old.growing) == (new.lens, new.growing))
}
