//! Interface between a driver and its application.

use faircast_proto::Machine;

use crate::Live;
use crate::demux::Demux;
use crate::pgm::PgmDemux;

/// Session of a driver, numbered in the order of addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// Application of a driver. Callbacks should return within 10 ms, which the receive buffer covers.
pub trait App<M: Machine, D: Demux = PgmDemux> {
    /// Returns the machine that joins an unknown session, or `None` to ignore it for some seconds.
    fn accept(&mut self, _live: &mut Live<M, D>, _new: &D::NewSession<'_>) -> Option<M> {
        None
    }

    /// Handles an event of a machine.
    fn event(&mut self, _live: &mut Live<M, D>, _session: SessionId, _event: M::Event) {}

    /// Called at the start, then every [`tick`](crate::DriverSettings::tick).
    fn tick(&mut self, _live: &mut Live<M, D>) {}
}

/// Application that ignores all events: for a driver that only sends.
impl<M: Machine, D: Demux> App<M, D> for () {}
