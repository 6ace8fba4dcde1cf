//! Builders of the ends of streams, for bytes and for messages.

use faircast_net::{Listen, Target};

use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use crate::Error;
use crate::common::{Common, common_settings, sender_settings};

/// Builder of a [`ByteSender`](super::ByteSender) or a [`MessageSender`](super::MessageSender).
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamSenderBuilder<S> {
    target: Target,
    common: Common,
    make: fn(StreamSender) -> S,
}

/// Builder of a [byte](super::ByteReceiver) or [message](super::MessageReceiver) receiver.
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamReceiverBuilder<R> {
    listen: Listen,
    common: Common,
    make: fn(StreamReceiver) -> R,
}

impl<S> StreamSenderBuilder<S> {
    common_settings!();
    sender_settings!();

    pub(super) fn new(target: Target, make: fn(StreamSender) -> S) -> Self {
        Self { target, common: Common::default(), make }
    }

    /// Opens sockets and starts the sender.
    ///
    /// # Errors
    /// A setting is wrong, or the network cannot be used.
    pub fn start(self) -> Result<S, Error> {
        StreamSender::start(self.target, self.common).map(self.make)
    }
}

impl<R> StreamReceiverBuilder<R> {
    common_settings!();

    pub(super) fn new(listen: Listen, make: fn(StreamReceiver) -> R) -> Self {
        Self { listen, common: Common::default(), make }
    }

    /// Opens sockets and starts the receiver.
    ///
    /// # Errors
    /// A setting is wrong, or the network cannot be used.
    pub fn start(self) -> Result<R, Error> {
        StreamReceiver::start(self.listen, self.common).map(self.make)
    }
}
