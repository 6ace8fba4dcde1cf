//! Relay: joins sites without multicast between them into a tree that crosses each link once.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use faircast_base::Bitrate;
use faircast_hop::NodeLimits;
use faircast_net::{
    Multicast, RelayDriver, RelayReport, RelaySettings, RelayStopper, SocketSettings, random,
};
use faircast_proto::credit::{self, ProgramHost};
use faircast_proto::options::{OptionValue, Options};
use tokio::sync::watch;

use crate::common::{name_of, node_of, relay_key};
use crate::{Error, RelaySecret};

/// Builder of a [`RelayServer`].
#[derive(Clone)]
#[must_use]
pub struct RelayBuilder {
    settings: RelaySettings,
    options: Vec<(String, OptionValue)>,
    programs: Option<Arc<dyn ProgramHost>>,
}

/// State of a relay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayStatus {
    /// Neighbours, traffic and counters; `None` at first.
    pub report: Option<RelayReport>,
    /// Error that has ended the relay.
    pub failed: Option<String>,
    /// True once the relay has ended.
    pub ended: bool,
}

/// Handle of a relay with a thread of its own. Dropped, it acts like [`close`](Self::close).
#[derive(Debug)]
pub struct RelayServer {
    stopper: RelayStopper,
    status: watch::Receiver<RelayStatus>,
    local: SocketAddr,
}

impl RelayServer {
    /// Returns a builder of a relay that listens at this address.
    pub fn builder(listen: SocketAddr) -> RelayBuilder {
        let settings = RelaySettings {
            name: String::new(),
            listen,
            parents: Vec::new(),
            multicast: None,
            key: relay_key(None),
            limits: NodeLimits::default(),
            sockets: SocketSettings::default(),
        };
        RelayBuilder { settings, options: Vec::new(), programs: None }
    }

    /// Returns the state of the relay, updated some times a second.
    pub fn status(&self) -> watch::Receiver<RelayStatus> {
        self.status.clone()
    }

    /// Returns the address and port at which the relay listens.
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Ends the relay and notifies its neighbours.
    pub fn close(&self) {
        self.stopper.close();
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.close();
    }
}

impl RelayBuilder {
    /// Sets the name of the relay, for people: its first 64 bytes. Default: none.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = name_of(name);
        self
    }

    /// Sets the parent relays (`HOST:PORT`): the first that answers is used. Default: none (root).
    pub fn parents(mut self, parents: Vec<String>) -> Self {
        self.settings.parents = parents;
        self
    }

    /// Sets the multicast group for local receivers; others get unicast. Default: none.
    pub fn multicast(mut self, multicast: Multicast) -> Self {
        self.settings.multicast = Some(multicast);
        self
    }

    /// Sets the key of all nodes ([`GroupKey::relay`](crate::GroupKey::relay)). Default: none.
    pub fn key(mut self, key: RelaySecret) -> Self {
        self.settings.key = relay_key(Some(key));
        self
    }

    /// Sets the most hosts and relays. Default: [`NodeLimits::default`].
    pub const fn limits(mut self, limits: NodeLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Limits the rate to each neighbour, and of each session by multicast. Default: none.
    pub fn rate_max(self, rate: Bitrate) -> Self {
        self.option("rate_max", OptionValue::Text(format!("{} bit/s", rate.bits_per_s())))
    }

    /// Sets up the socket.
    pub fn sockets(mut self, settings: SocketSettings) -> Self {
        self.settings.sockets = settings;
        self
    }

    /// Sets an option of the program `credit`; `faircast schemes credit` lists the options.
    pub fn option(mut self, key: impl Into<String>, value: OptionValue) -> Self {
        self.options.push((key.into(), value));
        self
    }

    /// Runs programs of sessions by [`program_host`](crate::program_host) or another. Default:
    /// none.
    pub fn programs(mut self, host: Arc<dyn ProgramHost>) -> Self {
        self.programs = Some(host);
        self
    }

    /// Opens the socket and starts the relay.
    ///
    /// # Errors
    /// A setting is wrong, or the address cannot be bound.
    pub fn start(self) -> Result<RelayServer, Error> {
        let options = Options::checked(self.options, credit::RELAY_OPTIONS)?;
        let (settings, programs) = (self.settings, self.programs);
        let (opened_sender, opened) = mpsc::sync_channel(1);
        let work = move || {
            let node = node_of(random());
            let program = credit::relay(node, &options, programs);
            let mut driver = match RelayDriver::new(&settings, node, program) {
                Ok(driver) => driver,
                Err(error) => {
                    let _ = opened_sender.send(Err(Error::from(error)));
                    return;
                }
            };
            let first = RelayStatus { report: driver.report(), failed: None, ended: false };
            let (status_sender, status) = watch::channel(first);
            let (stopper, local) = (driver.stopper(), driver.local_address());
            let _ = opened_sender.send(Ok(RelayServer { stopper, status, local }));
            let ended = driver.run(|report| {
                status_sender.send_modify(|status| status.report = Some(report));
            });
            status_sender.send_modify(|status| {
                status.ended = true;
                status.failed = ended.err().map(|error| error.to_string());
            });
        };
        let named = thread::Builder::new().name("faircast-relay".to_string());
        named.spawn(work).map_err(Error::Thread)?;
        opened.recv().unwrap_or(Err(Error::Closed))
    }
}
