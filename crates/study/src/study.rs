//! Study: the surroundings of runs.

use faircast_scenario::Catalog;
use faircast_trace::On;

use crate::backend::{Backend, Simulator};
use crate::monitor::Monitor;

/// Surroundings of runs. By default they are simulated, with faircast's protocols, unobserved.
#[derive(Clone)]
pub struct Study<'a> {
    /// Protocols and router programs that scenarios may name.
    pub catalog: Catalog,
    /// Engine of the runs.
    pub backend: &'a dyn Backend,
    /// Observer of progress, which can stop the runs.
    pub monitor: &'a dyn Monitor,
}

impl Default for Study<'_> {
    fn default() -> Self {
        Self { catalog: faircast_sim::catalog(), backend: &Simulator, monitor: &() }
    }
}

impl Study<'_> {
    /// Returns the same study in the simulator.
    pub fn simulated(&self) -> Self {
        Self { backend: &Simulator, ..self.clone() }
    }

    /// True if runs take real time. They then run one after the other, to stay punctual.
    pub fn is_real_time(&self) -> bool {
        self.backend.on() != On::Sim
    }
}
