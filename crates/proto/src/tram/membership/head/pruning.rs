//! Pruning: removal of members that are too slow for the group.

use alloc::vec::Vec;

use faircast_base::NodeId;

use super::{Head, Reply};
use crate::keep_last;
use crate::tram::membership::members::Member;
use crate::tram::settings::{Pruning, RightEdge, TramSettings};
use crate::tram::wire::RejectReason;

/// Windows that a member may be behind before decentralised pruning (src: tram s3.3).
const PRUNE_WINDOW: f64 = 1.5;

/// Most removed members that get the reason again; chosen.
const PRUNED_MAX: usize = 64;

impl Head {
    fn remove_pruned(&mut self, node: NodeId) {
        if let Some(id) = self.members.prune(node) {
            keep_last(&mut self.pruned, PRUNED_MAX, (node, id));
            self.reply(node, Reply::Reject(RejectReason::Pruned));
        }
    }

    /// Removes members too slow for the group; `worst` is the worst loss of all (src: jrms).
    pub(crate) fn prune(&mut self, settings: &TramSettings, worst: u16, highest: u64) {
        // A member that catches up lacks packets sent before it joined, whatever its path.
        let may_be_slow = |member: &Member| !member.subtree.loss_is_below && !member.catches_up();
        let slow: Vec<NodeId> = match settings.pruning {
            Pruning::Off => return,
            Pruning::Centralised => {
                let is_worst =
                    |loss: u16| loss > 0 && 21 * u32::from(loss) >= 20 * u32::from(worst);
                // A member that allows a window more does not delay the source. One that allows
                // less than the least window is delayed by its own members, perhaps forged ones.
                let window = u64::from(settings.ack_window);
                let holds = |member: &Member| {
                    member.progress.allowed < highest + window
                        && member.progress.allowed + 1 >= member.progress.first_missing + window
                };
                let own =
                    self.members.iter().filter(|(_, member)| may_be_slow(member) && holds(member));
                own.filter(|(_, member)| is_worst(member.subtree.loss))
                    .map(|(node, _)| node)
                    .collect()
            }
            Pruning::Decentralised => {
                // A plain right edge is nearer to the received packets by up to a window.
                let windows = match settings.right_edge {
                    RightEdge::Rounded => PRUNE_WINDOW,
                    RightEdge::Plain | RightEdge::Levels => PRUNE_WINDOW - 1.0,
                };
                let window = u64::from(settings.ack_window);
                let behind = windows * window as f64;
                let limit = highest.saturating_sub(behind as u64);
                // An acknowledgement is up to a window old: slow members also keep it closed.
                let plain = settings.right_edge != RightEdge::Rounded;
                let holds = |member: &Member| {
                    member.progress.allowed <= highest
                        && member.progress.allowed + 1 >= member.progress.first_missing + window
                };
                let late = self.members.iter().filter(|(_, member)| {
                    may_be_slow(member)
                        && member.progress.first_missing < limit
                        && (!plain || holds(member))
                });
                late.min_by_key(|(_, member)| member.progress.first_missing)
                    .map(|(node, _)| node)
                    .into_iter()
                    .collect()
            }
        };
        slow.into_iter().for_each(|node| self.remove_pruned(node));
    }
}
