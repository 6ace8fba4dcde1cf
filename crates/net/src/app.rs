//! The interface between a driver and its application.

use faircast_proto::Machine;

use crate::Live;
use crate::demux::Demux;
use crate::pgm::PgmDemux;

/// A session in a driver, by the order in which they were added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// The application that a driver works for. All is called in the driver's thread and should take
/// no longer than the kernel's receive buffer can wait: about 10 ms.
pub trait App<M: Machine, D: Demux = PgmDemux> {
    /// A session was heard that is not known. The machine that takes part in it, or `None` to leave
    /// it alone; who was left alone is asked about again after some seconds.
    fn heard(&mut self, _live: &mut Live<M, D>, _heard: &D::Heard<'_>) -> Option<M> {
        None
    }

    /// A machine tells something.
    fn event(&mut self, _live: &mut Live<M, D>, _session: SessionId, _event: M::Event) {}

    /// Time passes: called at the beginning and then each
    /// [`tick`](crate::DriverSettings::tick).
    fn tick(&mut self, _live: &mut Live<M, D>) {}
}

/// Ignores all events: for a driver that only sends.
impl<M: Machine, D: Demux> App<M, D> for () {}
