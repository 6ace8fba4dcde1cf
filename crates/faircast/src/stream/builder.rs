//! Builders of the ends of streams, alike for bytes and for messages.

use faircast_net::{Listen, Target};

use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use crate::Error;
use crate::common::{Common, common_settings, sender_settings};

/// Makes a [`ByteSender`](super::ByteSender) or a [`MessageSender`](super::MessageSender).
#[derive(Clone, Debug)]
#[must_use]
pub struct StreamSenderBuilder<S> {
    target: Target,
    common: Common,
    make: fn(StreamSender) -> S,
}

/// Makes a [`ByteReceiver`](super::ByteReceiver) or a [`MessageReceiver`](super::MessageReceiver).
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

    /// Opens sockets and begins.
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

    /// Opens sockets and begins.
    ///
    /// # Errors
    /// A setting is wrong, or the network cannot be used.
    pub fn start(self) -> Result<R, Error> {
        StreamReceiver::start(self.listen, self.common).map(self.make)
    }
}
