//! Multicast at a relay: a group's packet leaves once per network. Each link is a port.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};
use faircast_proto::relay::PortId;

use crate::message::{Channel, MULTICAST_AT_MAX, Message};
use crate::multicast_link::{MulticastLink, RepairTo};
use crate::node::RelayNode;
use crate::seal::{BEACON, Seal};

const BEACONS: Duration = Duration::from_millis(500);
/// Time from an offer to the next beacon, in which the host joins the multicast group: 50 ms.
const BEACON_SOON: Duration = Duration::from_millis(50);
/// Maximum length of a packet in one frame, in bytes: with all headers the datagram fits into 1500.
const PART_BYTES_MAX: usize = 1500 - 48 - 30;
/// Maximum number of links. Packets of further groups leave by unicast.
const LINKS_MAX: usize = 1024;

/// Multicast links of a relay, one for each group and network with hosts that receive multicast.
#[derive(Debug)]
pub(crate) struct MulticastLinks {
    at: Vec<u8>,
    networks: u16,
    key: [u8; 32],
    seal: Seal,
    pub(crate) links: BTreeMap<PortId, MulticastLink>,
    /// Number of the last beacon, by which hosts learn that multicast reaches them.
    beacons: u64,
    beacon_at: Option<Time>,
    pub(crate) out: VecDeque<(u16, Vec<u8>)>,
}

impl MulticastLinks {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        fresh! {
            Self { key, seal: Seal::new(&key), }
            at, networks, links, beacons, beacon_at, out
        }
    }

    pub(crate) fn set(&mut self, at: &[u8], networks: u16) {
        self.at = at[..at.len().min(MULTICAST_AT_MAX)].to_vec();
        self.networks = networks;
        self.beacon_at = (networks > 0).then_some(Time::ZERO);
    }

    pub(crate) fn offer(&mut self, now: Time) -> Option<Message> {
        let beacon_at = self.beacon_at.as_mut()?;
        *beacon_at = (*beacon_at).min(now + BEACON_SOON);
        Some(Message::Multicast { key: self.key, at: self.at.clone() })
    }

    pub(crate) fn send(&mut self, now: Time, on: PortId, packet: &[u8]) -> bool {
        let Self { links, seal, out, .. } = self;
        let Some(link) = links.get_mut(&on) else { return false };
        let mut parts = packet.chunks(PART_BYTES_MAX).peekable();
        if !link.takes(parts.len()) {
            return false;
        }
        while let Some(part) = parts.next() {
            let frame = Bytes::from([&[u8::from(parts.peek().is_some())], part].concat());
            let seq = link.send(now, frame.clone());
            out.push_back((link.network, seal.seal(on.0, seq, &frame)));
        }
        true
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let links = self.links.values().filter_map(MulticastLink::next_timeout);
        links.chain(self.beacon_at).min()
    }
}

impl RelayNode {
    pub(crate) fn on_multicast_heard(&mut self, now: Time, port: PortId, network: u16) -> bool {
        if network >= self.multicast.networks {
            return false;
        }
        if let Some(of) =
            self.neighbours.by_port.get_mut(&port).filter(|of| of.may_use_multicast(now))
        {
            of.network = Some(network);
            let groups: Vec<u64> = of.groups.iter().copied().collect();
            groups.into_iter().for_each(|group| self.join_link(now, port, group));
        }
        true
    }

    pub(crate) fn join_link(&mut self, now: Time, port: PortId, group: u64) {
        let Self { multicast, neighbours, groups, peers, .. } = self;
        let Some(of) = neighbours.by_port.get(&port) else { return };
        let (connection, Some(network)) = (of.connection, of.network) else { return };
        let member = groups.member_mut(group, port);
        let Some(member) = member.filter(|it| it.receivers > 0 && it.link.is_none()) else {
            return;
        };
        let mut known = multicast.links.iter();
        let known = known.find(|(_, link)| (link.group, link.network) == (group, network));
        let on = match known {
            Some((on, _)) => *on,
            None if multicast.links.len() >= LINKS_MAX => return,
            None => neighbours.next_port(),
        };
        let link = multicast.links.entry(on).or_insert_with(|| MulticastLink::new(group, network));
        link.join(now, port);
        member.link = Some(on);
        let (link, next, pace) = (on.0, link.sent(), link.pace());
        peers.send_message(now, connection, &Message::LinkJoin { group, link, next, pace });
    }

