//! Groups of a relay, with the number of receivers behind each neighbour.

use std::collections::BTreeMap;

use faircast_base::FlowId;
use faircast_proto::relay::PortId;

use crate::status::SlowLink;

#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) receivers: u32,
    pub(crate) link: Option<PortId>,
    /// Link below the member that sets the pace of a session.
    pub(crate) slow: Option<SlowLink>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) flow: FlowId,
    pub(crate) members: BTreeMap<PortId, Member>,
    /// Sum over all members, which 64 bits can hold, and number of members with receivers.
    receivers: u64,
    active: usize,
}

impl Group {
    /// Returns a member's receivers through this relay, `above` of them at the parent.
    pub(crate) fn elsewhere(&self, port: PortId, above: u32) -> u32 {
        let own = self.members.get(&port).map_or(0, |member| member.receivers);
        saturated(self.receivers - u64::from(own) + u64::from(above))
    }
}

fn saturated(receivers: u64) -> u32 {
    u32::try_from(receivers).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) by_id: BTreeMap<u64, Group>,
    pub(crate) by_flow: BTreeMap<FlowId, u64>,
    last_flow: u32,
}

pub(crate) struct Change {
    pub(crate) flow: FlowId,
    pub(crate) receivers: Option<u32>,
    /// True if receivers elsewhere may have appeared or vanished for some member.
    pub(crate) concerns_all: bool,
}

impl Groups {
    pub(crate) fn member_mut(&mut self, group: u64, port: PortId) -> Option<&mut Member> {
        self.by_id.get_mut(&group)?.members.get_mut(&port)
    }

    /// Sets the receivers behind a neighbour, `None` after the last; `above`: those at the parent.
    pub(crate) fn set(
        &mut self,
        group: u64,
        port: PortId,
        receivers: Option<u32>,
        above: u32,
    ) -> Change {
        let of = self.by_id.entry(group).or_insert_with(|| {
            self.last_flow = self.last_flow.wrapping_add(1);
            let flow = FlowId(self.last_flow);
            self.by_flow.insert(flow, group);
            Group { flow, members: BTreeMap::new(), receivers: 0, active: 0 }
        });
        let kind = |of: &Group| (of.active + usize::from(above > 0)).min(2);
        let (before, flow) = (kind(of), of.flow);
        let was = match receivers {
            Some(receivers) => {
                let member = of.members.entry(port).or_default();
                member.slow = None;
                std::mem::replace(&mut member.receivers, receivers)
            }
            None => of.members.remove(&port).map_or(0, |member| member.receivers),
        };
        let is = receivers.unwrap_or(0);
        of.receivers = of.receivers - u64::from(was) + u64::from(is);
        of.active = of.active + usize::from(is > 0) - usize::from(was > 0);
        let concerns_all = before != kind(of);
        let receivers = (!of.members.is_empty()).then_some(saturated(of.receivers));
        if receivers.is_none() {
            self.by_id.remove(&group);
            self.by_flow.remove(&flow);
        }
        Change { flow, receivers, concerns_all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_claim_too_many_receivers_break_no_sum() {
        let (mut groups, [a, b, most]) = (Groups::default(), [1, 2, u32::MAX]);
        let mut set = |port, receivers| {
            let change = groups.set(7, PortId(port), receivers, 0);
            let elsewhere = groups.by_id.get(&7).map(|of| of.elsewhere(PortId(b), most));
            (change.receivers, elsewhere, groups.by_flow.get(&change.flow).copied())
        };
        assert_eq!(set(a, Some(most)), (Some(most), Some(most), Some(7)));
        assert_eq!(set(b, Some(most)), (Some(most), Some(most), Some(7)));
        assert_eq!(set(a, None), (Some(most), Some(most), Some(7)));
        assert_eq!(set(b, Some(3)), (Some(3), Some(most), Some(7)));
        assert_eq!(set(b, None), (None, None, None));
    }
}
