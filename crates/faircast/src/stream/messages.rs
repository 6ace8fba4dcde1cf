//! Message streams.

use std::future::poll_fn;

use faircast_net::{Listen, Target};
use tokio::sync::watch;

use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use super::{StreamReceiverBuilder, StreamSenderBuilder, StreamStatus};
use crate::Error;

/// Sender of messages, one in each packet. A drop ends the stream after the messages so far.
#[derive(Debug)]
pub struct MessageSender(StreamSender);

/// Receiver of messages of the first sender that arrives, in order from the first packet received.
#[derive(Debug)]
pub struct MessageReceiver(StreamReceiver);

impl MessageSender {
    /// Returns a builder of a sender to this target.
    pub fn builder(target: Target) -> StreamSenderBuilder<Self> {
        StreamSenderBuilder::new(target, Self)
    }

    /// Returns the bytes of the longest message: the payload of one packet.
    pub fn message_max(&self) -> usize {
        self.0.queue.payload()
    }

    /// Queues a message; waits while the queue is full.
    ///
    /// # Errors
    /// The message is longer than [`message_max`](Self::message_max), or the sender has ended.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        poll_fn(|cx| self.0.poll_push(cx, message)).await
    }

    /// Waits until all messages have left.
    ///
    /// # Errors
    /// The sender ended earlier.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.0.queue.poll_drained(cx)).await
    }

    /// Returns the status, updated a few times a second.
    pub fn status(&self) -> watch::Receiver<StreamStatus> {
        self.0.status.clone()
    }

    /// Ends the stream, and waits until receivers have had time to request repairs.
    ///
    /// # Errors
    /// The thread of the stream has ended.
    pub async fn finish(mut self) -> Result<StreamStatus, Error> {
        self.0.finish().await
    }
}

impl MessageReceiver {
    /// Returns a builder of a receiver.
    pub fn builder(listen: Listen) -> StreamReceiverBuilder<Self> {
        StreamReceiverBuilder::new(listen, Self)
    }

    /// Returns the next message, or an error about lost ones; `None` after the end of the stream.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        poll_fn(|cx| self.0.poll_next(cx)).await
    }

    /// Returns the status, updated a few times a second.
    pub fn status(&self) -> watch::Receiver<StreamStatus> {
        self.0.status.clone()
    }

    /// Leaves the stream.
    pub fn close(&self) {
        self.0.waker.close();
    }
}
