//! Pruning: members that a head removes for the good of the whole.

use alloc::vec::Vec;

use faircast_base::NodeId;

use super::{Answer, Head};
use crate::keep_last;
use crate::tram::members::Child;
use crate::tram::settings::{Pruning, RightEdge, TramSettings};
use crate::tram::wire::RejectReason;

/// Acknowledgement windows by which a member is behind that decentralised pruning removes (src:
/// tram s3.3).
const PRUNE_WINDOW: f64 = 1.5;

/// Most removed members that are told again why they are none; chosen.
const PRUNED_MAX: usize = 64;

impl Head {
    fn disown(&mut self, node: NodeId) {
        if let Some(id) = self.members.prune(node) {
            keep_last(&mut self.pruned, PRUNED_MAX, (node, id));
            self.answer(node, Answer::Reject(RejectReason::Pruned));
        }
    }

    /// Removes members that are too slow for the good of the whole; `worst` is the worst loss of all receivers, and
    /// `highest` the last packet sent (src: jrms).
    pub(in crate::tram) fn prune(&mut self, settings: &TramSettings, worst: u16, highest: u64) {
        // A member that catches up lacks packets sent before it joined, whatever its path.
        let may_be_slow = |child: &Child| !child.of_subtree && child.catches_up.is_none();
        let slow: Vec<NodeId> = match settings.pruning {
            Pruning::Off => return,
            // Whoever is as bad as the worst, but for a twentieth.
            Pruning::Centralised => {
                let is_worst =
                    |loss: u16| loss > 0 && 21 * u32::from(loss) >= 20 * u32::from(worst);
                // A member that allows a window more does not hold the source up, and one that allows less than the least
                // window beyond what it has is held up by its own members, one of which may be invented.
                let window = u64::from(settings.ack_window);
                let holds = |child: &Child| {
                    child.allowed < highest + window
                        && child.allowed + 1 >= child.first_missing + window
                };
                let own =
                    self.members.iter().filter(|(_, child)| may_be_slow(child) && holds(child));
                own.filter(|(_, child)| is_worst(child.loss)).map(|(node, _)| node).collect()
            }
            // The one that is furthest behind.
            Pruning::Decentralised => {
                // A plain right edge lies by as much as a window less beyond what is here.
                let windows = match settings.right_edge {
                    RightEdge::Rounded => PRUNE_WINDOW,
                    RightEdge::Plain | RightEdge::Levels => PRUNE_WINDOW - 1.0,
                };
                let window = u64::from(settings.ack_window);
                let behind = windows * window as f64;
                let limit = highest.saturating_sub(behind as u64);
                // Its word is up to a window old. So it must also keep the window closed, and by itself: who allows
                // less than the least window beyond what it has is held up by its own members.
                let plain = settings.right_edge != RightEdge::Rounded;
                let holds = |child: &Child| {
                    child.allowed <= highest && child.allowed + 1 >= child.first_missing + window
                };
                let late = self.members.iter().filter(|(_, child)| {
                    may_be_slow(child) && child.first_missing < limit && (!plain || holds(child))
                });
                late.min_by_key(|(_, child)| child.first_missing)
                    .map(|(node, _)| node)
                    .into_iter()
                    .collect()
            }
        };
        slow.into_iter().for_each(|node| self.disown(node));
    }
}
