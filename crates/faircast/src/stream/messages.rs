//! Streams of messages.

use std::future::poll_fn;

use faircast_net::{Listen, Target};
use tokio::sync::watch;

use super::StreamStatus;
use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use crate::Error;
use crate::common::{Common, common_settings, sender_settings};

/// Makes a [`MessageSender`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MessageSenderBuilder {
    target: Target,
    common: Common,
}

/// Sends messages to whoever hears them, one in each packet. Dropped, it ends after what was sent.
#[derive(Debug)]
pub struct MessageSender(StreamSender);

/// Makes a [`MessageReceiver`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MessageReceiverBuilder {
    listen: Listen,
    common: Common,
}

/// Receives the messages of the first sender that it hears, in order, from where it hears it.
#[derive(Debug)]
pub struct MessageReceiver(StreamReceiver);

impl MessageSender {
    /// Begins to say how it is to be made.
    pub fn builder(target: Target) -> MessageSenderBuilder {
        MessageSenderBuilder { target, common: Common::default() }
    }

    /// Bytes of the longest message: what fits into one packet.
    pub fn message_max(&self) -> usize {
        self.0.payload()
    }

    /// Sends a message as soon as may be; waits while too much waits already.
    ///
    /// # Errors
    /// It is longer than [`message_max`](Self::message_max), or the sender has ended.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        poll_fn(|cx| self.0.poll_push(cx, message)).await
    }

    /// Waits until all messages have left.
    ///
    /// # Errors
    /// The sender has ended before.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.0.poll_drained(cx)).await
    }

    /// How it stands, a few times a second.
    pub fn status(&self) -> watch::Receiver<StreamStatus> {
        self.0.status()
    }

    /// Says that there are no more messages, and waits until receivers have had the time to ask for
    /// repairs.
    ///
    /// # Errors
    /// The thread of the stream has gone.
    pub async fn finish(mut self) -> Result<StreamStatus, Error> {
        self.0.finish().await
    }
}

impl MessageSenderBuilder {
    common_settings!();
    sender_settings!();

    /// Opens sockets and begins.
    ///
    /// # Errors
    /// A setting is wrong, or the network cannot be used.
    pub fn start(self) -> Result<MessageSender, Error> {
        StreamSender::start(self.target, self.common).map(MessageSender)
    }
}

impl MessageReceiver {
    /// Begins to say how it is to be made.
    pub fn builder(listen: Listen) -> MessageReceiverBuilder {
        MessageReceiverBuilder { listen, common: Common::default() }
    }

    /// The next message; `None` once the sender has said that there are no more, or this end was
    /// closed. After an error of messages that were lost for good others may follow.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        poll_fn(|cx| self.0.poll_next(cx)).await
    }

    /// How it stands, a few times a second.
    pub fn status(&self) -> watch::Receiver<StreamStatus> {
        self.0.status()
    }

    /// Leaves the stream.
    pub fn close(&self) {
        self.0.close();
    }
}

impl MessageReceiverBuilder {
    common_settings!();

    /// Opens sockets and begins.
    ///
    /// # Errors
    /// A setting is wrong, or the network cannot be used.
    pub fn start(self) -> Result<MessageReceiver, Error> {
        StreamReceiver::start(self.listen, self.common).map(MessageReceiver)
    }
}
