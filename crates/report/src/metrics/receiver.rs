//! Figures of one receiver of a flow.

use faircast_base::{BadInput, Event, NodeId, Shortfall, Time};
use faircast_trace::Record;

#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    pub(super) deliveries: Deliveries,
    pub(super) losses: Losses,
    pub(super) membership: Membership,
    pub(super) tree: TreePlace,
    /// Longest packet in bytes that arrives; `None` again after data, whose packets are longest.
    pub(super) path_bytes: Option<u32>,
    /// True if the receiver uses another scheme than the sender.
    pub(super) other_scheme: bool,
    /// Reason for missing data, as named by the sender.
    pub(super) incomplete: Option<Shortfall>,
}

/// Data that the application got.
#[derive(Clone, Debug, Default)]
pub(super) struct Deliveries {
    pub(super) packets: u64,
    /// Payload in the counted time.
    pub(super) counted_bytes: u64,
    last_at: Option<Time>,
    /// Delivery time of the last byte, if the receiver is complete.
    pub(super) completed_at: Option<Time>,
}

/// Packets that a receiver lost, repaired or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    pub(super) packets: u64,
    pub(super) abandoned_packets: u64,
    /// Packets of the session as known to the receiver; recorded on real networks.
    pub(super) extent_packets: Option<u64>,
}

/// Time in the session, in packets of the flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Membership {
    /// Packets sent before the receiver joined; a join need not be recorded.
    since: Option<u64>,
    /// Packets offered before the last leave.
    offered_before: u64,
    pub(super) has_left: bool,
    /// Packets that the receiver sent itself since the last join: they are not offered to it.
    sent_by_itself: u64,
}

/// Place in the repair tree.
#[derive(Clone, Debug, Default)]
pub(super) struct TreePlace {
    pub(super) head: Option<NodeId>,
    /// One more than the head's; the sender's is 1.
    pub(super) level: u32,
    /// Times that the receiver chose a head.
    pub(super) choices: u64,
    /// Repairs sent to other receivers.
    pub(super) repairs: u64,
}

impl Membership {
    /// Packets offered to the receiver, if the flow has sent `sent` packets.
    fn offered(&self, sent: u64) -> u64 {
        let offered = match self.since {
            Some(since) => self.offered_before + (sent - since),
            None if self.has_left => return self.offered_before,
            None => sent,
        };
        offered.saturating_sub(self.sent_by_itself)
    }

    fn join(&mut self, sent: u64) {
        self.since = Some(sent);
    }

    fn leave(&mut self, sent: u64) {
        let offered_before = self.offered(sent);
        *self = Self { offered_before, has_left: true, ..Self::default() };
    }
}

impl Receiver {
    /// Packets offered to the receiver, if the flow has sent `sent` packets.
    pub(super) fn offered(&self, sent: u64) -> u64 {
        self.membership.offered(sent)
    }

    /// Takes an event of the receiver. `is_counted` is true after the warm-up.
    #[inline]
    pub(super) fn event(&mut self, record: &Record, sent: u64, is_counted: bool) {
        let Self { deliveries, losses, membership, tree, .. } = self;
        match record.event {
            Event::DataSent { repair: false, .. } => membership.sent_by_itself += 1,
            Event::DataSent { repair: true, .. } => tree.repairs += 1,
            Event::RepairHead { node, level } => {
                tree.choices += u64::from(node.is_some());
                (tree.head, tree.level) = (node, level);
            }
            Event::PathLimit { arrives, .. } => self.path_bytes = Some(arrives),
            Event::Delivered { bytes, .. } => {
                self.path_bytes = None;
                deliveries.packets += 1;
                deliveries.last_at = Some(record.at);
                if is_counted {
                    deliveries.counted_bytes += u64::from(bytes);
                }
            }
            Event::LossDetected { count, .. } => {
                losses.packets = losses.packets.saturating_add(count);
            }
            Event::LossWithdrawn { count, .. } => {
                losses.packets = losses.packets.saturating_sub(count);
            }
            Event::SessionExtent { packets } => losses.extent_packets = Some(packets),
            Event::Abandoned { count, .. } => {
                losses.abandoned_packets = losses.abandoned_packets.saturating_add(count);
            }
            Event::Completed { .. } => {
                // An empty object has no last byte.
                deliveries.completed_at = deliveries.last_at.or(Some(record.at));
            }
            Event::BadInput { reason: BadInput::OtherScheme } => self.other_scheme = true,
            Event::Joined => membership.join(sent),
            Event::Left => membership.leave(sent),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_offered_while_a_receiver_is_a_member_and_does_not_send_them() {
        let mut of = Membership::default();
        assert_eq!(of.offered(10), 10, "a member from the start");
        of.join(4);
        of.sent_by_itself = 1;
        assert_eq!(of.offered(10), 5);
        of.leave(10);
        assert_eq!(of.offered(20), 5, "nothing after the leave");
        of.join(20);
        assert_eq!(of.offered(23), 8);
    }
}