    pub(crate) fn leave_link(&mut self, cx: &mut Cx<'_>, port: PortId, group: u64) {
        let Self { multicast, neighbours, groups, peers, .. } = self;
        let Some(member) = groups.member_mut(group, port) else { return };
        let Some(on) = member.link.take() else { return };
        if let Some(of) = neighbours.by_port.get(&port) {
            let (connection, node) = (of.connection, of.hello.node);
            peers.end_channel(connection, Channel::Link(on.0));
            peers.send_message(cx.now, connection, &Message::LinkLeave { link: on.0 });
            if let Some(of) = groups.by_id.get(&group) {
                self.program.handle_gone(cx, of.flow, on, node);
            }
        }
        if let Some(link) = multicast.links.get_mut(&on) {
            link.leave(port);
            if link.hosts().next().is_none() {
                multicast.links.remove(&on);
            }
        }
        self.fulfil_link(on);
    }

    pub(crate) fn leave_links(&mut self, cx: &mut Cx<'_>, port: PortId) {
        let Some(of) = self.neighbours.by_port.get_mut(&port) else { return };
        of.network = None;
        let groups: Vec<u64> = of.groups.iter().copied().collect();
        groups.into_iter().for_each(|group| self.leave_link(cx, port, group));
    }

    fn fulfil_link(&mut self, on: PortId) {
        if self.multicast.links.get(&on).is_none_or(MulticastLink::has_room) {
            self.fulfil(on);
        }
    }

    pub(crate) fn on_link_ack(
        &mut self,
        now: Time,
        port: PortId,
        on: PortId,
        (next, multicast_frames, runs): (u64, u32, &[[u16; 2]]),
    ) -> bool {
        let Some(link) = self.multicast.links.get_mut(&on) else { return true };
        let connection = self.neighbours.by_port.get(&port).map(|of| of.connection);
        let stats = connection.and_then(|it| self.peers.endpoint.stats(it));
        let rtt = stats.map_or(Duration::ZERO, |stats| stats.rtt);
        let is_right = link.on_ack(now, port, (next, multicast_frames, runs), rtt);
        self.fulfil_link(on);
        is_right
    }

    fn mark(&mut self, now: Time, on: PortId, hosts: Vec<PortId>) {
        let Some(link) = self.multicast.links.get(&on) else { return };
        let mark = Message::LinkMark { link: on.0, next: link.sent(), pace: link.pace() };
        for of in hosts.into_iter().filter_map(|port| self.neighbours.by_port.get(&port)) {
            self.peers.send_message(now, of.connection, &mark);
        }
    }

    pub(crate) fn handle_multicast_timeouts(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let is_tick = self.multicast.beacon_at.take_if(|at| *at <= now).is_some();
        if is_tick {
            self.send_beacons(now);
        }
        let links = self.multicast.links.iter();
        let due =
            links.filter(|(_, link)| is_tick || link.next_timeout().is_some_and(|at| at <= now));
        let due: Vec<PortId> = due.map(|(on, _)| *on).collect();
        for on in due {
            let Self {
                multicast: MulticastLinks { links, seal, out, .. }, neighbours, peers, ..
            } = self;
            let Some(link) = links.get_mut(&on) else { continue };
            let mut due = link.handle_timeout(now);
            if is_tick && link.changes_pace() {
                due.marks = link.hosts().collect();
            }
            for (seq, frame, to) in due.repairs {
                match to {
                    RepairTo::All => out.push_back((link.network, seal.seal(on.0, seq, &frame))),
                    RepairTo::One(port) => {
                        if let Some(of) = neighbours.by_port.get(&port) {
                            let channel = Channel::Link(on.0);
                            peers.send_packet(of.connection, channel, &seq.to_be_bytes(), frame);
                        }
                    }
                }
            }
            self.mark(now, on, due.marks);
            for port in due.stalled {
                self.leave_links(cx, port);
                if let Some(of) = self.neighbours.by_port.get_mut(&port) {
                    of.stalled_at = Some(now);
                }
            }
        }
    }

    fn send_beacons(&mut self, now: Time) {
        let Self { multicast, neighbours, .. } = self;
        multicast.beacon_at = Some(now + BEACONS);
        let mut may_use_multicast =
            neighbours.by_port.iter().filter(|(_, of)| of.may_use_multicast(now));
        let receives = |port: &PortId, group: &u64| {
            let member = self.groups.by_id.get(group).and_then(|of| of.members.get(port));
            member.is_some_and(|member| member.receivers > 0)
        };
        if may_use_multicast.any(|(port, of)| of.groups.iter().any(|group| receives(port, group))) {
            for network in 0..multicast.networks {
                multicast.beacons += 1;
                let beacon = multicast.seal.seal(BEACON, multicast.beacons, &network.to_be_bytes());
                multicast.out.push_back((network, beacon));
            }
        }
    }
}
