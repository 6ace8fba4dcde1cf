//! Multicast at a relay: frames of a group leave once for all hosts of a network that hear them there, and each host
//! acknowledges them as on a link of its own.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use faircast_base::{BadInput, Duration, NodeId, Time};

use super::frame::{AckPace, Frame, FrameKind, HopPacket, LanOffer};
use super::link::Frames;
use super::neighbours::Gone;
use super::node::{HopNode, Sends};
use super::window::{Ack, Window};
use crate::relay::PortId;

/// Interval between beacons of a relay by multicast, while hosts are attached.
const BEACON: Duration = Duration::from_millis(500);
/// Time of a beacon after a host was told of the multicast, which it has to join first.
const BEACON_SOON: Duration = Duration::from_millis(50);
/// A host that acknowledges nothing for so long does not hear. Chosen: as long as who gives no credits is waited for.
const STALLED: Duration = Duration::from_secs(3);
/// For how long all hosts of its address, unless they are on a link, are served by unicast from then on.
const OFF: Duration = Duration::from_secs(60);
/// Links to several hosts at most; more groups go by unicast.
const LINKS_MAX: usize = 1024;

/// One host of a link.
#[derive(Debug)]
struct LanMember {
    window: Window,
    /// The first frame that is for it.
    first: u32,
    /// Since when it has got nothing that was sent to it once.
    deaf_since: Option<Time>,
}

/// A link to several hosts: those of a network that are in a group. What is new leaves once for all; there is room where the
/// window of each has room; what one of them lost it gets by unicast, what several lost all get again.
#[derive(Debug)]
pub(super) struct Lan {
    /// The network, of those that the relay has.
    place: usize,
    id: u16,
    group: u64,
    frames: Frames,
    members: BTreeMap<PortId, LanMember>,
}

/// For whom a frame is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    All,
    One(PortId),
}

impl Lan {
    fn new(place: usize, id: u16, group: u64) -> Self {
        Self { place, id, group, frames: Frames::default(), members: BTreeMap::new() }
    }

    /// Whether anybody is on it but the neighbour at this port.
    fn has_other(&self, port: PortId) -> bool {
        self.members.keys().any(|member| *member != port)
    }

    fn join(&mut self, port: PortId) {
        let first = self.frames.next();
        let new = LanMember { window: Window::new(first), first, deaf_since: None };
        self.members.entry(port).or_insert(new);
    }

    /// A host is on it no more.
    fn leave(&mut self, port: PortId) {
        if self.members.remove(&port).is_some() {
            self.forget();
        }
    }

    /// Forgets frames that all hosts have.
    fn forget(&mut self) {
        let start = self.frames.first();
        let first = self.members.values().map(|member| member.window.first());
        let first = first.min_by_key(|seq| seq.wrapping_sub(start));
        self.frames.forget_before(first.unwrap_or_else(|| self.frames.next()));
    }

    pub(super) fn has_room(&self) -> bool {
        self.members.values().all(|member| member.window.has_room())
    }

    fn send_begun(&mut self, now: Time, parcel: HopPacket, begun: &[u8]) -> Option<u32> {
        let full = |member: &LanMember| member.window.is_full();
        if self.members.is_empty() || self.members.values().any(full) {
            return None;
        }
        let seq = self.frames.next();
        self.frames.push(parcel, begun);
        for member in self.members.values_mut() {
            member.window.send(now);
            member.deaf_since.get_or_insert(now);
        }
        Some(seq)
    }

    fn on_ack(&mut self, now: Time, port: PortId, ack: &Ack) -> Result<(), BadInput> {
        let member = self.members.get_mut(&port).ok_or(BadInput::Foreign)?;
        let was_slowest = member.window.first() == self.frames.first();
        // Who has nothing but what was sent again, by unicast perhaps, does not hear.
        if member.window.on_ack(now, ack)? {
            member.deaf_since = None;
        }
        if was_slowest {
            self.forget();
        }
        Ok(())
    }

