//! A receiver of a session under credits: another machine, which takes each packet as it comes, and the credits for that.

use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Event, NodeId, Time};

use super::tag_of;
use super::upstream::Upstream;
use super::wire::{self, CAPSULE_BYTES, Capsule, Packet};
use crate::relay::PortId;
use crate::{Datagram, Destination, Machine, Transmit, passes_on};

/// The receiver `inner` under credits: the lowest flow-control node. A packet is done with when it has come: what
/// an application does not take is for `inner` to hold back.
#[derive(Debug)]
pub struct CreditReceiver<M> {
    inner: M,
    session: u64,
    node: NodeId,
    upstream: Option<Upstream>,
}

impl<M: Machine> CreditReceiver<M> {
    /// The machine that knows nothing of credits.
    pub const fn inner(&self) -> &M {
        &self.inner
    }

    /// The same, to work with.
    pub const fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// A receiver at `node` of the session with this number.
    pub fn new(inner: M, session: u64, node: NodeId) -> Self {
        Self { inner, session, node, upstream: None }
    }

    fn take(&mut self, now: Time, capsule: &Capsule) {
        match &mut self.upstream {
            Some(upstream) => _ = upstream.on_capsule(now, capsule, PortId(0)),
            None => {
                let tag = tag_of(self.node, self.session);
                self.upstream = Some(Upstream::new(now, tag, capsule, PortId(0)));
            }
        }
        // What has come is done with.
        if let Some(upstream) = &mut self.upstream {
            let done = upstream.received();
            if upstream.since_reported(done) >= i64::from(capsule.unit) {
                upstream.grant(now, capsule.buffer, done, 1);
            }
        }
    }
}

impl<M: Machine> Machine for CreditReceiver<M> {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !wire::is_ours(datagram.bytes) {
            return self.inner.handle_datagram(cx, datagram);
        }
        let reason = match wire::decode(datagram.bytes) {
            Ok(Packet::Capsule(capsule)) if capsule.session == self.session => {
                self.take(cx.now, &capsule);
                if !capsule.probe {
                    let bytes = &datagram.bytes[CAPSULE_BYTES..];
                    // What was found in these bytes was found in others.
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
        let own = self.upstream.as_ref().map(Upstream::next_timeout);
        self.inner.next_timeout().into_iter().chain(own).min()
    }

    passes_on!(inner: handle_close, poll_membership, poll_event);
}
