//! Receiver of a session under credits: another machine, and the credits for its packets.

use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Event, NodeId, Time};

use super::tag_of;
use super::upstream::Upstream;
use super::wire::{self, CAPSULE_BYTES, Capsule, Packet};
use crate::relay::PortId;
use crate::{Datagram, Destination, Interactive, Machine, ReceiverInput, Transmit, passes_on};

/// Receiver `inner` under credits. Packets count as forwarded when they arrive (src: credits s3).
#[derive(Debug)]
pub struct CreditReceiver<M> {
    inner: M,
    session: u64,
    node: NodeId,
    upstream: Option<Upstream>,
    /// Packets received before the application stopped deliveries; `None` while it takes packets.
    held: Option<u32>,
}

impl<M: Machine> CreditReceiver<M> {
    /// Returns the inner machine, which has no credits.
    pub const fn inner(&self) -> &M {
        &self.inner
    }

    /// Creates a receiver at `node` of the session with this number.
    pub fn new(inner: M, session: u64, node: NodeId) -> Self {
        Self { inner, session, node, upstream: None, held: None }
    }

    /// Stops or resumes deliveries. While stopped, at most B packets arrive.
    fn hold(&mut self, now: Time, held: bool) {
        match &mut self.upstream {
            Some(upstream) if held => _ = self.held.get_or_insert(upstream.received),
            Some(upstream) if self.held.take().is_some() => upstream.grant_again(now),
            _ => {}
        }
    }

    fn take(&mut self, now: Time, capsule: &Capsule) {
        match &mut self.upstream {
            Some(upstream) => {
                // The count of packets before the stop restarts with the branch's counts.
                if upstream.on_capsule(now, capsule, PortId(0)) && self.held.is_some() {
                    self.held = Some(upstream.received);
                }
            }
            None => {
                let tag = tag_of(self.node, self.session);
                self.upstream = Some(Upstream::new(now, tag, capsule, PortId(0)));
            }
        }
        if let Some(upstream) = &mut self.upstream {
            let done = self.held.unwrap_or(upstream.received);
            if upstream.since_reported(done) >= i64::from(capsule.unit) {
                upstream.grant(now, capsule.buffer, done, 1);
            }
        }
    }
}

impl<M: Interactive<Input: ReceiverInput>> Interactive for CreditReceiver<M> {
    type Input = M::Input;

    fn handle_input(&mut self, cx: &mut Cx<'_>, input: M::Input) {
        if let Some(held) = input.hold() {
            self.hold(cx.now, held);
        }
        self.inner.handle_input(cx, input);
    }
}

impl<M: Machine> Machine for CreditReceiver<M> {
    type Event = M::Event;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !wire::is_ours(datagram.bytes) {
            return self.inner.handle_datagram(cx, datagram);
        }
        let reason = match wire::decode(datagram.bytes) {
            Ok(Packet::Capsule(capsule)) if capsule.session == self.session => {
                self.take(cx.now, &capsule);
                if !capsule.probe {
                    let bytes = &datagram.bytes[CAPSULE_BYTES..];
                    // The cached parse result is of the outer bytes.
                    let inner = Datagram { bytes, parsed: None, ..datagram };
                    self.inner.handle_datagram(cx, inner);
                }
                return;
            }
            Ok(_) => BadInput::Foreign,
            Err(reason) => reason,
        };
        cx.emit(Event::BadInput { reason });
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(upstream) = &mut self.upstream {
            upstream.on_timeout(cx.now, true);
        }
        self.inner.handle_timeout(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(upstream) = &mut self.upstream
            && upstream.poll(buf)
        {
            return Some(Transmit::control(Destination::Node(upstream.node)));
        }
        self.inner.poll_transmit(cx, buf)
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = self.upstream.as_ref().map(|upstream| upstream.refresh_at);
        self.inner.next_timeout().into_iter().chain(own).min()
    }

    passes_on!(inner: handle_close, handle_new_path, poll_membership, poll_event);
}
