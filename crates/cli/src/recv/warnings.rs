//! Warnings about the senders of a receiver and the paths from them, each given once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use faircast::{PathLimit, ReceiveStatus, Stage};
use faircast_base::Duration;

use crate::error::Result;
use crate::live::Output;

const FROM_SILENT: Duration = Duration::from_secs(10);

pub(super) struct Warnings {
    from: Option<IpAddr>,
    /// True from the warning that `from` is silent to its next packet.
    from_is_silent: bool,
    mismatch_given: bool,
    paths: BTreeMap<u64, PathLimit>,
}

impl Warnings {
    pub(super) const fn new(from: Option<IpAddr>) -> Self {
        Self { from, from_is_silent: false, mismatch_given: false, paths: BTreeMap::new() }
    }

    pub(super) fn senders(&mut self, output: &Output, status: &ReceiveStatus) -> Result {
        if let (Some(mismatch), false) = (status.mismatch, self.mismatch_given) {
            self.mismatch_given = true;
            output.warn(&format!("a sender cannot be heard: {mismatch}"))?;
        }
        let Some((from, heard)) = self.from.zip(status.heard) else { return Ok(()) };
        let silence = status.elapsed.saturating_sub(heard);
        let is_silent = silence >= FROM_SILENT && !status.incoming.is_empty();
        if std::mem::replace(&mut self.from_is_silent, is_silent) || !is_silent {
            return Ok(());
        }
        output.warn(&format!(
            "nothing has come from {from} for {FROM_SILENT}: if the sender has another address now, end this and \
             start it again with --from and the new address; what is here is kept"
        ))
    }

    pub(super) fn path(&mut self, output: &Output, incoming: &faircast::Incoming) -> Result {
        let (number, path) = (incoming.number, incoming.object.path);
        // A failed object has no path limit: its long packets are missing for another reason.
        let failed = incoming.object.stage == Stage::Failed;
        if failed || path == self.paths.get(&number).copied() {
            return Ok(());
        }
        let Some(path) = path else {
            self.paths.remove(&number);
            return output.warn("long packets arrive again");
        };
        self.paths.insert(number, path);
        output.warn(&format!(
            "only packets of up to {} bytes arrive here, and content comes in packets of {}: start the sender with \
             --mtu {}, or raise the MTU of the way here (links, tunnels, firewalls)",
            path.arrives, path.sent, path.arrives
        ))
    }
}
