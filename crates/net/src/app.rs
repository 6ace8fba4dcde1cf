//! What an application says to a driver and hears from it.

use std::net::SocketAddr;

use faircast_base::{NodeId, Time};
use faircast_proto::pgm::wire::{PacketType, Tsi};
use faircast_proto::{AppEvent, Machine};

use crate::Live;

/// A session in a driver, by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// A session that was heard and that no machine takes part in.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// When.
    pub now: Time,
    /// The session.
    pub tsi: Tsi,
    /// The data-destination port of PGM that its packets name.
    pub data_port: u16,
    /// The UDP address from which the packet came.
    pub from: SocketAddr,
    /// The node that it is from.
    pub source: NodeId,
    /// Data or an SPM.
    pub kind: PacketType,
    /// The whole packet, which decodes.
    pub packet: &'a [u8],
}

/// The application that a driver works for. All is called in the driver's thread and should take
/// no longer than the kernel's receive buffer can wait: about 10 ms.
pub trait App<M: Machine> {
    /// A session was heard that is not known. The machine that takes part in it, or `None` to leave
    /// it alone; who was left alone is asked about again after some seconds.
    fn heard(&mut self, _live: &mut Live<M>, _heard: &Heard<'_>) -> Option<M> {
        None
    }

    /// A machine tells something.
    fn event(&mut self, _live: &mut Live<M>, _session: SessionId, _event: AppEvent) {}

    /// Time passes: called at the beginning and then each
    /// [`tick`](crate::DriverSettings::tick).
    fn tick(&mut self, _live: &mut Live<M>) {}
}

/// An application that wants nothing: what is sent is sent.
impl<M: Machine> App<M> for () {}
