//! Queue between the daemon's task and the task of a connection.

use std::sync::Arc;

use faircast_overlay::{ClientEvent, WaitReason};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::batch::Batch;
use faircast_overlay::protocol::{Frame, ReasonCode};

/// Size in bytes above which events wait in the daemon, whose limits count them.
pub(super) const ROOM_BYTES: usize = 256 * 1024;
pub(super) const HEAD_BYTES: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    pub(super) wake: Notify,
    closing: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) frames: Vec<Frame>,
    bytes: usize,
    is_awaited: bool,
    pub(super) sent: Option<u64>,
    pub(super) waiting: Option<Option<WaitReason>>,
    pub(super) ping: Option<u64>,
    pub(super) pong: Option<u64>,
    close: Option<(ReasonCode, String)>,
}

impl Outbox {
    pub(super) fn fill(&self, mut poll: impl FnMut() -> Option<(u64, Arc<ClientEvent>)>) -> u64 {
        let mut state = self.state.lock();
        let mut count = 0;
        loop {
            state.is_awaited = state.bytes >= ROOM_BYTES;
            let next = if state.is_awaited { None } else { poll() };
            let Some((number, event)) = next else { break };
            state.bytes += bytes(&event);
            state.frames.push(Frame::Event(number, event));
            count += 1;
        }
        drop(state);
        if count > 0 {
            self.wake.notify_one();
        }
        count
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.wake.notify_one();
    }

    /// Requests to close the connection. The first reason counts.
    pub(super) fn close(&self, code: ReasonCode, text: String) {
        self.state.lock().close.get_or_insert((code, text));
        self.closing.notify_one();
    }

    pub(super) async fn closed(&self) -> (ReasonCode, String) {
        loop {
            if let Some(close) = self.state.lock().close.clone() {
                return close;
            }
            self.closing.notified().await;
        }
    }

    /// Moves all frames into a batch. Returns true if the daemon's task waits for room.
    pub(super) fn take(&self, batch: &mut Batch) -> bool {
        let mut state = self.state.lock();
        let State { frames, bytes, is_awaited, sent, waiting, ping, pong, .. } = &mut *state;
        let frames = std::mem::take(frames);
        *bytes = 0;
        let is_awaited = std::mem::take(is_awaited);
        let answers = [
            sent.take().map(Frame::Sent),
            waiting.take().map(Frame::Waiting),
            ping.take().map(Frame::Ping),
            pong.take().map(Frame::Pong),
        ];
        drop(state);
        frames.iter().for_each(|frame| batch.push(frame));
        answers.iter().flatten().for_each(|frame| batch.push(frame));
        is_awaited
    }
}

fn bytes(event: &ClientEvent) -> usize {
    HEAD_BYTES
        + match event {
            ClientEvent::Message { parts, .. } => parts.iter().map(|part| part.len()).sum(),
            ClientEvent::Group { members, .. } => 64 * members.len(),
            _ => 0,
        }
}
