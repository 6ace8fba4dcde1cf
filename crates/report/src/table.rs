//! Summary as text for a terminal, at most 100 columns wide.

use faircast_trace::On;

use crate::clients::ClientSummary;
use crate::summary::{Common, FlowSummary, LinkSummary, ReceiverSummary, Summary, TreeSummary};
use crate::text::{
    DASH, Table, count, mean_packets, or_dash, percent, rate, seconds, shorten, spread, wrapped,
};

const FLOWS_LISTED_MAX: usize = 24;
const RECEIVERS_LISTED_MAX: usize = 8;
const FEW_MAX: usize = 3;
const WORST_LISTED: usize = 5;
const RECEIVER_LINES_MAX: usize = 40;
/// Shortest time in seconds with all flows active over which shares are compared.
const SHARED_S_MIN: f64 = 1.0;
const CLIENTS_LISTED_MAX: usize = 40;
const LINKS_LISTED_MAX: usize = 12;

impl Summary {
    /// Returns the summary in at most 100 columns; large numbers of entries as spread and worst.
    pub fn table(&self) -> String {
        let mut out = wrapped(&self.title) + &wrapped(&self.circumstances());
        if self.interrupted {
            out.push_str(&wrapped(&format!(
                "INTERRUPTED after {} of {}: averages are over the part that ran.",
                seconds(self.ended_s),
                seconds(self.duration_s)
            )));
        }
        if let Some(doubts) = self.lateness.and_then(|lateness| lateness.doubts()) {
            out.push_str(&wrapped(&format!("{doubts}.")));
        }
        if !self.flows.is_empty() {
            self.write_flows(&mut out);
            self.write_receivers(&mut out);
        }
        self.write_clients(&mut out);
        self.write_links(&mut out);
        out.push('\n');
        if self.warmup_s > 0.0 {
            out.push_str(&wrapped(&format!(
                "* of the whole run; all else is of the counted time, from {} on",
                seconds(self.warmup_s)
            )));
        }
        out.push_str(&wrapped(&self.closing()));
        out
    }

    fn of_whole_run(&self, name: &str) -> String {
        if self.warmup_s > 0.0 { format!("{name}*") } else { name.to_string() }
    }

    pub(crate) fn circumstances(&self) -> String {
        let warmup = if self.warmup_s > 0.0 {
            format!(", the first {} not counted", seconds(self.warmup_s))
        } else {
            String::new()
        };
        let place = match self.on {
            On::Sim => format!("simulator · seed {}", self.seed),
            On::Lab => format!("lab · seed {}", self.seed),
            // On a real network the seed determines nothing.
            On::Net => "network".into(),
        };
        format!("{} · {place} · {}{warmup}", self.scenario, seconds(self.duration_s))
    }

    fn closing(&self) -> String {
        let hash = self.trace_hash.as_ref().map(|h| format!(" · trace {h}")).unwrap_or_default();
        let happened = format!("{} events in {}{hash}", count(self.events), seconds(self.wall_s));
        if self.flows.is_empty() {
            return happened;
        }
        let jain = match self.shared_time() {
            Some(common) => format!(
                "Jain index {:.4} while all were on ({} to {}), {:.4} over the counted time",
                common.jain_index,
                seconds(common.from_s),
                seconds(common.to_s),
                self.jain_index
            ),
            None => format!("Jain index {:.4}", self.jain_index),
        };
        format!("{jain} · {happened}")
    }

    fn has_partial_flows(&self) -> bool {
        self.flows.iter().any(|flow| {
            (flow.rates.active_throughput_bps - flow.rates.throughput_bps).abs()
                > 0.01 * flow.rates.throughput_bps
        })
    }

    /// Time with all flows active, if not the whole run and long enough to compare shares.
    pub(crate) fn shared_time(&self) -> Option<Common> {
        let common = self.common.filter(|common| common.to_s - common.from_s >= SHARED_S_MIN);
        common.filter(|_| self.has_partial_flows())
    }

