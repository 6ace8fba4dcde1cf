//! State of a relay with given numbers.

use faircast_relay_sdk::View;

#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Packets forwarded and queued, receivers, and milliseconds waited, by branch.
    pub(crate) branches: Vec<(i64, u32, u32, u32)>,
    pub(crate) reported: i64,
    pub(crate) buffer: u32,
    pub(crate) unit: u32,
}

impl View for State {
    fn branches(&self) -> u32 {
        self.branches.len() as u32
    }
    fn forwarded(&self, branch: u32) -> i64 {
        self.branches[branch as usize].0
    }
    fn reported(&self) -> i64 {
        self.reported
    }
    fn queued(&self, branch: u32) -> u32 {
        self.branches[branch as usize].1
    }
    fn buffer(&self) -> u32 {
        self.buffer
    }
    fn weight(&self, branch: u32) -> u32 {
        self.branches[branch as usize].2
    }
    fn waited_ms(&self, branch: u32) -> u32 {
        self.branches[branch as usize].3
    }
    fn unit(&self) -> u32 {
        self.unit
    }
}
