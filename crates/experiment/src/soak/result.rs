//! Result of a round.

use faircast_lab::FieldCounts;
use serde::Serialize;

use super::program::Program;
use super::sequence::Recovery;

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RoundResult {
    pub(super) problems: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Seconds from the start of the programs until all receivers were complete.
    pub(super) seconds: f64,
    /// Content bytes to each receiver, or to each client of a daemon.
    pub(super) bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) starts: u32,
    #[serde(flatten)]
    pub(super) faults: FaultCounts,
    pub(super) noise_packets: u64,
    #[serde(flatten)]
    pub(super) packets: FieldCounts,
    pub(super) messages: u64,
    pub(super) recoveries: Vec<Recovery>,
}

/// Faults that had an effect before the end of the transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FaultCounts {
    pub(super) kills: u32,
    pub(super) stops: u32,
    /// Receivers that left by SIGINT.
    pub(super) farewells: u32,
    pub(super) interfaces_down: u32,
    /// Starts with a clock that is days ahead.
    pub(super) starts_ahead: u32,
    /// Receivers that refused the content for lack of space or of rights.
    pub(super) refusals: u32,
    /// First starts of programs during the transfer.
    pub(super) joins: u32,
    pub(super) moves: u32,
    pub(super) fills: u32,
    /// Changes of ports by address translation.
    pub(super) remaps: u32,
}

impl RoundResult {
    /// Kills a program of a host, and adds its starts, memory and panics.
    pub(super) fn end_program(&mut self, host: &str, program: &mut Program, memory_max: u64) {
        program.kill();
        self.starts += program.starts;
        self.memory_bytes = self.memory_bytes.max(program.memory_bytes);
        self.problems.extend(program.panics().iter().map(|line| format!("{host}: {line}")));
        if program.memory_bytes > memory_max {
            let problem = format!("{host} had {} MiB of memory", program.memory_bytes >> 20);
            self.problems.push(problem);
        }
    }
}
