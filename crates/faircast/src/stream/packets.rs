//! Send queue of a stream: packets to send, and sent packets kept for repairs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use faircast_base::Time;
use faircast_proto::content::Packets;
use parking_lot::{Mutex, MutexGuard};

use crate::{Error, Result};

/// Queue of packets, filled by an application and emptied by a machine in another thread.
#[derive(Clone, Debug)]
pub(crate) struct Queue(Arc<Mutex<Inner>>);

/// Packets of a stream, from the first that may be repaired to the last written.
#[derive(Debug, Default)]
struct Inner {
    /// Packets from `first` on: sent ones within the window, then waiting ones.
    kept: VecDeque<Vec<u8>>,
    first: u64,
    next: u64,
    sent_bytes: u64,
    waiting_bytes: usize,
    /// True if writes may extend the last packet.
    open: bool,
    closed: bool,
    ended: bool,
    payload: usize,
    window: u64,
    writers: Vec<Waker>,
}

impl Queue {
    pub(crate) fn new(payload: usize, window: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { payload, window, ..Inner::default() })))
    }

    pub(crate) fn payload(&self) -> usize {
        self.lock().payload
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, mut bytes: &[u8]) -> Poll<Result<usize>> {
        let mut inner = self.lock();
        if let Some(refused) = inner.refuse(cx) {
            return refused.map(|()| Err(Error::Closed));
        }
        let mut written = 0;
        while !bytes.is_empty() && inner.waiting_bytes < WAITING_BYTES_MAX {
            let payload = inner.payload;
            let room = match inner.kept.back() {
                Some(last) if inner.open => payload - last.len(),
                _ => 0,
            };
            if room == 0 {
                inner.kept.push_back(Vec::with_capacity(payload));
                inner.open = true;
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            inner.kept.back_mut().expect("one was added").extend_from_slice(now);
            inner.waiting_bytes += now.len();
            written += now.len();
            bytes = later;
        }
        Poll::Ready(Ok(written))
    }

    pub(crate) fn poll_push(&self, cx: &mut Context<'_>, message: &[u8]) -> Poll<Result> {
        let mut inner = self.lock();
        if message.len() > inner.payload {
            let (bytes, max) = (message.len(), inner.payload);
            return Poll::Ready(Err(Error::MessageTooLong { bytes, max }));
        }
        if let Some(refused) = inner.refuse(cx) {
            return refused.map(|()| Err(Error::Closed));
        }
        // An empty message counts as a byte, to limit their number.
        inner.waiting_bytes += message.len().max(1);
        inner.kept.push_back(message.to_vec());
        inner.open = false;
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<Result> {
        let mut inner = self.lock();
        match (inner.waiting(), inner.ended) {
            (0, _) => Poll::Ready(Ok(())),
            (_, true) => Poll::Ready(Err(Error::Closed)),
            (_, false) => {
                inner.remember(cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn close(&self) -> bool {
        let mut inner = self.lock();
        inner.closed = true;
        inner.open = false;
        inner.wake();
        inner.waiting() == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        (inner.closed, inner.ended) = (true, true);
        inner.wake();
    }

    pub(crate) fn sent(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.sent_bytes, inner.next)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl Inner {
    fn waiting(&self) -> u64 {
        self.first + self.kept.len() as u64 - self.next
    }

    /// Returns ready if the queue is closed, pending if it is full.
    fn refuse(&mut self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        if self.closed {
            return Some(Poll::Ready(()));
        }
        let full = self.waiting_bytes >= WAITING_BYTES_MAX;
        full.then(|| {
            self.remember(cx);
            Poll::Pending
        })
    }

    fn remember(&mut self, cx: &mut Context<'_>) {
        if !self.writers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.writers.push(cx.waker().clone());
        }
    }

    fn wake(&mut self) {
        self.writers.drain(..).for_each(Waker::wake);
    }

    fn get(&self, index: u64) -> Option<&Vec<u8>> {
        self.kept.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }
}

impl Packets for Queue {
    fn end(&self) -> Option<u64> {
        let inner = self.lock();
        inner.closed.then(|| inner.first + inner.kept.len() as u64)
    }

    fn ready(&mut self, _now: Time, index: u64) -> Option<u32> {
        let mut inner = self.lock();
        let len = inner.get(index)?.len() as u32;
        if index + 1 == inner.first + inner.kept.len() as u64 {
            inner.open = false;
        }
        Some(len)
    }

    fn len(&self, index: u64) -> u32 {
        self.lock().get(index).map_or(0, |packet| packet.len() as u32)
    }

    fn read(&mut self, _now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let mut inner = self.lock();
        let Some(packet) = inner.get(index) else { return 0 };
        out.extend_from_slice(packet);
        let len = packet.len();
        if index == inner.next {
            inner.next += 1;
            inner.sent_bytes += len as u64;
            inner.waiting_bytes -= len.max(1);
            while inner.next - inner.first > inner.window {
                inner.kept.pop_front();
                inner.first += 1;
            }
            inner.wake();
        }
        0
    }

    fn completed(&self, _count: u64) -> Option<u64> {
        Some(self.lock().sent_bytes)
    }
}

const WAITING_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn write(queue: &Queue, bytes: &[u8]) -> usize {
        match queue.poll_write(&mut context(), bytes) {
            Poll::Ready(Ok(written)) => written,
            other => panic!("{other:?}"),
        }
    }

    fn leave(queue: &mut Queue, index: u64) -> Option<Vec<u8>> {
        let len = queue.ready(Time::ZERO, index)?;
        let mut out = Vec::new();
        queue.read(Time::ZERO, index, &mut out);
        assert_eq!(out.len(), len as usize);
        Some(out)
    }

    #[test]
    fn bytes_fill_packets_and_a_packet_whose_length_was_told_stays_as_it_is() {
        let mut queue = Queue::new(10, 8);
        assert_eq!(write(&queue, b"0123456"), 7);
        assert_eq!(write(&queue, b"789abc"), 6);
        assert_eq!(leave(&mut queue, 0).unwrap(), b"0123456789");
        assert_eq!(queue.ready(Time::ZERO, 1), Some(3));
        assert_eq!(write(&queue, b"def"), 3);
        assert_eq!(leave(&mut queue, 1).unwrap(), b"abc");
        assert_eq!(leave(&mut queue, 2).unwrap(), b"def");
        assert_eq!(queue.ready(Time::ZERO, 3), None);
        assert_eq!(queue.sent(), (16, 3));
        assert_eq!(queue.completed(3), Some(16));
    }

    #[test]
    fn the_window_is_kept_for_repairs_and_no_more() {
        let mut queue = Queue::new(1, 4);
        write(&queue, b"0123456789");
        (0..10).for_each(|index| drop(leave(&mut queue, index)));
        for index in 0..10 {
            let mut out = Vec::new();
            queue.read(Time::ZERO, index, &mut out);
            assert_eq!(out.len() as u32, queue.len(index));
            assert_eq!(out.len(), usize::from(index >= 6), "{index}");
        }
        assert_eq!(queue.sent(), (10, 10));
    }

    #[test]
    fn who_writes_too_much_waits_until_something_has_left() {
        let mut queue = Queue::new(1000, 4);
        let bytes = vec![7; 2 << 20];
        let written = write(&queue, &bytes);
        assert!((WAITING_BYTES_MAX..WAITING_BYTES_MAX + 1000).contains(&written), "{written}");
        assert!(queue.poll_write(&mut context(), &bytes).is_pending());
        assert!(queue.poll_drained(&mut context()).is_pending());
        leave(&mut queue, 0).unwrap();
        assert!(write(&queue, &bytes) > 0);
        let all = {
            let inner = queue.lock();
            inner.first + inner.kept.len() as u64
        };
        assert!(!queue.close());
        (1..).map_while(|index| leave(&mut queue, index)).for_each(drop);
        assert!(queue.poll_drained(&mut context()).is_ready());
        assert_eq!(Packets::end(&queue), Some(all));
        assert!(matches!(queue.poll_write(&mut context(), b"x"), Poll::Ready(Err(Error::Closed))));
    }

    #[test]
    fn messages_are_packets_of_their_own_empty_ones_too() {
        let mut queue = Queue::new(5, 4);
        for message in [&b"one"[..], b"", b"three"] {
            assert!(queue.poll_push(&mut context(), message).is_ready());
        }
        let Poll::Ready(Err(error)) = queue.poll_push(&mut context(), b"longer") else { panic!() };
        assert!(error.to_string().contains("6 bytes; at most 5"), "{error}");
        for (index, message) in [&b"one"[..], b"", b"three"].into_iter().enumerate() {
            assert_eq!(leave(&mut queue, index as u64).unwrap(), message);
        }
        assert_eq!(queue.lock().waiting_bytes, 0);
    }
}
