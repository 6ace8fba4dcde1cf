//! Connection of a host through a relay, without multicast: packets over QUIC.

use std::net::SocketAddr;

use faircast_base::{Duration, NodeId, Time};
use faircast_hop::{
    CongestionControl, ConnectionStats, Endpoint, Host, RelayKey, SlowLink, UplinkState,
};

use crate::AddressBook;
use crate::live::random;
use crate::names::Names;

/// Connection of a host to its group through relays.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ViaSettings {
    pub node: NodeId,
    /// Display name of the host at the relay: at most 64 bytes, without control characters.
    pub name: String,
    /// Relays, each `HOST:PORT`; the first that answers is used.
    pub relays: Vec<String>,
    pub group: u64,
    /// Receivers at this host: 0 for a source.
    pub receivers: u32,
    pub key: RelayKey,
}

/// Relay above a host or a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelayAbove {
    /// Address of the relay, or the first name that is tried.
    pub at: String,
    pub state: UplinkState,
    /// True if the relay, or a relay above it, rejects the host's group.
    pub refused: bool,
    /// True if the relay's multicast is received.
    pub multicast: bool,
    /// Error of the first name that was not found.
    pub name_error: Option<String>,
    pub connection: Option<ConnectionStats>,
    /// Link at relays that limits the session's rate; `None` if none does.
    pub slow: Option<SlowLink>,
}

#[derive(Debug)]
pub(crate) struct Via {
    pub(crate) host: Host,
    names: Names,
    first_relay: String,
    book: AddressBook,
    multicast: Option<(SocketAddr, SocketAddr)>,
    rejoin_at: Time,
}

impl Via {
    pub(crate) fn new(now: Time, settings: &ViaSettings) -> Self {
        let ViaSettings { node, name, relays, group, receivers, key } = settings;
        let (seed, control) = (random(), CongestionControl::default());
        let endpoint = Endpoint::new(key, &node.0.to_be_bytes(), seed, false, control);
        let host = Host::new(now, endpoint, (*node, name), Vec::new(), (*group, *receivers));
        Self {
            host,
            names: Names::new(relays.clone()),
            first_relay: relays.first().cloned().unwrap_or_default(),
            book: AddressBook::native(),
            multicast: None,
            rejoin_at: now,
        }
    }

    fn relay(&self) -> Option<SocketAddr> {
        self.book.address(self.host.relay()?)
    }

    pub(crate) fn above(&self) -> RelayAbove {
        let (state, refused) = self.host.state();
        RelayAbove {
            at: self.relay().map_or_else(|| self.first_relay.clone(), |at| at.to_string()),
            state: state.clone(),
            refused,
            multicast: self.host.hears_multicast(),
            name_error: self.names.error.clone(),
            connection: self.host.stats(),
            slow: self.host.slow_link().cloned(),
        }
    }

    /// Returns the relay and group of its multicast after a change, or while it is not received.
    pub(crate) fn poll_multicast(&mut self, now: Time) -> Option<Option<(SocketAddr, SocketAddr)>> {
        let at = self.host.multicast_at().and_then(|at| str::from_utf8(at).ok()?.parse().ok());
        let wanted = self.relay().zip(at);
        let again = wanted.is_some() && !self.host.hears_multicast() && self.rejoin_at <= now;
        if self.multicast == wanted && !again {
            return None;
        }
        (self.multicast, self.rejoin_at) = (wanted, now + REJOIN_INTERVAL);
        Some(wanted)
    }

    pub(crate) fn open(
        &mut self,
        now: Time,
        from: Option<SocketAddr>,
        marked: bool,
        datagram: &[u8],
    ) -> bool {
        match from {
            None => self.host.handle_multicast(now, datagram),
            Some(from) => {
                let node = self.book.node(from);
                node.is_some_and(|node| self.host.handle_datagram(now, node, marked, datagram))
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if let Some(found) = self.names.poll(now, self.host.is_searching()) {
            let Self { host, book, .. } = self;
            host.set_relays(found.into_iter().filter_map(|at| book.node(at)).collect());
        }
        if self.host.next_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        loop {
            let to = self.host.poll_transmit(now, buf)?;
            if let Some(at) = self.book.address(to) {
                return Some(at);
            }
            buf.clear();
        }
    }
}

const REJOIN_INTERVAL: Duration = Duration::from_secs(30);
