//! Notes of a summary on incomplete receivers, and on receivers with another scheme.

use faircast_base::Shortfall;

use crate::summary::{FlowSummary, Summary};
use crate::text::count;

const NAMED_MAX: usize = 10;

pub(crate) fn key(reason: Shortfall) -> &'static str {
    match reason {
        Shortfall::Silent => "silent",
        Shortfall::Left => "left",
        Shortfall::Pruned => "pruned",
        Shortfall::Gaps => "gaps",
        Shortfall::Unnamed => "unnamed",
    }
}

impl Summary {
    pub(crate) fn mismatch_notes(&self) -> Vec<String> {
        self.flows.iter().flat_map(FlowSummary::mismatch_notes).collect()
    }

    pub(crate) fn incomplete_notes(&self) -> Vec<String> {
        let incomplete = self.flows.iter().filter_map(FlowSummary::incomplete_note);
        incomplete.chain(self.flows.iter().flat_map(FlowSummary::length_notes)).collect()
    }
}

impl FlowSummary {
    fn mismatch_notes(&self) -> Vec<String> {
        let mut groups: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
        for receiver in self.receivers.iter().filter(|receiver| receiver.other_scheme) {
            let spoken = receiver.speaks.as_deref();
            match groups.iter_mut().find(|(known, _)| *known == spoken) {
                Some((_, nodes)) => nodes.push(&receiver.node),
                None => groups.push((spoken, vec![&receiver.node])),
            }
        }
        groups.iter().map(|(spoken, nodes)| self.mismatch_note(*spoken, nodes)).collect()
    }

    fn mismatch_note(&self, spoken: Option<&str>, nodes: &[&str]) -> String {
        let Self { name, protocol: sender, .. } = self;
        let (receivers, were, speak) = match nodes {
            [node] => (node.to_string(), "was", "speaks"),
            [node, more @ ..] => {
                (format!("{node} and {} more", count(more.len() as u64)), "were", "speak")
            }
            [] => unreachable!("a group begins with a node"),
        };
        let source =
            if self.faults.mismatched_receivers > 0 { ", as the sender has heard" } else { "" };
        match spoken {
            Some(receiver) => format!(
                "{name}: the sender speaks {sender}, and {receivers} {were} told to speak {receiver} and \
                 got nothing{source}: name {sender} or no scheme there, or {receiver} at the sender"
            ),
            // On a real network only the ends know.
            None => format!(
                "{name}: {receivers} {speak} another scheme than the sender and got nothing{source}: name \
                 the sender's or no scheme there"
            ),
        }
    }

    fn length_notes(&self) -> impl Iterator<Item = String> {
        let short = self
            .receivers
            .iter()
            .filter_map(|receiver| Some((&receiver.node, receiver.path_bytes?)));
        short.take(NAMED_MAX).map(|(node, bytes)| {
            let flow = &self.name;
            format!("{flow}: {node} gets only packets of up to {bytes} bytes: shorten `packet`, or raise `mtu`")
        })
    }

    fn incomplete_note(&self) -> Option<String> {
        let named = self
            .receivers
            .iter()
            .filter_map(|receiver| Some((&receiver.node, receiver.incomplete.as_ref()?)));
        let mut words: Vec<String> =
            named.map(|(node, reason)| format!("{node} ({reason})")).collect();
        let more = words.len().saturating_sub(NAMED_MAX);
        words.truncate(NAMED_MAX);
        if more > 0 {
            words.push(format!("{} more", count(more as u64)));
        }
        if self.faults.unnamed_receivers > 0 {
            let unnamed = count(self.faults.unnamed_receivers);
            words.push(format!("up to {unnamed} of whom the sender knows nothing"));
        }
        let last = words.pop()?;
        let receivers = match words.is_empty() {
            true => last,
            false => format!("{} and {last}", words.join(", ")),
        };
        Some(format!("{}: not everything got to {receivers}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{FlowFaults, ReceiverSummary};

    #[test]
    fn a_receiver_that_lacks_something_is_named_with_the_reason() {
        let receiver = |node: usize, incomplete: Option<&str>| ReceiverSummary {
            node: format!("m{node}"),
            incomplete: incomplete.map(String::from),
            ..ReceiverSummary::default()
        };
        let note = |receivers: Vec<ReceiverSummary>, unnamed_receivers| {
            let name = "f".to_string();
            let faults = FlowFaults { unnamed_receivers, ..FlowFaults::default() };
            FlowSummary { name, receivers, faults, ..FlowSummary::default() }.incomplete_note()
        };
        assert_eq!(note(vec![receiver(1, None)], 0), None);
        for (receivers, unnamed, want) in [
            (vec![receiver(1, None), receiver(2, Some("left"))], 0, "m2 (left)"),
            (
                vec![receiver(1, Some("silent")), receiver(2, Some("pruned"))],
                0,
                "m1 (silent) and m2 (pruned)",
            ),
            (
                vec![receiver(1, Some("silent"))],
                4,
                "m1 (silent) and up to 4 of whom the sender knows nothing",
            ),
            (
                (1..=12).map(|node| receiver(node, Some("gaps"))).collect(),
                0,
                "m1 (gaps), m2 (gaps), m3 (gaps), m4 (gaps), m5 (gaps), m6 (gaps), m7 (gaps), \
                 m8 (gaps), m9 (gaps), m10 (gaps) and 2 more",
            ),
        ] {
            let want = format!("f: not everything got to {want}");
            assert_eq!(note(receivers, unnamed), Some(want));
        }
    }
}
