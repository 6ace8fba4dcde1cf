//! Multicast at a relay: frames of a group leave once for all hosts of a network that hear them there, and each host
//! acknowledges them as on a link of its own.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::{BadInput, Duration, Time};

use super::arrivals::AckPace;
use super::frame::{Frame, FrameKind, LanOffer};
use super::link::{Frames, HopPacket};
use super::node::{HopNode, Sends};
use super::window::{Ack, Window};
use crate::relay::PortId;

/// How often a relay says by multicast that it is there, while hosts are attached.
const BEACON: Duration = Duration::from_millis(500);
/// How soon after a host was told of the multicast, which it then has to join.
const BEACON_SOON: Duration = Duration::from_millis(50);
/// A host that acknowledges nothing for so long does not hear. Chosen: as long as who gives no credits is waited for.
const STALLED: Duration = Duration::from_secs(3);
/// For how long it is served by unicast from then on.
const OFF: Duration = Duration::from_secs(60);

/// One host of a link.
#[derive(Debug)]
struct LanMember {
    window: Window,
    /// The first frame that is for it.
    first: u32,
    heard_at: Time,
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

    fn join(&mut self, now: Time, port: PortId) {
        let first = self.frames.next();
        let new = LanMember { window: Window::new(first), first, heard_at: now };
        self.members.entry(port).or_insert(new);
    }

    /// A host is on it no more. Returns what had not got there.
    fn leave(&mut self, port: PortId) -> Vec<(HopPacket, Vec<u8>)> {
        let Some(member) = self.members.remove(&port) else { return Vec::new() };
        let owed = member.window.lacks().filter_map(|seq| self.frames.copy(seq)).collect();
        self.forget();
        owed
    }