    /// The frame that is to be sent again now, since a host lacks it: the one at `port`, or any.
    fn again(&mut self, now: Time, port: Option<PortId>) -> Option<(Again, u32)> {
        let mut asked = match port {
            Some(port) => self.members.range_mut(port..=port),
            None => self.members.range_mut(..),
        };
        let (port, seq) = asked.find_map(|(port, member)| {
            let seq = member.window.again(now)?;
            Some((*port, seq))
        })?;
        let mut others = self.members.iter().filter(|(other, _)| **other != port);
        if !others.any(|(_, member)| member.window.has_lost(seq)) {
            return Some((Again::One(port), seq));
        }
        for (_, member) in self.members.iter_mut().filter(|(other, _)| **other != port) {
            member.window.sends_again(now, seq);
        }
        Some((Again::All, seq))
    }

    /// Takes the passing of time. Returns the hosts that do not hear: they have got nothing that was sent once.
    fn handle_timeout(&mut self, now: Time) -> Vec<PortId> {
        let mut stalled = Vec::new();
        for (port, member) in &mut self.members {
            let is_deaf = member.deaf_since.is_some_and(|since| now.since(since) >= STALLED);
            if is_deaf && member.window.waits() {
                stalled.push(*port);
            } else {
                member.window.handle_timeout(now);
            }
        }
        self.forget();
        stalled
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.members.values().filter_map(|member| member.window.next_timeout()).min()
    }
}

/// The networks to which a relay sends by multicast, and the links there.
#[derive(Debug)]
pub(super) struct Lans {
    /// The address and port, and how many networks.
    at: Option<(SocketAddr, usize)>,
    links: BTreeMap<PortId, Lan>,
    /// Their ports, by group and network.
    by_group: BTreeMap<(u64, usize), PortId>,
    /// Addresses of hosts that did not hear, and until when they are served by unicast.
    off: BTreeMap<IpAddr, Time>,
    /// The number of a link, halved.
    last_id: u16,
    beacon_at: Time,
}

impl Default for Lans {
    fn default() -> Self {
        let (links, by_group, off) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { at: None, links, by_group, off, last_id: 0, beacon_at: Time::MAX }
    }
}

impl Lans {
    pub(super) fn get(&self, port: PortId) -> Option<&Lan> {
        self.links.get(&port)
    }

    /// The ports by which a group's packets leave by multicast, where one came in on `port`.
    pub(super) fn ports(&self, group: u64, port: PortId) -> impl Iterator<Item = PortId> {
        let all = self.by_group.range((group, 0)..=(group, usize::MAX)).map(|(_, on)| *on);
        all.filter(move |on| self.get(*on).is_some_and(|lan| lan.has_other(port)))
    }

    /// The port of a group's link on a network, which is made where there is none; none where there are too many.
    fn port(&mut self, group: u64, place: usize, new: impl FnOnce() -> PortId) -> Option<PortId> {
        let known = self.by_group.get(&(group, place)).copied();
        known.or_else(|| {
            if self.links.len() >= LINKS_MAX {
                return None;
            }
            let (on, id) = (new(), self.next_id());
            self.links.insert(on, Lan::new(place, id, group));
            self.by_group.insert((group, place), on);
            Some(on)
        })
    }

    /// A host leaves a link. Returns whether nobody is on it any more: then it is gone.
    fn leave(&mut self, on: PortId, port: PortId) -> bool {
        let Some(lan) = self.links.get_mut(&on) else { return true };
        lan.leave(port);
        let is_gone = lan.members.is_empty();
        if is_gone {
            self.by_group.remove(&(lan.group, lan.place));
            self.links.remove(&on);
        }
        is_gone
    }

    /// A number for a link, which those of two have not.
    const fn next_id(&mut self) -> u16 {
        self.last_id = self.last_id % (u16::MAX / 2) + 1;
        self.last_id << 1
    }

