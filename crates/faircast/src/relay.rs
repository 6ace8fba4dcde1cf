//! A relay: joins sites that have no multicast between them into one tree, over which each link is crossed once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faircast_net::{Counters, Multicast, RelayDriver, RelaySettings, SocketSettings};
use faircast_proto::credit::{self, ProgramHost};
use faircast_proto::hop::{HopSettings, HopStatus};
use faircast_proto::options::{OptionValue, Options};
use tokio::sync::watch;

use crate::{Error, GroupKey};

/// Makes a [`RelayServer`].
#[derive(Clone)]
#[must_use]
pub struct RelayBuilder {
    listen: SocketAddr,
    parents: Vec<SocketAddr>,
    multicast: Option<Multicast>,
    key: Option<GroupKey>,
    hop: HopSettings,
    sockets: SocketSettings,
    options: Vec<(String, OptionValue)>,
    programs: Option<Arc<dyn ProgramHost>>,
}

/// How a relay stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayStatus {
    /// Who is attached to it, and to whom it is.
    pub hop: HopStatus,
    /// What its socket has done.
    pub counters: Counters,
    /// Why it has ended, where that was no wish.
    pub failed: Option<String>,
    /// Whether it has ended.
    pub ended: bool,
}

/// A relay in a thread of its own. Dropped, it ends as after [`close`](Self::close).
#[derive(Debug)]
pub struct RelayServer {
    stop: Arc<AtomicBool>,
    status: watch::Receiver<RelayStatus>,
    local: SocketAddr,
}

impl RelayServer {
    /// Begins to say how it is to be made: it hears at `listen`.
    pub fn builder(listen: SocketAddr) -> RelayBuilder {
        RelayBuilder {
            listen,
            parents: Vec::new(),
            multicast: None,
            key: None,
            hop: HopSettings::default(),
            sockets: SocketSettings::default(),
            options: Vec::new(),
            programs: None,
        }
    }

    /// How it stands, a few times a second.
    pub fn status(&self) -> watch::Receiver<RelayStatus> {
        self.status.clone()
    }

    /// The address that it hears at, with its port.
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Ends it; it tells the relay above.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for RelayBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listen, parents, .. } = self;
        f.debug_struct("RelayBuilder")
            .field("listen", listen)
            .field("parents", parents)
            .finish_non_exhaustive()
    }
}

impl RelayBuilder {
    /// The relays above, of which the first that answers is taken. Default: none, it is the uppermost.
    pub fn parents(mut self, parents: Vec<SocketAddr>) -> Self {
        self.parents = parents;
        self
    }

    /// Where it sends by multicast, once on each interface, for receivers there that hear it; the others have the same by
    /// unicast. Its hops are those of [`sockets`](Self::sockets). Default: nowhere.
    pub fn multicast(mut self, multicast: Multicast) -> Self {
        self.multicast = Some(multicast);
        self
    }

    /// The group's key: who has not got it is served nothing. The relay reads none of the content. Default: none.
    pub fn key(mut self, key: GroupKey) -> Self {
        self.key = Some(key);
        self
    }

    /// How many hosts and relays it takes. Default: [`HopSettings::default`].
    pub const fn limits(mut self, limits: HopSettings) -> Self {
        self.hop = limits;
        self
    }

    /// How its socket is set up.
    pub fn sockets(mut self, settings: SocketSettings) -> Self {
        self.sockets = settings;
        self
    }

    /// A setting of the program `credit`; `faircast schemes credit` lists them.
    pub fn option(mut self, key: impl Into<String>, value: OptionValue) -> Self {
        self.options.push((key.into(), value));
        self
    }

    /// What runs the programs of sessions, such as [`program_host`](crate::program_host) gives. Default: nothing, sessions
    /// that bring one pass as by any router.
    pub fn programs(mut self, host: Arc<dyn ProgramHost>) -> Self {
        self.programs = Some(host);
        self
    }

    /// Opens the socket and begins.
    ///
    /// # Errors
    /// A setting is wrong, or the address cannot be bound.
    pub fn start(self) -> Result<RelayServer, Error> {
        let options = Options::checked(self.options, credit::RELAY_OPTIONS)?;
        let settings = RelaySettings {
            listen: self.listen,
            parents: self.parents,
            multicast: self.multicast,
            key: self.key.as_ref().map(GroupKey::hop),
            hop: self.hop,
            sockets: self.sockets,
        };
        let mut driver =
            RelayDriver::new(&settings, |node| credit::relay(node, &options, self.programs))?;
        let (stop, local) = (driver.stopper(), driver.local_address());
        let first = RelayStatus {
            hop: driver.status(),
            counters: Counters::default(),
            failed: None,
            ended: false,
        };
        let (tell, status) = watch::channel(first);
        let work = move || {
            let ended = driver.run(|hop, counters| {
                tell.send_modify(|status| {
                    (status.hop, status.counters) = (hop.clone(), *counters);
                });
            });
            tell.send_modify(|status| {
                status.ended = true;
                status.failed = ended.err().map(|error| error.to_string());
            });
        };
        let named = thread::Builder::new().name("faircast-relay".to_string());
        named.spawn(work).map_err(Error::Thread)?;
        Ok(RelayServer { stop, status, local })
    }
}