    /// What all have is not kept.
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
        self.members.values_mut().for_each(|member| _ = member.window.send(now));
        Some(seq)
    }

    fn on_ack(&mut self, now: Time, port: PortId, ack: &Ack) -> Result<(), BadInput> {
        let member = self.members.get_mut(&port).ok_or(BadInput::Foreign)?;
        member.window.on_ack(now, ack)?;
        member.heard_at = now;
        self.forget();
        Ok(())
    }

    /// The frame that is to be sent again now.
    fn again(&mut self, now: Time) -> Option<(Again, u32)> {
        let (port, seq) = self.members.iter_mut().find_map(|(port, member)| {
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

    /// Takes the passing of time. Returns the hosts that do not hear.
    fn handle_timeout(&mut self, now: Time) -> Vec<PortId> {
        let mut stalled = Vec::new();
        for (port, member) in &mut self.members {
            let waits = member.window.waits_since();
            if waits.is_some_and(|since| now.since(since.max(member.heard_at)) >= STALLED) {
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
    /// The number of a link, halved.
    last_id: u16,
    beacon_at: Time,
}

impl Default for Lans {
    fn default() -> Self {
        Self { at: None, links: BTreeMap::new(), last_id: 0, beacon_at: Time::MAX }
    }
}

impl Lans {
    pub(super) fn get(&self, port: PortId) -> Option<&Lan> {
        self.links.get(&port)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, &Lan)> {
        self.links.iter().map(|(port, lan)| (*port, lan))
    }

    /// The ports by which a group's packets leave by multicast, where one came in on `port`.
    pub(super) fn ports(&self, group: u64, port: PortId) -> impl Iterator<Item = PortId> {
        let wants = move |lan: &Lan| lan.group == group && lan.has_other(port);
        self.iter().filter(move |(_, lan)| wants(lan)).map(|(port, _)| port)
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
    pub(super) fn on_hears<S: Sends>(
        &mut self,
        now: Time,
        port: PortId,
        (group, hears): (u64, u16),
        out: &mut S,
    ) {
        let Some((_, networks)) = self.lans.at else { return };
        let Some(of) = self.neighbours.get(port).filter(|of| !of.is_relay) else { return };
        let Some(member) = of.groups.get(&group).filter(|member| member.receivers > 0) else {
            return;
        };
        let place = usize::from(hears).checked_sub(1).filter(|place| *place < networks);
        let place = place.filter(|_| member.unicast_until <= now);
        let on = member.lan.and_then(|on| self.lans.get(on)).map(|lan| lan.place);
        if on.is_some() && on == place {
            return;
        }
        if member.lan.is_some() {
            self.leave_lan(now, port, group, out);
        }
        let Some(place) = place else {
            self.lans.beacon_at = self.lans.beacon_at.min(now + BEACON_SOON);
            return;
        };
        let known = self.lans.iter().find(|(_, lan)| lan.group == group && lan.place == place);
        let on = match known.map(|(on, _)| on) {
            Some(on) => on,
            None => {
                let id = self.lans.next_id();
                let on = self.neighbours.next_port();
                self.lans.links.insert(on, Lan::new(place, id, group));
                on
            }
        };
        if let Some(lan) = self.lans.links.get_mut(&on) {
            lan.join(now, port);
        }
        if let Some(member) = self.neighbours.member_mut(port, group) {
            member.lan = Some(on);
        }
    }

    /// A host has a group by unicast again, and what had not got there.
    fn leave_lan<S: Sends>(&mut self, now: Time, port: PortId, group: u64, out: &mut S) {
        let member = self.neighbours.member_mut(port, group);
        let Some(on) = member.and_then(|member| member.lan.take()) else { return };
        let owed = self.lans.links.get_mut(&on).map_or_else(Vec::new, |lan| lan.leave(port));
        if let Some(of) = self.neighbours.get_mut(port) {
            for (parcel, begun) in owed {
                self.refused.lost += u64::from(!of.link.owe(now, parcel, &begun));
            }
        }
        self.tidy_lans();
        self.serve_link(now, port, out);
    }

    /// Who is gone is on no link, and links of nobody are gone.
    pub(super) fn tidy_lans(&mut self) {
        let Self { lans, neighbours, awaiting, ready, .. } = self;
        lans.links.retain(|on, lan| {
            let before = lan.members.len();
            lan.members.retain(|port, _| {
                let member = neighbours.get(*port).and_then(|of| of.groups.get(&lan.group));
                member.is_some_and(|member| member.lan == Some(*on))
            });
            if lan.members.len() < before {
                lan.forget();
            }
            // Nothing waits for who is gone.
            if lan.has_room() && awaiting.remove(on) {
                ready.push_back(*on);
            }
            !lan.members.is_empty()
        });
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

    /// Sends what is due on a link to several hosts.
    pub(super) fn serve_lan<S: Sends>(&mut self, now: Time, on: PortId, out: &mut S) {
        let Self { lans, guard, neighbours, awaiting, ready, links_at, .. } = self;
        let Some(lan) = lans.links.get_mut(&on) else { return };
        while let Some((to, seq)) = lan.again(now) {
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
        *links_at = lan.next_timeout().map_or(*links_at, |at| at.min(*links_at));
        if lan.has_room() && awaiting.remove(&on) {
            ready.push_back(on);
        }
    }

    /// Takes the passing of time at links whose timers are due.
    pub(super) fn handle_lan_timeouts<S: Sends>(&mut self, now: Time, out: &mut S) {
        let due = |lan: &Lan| lan.next_timeout().is_some_and(|at| at <= now);
        let due: Vec<PortId> =
            self.lans.iter().filter(|(_, lan)| due(lan)).map(|(on, _)| on).collect();
        for on in due {
            let Some(lan) = self.lans.links.get_mut(&on) else { continue };
            let group = lan.group;
            for port in lan.handle_timeout(now) {
                self.leave_lan(now, port, group, out);
                if let Some(member) = self.neighbours.member_mut(port, group) {
                    member.unicast_until = now + OFF;
                }
                self.accept(port, group, out);
            }
        }
        let all: Vec<PortId> = self.lans.links.keys().copied().collect();
        all.into_iter().for_each(|on| self.serve_lan(now, on, out));
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