    /// What a host at `port` is told of them; it is on the link at `on`, if on any.
    pub(super) fn offer(&self, port: PortId, on: Option<PortId>) -> Option<LanOffer> {
        let (at, _) = self.at?;
        let lan = on.and_then(|on| self.get(on));
        let link = lan.and_then(|lan| {
            let member = lan.members.get(&port)?;
            Some((lan.id, member.first, AckPace::of(lan.members.len())))
        });
        Some(LanOffer { at, link })
    }

    pub(super) const fn next_timeout(&self) -> Time {
        self.beacon_at
    }
}

impl HopNode {
    /// From now on frames leave by multicast to `at` too, on so many networks, for hosts that hear them there.
    pub fn set_multicast(&mut self, at: SocketAddr, networks: usize) {
        self.lans.at = Some((at, networks.min(usize::from(u16::MAX))));
    }

    /// A host says on which network it hears this relay's multicast: from 1 on, 0 for none.
    pub(super) fn on_hears(&mut self, now: Time, port: PortId, group: u64, hears: u16) {
        let Self { lans, neighbours, .. } = self;
        let Some((_, networks)) = lans.at else { return };
        let Some(of) = neighbours.get(port) else { return };
        let Some(member) = of.groups.get(&group) else { return };
        let (before, is_receiver) = (member.lan, member.receivers > 0 && !of.is_relay);
        let is_off = lans.off.get(&of.address.ip()).is_some_and(|until| now < *until);
        let place = usize::from(hears).checked_sub(1).filter(|place| *place < networks);
        let place = place.filter(|_| is_receiver && (before.is_some() || !is_off));
        let on = place.and_then(|place| lans.port(group, place, || neighbours.next_port()));
        if is_receiver && place.is_none() {
            lans.beacon_at = lans.beacon_at.min(now + BEACON_SOON);
        }
        if on == before {
            return;
        }
        self.leave_lan(port, group);
        if let Some(lan) = on.and_then(|on| self.lans.links.get_mut(&on)) {
            lan.join(port);
        }
        if let Some(member) = self.neighbours.member_mut(port, group) {
            member.lan = on;
        }
    }

    /// A host has a group by unicast again.
    fn leave_lan(&mut self, port: PortId, group: u64) {
        let Some(node) = self.neighbours.get(port).map(|of| of.node) else { return };
        let member = self.neighbours.member_mut(port, group);
        if let Some(on) = member.and_then(|member| member.lan.take()) {
            self.leave_link(on, (port, node, group));
        }
    }

    fn leave_link(&mut self, on: PortId, (port, node, group): (PortId, NodeId, u64)) {
        let is_gone = self.lans.leave(on, port);
        self.gone.extend(self.flows.get(&group).map(|flow| (*flow, on, node)));
        // No frame waits for a departed host.
        if (is_gone || self.lans.get(on).is_some_and(Lan::has_room)) && self.awaiting.remove(&on) {
            self.ready.push_back(on);
        }
    }

    /// Lets go of what belonged to those who have left.
    pub(super) fn forget_gone(&mut self) {
        for Gone { port, node, group, lan } in core::mem::take(&mut self.neighbours.gone) {
            self.gone.extend(self.flows.get(&group).map(|flow| (*flow, port, node)));
            if let Some(on) = lan {
                self.leave_link(on, (port, node, group));
            }
            if self.neighbours.get(port).is_none() && self.awaiting.remove(&port) {
                self.ready.push_back(port);
            }
        }
    }

    /// An acknowledgement of a link to several hosts has come. Returns the link's port.
    pub(super) fn on_lan_ack(
        &mut self,
        now: Time,
        port: PortId,
        frame: &Frame<'_>,
    ) -> Option<PortId> {
        let groups = &self.neighbours.get(port)?.groups;
        let mut all = groups.values().filter_map(|member| member.lan);
        let on = all.find(|on| self.lans.get(*on).is_some_and(|lan| lan.id == frame.link.0))?;
        let lan = self.lans.links.get_mut(&on)?;
        let ack = Ack::decode(frame.body).ok_or(BadInput::Malformed);
        match ack.and_then(|ack| lan.on_ack(now, port, &ack)) {
            Ok(()) => {}
            Err(BadInput::Foreign) => self.refused.unknown += 1,
            Err(_) => self.refused.malformed += 1,
        }
        Some(on)
    }

