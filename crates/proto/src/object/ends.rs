//! Ends of a transfer, as applications see them: over PGM, over TRAM, and through relays.

use super::{HostLoad, ObjectStatus};
use crate::credit::{CreditReceiver, CreditSource};
use crate::stack::Stack;
use crate::{FlowEvent, Interactive, Machine, ReceiverInput};

/// Request to the source of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectSourceInput {
    /// Content begins for the members that are there.
    Begin,
    /// Silent members get time to speak again before they count as lost: this host itself cannot send or receive.
    ExcuseSilence,
    /// The member leaves, since another member has taken its place. A member that speaks again is a member again.
    Dismiss {
        /// Number of the member.
        id: u64,
    },
    /// Time that the driver's thread has spent so far, and on what.
    Host(HostLoad),
}

/// Request to a receiver of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectReceiverInput {
    /// Time that the driver's thread has spent so far, and on what.
    Host(HostLoad),
    /// Stored content goes, since another object has taken its place. The machine must be dropped then.
    Discard,
}

impl ReceiverInput for ObjectReceiverInput {}

/// Sending end of a transfer.
pub trait ObjectSender:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectSourceInput>
{
    /// Progress, in time proportional to the number of members.
    fn status(&self) -> ObjectStatus;
}

/// Receiving end of a transfer.
pub trait ObjectTaker:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectReceiverInput>
{
    /// Progress.
    fn status(&self) -> ObjectStatus;

    /// True if the last message is repeated until the source has noted it.
    fn awaits_note(&self) -> bool;

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
}

impl<M: ObjectTaker> ObjectTaker for CreditReceiver<M> {
    fn status(&self) -> ObjectStatus {
        self.inner().status()
    }

    fn awaits_note(&self) -> bool {
        self.inner().awaits_note()
    }

    fn spoken(&self) -> Option<Stack> {
        self.inner().spoken()
    }

    fn serves(&self) -> bool {
        self.inner().serves()
    }
}
