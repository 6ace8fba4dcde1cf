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
    /// Most memory of a program.
    pub(super) memory_bytes: u64,
    /// Starts of programs.
    pub(super) starts: u32,
    #[serde(flatten)]
    pub(super) faults: FaultCounts,
    #[serde(flatten)]
    pub(super) packets: PacketCounts,
    /// Messages to clients of daemons.
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
    /// Changes of addresses.
    pub(super) moves: u32,
    /// Disks that became full.
    pub(super) fills: u32,
    /// Changes of ports by address translation.
    pub(super) remaps: u32,
}

/// Packets of the round by fault of the network.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PacketCounts {
    #[serde(rename = "noise_packets")]
    pub(super) noise: u64,
    #[serde(rename = "lost_packets")]
    pub(super) lost: u64,
    #[serde(rename = "duplicated_packets")]
    pub(super) duplicated: u64,
    #[serde(rename = "corrupted_packets")]
    pub(super) corrupted: u64,
    #[serde(rename = "delayed_packets")]
    pub(super) delayed: u64,
    #[serde(rename = "too_long_packets")]
    pub(super) too_long: u64,
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

    pub(super) fn add_packets(&mut self, counts: &FieldCounts) {
        self.packets.lost = counts.lost + counts.lost_in_bursts + counts.lost_in_outages;
        self.packets.duplicated = counts.duplicated;
        self.packets.corrupted = counts.corrupted;
        self.packets.delayed = counts.delayed;
        self.packets.too_long = counts.too_long;
    }
}