    fn write_flows(&self, out: &mut String) {
        let partly = self.has_partial_flows();
        // Shares in the shared time come first: over other times they are not comparable.
        let first = match (self.shared_time(), partly) {
            (Some(_), _) => Some("While all on"),
            (None, true) => Some("While on"),
            (None, false) => None,
        };
        let mut head = vec!["Flow", "Protocol"];
        head.extend(first);
        head.push(if partly { "Counted time" } else { "Throughput" });
        let whole = ["Sent", "Repairs", "Feedback", "Timeouts"].map(|name| self.of_whole_run(name));
        head.extend(whole.iter().map(String::as_str));
        head.push("Done");
        let mut table = Table::new(2, &head);
        let row = |flow: &FlowSummary| {
            let mut row = vec![flow.name.clone(), flow.protocol.clone()];
            row.extend(first.map(|_| rate(self.share_bps(flow))));
            row.push(rate(flow.rates.throughput_bps));
            let of = flow.counts;
            let counts = [of.sent_packets, of.repair_packets, of.feedback_packets, of.timeouts];
            row.extend(counts.map(|value| flow.of_sender(self.on, value)));
            row.push(or_dash(flow.completed_s.map(seconds)));
            row
        };
        out.push('\n');
        if self.flows.len() <= FLOWS_LISTED_MAX {
            self.flows.iter().for_each(|flow| table.push(row(flow)));
            return table.write(out);
        }
        let mut many: Vec<&FlowSummary> = Vec::new();
        for (protocol, flows) in self.flows_by_protocol() {
            if flows.len() <= FEW_MAX {
                flows.iter().for_each(|flow| table.push(row(flow)));
                continue;
            }
            let shares = spread(flows.iter().map(|flow| self.share_bps(flow))).unwrap_or_default();
            for (word, share) in ["least", "median", "greatest"].iter().zip(shares) {
                let mut line = vec![String::new(); head.len()];
                line[0] = format!("{word} of {}", count(flows.len() as u64));
                line[1] = protocol.clone();
                line[2] = rate(share);
                table.push(line);
            }
            many.extend(flows);
        }
        many.sort_by(|a, b| self.share_bps(a).total_cmp(&self.share_bps(b)));
        many.iter().take(WORST_LISTED).for_each(|flow| table.push(row(flow)));
        table.write(out);
        out.push_str(&format!(
            "({} flows; of those that are many the {WORST_LISTED} slowest are listed)\n",
            count(self.flows.len() as u64)
        ));
    }

    pub(crate) fn share_bps(&self, flow: &FlowSummary) -> f64 {
        let common = flow.rates.common_throughput_bps.filter(|_| self.shared_time().is_some());
        common.unwrap_or(flow.rates.active_throughput_bps)
    }

    pub(crate) fn flows_by_protocol(&self) -> Vec<(String, Vec<&FlowSummary>)> {
        let mut groups: Vec<(String, Vec<&FlowSummary>)> = Vec::new();
        for flow in &self.flows {
            match groups.iter_mut().find(|(protocol, _)| *protocol == flow.protocol) {
                Some((_, flows)) => flows.push(flow),
                None => groups.push((flow.protocol.clone(), vec![flow])),
            }
        }
        groups
    }

