//! Limits of scenarios, so that no file can exhaust memory or run forever.

pub(crate) const FILE_BYTES_MAX: u64 = 10_000_000;
/// Longest virtual time in nanoseconds: ten days.
pub(crate) const DURATION_NS_MAX: u64 = 10 * 24 * 3_600 * 1_000_000_000;
pub(crate) const NODES_MAX: usize = 200_000;
/// Most link directions of a scenario: a link in both directions counts twice.
pub(crate) const LINKS_MAX: usize = 400_000;
/// Most flows of a scenario, after expansion of `count`.
pub(crate) const FLOWS_MAX: usize = 100_000;
pub(crate) const SENDERS_MAX: usize = 1_000;
/// Most receivers and memberships of all flows; a receiver counts once for each sender.
pub(crate) const RECEIVERS_MAX: usize = 1_000_000;
pub(crate) const CLIENTS_MAX: u64 = 100_000;
/// Longest mean burst of losses, in packets.
pub(crate) const BURST_PACKETS_MAX: f64 = 1e6;
/// Most changes, outages and listed drops over all directions of all links.
pub(crate) const CHANGES_MAX: usize = 1_000_000;
/// Highest rate of a link, in bits per second: 1 Tbit/s.
pub(crate) const RATE_BITS_PER_S_MAX: u64 = 1_000_000_000_000;
/// Longest propagation delay of a link, in nanoseconds: 1000 s.
pub(crate) const DELAY_NS_MAX: u64 = 1_000 * 1_000_000_000;
/// Most packets of a queue, and highest RED threshold in packets.
pub(crate) const QUEUE_PACKETS_MAX: u32 = 10_000_000;
/// Most bytes of a queue: 1 TB.
pub(crate) const QUEUE_BYTES_MAX: u64 = 1_000_000_000_000;
/// Most bytes of a packet's payload: fits into an IP packet with headers to spare.
pub(crate) const PACKET_BYTES_MAX: u64 = 65_000;
pub(crate) const HEADER_BYTES_MAX: u64 = 1_000;
/// Most bytes of a flow's data: 1 PB.
pub(crate) const DATA_BYTES_MAX: u64 = 1_000_000_000_000_000;
pub(crate) const NAME_CHARS_MAX: usize = 64;
pub(crate) const TITLE_CHARS_MAX: usize = 500;
pub(crate) const TREE_LEVELS_MAX: usize = 16;