    /// A packet leaves by multicast. Returns whether there was a place for it.
    pub(super) fn forward_to_lan<S: Sends>(
        &mut self,
        now: Time,
        on: PortId,
        (parcel, begun): (HopPacket, &[u8]),
        out: &mut S,
    ) -> bool {
        let Self { lans, guard, links_at, .. } = self;
        let Some(lan) = lans.links.get_mut(&on) else { return false };
        let Some(seq) = lan.send_begun(now, parcel, begun) else { return false };
        out.send_to_network(lan.place, |buf| lan.frames.write(lan.id, seq, guard, buf));
        *links_at = lan.next_timeout().map_or(*links_at, |at| at.min(*links_at));
        true
    }

    /// Sends what is due on a link to several hosts, since something was heard of the one at `port`, or time has passed.
    pub(super) fn serve_lan<S: Sends>(
        &mut self,
        now: Time,
        on: PortId,
        port: Option<PortId>,
        out: &mut S,
    ) {
        let Self { lans, guard, neighbours, awaiting, ready, links_at, .. } = self;
        let Some(lan) = lans.links.get_mut(&on) else { return };
        while let Some((to, seq)) = lan.again(now, port) {
            match to {
                Again::All => {
                    out.send_to_network(lan.place, |buf| lan.frames.write(lan.id, seq, guard, buf))
                }
                Again::One(port) => {
                    if let Some(of) = neighbours.get(port) {
                        out.send(of.address, |buf| lan.frames.write(lan.id, seq, guard, buf));
                    }
                }
            }
        }
        // An acknowledgement makes no timer earlier.
        if port.is_none() {
            *links_at = lan.next_timeout().map_or(*links_at, |at| at.min(*links_at));
        }
        if awaiting.contains(&on) && lan.has_room() {
            awaiting.remove(&on);
            ready.push_back(on);
        }
    }

    /// Takes the passing of time at links whose timers are due.
    pub(super) fn handle_lan_timeouts<S: Sends>(&mut self, now: Time, out: &mut S) {
        self.lans.off.retain(|_, until| now < *until);
        let all: Vec<PortId> = self.lans.links.keys().copied().collect();
        for on in all {
            let Some(lan) = self.lans.links.get_mut(&on) else { continue };
            let (group, at) = (lan.group, lan.next_timeout());
            if at.is_none_or(|at| at > now) {
                self.links_at = at.map_or(self.links_at, |at| at.min(self.links_at));
                continue;
            }
            for port in lan.handle_timeout(now) {
                let ip = self.neighbours.get(port).map(|of| of.address.ip());
                self.lans.off.extend(ip.map(|ip| (ip, now + OFF)));
                self.leave_lan(port, group);
                self.accept(port, group, out);
            }
            self.serve_lan(now, on, None, out);
        }
    }

    /// Says by multicast that it is there.
    pub(super) fn send_beacons<S: Sends>(&mut self, now: Time, out: &mut S) {
        let Some((_, networks)) = self.lans.at.filter(|_| self.lans.beacon_at <= now) else {
            return;
        };
        let mut hosts = self.neighbours.iter().filter(|(_, of)| !of.is_relay);
        let is_heard = hosts.any(|(_, of)| of.groups.values().any(|member| member.receivers > 0));
        self.lans.beacon_at = if is_heard { now + BEACON } else { Time::MAX };
        let guard = &mut self.guard;
        for place in 0..if is_heard { networks } else { 0 } {
            let number = (place as u16 + 1).to_be_bytes();
            let frame = Frame::control(FrameKind::Beacon, 0, &number);
            out.send_to_network(place, |buf| guard.write(&frame, buf, |_| {}));
        }
    }
}
