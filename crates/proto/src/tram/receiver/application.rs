//! Interface of a receiver's application: delivery, release, and status for the source.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Time};

use super::reports::Reports;
use super::{Kept, Own, Phase, Reached, TramReceiver};
use crate::object::TreePlace;
use crate::pgm::negotiation::SchemeMismatch;
use crate::stack::Stack;
use crate::tram::head::decode;
use crate::tram::settings::{HeadRole, TramSettings};
use crate::tram::wire::{Body, is_word};
use crate::tram::{Agreed, Disagreement, GivenHead, TramSetup, TreeNegotiation, steering_at};
use crate::{Datagram, Destination, Transmit};

/// For applications that decide when they take packets, and when they need no more.
impl TramReceiver {
    /// Creates a receiver that follows the settings of its source, and is `node` in reports.
    pub(crate) fn following(
        setup: &TramSetup<'_>,
        node: NodeId,
        negotiation: TreeNegotiation,
    ) -> Self {
        let own = Own { options: setup.options.clone(), negotiation, node, head: setup.head };
        let follows = Some(Box::new(own));
        // The receiver exists because of a packet from the source.
        let source_heard_at = setup.start;
        Self { follows, source_heard_at, ..Self::new(setup) }
    }

    pub(crate) fn kept(setup: &TramSetup<'_>, node: NodeId, negotiation: TreeNegotiation) -> Self {
        Self { kept: Kept::Until, ..Self::following(setup, node, negotiation) }
    }

    /// Takes the settings of the source; a change is believed only after several packets.
    pub(super) fn on_settings(&mut self, cx: &mut Cx<'_>, from: NodeId, bytes: &[u8]) -> Checked {
        if from != self.source {
            return Err(BadInput::Foreign);
        }
        let Some(own) = &self.follows else { return Ok(()) };
        if self.told.agreed.as_deref() == Some(bytes) {
            (self.told.other, self.told.mismatch) = Default::default();
            return Ok(());
        }
        let (node, head) = (own.node, own.head);
        match own.negotiation.agree(&own.options, bytes) {
            Err(Disagreement::Malformed) => Err(BadInput::Malformed),
            Err(Disagreement::Other(mismatch)) => {
                if self.told.mismatch.claim(cx.now, (), Duration::ZERO, |()| true) {
                    self.mismatch = Some(mismatch);
                }
                Err(BadInput::OtherScheme)
            }
            Ok(agreed) => {
                self.told.mismatch.contradict();
                let said = |before: &Vec<u8>| before == bytes;
                let is_first = self.told.agreed.is_none();
                if !is_first && !self.told.other.claim(cx.now, bytes.to_vec(), Duration::ZERO, said)
                {
                    return Err(BadInput::OtherScheme);
                }
                self.agree(cx, &agreed, node, head);
                self.told.agreed = Some(bytes.to_vec());
                Ok(())
            }
        }
    }