    fn write_receivers(&self, out: &mut String) {
        let [lost, given_up, loss] =
            ["Lost", "Given up", "Loss"].map(|name| self.of_whole_run(name));
        let mut table = Table::new(
            2,
            &["Flow", "Receiver", "Goodput", &lost, &given_up, &loss, "Done", "Intact"],
        );
        let (mut lines, mut left_out) = (0, 0);
        let mut notes = String::new();
        let is_crowd = self.flows.len() > FLOWS_LISTED_MAX;
        for flow in &self.flows {
            let total = flow.receivers.len();
            let wanted = if total > RECEIVERS_LISTED_MAX { 3 + WORST_LISTED } else { total };
            // For a thousand unicast flows only damage is of interest.
            let is_news = flow.receivers.iter().any(|r| r.intact == Some(false));
            if lines + wanted > RECEIVER_LINES_MAX || (is_crowd && total == 1 && !is_news) {
                left_out += total;
                continue;
            }
            lines += wanted;
            if total > RECEIVERS_LISTED_MAX {
                let names = ["least", "median", "greatest"];
                for (cells, word) in flow.receiver_spread(On::Sim).into_iter().zip(names) {
                    let name = format!("{word} of {}", count(total as u64));
                    table.push(receiver_row(flow, &name, cells, ""));
                }
                notes.push_str(&spread_note(flow));
            }
            for receiver in flow.worst_receivers(RECEIVERS_LISTED_MAX, WORST_LISTED) {
                let intact = intact_word(receiver.intact);
                table.push(receiver_row(flow, &receiver.node, receiver.cells(self.on), intact));
            }
        }
        if lines == 0 {
            return;
        }
        out.push('\n');
        table.write(out);
        out.push_str(&notes);
        for (name, tree) in self.flows.iter().filter_map(|flow| Some((&flow.name, flow.tree?))) {
            out.push_str(&wrapped(&format!("({name}: {})", tree.in_words())));
        }
        for note in self.mismatch_notes().into_iter().chain(self.incomplete_notes()) {
            out.push_str(&wrapped(&format!("({note})")));
        }
        if left_out > 0 {
            out.push_str(&format!("({} receivers are not listed)\n", count(left_out as u64)));
        }
    }

    fn write_clients(&self, out: &mut String) {
        if self.clients.is_empty() {
            return;
        }
        let mut table = Table::new(
            2,
            &["Client", "At", "Sent", "Received", "Goodput", "Median", "99 %", "Views"],
        );
        let mut clients: Vec<&ClientSummary> = self.clients.iter().collect();
        if clients.len() > CLIENTS_LISTED_MAX {
            let latency = |it: &ClientSummary| it.latency_p99_s.unwrap_or_default();
            clients.sort_by(|a, b| latency(b).total_cmp(&latency(a)));
            clients.truncate(WORST_LISTED);
        }
        for client in &clients {
            table.push(vec![
                client.name.clone(),
                client.node.clone(),
                count(client.sent_messages),
                count(client.delivered_messages),
                rate(client.goodput_bps),
                or_dash(client.latency_median_s.map(seconds)),
                or_dash(client.latency_p99_s.map(seconds)),
                count(client.views),
            ]);
        }
        out.push('\n');
        table.write(out);
        if self.clients.len() > clients.len() {
            let (all, listed) = (count(self.clients.len() as u64), clients.len());
            out.push_str(&format!("({all} clients; the {listed} with the longest latencies)\n"));
        }
    }

    fn write_links(&self, out: &mut String) {
        let links = self.busy_links();
        if links.is_empty() {
            return;
        }
        let mut table = Table::new(
            1,
            &["Link", "Used", "Throughput", "Dropped", "Drop ratio", "Queue mean", "Queue max"],
        );
        for (_, link) in links.iter().take(LINKS_LISTED_MAX) {
            table.push(
                [format!("{} → {}", link.from, link.to)].into_iter().chain(link.cells()).collect(),
            );
        }
        out.push('\n');
        table.write(out);
        if links.len() > LINKS_LISTED_MAX {
            let left_out = count((links.len() - LINKS_LISTED_MAX) as u64);
            out.push_str(&format!(
                "({left_out} more links carried packets; those that dropped or carried most are \
                 listed)\n"
            ));
        }
    }

    pub(crate) fn busy_links(&self) -> Vec<(usize, &LinkSummary)> {
        let links = self.links.iter().enumerate();
        let mut links: Vec<_> = links.filter(|(_, link)| link.sent_packets > 0).collect();
        links.sort_by(|(_, a), (_, b)| {
            b.dropped_packets.cmp(&a.dropped_packets).then(b.utilisation.total_cmp(&a.utilisation))
        });
        links
    }
}

