//! Streams of messages.

use std::future::poll_fn;

use faircast_net::{Listen, Target};
use tokio::sync::watch;

use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use super::{StreamReceiverBuilder, StreamSenderBuilder, StreamStatus};
use crate::Error;

/// Sends messages to whoever hears them, one in each packet. Dropped, it ends after what was sent.
#[derive(Debug)]
pub struct MessageSender(StreamSender);

/// Receives the messages of the first sender that it hears, in order, from where it hears it.
#[derive(Debug)]
pub struct MessageReceiver(StreamReceiver);

impl MessageSender {
    /// Begins to say how it is to be made.
    pub fn builder(target: Target) -> StreamSenderBuilder<Self> {
        StreamSenderBuilder::new(target, Self)
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

impl MessageReceiver {
    /// Begins to say how it is to be made.
    pub fn builder(listen: Listen) -> StreamReceiverBuilder<Self> {
        StreamReceiverBuilder::new(listen, Self)
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