    /// Begins under the agreed settings. A receiver that has begun goes on from its present packet.
    fn agree(&mut self, cx: &mut Cx<'_>, agreed: &Agreed, node: NodeId, head: Option<GivenHead>) {
        let now = cx.now;
        let Agreed { tree, options } = agreed;
        let settings = TramSettings::of(options, tree.scheme.is_some());
        let steering = steering_at(*tree, node);
        let reports = steering.map(|it| Box::new(Reports::new(it, options)));
        let spoken = Some(*tree);
        let begun = Self::under(settings, (self.identity, self.source), now, head);
        let before = core::mem::replace(self, begun);
        (self.kept, self.held, self.name) = (before.kept, before.held, before.name);
        (self.phase, self.joined, self.closing) = (before.phase, before.joined, before.closing);
        (self.bytes, self.joins) = (before.bytes, before.joins);
        (self.follows, self.events) = (before.follows, before.events);
        (self.source_heard_at, self.reports, self.spoken) = (now, reports, spoken);
        if let Some(reached) = before.reached {
            self.goodbyes.extend(before.parent.bound.map(|bound| bound.node));
            self.begin_at(cx, reached.deliver);
            if let Some(again) = &mut self.reached {
                (again.from_start, again.lost_any) = (reached.from_start, reached.lost_any);
                // The loss record goes on, and so does its span.
                again.sent_since = reached.sent_since;
            }
        }
        self.losses = before.losses;
    }

    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, held: bool) {
        if core::mem::replace(&mut self.held, held) && !held {
            self.deliver(cx);
            self.after_progress(cx);
        }
    }

    /// Moves the next packet's bytes to `bytes`, and returns the zeros after them. When none is
    /// left, call [`after_progress`](Self::after_progress).
    pub(crate) fn take_packet(&mut self, bytes: &mut Vec<u8>) -> Option<u32> {
        self.take_next(bytes).map(|(_, zeros)| zeros)
    }

    pub(crate) fn pass_over(&mut self, cx: &mut Cx<'_>) {
        let Some(reached) = &mut self.reached else { return };
        let end = reached.reception.first_missing();
        if reached.deliver < end {
            reached.deliver = end;
            if self.settings.head == HeadRole::Never {
                self.head.cache.forget(end);
            }
            self.after_progress(cx);
        }
    }

    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.kept = Kept::Released;
        self.check_end(cx);
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.head.members.children.is_empty()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.reached.as_ref().map_or(0, |it| it.deliver)
    }

    pub(crate) fn place(&self) -> TreePlace {
        let bound = self.parent.bound.is_some();
        // A departed receiver reports its last place.
        let placed = bound || self.phase == Phase::Left;
        let level = if bound { self.level() } else { self.level_before };
        TreePlace {
            number: self.identity.known_id(),
            head: if placed { self.head_number } else { 0 },
            level: if placed { level } else { 0 },
            members: self.head.members.children.len() as u32,
            repairs: self.repairs,
        }
    }

    pub(crate) const fn spoken(&self) -> Option<Stack> {
        self.spoken
    }

    pub(crate) const fn mismatch(&self) -> Option<&SchemeMismatch> {
        self.mismatch.as_ref()
    }

    pub(crate) fn has_delivered_all(&self) -> bool {
        let delivered = |it: &Reached| self.last.is_some_and(|last| it.deliver > last);
        self.events.is_empty() && self.reached.as_ref().is_some_and(delivered)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Left
    }

    pub(crate) const fn is_pruned(&self) -> bool {
        self.pruned
    }

    /// Returns the packets known to be sent since this receiver took part, and the lost ones.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let known = self.reached.as_ref().map_or(0, |reached| {
            let end = reached.reception.end.max(self.losses.end());
            end.saturating_sub(reached.sent_since)
        });
        (known, self.losses.lost())
    }

    pub(crate) fn heard_at(&self) -> Option<Time> {
        (self.source_heard_at > Time::ZERO).then_some(self.source_heard_at)
    }

    pub(crate) fn status_interval(&self) -> Option<Duration> {
        Some(self.front.status_interval).filter(|interval| *interval > Duration::ZERO)
    }

    pub(crate) fn latest_of(&self, datagram: &Datagram<'_>) -> Option<u64> {
        match decode(datagram, self.identity.session).ok()?.body {
            Body::Beacon(front) => Some(front.sequence),
            Body::Data(data) => Some(data.front.sequence).filter(|_| !data.front.repair),
            _ => None,
        }
    }

    pub(crate) fn answer_of<'a>(&self, datagram: &Datagram<'a>) -> Option<&'a [u8]> {
        if !is_word(datagram.bytes) {
            return None;
        }
        match decode(datagram, self.identity.session).ok()?.body {
            Body::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    pub(crate) fn lacks_packets(&self) -> bool {
        self.reached.as_ref().is_some_and(|reached| reached.reception.lacks())
    }

    pub(crate) fn word(&mut self, cx: &mut Cx<'_>, word: &[u8], buf: &mut Vec<u8>) -> Transmit {
        let to = Destination::Node(self.source);
        self.identity.control(cx, to, u8::MAX, Body::Member(word), buf)
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NullTrace, Purpose, Rng};

    use super::*;
    use crate::Machine;
    use crate::options::Options;
    use crate::tram::{OPTIONS, announced};
    use crate::world::{SOURCE, TSI, at, options};

    #[test]
    fn losses_and_packets_are_of_one_span_after_the_source_has_changed_its_settings() {
        let tree = crate::catalog::stack("tram").expect("it is registered");
        let settings = |interval| {
            let options = options(&[("hello_interval", interval)], OPTIONS);
            announced(tree, &options).expect("short enough")
        };
        let own = Options::default();
        let setup = TramSetup::of(TSI, SOURCE, at(0), &own);
        let mut receiver =
            TramReceiver::following(&setup, NodeId(9), crate::catalog::tree_negotiation(None));
        let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
        let mut trace = NullTrace;
        let mut cx = Cx::new(at(0), &mut rng, &mut trace);
        receiver.handle_timeout(&mut cx);
        receiver.on_settings(&mut cx, SOURCE, &settings("100 ms")).unwrap();
        receiver.handle_timeout(&mut cx);
        receiver.begin_at(&mut cx, 1);
        receiver.hear_of(&mut cx, 40, false);
        assert_eq!(receiver.extent(), (40, 40));
        let changed = settings("120 ms");
        let believed = (1..100).find(|second| {
            cx.now = at(1000 * second);
            receiver.on_settings(&mut cx, SOURCE, &changed).is_ok()
        });
        assert!(believed.is_some_and(|second| second > 1), "{believed:?}");
        receiver.handle_timeout(&mut cx);
        assert_eq!(receiver.extent(), (40, 40));
        receiver.hear_of(&mut cx, 60, false);
        assert_eq!(receiver.extent(), (60, 60), "the first 40 are lost once");
    }
}
