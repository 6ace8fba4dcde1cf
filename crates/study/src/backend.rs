//! Backends: engines that run a scenario. Another crate supplies the lab.

use faircast_scenario::Scenario;
use faircast_sim::{Builtin, Observer, Simulation};
use faircast_trace::{On, Outcome, Sink};

use crate::Error;

/// Engine that runs scenarios.
pub trait Backend: Sync {
    /// Kind of the engine, for the headers of traces.
    fn on(&self) -> On;

    /// Runs `scenario`. Every record goes to `sink`.
    ///
    /// # Errors
    /// A file that a flow is to send cannot be read, or the machine or the engine lacks a feature.
    fn run(
        &self,
        scenario: &Scenario,
        observer: &mut dyn Observer,
        sink: &mut dyn Sink,
    ) -> Result<BackendOutcome, Error>;
}

/// End of a run.
#[derive(Clone, Debug, Default)]
pub struct BackendOutcome {
    /// End of the run, without the fields that the trace and the clock give.
    pub outcome: Outcome,
    /// Transmissions of packets: each packet counts once for each link.
    pub packet_hops: u64,
    /// Notes for readers of the figures, in sentences.
    pub notes: Vec<String>,
}

/// The simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Backend for Simulator {
    fn on(&self) -> On {
        On::Sim
    }

    fn run(
        &self,
        scenario: &Scenario,
        observer: &mut dyn Observer,
        sink: &mut dyn Sink,
    ) -> Result<BackendOutcome, Error> {
        let ended = Simulation::new(scenario, &Builtin, sink)?.run(observer);
        let intact = ended.deliveries.iter().map(|flow| {
            flow.iter().map(|(got, intact)| got.has_any().then_some(*intact)).collect()
        });
        let outcome = Outcome {
            at: ended.at,
            interrupted: ended.interrupted,
            events: ended.events,
            intact: intact.collect(),
            ..Outcome::default()
        };
        let packet_hops = ended.packet_hops;
        Ok(BackendOutcome { outcome, packet_hops, notes: Vec::new() })
    }
}
