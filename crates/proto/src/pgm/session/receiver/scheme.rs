//! Receiver's half of the scheme: feedback, negotiation with the source, and due reports.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Time};

use super::dissent::Dissent;
use crate::congestion::{BoxFeedback, LateAcks, SchemeOptions};
use crate::pgm::negotiation::{Negotiation, SchemeAnnouncement, SchemeMismatch};
use crate::pgm::wire::Packet;

#[repr(C)] // Hot fields first: see the receiver's session.
pub(super) struct ReceiverScheme {
    pub(super) options: SchemeOptions,
    /// True if this receiver has acknowledged, so that it must announce its departure.
    pub(super) acknowledges: bool,
    pub(super) is_leave_due: bool,
    pub(super) feedback: BoxFeedback,
    pub(super) negotiation: Option<Box<Negotiation>>,
    /// Scheme of the source, if it is not this receiver's: from then on nothing is sent.
    pub(super) mismatch: Option<Box<SchemeMismatch>>,
    /// Due acknowledgements for originals that came too late for others to show them.
    pub(super) late_acks: Option<Box<LateAcks>>,
    doubt: Dissent<()>,
    settings_doubt: Dissent<()>,
}

impl ReceiverScheme {
    pub(super) fn new(feedback: BoxFeedback) -> Self {
        Self {
            options: feedback.options(),
            acknowledges: false,
            is_leave_due: false,
            feedback,
            negotiation: None,
            mismatch: None,
            late_acks: None,
            doubt: Dissent::default(),
            settings_doubt: Dissent::default(),
        }
    }

    pub(super) fn judge_data(&mut self, packet: &Packet<'_>) -> Result<Checked, SchemeMismatch> {
        let Some(negotiation) = &self.negotiation else { return Ok(Ok(())) };
        if packet.options.has(self.options.announce) {
            self.doubt.contradict();
            return Ok(Ok(()));
        }
        negotiation.compare_data(packet)?;
        // While the scheme is in doubt, data without an announcement is rejected.
        let doubted = self.doubt.get().is_some();
        Ok(if doubted { Err(BadInput::OtherScheme) } else { Ok(()) })
    }

    /// Follows the announcement of an SPM. False if another must confirm it; `Err` is a claim.
    pub(super) fn follow(
        &mut self,
        now: Time,
        announced: SchemeAnnouncement,
    ) -> Result<bool, SchemeMismatch> {
        let Some(negotiation) = &mut self.negotiation else { return Ok(true) };
        negotiation.compare(&announced.scheme)?;
        let changes = announced.settings != negotiation.settings;
        self.doubt.contradict();
        if !changes {
            self.settings_doubt.contradict();
        } else if negotiation.heard
            && !self.settings_doubt.claim(now, (), Duration::ZERO, |()| true)
        {
            return Ok(false);
        }
        if let Some(feedback) = negotiation.hear(announced) {
            self.feedback = feedback;
        }
        Ok(true)
    }

    /// Takes a claim of another scheme. Returns true once it is believed.
    pub(super) fn doubt(&mut self, now: Time, mismatch: SchemeMismatch) -> bool {
        let believed = self.doubt.claim(now, (), Duration::ZERO, |()| true);
        if believed {
            self.mismatch = Some(Box::new(mismatch));
        }
        believed
    }

    pub(super) fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<Vec<u8>> {
        let mut report = Vec::new();
        self.feedback.report_for_nak(cx, &mut report).then_some(report)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.mismatch.is_some() { None } else { self.feedback.next_timeout() }
    }
}
