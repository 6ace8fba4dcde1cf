//! One object that is being received, as its receiver's thread sees it.

use std::sync::Arc;

use faircast_base::Time;
use faircast_files::StoreHandle;
use faircast_net::Heard;
use faircast_proto::object::{ObjectStatus, Stage};
use faircast_proto::pgm::wire::Tsi;

use crate::status::ReceiveOutcome;
use crate::watched_store::Notes;

/// One object that is being received.
pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) scheme: &'static str,
    pub(super) tsi: Tsi,
    pub(super) since: Time,
    pub(super) notes: Arc<Notes>,
    pub(super) disk: StoreHandle,
    /// Whether its end was told.
    pub(super) told: bool,
    /// Packets that had come at the last look, and when that number last grew.
    pub(super) packets: u64,
    pub(super) heard: Time,
    /// How far it was at the last look, and since when it has not come further.
    pub(super) progress: (Stage, u64),
    pub(super) progressed: Time,
    /// Answers of the sender at the last look.
    pub(super) answers: u64,
    /// Whether it was heard when the last object had ended that is taken.
    pub(super) late: bool,
}

impl Transfer {
    /// One whose first packet was just heard.
    pub(super) fn new(
        number: u64,
        scheme: &'static str,
        heard: &Heard<'_>,
        notes: Arc<Notes>,
        disk: StoreHandle,
    ) -> Self {
        Self {
            number,
            scheme,
            tsi: heard.tsi,
            since: heard.now,
            notes,
            disk,
            told: false,
            packets: 0,
            heard: heard.now,
            progress: (Stage::Gathering, 0),
            progressed: heard.now,
            answers: 0,
            late: false,
        }
    }

    /// Notes how far it is.
    pub(super) fn observe(&mut self, now: Time, status: &ObjectStatus) {
        let packets = status.symbols + status.parity;
        if packets != self.packets {
            (self.packets, self.heard) = (packets, now);
        }
        let progress = (status.stage, status.bytes_done);
        if progress.0 != self.progress.0 {
            tracing::debug!(
                target: "faircast::session",
                object = self.number,
                before = ?self.progress.0,
                now = ?progress.0,
                bytes = progress.1,
                "an object"
            );
        }
        if progress != self.progress {
            (self.progress, self.progressed) = (progress, now);
        }
    }
}

/// How an object ended, for the log.
pub(super) fn in_a_word(outcome: &ReceiveOutcome) -> String {
    match outcome {
        ReceiveOutcome::Complete { files, .. } => format!("complete, {} files", files.len()),
        ReceiveOutcome::Partial { files, reason, .. } => {
            format!("{} files, {reason}", files.len())
        }
        ReceiveOutcome::SenderGone => "the sender is gone".to_string(),
        ReceiveOutcome::GivenUp => "its sender has given it up".to_string(),
        ReceiveOutcome::Superseded => "another of its name has come".to_string(),
        ReceiveOutcome::Failed(reason) => reason.clone(),
        ReceiveOutcome::OtherScheme(mismatch) => mismatch.to_string(),
        ReceiveOutcome::Closed => "closed".to_string(),
    }
}
