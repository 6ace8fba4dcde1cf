//! Ends of a transfer, as applications see them: over PGM, over TRAM, and through relays.

use super::{HostLoad, ObjectStatus};
use crate::credit::{CreditReceiver, CreditSource};
use crate::stack::Stack;
use crate::{FlowEvent, Interactive, Machine, ReceiverInput};

/// Request to the source of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectSourceInput {
    /// Begin of content for the present members.
    Begin,
    /// Excuse of silent members, since this host itself could not send or receive.
    ExcuseSilence,
    /// Removal of a member whose place another member has taken, until the member sends again.
    Dismiss {
        /// Number of the member.
        id: u64,
    },
    /// Time that the driver's thread has spent so far, by activity.
    Host(HostLoad),
}

/// Request to a receiver of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectReceiverInput {
    /// Time that the driver's thread has spent so far, by activity.
    Host(HostLoad),
    /// Removal of stored content that another object replaces. The machine must be dropped then.
    Discard,
}

impl ReceiverInput for ObjectReceiverInput {}

/// Sending end of a transfer.
pub trait ObjectSender:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectSourceInput>
{
    /// Returns the progress, in time proportional to the number of members.
    fn status(&self) -> ObjectStatus;
}

/// Receiving end of a transfer.
pub trait ObjectTaker:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectReceiverInput>
{
    /// Returns the progress.
    fn status(&self) -> ObjectStatus;

    /// Returns true if the last message is repeated until the source has confirmed it.
    fn awaits_note(&self) -> bool;

    /// Returns the stack that the source announced; `None` before, and if sources announce none.
    fn spoken(&self) -> Option<Stack> {
        None
    }

    /// Returns true if other receivers depend on this one.
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
