//! From a scenario to a summary: one run, with whatever listens to its trace.

use std::time::Instant;

use faircast_link::QueueConfig;
use faircast_report::{Metrics, Summary};
use faircast_scenario::Scenario;
use faircast_sim::{Builtin, Observer, Simulation};
use faircast_trace::{
    FlowHeader, Hasher, Header, LinkHeader, On, Outcome, SCHEMA_VERSION, Sink, SpeaksHeader, Tee,
};

/// Why a run gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The simulator refused the scenario, or cannot read a file that it is to send.
    #[error("{0}")]
    Sim(#[from] faircast_sim::SimError),
    /// The machine lacks what the lab needs, or the scenario asks for what the lab has not.
    #[error("{0}")]
    Lab(#[from] faircast_lab::LabError),
}

/// What came of a run.
pub struct Done {
    /// What every reader of the trace must know.
    pub header: Header,
    /// How it ended.
    pub outcome: Outcome,
    /// What each flow, receiver and link got.
    pub summary: Summary,
    /// Packets transmitted over a link, counted once a link.
    pub packet_hops: u64,
    /// What the reader of the figures should know, in sentences.
    pub notes: Vec<String>,
}

/// Runs `scenario` where it is to run. Every record goes to `listener` too.
///
/// # Errors
/// As [`simulate`] and [`emulate`]; no scenario runs on [`On::Net`], which is taken for the lab.
pub fn execute(
    scenario: &Scenario,
    on: On,
    observer: &mut dyn Observer,
    listener: &mut dyn Sink,
) -> Result<Done, RunError> {
    match on {
        On::Sim => simulate(scenario, observer, listener),
        On::Lab | On::Net => emulate(scenario, observer, listener),
    }
}

/// Runs `scenario` in the simulator. Every record goes to `listener` too.
///
/// # Errors
/// A file that a flow is to send cannot be read.
pub fn simulate(
    scenario: &Scenario,
    observer: &mut dyn Observer,
    listener: &mut dyn Sink,
) -> Result<Done, RunError> {
    let header = header(scenario, On::Sim);
    let mut sink = Tee(Tee(Metrics::new(&header), Hasher::new()), listener);
    let started = Instant::now();
    let ended = Simulation::new(scenario, &Builtin, &mut sink)?.run(observer);
    let Tee(Tee(metrics, hasher), _) = sink;
    let outcome = Outcome {
        at: ended.at,
        interrupted: ended.interrupted,
        wall_s: started.elapsed().as_secs_f64(),
        events: ended.events,
        intact: ended
            .deliveries
            .iter()
            .map(|flow| flow.iter().map(|(got, intact)| got.has_any().then_some(*intact)).collect())
            .collect(),
        trace_hash: Some(hasher.hex()),
        lateness: None,
    };
    let summary = metrics.finish(&outcome);
    Ok(Done { header, outcome, summary, packet_hops: ended.packet_hops, notes: Vec::new() })
}

/// Runs `scenario` in the lab. Every record goes to `listener` too.
///
/// # Errors
/// The machine lacks something, or the scenario asks for what the lab has not.
pub fn emulate(
    scenario: &Scenario,
    observer: &mut dyn Observer,
    listener: &mut dyn Sink,
) -> Result<Done, RunError> {
    let header = header(scenario, On::Lab);
    let mut sink = Tee(Tee(Metrics::new(&header), Hasher::new()), listener);
    let started = Instant::now();
    let ended = faircast_lab::run(scenario, observer, &mut sink)?;
    let Tee(Tee(metrics, hasher), _) = sink;
    let outcome = Outcome {
        at: ended.at,
        interrupted: ended.interrupted,
        wall_s: started.elapsed().as_secs_f64(),
        events: ended.events,
        intact: ended.intact,
        trace_hash: Some(hasher.hex()),
        lateness: Some(ended.lateness),
    };
    let summary = metrics.finish(&outcome);
    Ok(Done { header, outcome, summary, packet_hops: ended.packet_hops, notes: ended.notes })
}

/// What a reader of the trace must know of a scenario.
pub fn header(scenario: &Scenario, on: On) -> Header {
    Header {
        schema: SCHEMA_VERSION,
        faircast: env!("CARGO_PKG_VERSION").to_string(),
        scenario: scenario.file.display().to_string(),
        title: scenario.title.clone(),
        text: scenario.text.clone(),
        on,
        seed: scenario.seed,
        duration_s: scenario.duration.as_secs_f64(),
        warmup_s: scenario.warmup.as_secs_f64(),
        nodes: scenario.nodes.iter().map(|node| node.name.clone()).collect(),
        links: scenario
            .links
            .iter()
            .map(|link| LinkHeader {
                from: link.from,
                to: link.to,
                rate_bps: link.config.rate.bits_per_s(),
                delay_s: link.config.delay.as_secs_f64(),
                queue: describe(&link.config.queue),
            })
            .collect(),
        flows: scenario
            .flows
            .iter()
            .map(|flow| FlowHeader {
                name: flow.name.clone(),
                protocol: flow.protocol.clone(),
                from: flow.from,
                to: flow.to.clone(),
                packet_bytes: flow.packet.count(),
                start_s: flow.start.as_secs_f64(),
                stop_s: flow.stop.map(|stop| stop.as_secs_f64()),
                speaks: flow
                    .speaks
                    .iter()
                    .map(|it| SpeaksHeader { node: it.node, protocol: it.protocol.clone() })
                    .collect(),
            })
            .collect(),
    }
}

/// A queue in a few words.
fn describe(queue: &QueueConfig) -> String {
    match queue {
        QueueConfig::DropTail { packets_max } => format!("droptail, {packets_max} packets"),
        QueueConfig::DropTailBytes { bytes_max } => format!("droptail, {bytes_max} B"),
        QueueConfig::Red(red) => {
            format!("RED {} to {}, {} packets", red.min, red.max, red.packets_max)
        }
    }
}
