//! Notes of a summary on receivers with another scheme than their sender.

use crate::summary::{FlowSummary, Summary};
use crate::text::count;

impl Summary {
    pub(crate) fn mismatch_notes(&self) -> Vec<String> {
        self.flows.iter().flat_map(FlowSummary::mismatch_notes).collect()
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
        groups.iter().map(|(spoken, nodes)| self.note(*spoken, nodes)).collect()
    }

    fn note(&self, spoken: Option<&str>, nodes: &[&str]) -> String {
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
}