impl LinkSummary {
    pub(crate) fn cells(&self) -> [String; 6] {
        [
            percent(self.utilisation),
            rate(self.throughput_bps),
            count(self.dropped_packets),
            percent(self.drop_ratio),
            mean_packets(self.queue_mean_packets),
            self.queue_max_packets.to_string(),
        ]
    }
}

impl ReceiverSummary {
    pub(crate) fn cells(&self, on: On) -> [String; 6] {
        let known = |text: String| if self.has_deliveries(on) { text } else { DASH.into() };
        [
            known(rate(self.goodput_bps)),
            known(count(self.delivered_packets)),
            known(count(self.lost_packets)),
            known(count(self.abandoned_packets)),
            known(percent(self.loss_ratio)),
            or_dash(self.completed_s.map(seconds)),
        ]
    }
}

impl TreeSummary {
    pub(crate) fn in_words(&self) -> String {
        let many = |number: u64, one: &str, more: &str| {
            format!("{} {}", count(number), if number == 1 { one } else { more })
        };
        format!(
            "{} in the repair tree, {} of them the sender’s; {}; {}; {} by the sender; {} of head",
            many(self.members, "member", "members"),
            count(self.direct_members),
            many(self.heads, "receiver is a head", "receivers are heads"),
            many(u64::from(self.levels), "level", "levels"),
            many(self.sender_repairs, "repair", "repairs"),
            many(self.head_changes, "change", "changes"),
        )
    }
}

impl FlowSummary {
    pub(crate) fn worst_receivers(&self, all_max: usize, worst: usize) -> Vec<&ReceiverSummary> {
        let mut receivers: Vec<&ReceiverSummary> = self.receivers.iter().collect();
        if receivers.len() > all_max {
            receivers.sort_by(|a, b| a.goodput_bps.total_cmp(&b.goodput_bps));
            receivers.sort_by_key(|receiver| receiver.intact != Some(false));
            receivers.truncate(worst);
        }
        receivers
    }

    pub(crate) fn of_sender(&self, on: On, value: u64) -> String {
        // The trace of a receiver on a real network lacks the sender.
        let has_sender = on != On::Net || self.counts.sent_packets > 0;
        if has_sender { count(value) } else { DASH.into() }
    }

    pub(crate) fn receiver_spread(&self, on: On) -> [[String; 6]; 3] {
        let of = |value: fn(&ReceiverSummary) -> f64| {
            spread(self.receivers.iter().map(value)).unwrap_or_default()
        };
        let done = spread(self.receivers.iter().filter_map(|r| r.completed_s));
        [0, 1, 2].map(|i| {
            let whole = |value: fn(&ReceiverSummary) -> f64| of(value)[i] as u64;
            let cells = ReceiverSummary {
                goodput_bps: of(|r| r.goodput_bps)[i],
                delivered_packets: whole(|r| r.delivered_packets as f64),
                lost_packets: whole(|r| r.lost_packets as f64),
                abandoned_packets: whole(|r| r.abandoned_packets as f64),
                loss_ratio: of(|r| r.loss_ratio)[i],
                completed_s: done.map(|done| done[i]),
                ..ReceiverSummary::default()
            };
            let is_known = self.receivers.iter().any(|receiver| receiver.has_deliveries(on));
            cells.cells(if is_known { On::Sim } else { On::Net })
        })
    }
}

pub(crate) fn intact_word(intact: Option<bool>) -> &'static str {
    match intact {
        Some(true) => "yes",
        Some(false) => "NO",
        None => DASH,
    }
}

fn receiver_row(flow: &FlowSummary, node: &str, cells: [String; 6], intact: &str) -> Vec<String> {
    let [goodput, _, lost, abandoned, loss, done] = cells;
    let (flow, node, intact) = (flow.name.clone(), node.to_string(), intact.to_string());
    vec![flow, node, goodput, lost, abandoned, loss, done, intact]
}

