//! Byte streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use faircast_net::{Listen, Target};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::receiver::StreamReceiver;
use super::sender::StreamSender;
use super::{StreamReceiverBuilder, StreamSenderBuilder, StreamStatus};
use crate::Error;

/// Sender of a byte stream, an [`AsyncWrite`]: a flush waits until all bytes have left, a shutdown
/// or a drop ends the stream, and writes wait for the permitted rate.
#[derive(Debug)]
pub struct ByteSender(StreamSender);

/// Receiver of the first byte stream that arrives, an [`AsyncRead`]. Bytes lost for good are an
/// error of kind `Other`, after which reading can go on; a sender that is gone is `UnexpectedEof`.
#[derive(Debug)]
pub struct ByteReceiver {
    stream: StreamReceiver,
    rest: (Vec<u8>, usize),
}

impl ByteSender {
    /// Returns a builder of a sender to this target.
    pub fn builder(target: Target) -> StreamSenderBuilder<Self> {
        StreamSenderBuilder::new(target, Self)
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

impl AsyncWrite for ByteSender {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes).map_err(into_io)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.queue.poll_drained(cx).map_err(into_io)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shut();
        self.0.queue.poll_drained(cx).map_err(into_io)
    }
}

impl ByteReceiver {
    /// Returns a builder of a receiver.
    pub fn builder(listen: Listen) -> StreamReceiverBuilder<Self> {
        StreamReceiverBuilder::new(listen, |stream| Self { stream, rest: (Vec::new(), 0) })
    }

    /// Returns the status, updated a few times a second.
    pub fn status(&self) -> watch::Receiver<StreamStatus> {
        self.stream.status.clone()
    }

    /// Leaves the stream.
    pub fn close(&self) {
        self.stream.waker.close();
    }
}

impl AsyncRead for ByteReceiver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let (packet, from) = &mut self.rest;
            if *from < packet.len() {
                let count = buf.remaining().min(packet.len() - *from);
                buf.put_slice(&packet[*from..*from + count]);
                *from += count;
                return Poll::Ready(Ok(()));
            }
            match ready!(self.stream.poll_next(cx)) {
                Some(Ok(packet)) => self.rest = (packet, 0),
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
    }
}

fn into_io(error: Error) -> io::Error {
    let kind = match error {
        Error::Closed => io::ErrorKind::BrokenPipe,
        Error::Gone => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
