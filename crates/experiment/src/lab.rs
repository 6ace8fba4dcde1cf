//! The lab as the backend of studies.

use faircast_lab::LabError;
use faircast_scenario::Scenario;
use faircast_sim::Observer;
use faircast_study::{Backend, BackendOutcome, Error, Simulator};
use faircast_trace::{On, Outcome, Sink};

/// Hosts in network namespaces, with an emulated network between them in real time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lab;

impl Backend for Lab {
    fn on(&self) -> On {
        On::Lab
    }

    fn run(
        &self,
        scenario: &Scenario,
        observer: &mut dyn Observer,
        sink: &mut dyn Sink,
    ) -> Result<BackendOutcome, Error> {
        let ended = faircast_lab::run(scenario, observer, sink).map_err(refused)?;
        let outcome = Outcome {
            at: ended.at,
            interrupted: ended.interrupted,
            events: ended.events,
            intact: ended.intact,
            lateness: Some(ended.lateness),
            ..Outcome::default()
        };
        Ok(BackendOutcome { outcome, packet_hops: ended.packet_hops, notes: ended.notes })
    }
}

/// Returns the error of a study in the lab.
pub(crate) fn refused(error: LabError) -> Error {
    let is_usage = error.is_usage();
    Error::Backend { error: error.into(), is_usage }
}

/// Returns the backend of this kind. No scenario runs on a foreign network.
pub fn backend(on: On) -> &'static dyn Backend {
    match on {
        On::Sim => &Simulator,
        On::Lab | On::Net => &Lab,
    }
}
