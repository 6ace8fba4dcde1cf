//! Requests of hosts and relays to be attached to a relay, and what it tells the relay above of them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::{FlowId, NodeId, Time};

use super::attach::{Attach, REFUSED_FULL, REFUSED_LOOP};
use super::frame::{Accept, COOKIE_BYTES, Frame, FrameKind, Join};
use super::neighbours::{Limits, PARENT};
use super::node::{HopNode, Sends};
use super::status::HopSettings;
use crate::relay::PortId;

impl HopNode {
    fn cookie(&self, from: SocketAddr, node: NodeId) -> [u8; COOKIE_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        match from {
            SocketAddr::V4(v4) => hasher.update(&v4.ip().octets()),
            SocketAddr::V6(v6) => hasher.update(&v6.ip().octets()),
        };
        hasher.update(&from.port().to_be_bytes()).update(&node.0.to_be_bytes());
        *hasher.finalize().as_bytes().first_chunk().expect("a digest has 32 bytes")
    }

    pub(super) fn on_join<S: Sends>(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &Frame<'_>,
        out: &mut S,
    ) {
        let Some(join) = Join::decode(frame.body) else { return self.refused.malformed += 1 };
        let cookie = self.cookie(from, frame.sender);
        if join.cookie != cookie {
            // No more bytes than came, and nothing is kept: whoever says to be at another's address gets that host
            // nothing else.
            return self.answer(from, (FrameKind::Challenge, frame.group), &cookie, out);
        }
        let port = self.neighbours.port(from);
        if !self.is_newest(port, frame) {
            return;
        }
        let parent = self.parent.as_ref();
        if join.relay && parent.is_some_and(|parent| parent.path().contains(&frame.sender)) {
            self.refused.loops += 1;
            return self.answer(from, (FrameKind::Refuse, frame.group), &[REFUSED_LOOP], out);
        }
        let HopSettings { neighbours_max, at_host_max, groups_max } = self.settings;
        let limits =
            Limits { neighbours: neighbours_max, at_host: at_host_max, groups: groups_max };
        let who = (from, frame.sender, join.relay, join.begins);
        let wanted = (frame.group, join.receivers);
        let before = self.neighbours.receivers(frame.group, PARENT);
        let Some(port) = self.neighbours.join(now, who, wanted, limits) else {
            self.refused.full += 1;
            return self.answer(from, (FrameKind::Refuse, frame.group), &[REFUSED_FULL], out);
        };
        if !self.flows.contains_key(&frame.group) {
            self.flows.insert(frame.group, FlowId(self.next_flow));
            self.next_flow = self.next_flow.wrapping_add(1);
            self.tell_above(now);
        }
        // Another program may be where one was, or have another link.
        self.forget_gone();
        self.on_hears(now, port, frame.group, join.hears);
        self.accept(port, frame.group, out);
        self.serve_link(now, port, out);
        if self.neighbours.receivers(frame.group, PARENT) != before {
            self.tell_above(now);
            // Relays below that have sources have to hear of it soon.
            let below = self.neighbours.iter().filter(|(other, of)| {
                *other != port && of.is_relay && of.groups.contains_key(&frame.group)
            });
            let below: Vec<PortId> = below.map(|(port, _)| port).collect();
            below.into_iter().for_each(|port| self.accept(port, frame.group, out));
        }
    }

    pub(super) fn accept<S: Sends>(&mut self, port: PortId, group: u64, out: &mut S) {
        let Some(of) = self.neighbours.get(port) else { return };
        let (to, link) = (of.address, of.link.id());
        let member = of.groups.get(&group).filter(|member| member.receivers > 0 && !of.is_relay);
        let lan = member.and_then(|member| self.lans.offer(port, member.lan));
        let above = self.parent.as_ref();
        let elsewhere = above.map_or(0, |parent| parent.elsewhere(group));
        let elsewhere = elsewhere.saturating_add(self.neighbours.receivers(group, port));
        let above = above.map_or(&[][..], Attach::path);
        let path = [self.guard.node()].iter().chain(above).copied().collect();
        let mut body = Vec::new();
        Accept { link, elsewhere, path, lan }.encode(&mut body);
        self.answer(to, (FrameKind::Accept, group), &body, out);
    }

    fn answer<S: Sends>(
        &mut self,
        to: SocketAddr,
        (kind, group): (FrameKind, u64),
        body: &[u8],
        out: &mut S,
    ) {
        let guard = &mut self.guard;
        out.send(to, |buf| guard.write(&Frame::control(kind, group, body), buf, |_| {}));
    }

    /// The relay above is told who is below; groups of nobody are forgotten.
    pub(super) fn tell_above(&mut self, now: Time) {
        let groups = self.neighbours.groups();
        let Self { flows, neighbours, parent, .. } = self;
        flows.retain(|group, _| {
            let stays = groups.binary_search(group).is_ok();
            if let Some(parent) = parent {
                parent.set(now, *group, stays.then(|| neighbours.receivers(*group, PARENT)));
            }
            stays
        });
    }

    /// Whether a frame without data is no older one that somebody has repeated.
    pub(super) fn is_newest(&mut self, port: Option<PortId>, frame: &Frame<'_>) -> bool {
        let of = port.and_then(|port| self.neighbours.get_mut(port));
        let Some(of) = of.filter(|of| of.node == frame.sender) else { return true };
        let is_newest = frame.counter > of.newest;
        of.newest = of.newest.max(frame.counter);
        self.refused.repeated += u64::from(!is_newest);
        is_newest
    }
}