fn spread_note(flow: &FlowSummary) -> String {
    let number = |which: fn(&ReceiverSummary) -> bool| {
        count(flow.receivers.iter().filter(|r| which(r)).count() as u64)
    };
    wrapped(&format!(
        "({}: of {} receivers {} are complete, {} intact, {} damaged)",
        shorten(&flow.name, 30),
        number(|_| true),
        number(|r| r.completed_s.is_some()),
        number(|r| r.intact == Some(true)),
        number(|r| r.intact == Some(false)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{FlowCounts, FlowRates};
    use crate::text::COLUMNS_MAX;

    fn receiver(i: usize) -> ReceiverSummary {
        ReceiverSummary {
            node: format!("receiver-{i}"),
            goodput_bps: 1e6 + i as f64,
            lost_packets: i as u64,
            loss_ratio: 0.012_345,
            completed_s: (i.is_multiple_of(2)).then_some(12.5),
            intact: Some(i != 4_711),
            ..ReceiverSummary::default()
        }
    }

    fn summary(flows: usize, receivers: usize, links: usize) -> Summary {
        let flow = |i: usize| FlowSummary {
            name: format!("a-flow-with-a-very-long-name-that-goes-on-and-on-{i}"),
            protocol: if i == 0 { "pgmcc".into() } else { "tcp-newreno".into() },
            rates: FlowRates {
                throughput_bps: 123_456_789.0 + i as f64,
                active_throughput_bps: 1.0,
                common_throughput_bps: Some(9_876_543.0),
                ..FlowRates::default()
            },
            counts: FlowCounts {
                sent_packets: 123_456_789,
                repair_packets: 123_456,
                feedback_packets: 123_456_789,
                timeouts: 1_234,
                ..FlowCounts::default()
            },
            receivers: (0..receivers).map(receiver).collect(),
            ..FlowSummary::default()
        };
        let link = |i: usize| LinkSummary {
            from: format!("router-number-{i}"),
            to: "a-very-long-name-of-a-host-in-the-middle-of-nowhere".into(),
            utilisation: 0.971_6,
            dropped_packets: 123_456,
            queue_max_packets: 30,
            queue_mean_packets: 11.234,
            sent_packets: 1,
            throughput_bps: 485_000.0,
            drop_ratio: 0.01,
            ..LinkSummary::default()
        };
        Summary {
            scenario: "scenarios/a-rather-long-path/with-a-long-name/many-receivers.toml".into(),
            title: "Does one session share the network fairly with everyone else? ".repeat(3),
            seed: 1,
            duration_s: 300.0,
            warmup_s: 20.0,
            ended_s: 120.0,
            interrupted: true,
            flows: (0..flows).map(flow).collect(),
            links: (0..links).map(link).collect(),
            jain_index: 0.987_65,
            common: Some(Common { from_s: 20.0, to_s: 80.0, jain_index: 0.5 }),
            wall_s: 0.8,
            events: 1_200_000,
            trace_hash: Some("0".repeat(32)),
            ..Summary::default()
        }
    }

    #[test]
    fn tables_of_any_size_fit_the_terminal() {
        for (flows, receivers, links) in
            [(0, 0, 0), (1, 1, 1), (3, 8, 20), (2, 10_000, 9_999), (1_000, 1, 5)]
        {
            let text = summary(flows, receivers, links).table();
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= COLUMNS_MAX, "{widest} columns:\n{text}");
            assert!(text.lines().count() < 130, "{text}");
            assert!(text.contains("INTERRUPTED after 120 s of 300 s"), "{text}");
        }
    }

    #[test]
    fn of_ten_thousand_receivers_the_damaged_and_the_slowest_are_named() {
        let text = summary(1, 10_000, 1).table();
        assert!(text.contains("least of 10,000"), "{text}");
        assert!(text.contains("5,000 are complete, 9,999 intact, 1 damaged"), "{text}");
        assert!(text.contains("receiver-4711") && text.contains("NO"), "{text}");
        assert!(text.contains("receiver-0 ") && !text.contains("receiver-999 "), "{text}");
    }
}
