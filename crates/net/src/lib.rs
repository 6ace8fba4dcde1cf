//! Real networks: drives protocol machines over UDP.
//!
//! A PGM packet is the payload of a UDP datagram, as in OpenPGM and ZeroMQ. A [`Driver`] gives
//! machines time and packets over [`Sockets`], in one thread; an [`App`] handles their events. A
//! [`Demux`] finds the session of a datagram; PGM's is [`PgmDemux`]. On a crowded receiver socket
//! the first datagram of a read counts as marked for congestion. Only Linux is supported.
//!
//! ```no_run
//! use faircast_base::FlowId;
//! use faircast_net::{Driver, Multicast, SessionOptions, Sockets, Target};
//! use faircast_proto::FlowMachine;
//! use faircast_proto::catalog::{self, DEFAULT_SCHEME};
//! use faircast_proto::content::InMemory;
//! use faircast_proto::options::Options;
//! use faircast_proto::transport::{EndSetup, Role};
//!
//! fn send(group: Multicast, bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//!     let sockets = Sockets::source(Target::Multicast(group), Default::default())?;
//!     let mut driver = Driver::<FlowMachine>::new(sockets, Default::default())?;
//!     let live = driver.live();
//!     let (node, options) = (live.node(), Options::default());
//!     let setup = EndSetup::new(FlowId(0), node, std::slice::from_ref(&node), &options);
//!     let setup = EndSetup { start: live.now(), ..setup };
//!     let role = Role::Source(Box::new(InMemory(bytes.into())));
//!     let stack = catalog::stack(DEFAULT_SCHEME).ok_or("no such scheme")?;
//!     live.add(stack.end(role, setup).ok_or("no such end")?, SessionOptions::default());
//!     driver.run(&mut ())?; // Until all is sent and nobody asks for repairs any more.
//!     Ok(())
//! }
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("faircast-net uses system calls and socket options that only Linux has");

mod address;
mod app;
mod book;
mod clock;
mod counters;
mod datagrams;
mod demux;
mod driver;
mod ends;
mod envelope;
mod error;
mod live;
mod names;
mod pgm;
mod probe;
mod receive;
mod relay;
mod sessions;
mod settings;
mod socket;
mod transmit;
mod via;
mod waker;

pub use address::{Interface, Listen, Multicast, RECEIVERS_MAX, Target, Upstream, interface_name};
pub use app::{App, SessionId};
pub use book::{ADDRESSES_MAX, AddressBook};
pub use counters::{Counters, Received, Refused, Sent, Timers};
pub use datagrams::Datagrams;
pub use demux::{Arrival, Demux, Found};
pub use driver::{Driver, Ended};
pub use envelope::Envelope;
pub use error::NetError;
pub use live::{Live, SessionOptions, random};
pub use pgm::{NewSession, PgmDemux, PgmSettings};
pub use probe::{InterfaceState, ProbeSockets, interface_addresses, probe_socket};
pub use relay::{RelayDemux, RelayDriver, RelayReport, RelaySettings, RelayStopper};
pub use settings::{DriverSettings, SocketSettings};
pub use socket::{Buffers, Sockets};
pub use via::{RelayAbove, ViaSettings};
pub use waker::Waker;
