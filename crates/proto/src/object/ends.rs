//! Ends of a transfer, as applications see them: over PGM, over TRAM, and through relays.

use alloc::collections::BTreeSet;
use alloc::string::String;

use faircast_base::{Bitrate, Cx, Duration, Time};

use super::{HostLoad, ObjectStatus};
use crate::Machine;
use crate::credit::{CreditReceiver, CreditSource};
use crate::stack::Stack;

/// Sending end of a transfer.
pub trait ObjectSender: Machine {
    /// Progress, in time proportional to the number of members.
    fn status(&self) -> ObjectStatus;

    /// Sets the bytes that the driver adds to each packet, for reported lengths.
    fn set_headers(&mut self, bytes: u32);

    /// Notes the time that the driver's thread has spent so far, and on what.
    fn note_host(&mut self, load: HostLoad);

    /// Begins to send content to the members that are there.
    fn begin(&mut self, cx: &mut Cx<'_>);

    /// Sets the names of the receivers that the end waits for. Default: the members at the beginning of content.
    fn wait_for_names(&mut self, names: BTreeSet<String>);

    /// Sets the time without progress after which a member that speaks is given up. Default: never.
    fn set_stall_max(&mut self, limit: Option<Duration>);

    /// Gives silent members time to speak again before they count as lost: this host itself cannot send or receive.
    fn excuse_silence(&mut self, now: Time);

    /// Removes the member `id`, whose place another member has taken. A member that speaks again is a member again.
    fn dismiss(&mut self, cx: &mut Cx<'_>, id: u64);
}

/// Receiving end of a transfer.
pub trait ObjectTaker: Machine {
    /// Progress.
    fn status(&self) -> ObjectStatus;

    /// Sets the bytes that the driver adds to each packet, for reported lengths.
    fn set_headers(&mut self, bytes: u32);

    /// Notes the time that the driver's thread has spent so far, and on what.
    fn note_host(&mut self, load: HostLoad);

    /// True if the last message is repeated until the source has noted it.
    fn awaits_note(&self) -> bool;

    /// Removes stored content, since another object has taken its place. The machine must be dropped then.
    fn discard(&mut self);

    /// Sets the greatest rate that the receiver asks its source for, before it begins.
    fn set_limit(&mut self, limit: Option<Bitrate>);

    /// Stack that the source announced; `None` before, and where sources announce no stack.
    fn spoken(&self) -> Option<Stack> {
        None
    }

    /// True if other receivers depend on this one.
    fn serves(&self) -> bool {
        false
    }
}

impl<M: ObjectSender> ObjectSender for CreditSource<M> {
    fn status(&self) -> ObjectStatus {
        self.inner().status()
    }

    fn set_headers(&mut self, bytes: u32) {
        self.inner_mut().set_headers(bytes);
    }

    fn note_host(&mut self, load: HostLoad) {
        self.inner_mut().note_host(load);
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        self.inner_mut().begin(cx);
    }

    fn wait_for_names(&mut self, names: BTreeSet<String>) {
        self.inner_mut().wait_for_names(names);
    }

    fn set_stall_max(&mut self, limit: Option<Duration>) {
        self.inner_mut().set_stall_max(limit);
    }

    fn excuse_silence(&mut self, now: Time) {
        self.inner_mut().excuse_silence(now);
    }

    fn dismiss(&mut self, cx: &mut Cx<'_>, id: u64) {
        self.inner_mut().dismiss(cx, id);
    }
}

impl<M: ObjectTaker> ObjectTaker for CreditReceiver<M> {
    fn status(&self) -> ObjectStatus {
        self.inner().status()
    }

    fn set_headers(&mut self, bytes: u32) {
        self.inner_mut().set_headers(bytes);
    }

    fn note_host(&mut self, load: HostLoad) {
        self.inner_mut().note_host(load);
    }

    fn awaits_note(&self) -> bool {
        self.inner().awaits_note()
    }

    fn discard(&mut self) {
        self.inner_mut().discard();
    }

    fn set_limit(&mut self, limit: Option<Bitrate>) {
        self.inner_mut().set_limit(limit);
    }

    fn spoken(&self) -> Option<Stack> {
        self.inner().spoken()
    }

    fn serves(&self) -> bool {
        self.inner().serves()
    }
}
