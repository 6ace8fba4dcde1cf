//! Figures of one receiver of a flow.

use faircast_base::{BadInput, Event, NodeId, Shortfall, Time};
use faircast_trace::Record;

#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    pub(super) delivered_packets: u64,
    pub(super) counted_bytes: u64,
    last_delivered_at: Option<Time>,
    /// Delivery time of the last byte, if the receiver is complete.
    pub(super) completed_at: Option<Time>,
    pub(super) lost_packets: u64,
    pub(super) abandoned_packets: u64,
    /// Packets of the session as known to the receiver; recorded on real networks.
    pub(super) extent_packets: Option<u64>,
    pub(super) membership: Membership,
    pub(super) head: Option<NodeId>,
    /// Level in the repair tree: one more than the head's; the sender's is 1.
    pub(super) level: u32,
    pub(super) head_choices: u64,
    pub(super) repairs: u64,
    /// Longest packet in bytes that arrives; `None` again after data, whose packets are longest.
    pub(super) path_bytes: Option<u32>,
    pub(super) other_scheme: bool,
    /// Reason for missing data, as named by the sender.
    pub(super) incomplete: Option<Shortfall>,
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

impl Membership {
    /// Packets offered to the receiver, if the flow has sent `sent` packets.
    pub(super) fn offered(&self, sent: u64) -> u64 {
        let offered = match self.since {
            Some(since) => self.offered_before + (sent - since),
            None if self.has_left => return self.offered_before,
            None => sent,
        };
        offered.saturating_sub(self.sent_by_itself)
    }

    fn leave(&mut self, sent: u64) {
        let offered_before = self.offered(sent);
        *self = Self { offered_before, has_left: true, ..Self::default() };
    }
}

impl Receiver {
    /// Takes an event of the receiver, after `sent` packets of the flow.
    #[inline]
    pub(super) fn event(&mut self, record: &Record, sent: u64, is_counted: bool) {
        match record.event {
            Event::DataSent { repair: false, .. } => self.membership.sent_by_itself += 1,
            Event::DataSent { repair: true, .. } => self.repairs += 1,
            Event::RepairHead { node, level } => {
                self.head_choices += u64::from(node.is_some());
                (self.head, self.level) = (node, level);
            }
            Event::PathLimit { arrives, .. } => self.path_bytes = Some(arrives),
            Event::Delivered { bytes, .. } => {
                self.path_bytes = None;
                self.delivered_packets += 1;
                self.last_delivered_at = Some(record.at);
                self.counted_bytes += if is_counted { u64::from(bytes) } else { 0 };
            }
            Event::LossDetected { count, .. } => {
                self.lost_packets = self.lost_packets.saturating_add(count);
            }
            Event::LossWithdrawn { count, .. } => {
                self.lost_packets = self.lost_packets.saturating_sub(count);
            }
            Event::SessionExtent { packets } => self.extent_packets = Some(packets),
            Event::Abandoned { count, .. } => {
                self.abandoned_packets = self.abandoned_packets.saturating_add(count);
            }
            Event::Completed { .. } => {
                // An empty object has no last byte.
                self.completed_at = self.last_delivered_at.or(Some(record.at));
            }
            Event::BadInput { reason: BadInput::OtherScheme } => self.other_scheme = true,
            Event::Joined => self.membership.since = Some(sent),
            Event::Left => self.membership.leave(sent),
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
        of.since = Some(4);
        of.sent_by_itself = 1;
        assert_eq!(of.offered(10), 5);
        of.leave(10);
        assert_eq!(of.offered(20), 5, "nothing after the leave");
        of.since = Some(20);
        assert_eq!(of.offered(23), 8);
    }
}
