//! State of one incoming object in its receiver's thread.

use std::net::IpAddr;
use std::sync::Arc;

use faircast_base::Time;
use faircast_files::StoreHandle;
use faircast_net::{Live, NewSession, SessionId};
use faircast_proto::catalog::Stack;
use faircast_proto::object::{ObjectStatus, Stage};
use faircast_proto::pgm::wire::Tsi;

use crate::ends::Receiving;
use crate::status::ReceiveOutcome;
use crate::watched_store::Notes;

pub(super) struct Transfer {
    pub(super) number: u64,
    pub(super) stack: Stack,
    pub(super) tsi: Tsi,
    pub(super) since: Time,
    pub(super) notes: Arc<Notes>,
    pub(super) disk: StoreHandle,
    pub(super) is_reported: bool,
    pub(super) packets: u64,
    pub(super) packet_at: Time,
    /// Stage and bytes of content, and the time of their last change.
    pub(super) progress: (Stage, u64),
    pub(super) progress_at: Time,
    pub(super) answers: u64,
    /// True if the first packet came after the end of the last object to accept.
    pub(super) is_late: bool,
}

impl Transfer {
    pub(super) fn new(
        number: u64,
        stack: Stack,
        new: &NewSession<'_>,
        notes: Arc<Notes>,
        disk: StoreHandle,
    ) -> Self {
        Self {
            number,
            stack,
            tsi: new.tsi,
            since: new.now,
            notes,
            disk,
            is_reported: false,
            packets: 0,
            packet_at: new.now,
            progress: (Stage::Gathering, 0),
            progress_at: new.now,
            answers: 0,
            is_late: false,
        }
    }

    pub(super) fn origin(&self, live: &Live<Receiving>, id: SessionId) -> Origin {
        let host = live.source(id).map(|source| source.ip());
        Origin { name: self.notes.name.get().cloned(), number: self.number, host }
    }

    pub(super) fn observe(&mut self, now: Time, status: &ObjectStatus) {
        let packets = status.packets.symbols + status.packets.parity;
        if packets != self.packets {
            (self.packets, self.packet_at) = (packets, now);
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
            (self.progress, self.progress_at) = (progress, now);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    name: Option<String>,
    number: u64,
    host: Option<IpAddr>,
}

impl Origin {
    pub(super) fn supersedes(&self, other: &Self) -> bool {
        self.number > other.number
            && self.host.is_some()
            && self.host == other.host
            && self.name == other.name
            && self.name.as_ref().is_some_and(|name| !name.is_empty())
    }
}

pub(super) fn outcome_text(outcome: &ReceiveOutcome) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_superseded_by_a_later_one_of_its_host_and_name() {
        let origin = |name: Option<&str>, number, host: Option<[u8; 4]>| Origin {
            name: name.map(str::to_string),
            number,
            host: host.map(IpAddr::from),
        };
        let (a, b) = (Some([10, 0, 0, 1]), Some([10, 0, 0, 2]));
        let old = origin(Some("backup"), 1, a);
        assert!(origin(Some("backup"), 2, a).supersedes(&old));
        for other in [
            origin(Some("backup"), 2, b),
            origin(Some("backup"), 2, None),
            origin(Some("backup"), 0, a),
            origin(Some("other"), 2, a),
        ] {
            assert!(!other.supersedes(&old), "{other:?}");
        }
        assert!(!origin(Some("x"), 2, None).supersedes(&origin(Some("x"), 1, None)));
        for name in [None, Some("")] {
            assert!(!origin(name, 2, a).supersedes(&origin(name, 1, a)));
        }
    }
}
