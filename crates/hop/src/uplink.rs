//! Path of a host or a relay to its parent relay.

use std::collections::BTreeMap;

use faircast_base::{Cx, Event, NodeId, Time};

use crate::dial::Dialer;
use crate::endpoint::{ConnectionHandle, Down};
use crate::message::{Channel, Hello, Message};
use crate::peers::Peers;
use crate::status::SlowLink;

/// State of the path to the parent relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UplinkState {
    /// No relay has answered yet. Contains the reason of the last failure, if any.
    Asking(Option<Down>),
    /// A parent relay is attached; contains its name.
    Attached(String),
    /// Refused because of a loop: the relay is below this node, directly or through other relays.
    Loop,
    /// Refused because the relay has too many neighbours.
    Full,
}

#[derive(Debug, Default)]
struct Membership {
    /// Receivers at this node and below, and elsewhere by the parent's report.
    receivers: u32,
    elsewhere: u32,
    /// True if a relay from the parent upwards has too many groups.
    refused: bool,
    /// Link that sets the pace of the group's sessions, if the parent reports one.
    slow: Option<SlowLink>,
}

/// Connection to the parent relay, with the groups of this node.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) dialer: Dialer,
    pub(crate) state: UplinkState,
    pub(crate) path: Vec<NodeId>,
    groups: BTreeMap<u64, Membership>,
    traced: Option<NodeId>,
}

impl Uplink {
    pub(crate) fn new(relays: Vec<NodeId>, start: Time) -> Self {
        let (dialer, state) = (Dialer::new(relays, start), UplinkState::Asking(None));
        Self { dialer, state, path: Vec::new(), groups: BTreeMap::new(), traced: None }
    }

    pub(crate) fn trace(&mut self, cx: &mut Cx<'_>, peers: &Peers) {
        let relay = self.connection().and_then(|connection| peers.endpoint.peer(connection));
        if relay != self.traced {
            self.traced = relay;
            cx.emit(Event::Attached { relay });
        }
    }

    pub(crate) const fn exists(&self) -> bool {
        self.dialer.has_nodes() || self.dialer.connection.is_some()
    }

    pub(crate) fn connection(&self) -> Option<ConnectionHandle> {
        self.dialer.connection.filter(|_| matches!(self.state, UplinkState::Attached(_)))
    }

    pub(crate) fn is(&self, connection: ConnectionHandle) -> bool {
        self.dialer.connection == Some(connection)
    }

    pub(crate) fn elsewhere(&self, group: u64) -> u32 {
        self.groups.get(&group).map_or(0, |of| of.elsewhere)
    }

    pub(crate) fn is_refused(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(|of| of.refused)
    }

    pub(crate) fn slow(&self, group: u64) -> Option<&SlowLink> {
        self.groups.get(&group)?.slow.as_ref()
    }

    pub(crate) fn set(&mut self, now: Time, peers: &mut Peers, group: u64, receivers: Option<u32>) {
        let message = match receivers {
            Some(receivers) => {
                if self.groups.get(&group).is_some_and(|of| of.receivers == receivers) {
                    return;
                }
                self.groups.entry(group).or_default().receivers = receivers;
                Message::Join { group, receivers }
            }
            None => {
                if self.groups.remove(&group).is_none() {
                    return;
                }
                if let Some(connection) = self.connection() {
                    peers.end_channel(connection, Channel::Group(group));
                }
                Message::Leave { group }
            }
        };
        if let Some(connection) = self.connection() {
            peers.send_message(now, connection, &message);
        }
    }

    /// Returns true if the connection replaces another one.
    pub(crate) fn on_up(
        &mut self,
        now: Time,
        peers: &mut Peers,
        connection: ConnectionHandle,
    ) -> bool {
        let before = self.dialer.connection;
        if !self.dialer.on_up(now, &mut peers.endpoint, connection) {
            peers.close(now, connection, "another connection is used");
            return false;
        }
        self.forget(UplinkState::Asking(None));
        before.is_some()
    }

    pub(crate) fn on_hello(
        &mut self,
        now: Time,
        peers: &mut Peers,
        connection: ConnectionHandle,
        hello: Hello,
    ) {
        if !hello.is_relay {
            return peers.close(now, connection, "not a relay");
        }
        self.state = UplinkState::Attached(hello.name);
        for (group, Membership { receivers, .. }) in &self.groups {
            let join = Message::Join { group: *group, receivers: *receivers };
            peers.send_message(now, connection, &join);
        }
        peers.send_message(now, connection, &Message::EndOfJoins);
    }

    /// Returns the group whose number of receivers elsewhere has changed.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        peers: &mut Peers,
        connection: ConnectionHandle,
        message: Message,
    ) -> Option<u64> {
        match message {
            Message::Member { group, elsewhere, is_refused } => {
                let of = self.groups.get_mut(&group)?;
                let before = (of.elsewhere, of.refused);
                (of.elsewhere, of.refused) = (elsewhere, is_refused);
                return (before != (elsewhere, is_refused)).then_some(group);
            }
            Message::Slow { group, link } => self.groups.get_mut(&group)?.slow = link,
            Message::Path(path) => {
                if path.contains(&peers.hello.node) {
                    peers.close(now, connection, "a circle of relays");
                    self.dialer.on_refused(now, connection);
                    self.forget(UplinkState::Loop);
                } else {
                    self.path = path;
                }
            }
            // The other messages go to a relay from its neighbours, or belong to multicast.
            _ => {}
        }
        None
    }

    pub(crate) fn on_down(
        &mut self,
        now: Time,
        peers: &mut Peers,
        connection: ConnectionHandle,
        reason: Down,
    ) -> bool {
        if !self.dialer.is_own(connection) {
            return false;
        }
        let was_used = self.dialer.on_down(now, &mut peers.endpoint, connection);
        if was_used || self.dialer.connection.is_none() {
            let state = match &reason {
                Down::Closed(why) if why == LOOP => UplinkState::Loop,
                Down::Closed(why) if why == FULL => UplinkState::Full,
                _ => UplinkState::Asking(Some(reason)),
            };
            self.forget(state);
        }
        was_used
    }

    fn forget(&mut self, state: UplinkState) {
        self.state = state;
        self.path.clear();
        for of in self.groups.values_mut() {
            (of.elsewhere, of.refused, of.slow) = (0, false, None);
        }
    }
}

pub(crate) const LOOP: &str = "a circle of relays";
pub(crate) const FULL: &str = "too many neighbours";
