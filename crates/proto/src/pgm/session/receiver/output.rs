//! Packet output of a receiver: SPM requests, reports and NAKs.

use alloc::vec::Vec;

use faircast_base::{Cx, GroupId, NodeId, Seq};

use super::{ReceiverPhase, ReceiverSession, RepairLayer, Source, SpmRequests, Window};
use crate::congestion::Audience;
use crate::pgm::wire::{Body, Encoder, Header, NAK_LIST_MAX, Nak, Nla, OptionType};
use crate::{Destination, Transmit};

impl<R: RepairLayer> ReceiverSession<R> {
    pub(crate) fn next_packet(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let source = self.source.as_ref()?;
        match self.phase {
            ReceiverPhase::Waiting => return None,
            ReceiverPhase::Joined | ReceiverPhase::Finished => {}
            ReceiverPhase::Lost | ReceiverPhase::Ended => {
                let source = *source;
                return self.write_leave(cx, &source, buf);
            }
        }
        if self.scheme.mismatch.is_some() {
            return None;
        }
        if self.spm_requests_due != SpmRequests::default() {
            let source = *source;
            return Some(self.write_due_request(&source, buf));
        }
        if let Some((vector, report)) = self.scheme.late_acks.as_mut().and_then(|acks| acks.next())
        {
            let source = *source;
            let body = Body::Ack(self.scheme.feedback.shape_vector(vector));
            return Some(self.write(&source, &body, &[], Some(&report), buf, |_| {}));
        }
        // Polled after every packet, mostly without a result, so the rest is not inlined.
        let mut report = Vec::new();
        while let Some(audience) = self.scheme.feedback.poll_report(cx, &mut report) {
            let report = core::mem::take(&mut report);
            if let Some(packet) = self.write_report(audience, report, buf) {
                return Some(packet);
            }
        }
        // Only a receiver that never requests repairs sends a NAK to report a loss.
        let is_nak_due = match self.repair.naks() {
            Some(naks) => naks.has_due(),
            None => self.lone_nak.due.is_some(),
        };
        if is_nak_due { self.next_nak(cx, buf) } else { None }
    }

    #[cold]
    fn write_due_request(&mut self, source: &Source, buf: &mut Vec<u8>) -> Transmit {
        let to_source = self.write(source, &Body::Spmr, &[], None, buf, |_| {});
        if core::mem::take(&mut self.spm_requests_due.to_group) {
            let to = Destination::Group(GroupId::SESSION);
            return Transmit { time_to_live: 1, ..Transmit::control(to) };
        }
        self.spm_requests_due.to_source = false;
        to_source
    }

    /// Returns the packet for a null NAK: the latest one missing, else `highest`.
    fn latest_missing(&self, highest: Seq) -> Seq {
        let missing = self.gaps.latest_missing.map(|index| Seq::new(index as u32));
        missing.filter(|missing| missing.before(highest)).unwrap_or(highest)
    }

    #[inline(never)]
    fn write_report(
        &mut self,
        audience: Audience,
        report: Vec<u8>,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let source = self.source?;
        // Before the first data there is nothing to acknowledge and no number to name.
        let vector = self.window.as_ref()?.ack_vector()?;
        let body = match audience {
            Audience::SenderAck => {
                self.scheme.acknowledges = true;
                let late = self.scheme.late_acks.as_mut().and_then(|acks| acks.replace(&report));
                let vector = late.unwrap_or(vector);
                Body::Ack(self.scheme.feedback.shape_vector(vector))
            }
            // Elements hold back repeated NAKs: a null NAK goes to the source, and must arrive.
            Audience::SenderNak => {
                Body::Nnak(self.nak(&source, self.latest_missing(vector.highest)))
            }
        };
        Some(self.write(&source, &body, &[], Some(&report), buf, |_| {}))
    }

    #[inline(never)]
    fn next_nak(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let source = self.source?;
        let last_hop = source.last_hop?;
        let asked = match self.lone_nak.due.take() {
            Some(index) => [index].to_vec(),
            None => self.repair.naks_mut()?.take_due(1 + NAK_LIST_MAX),
        };
        debug_assert!(asked.is_sorted_by(|a, b| a < b), "lists ascend (RFC 3208 s9.3)");
        let asked: Vec<_> = asked.into_iter().map(|index| Seq::new(index as u32)).collect();
        let (&first, rest) = asked.split_first()?;
        let report = self.scheme.report_for_nak(cx);
        let body = Body::Nak(self.nak(&source, first));
        self.write(&source, &body, rest, report.as_deref(), buf, |_| {});
        Some(to_node(last_hop))
    }

    fn write_leave(
        &mut self,
        cx: &mut Cx<'_>,
        source: &Source,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if !core::mem::take(&mut self.scheme.is_leave_due) {
            return None;
        }
        let body = Body::Ack(self.window.as_ref()?.ack_vector()?);
        let report = self.scheme.report_for_nak(cx);
        Some(self.write(source, &body, &[], report.as_deref(), buf, |encoder| {
            encoder.option(OptionType::ACKER_LEAVING, &[]);
        }))
    }

    /// Writes a null NAK to the source; before any data it names the packet before the first.
    pub(crate) fn write_null_nak(
        &mut self,
        cx: &mut Cx<'_>,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Option<Transmit> {
        let source = self.source?;
        let vector = self.window.as_ref().and_then(Window::ack_vector);
        let highest = vector.map(|vector| vector.highest);
        let report = highest.and_then(|_| self.scheme.report_for_nak(cx));
        let named = highest.map_or(Seq::new(0) - 1, |highest| self.latest_missing(highest));
        let body = Body::Nnak(self.nak(&source, named));
        Some(self.write(&source, &body, &[], report.as_deref(), buf, fill))
    }

    pub(crate) fn write_request(
        &self,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Option<Transmit> {
        Some(self.write(&self.source?, &Body::Spmr, &[], None, buf, fill))
    }

    /// Writes a packet to the source, with a NAK's `list`, a report and the additions of `fill`.
    fn write(
        &self,
        source: &Source,
        body: &Body,
        list: &[Seq],
        report: Option<&[u8]>,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Transmit {
        let header = Header::upstream(source.tsi, self.data_port);
        let mut encoder = Encoder::new(buf, &header, body);
        encoder.nak_list(list.iter().copied());
        if let Some(report) = report {
            encoder.option(self.scheme.options.report, report);
        }
        fill(&mut encoder);
        encoder.finish();
        to_node(source.node)
    }

    fn nak(&self, source: &Source, first: Seq) -> Nak {
        Nak { first, source: Nla::from_node(source.node), group: self.config.group }
    }
}

fn to_node(node: NodeId) -> Transmit {
    Transmit::control(Destination::Node(node))
}
