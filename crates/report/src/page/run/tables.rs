//! Tables of a run's page: flows, receivers and links.

use faircast_trace::{Header, On};

use super::super::html::{HtmlTable, escape, folded};
use super::all_receivers;
use crate::plots;
use crate::series::Series;
use crate::summary::{FlowSummary, LinkSummary, ReceiverSummary, Summary};
use crate::table::intact_word;
use crate::text::{count, percent, rate, seconds, seconds_or_dash, spread};

const FLOW_ROWS_MAX: usize = 50;
const RECEIVER_ROWS_MAX: usize = 12;
const WORST_ROWS: usize = 10;
const RECEIVERS_FOLDED_MAX: usize = 500;
const LINK_ROWS_MAX: usize = 12;
const LINKS_FOLDED_MAX: usize = 500;

fn coloured(name: &str, colour: Option<usize>) -> String {
    let swatch = colour.map(|c| {
        format!(
            "<span class=\"swatch\" style=\"--swatch:var(--c{c})\" aria-hidden=\"true\"></span>"
        )
    });
    swatch.unwrap_or_default() + &escape(name)
}

fn bar(share: f64, colour: usize) -> String {
    let width = (share * 100.0).clamp(0.0, 100.0);
    format!(
        "<span class=\"bar\" style=\"--w:{width:.1}%;--swatch:var(--c{colour})\" aria-hidden=\"true\"><i></i></span>"
    )
}

pub(super) fn flows(summary: &Summary, series: &Series) -> String {
    // Shares are comparable only in the shared time: that column comes first and has the bars.
    let shared = summary.shared_time();
    let compared = |flow: &FlowSummary| match shared {
        Some(_) => summary.share_bps(flow),
        None => flow.throughput_bps,
    };
    let most = summary.flows.iter().map(compared).fold(0.0, f64::max).max(1.0);
    let mut caption = "Averages are over the counted time, counts over the whole run".to_owned();
    if let Some(common) = shared {
        let (from, to) = (seconds(common.from_s), seconds(common.to_s));
        caption.push_str(&format!("; all flows were on from {from} to {to}"));
    }
    let mut head = vec!["Flow", "Protocol"];
    head.extend(match shared {
        Some(_) => &["While all on", "While on", "Counted time"][..],
        None => &["Throughput", "While on"],
    });
    head.extend(["Sent", "Repairs", "ACKs", "NAKs", "Cuts", "Timeouts"]);
    head.extend(["Worst loss", "Round trip", "Completed"]);
    let mut table = HtmlTable::new(&caption, 2, &head);
    if summary.flows.is_empty() {
        return String::new();
    }
    let mut listed: Vec<usize> = (0..summary.flows.len()).collect();
    if listed.len() > FLOW_ROWS_MAX {
        for (protocol, flows) in summary.flows_by_protocol() {
            if flows.len() > 3 {
                let values = spread(flows.iter().map(|flow| compared(flow))).unwrap_or_default();
                push_flow_spread(&mut table, &protocol, flows.len(), values, head.len());
            }
        }
        listed.truncate(FLOW_ROWS_MAX);
    }
    for index in listed {
        let flow = &summary.flows[index];
        let colour = plots::colour_of(series, index);
        let value = compared(flow);
        let mut cells = vec![
            coloured(&flow.name, colour),
            escape(&flow.protocol),
            rate(value) + &bar(value / most, colour.unwrap_or(6)),
            rate(flow.active_throughput_bps),
        ];
        cells.extend(shared.map(|_| rate(flow.throughput_bps)));
        let FlowSummary {
            sent_packets,
            repair_packets,
            ack_packets,
            nak_packets,
            cuts,
            timeouts,
            ..
        } = flow;
        let counts = [sent_packets, repair_packets, ack_packets, nak_packets, cuts, timeouts];
        cells.extend(counts.map(|value| flow.of_sender(summary.on, *value)));
        cells.extend([
            flow.loss_ratio.map_or_else(|| "–".into(), percent),
            seconds_or_dash(flow.rtt_mean_s),
            seconds_or_dash(flow.completed_s),
        ]);
        table.row("", &cells);
    }
    let mut html = format!("<div class=\"card\">{}</div>\n", table.finish());
    if summary.flows.len() > FLOW_ROWS_MAX {
        html.push_str(&format!(
            "<p class=\"soft small\">The first {FLOW_ROWS_MAX} of {} flows are listed.</p>\n",
            count(summary.flows.len() as u64)
        ));
    }
    html
}

fn push_flow_spread(
    table: &mut HtmlTable,
    protocol: &str,
    flows: usize,
    values: [f64; 3],
    columns: usize,
) {
    for (word, value) in ["Least", "Median", "Greatest"].into_iter().zip(values) {
        let mut cells = vec![String::new(); columns];
        cells[0] = format!("{word} of {}", count(flows as u64));
        cells[1] = escape(protocol);
        cells[2] = rate(value);
        table.row("sum", &cells);
    }
}

fn intact_cell(intact: Option<bool>) -> String {
    match intact {
        Some(false) => "<strong class=\"bad\">NO</strong>".into(),
        other => intact_word(other).into(),
    }
}

fn receiver_table(caption: &str) -> HtmlTable {
    let head = "Receiver|Flow|Goodput|Delivered|Lost|Given up|Loss ratio|Completed|Intact";
    HtmlTable::new(caption, 2, &head.split('|').collect::<Vec<_>>())
}

fn push_receiver(table: &mut HtmlTable, on: On, flow: &FlowSummary, receiver: &ReceiverSummary) {
    let cells = [escape(&receiver.node), escape(&flow.name)].into_iter().chain(receiver.cells(on));
    let cells: Vec<String> = cells.chain([intact_cell(receiver.intact)]).collect();
    table.row("", &cells);
}

pub(super) fn receivers(summary: &Summary) -> String {
    let total = all_receivers(summary).count();
    if total == 0 {
        return String::new();
    }
    let mut table = receiver_table(
        "Lost: packets that did not arrive in time or late, repaired or not. Given up: never repaired. \
         Goodput is over the counted time, counts and the loss ratio over the whole run. Of many \
         receivers the spread and the worst are shown.",
    );
    let mut rows = 0;
    let mut is_shortened = false;
    for flow in &summary.flows {
        if rows > FLOW_ROWS_MAX {
            is_shortened = true;
            break;
        }
        if flow.receivers.len() > RECEIVER_ROWS_MAX {
            is_shortened = true;
            push_receiver_spread(&mut table, summary.on, flow);
        }
        for receiver in flow.worst_receivers(RECEIVER_ROWS_MAX, WORST_ROWS) {
            push_receiver(&mut table, summary.on, flow, receiver);
            rows += 1;
        }
    }
    let mut html = format!("<div class=\"card\">{}</div>\n", table.finish());
    if is_shortened {
        let mut all = receiver_table("In the scenario’s order");
        for (flow, receiver) in all_receivers(summary).take(RECEIVERS_FOLDED_MAX) {
            push_receiver(&mut all, summary.on, flow, receiver);
        }
        let label = match total {
            n if n > RECEIVERS_FOLDED_MAX => format!(
                "The first {RECEIVERS_FOLDED_MAX} of {} receivers (the JSON summary has all)",
                count(n as u64)
            ),
            n => format!("All {} receivers", count(n as u64)),
        };
        html.push_str(&folded(&label, &all.finish()));
    }
    html
}

fn push_receiver_spread(table: &mut HtmlTable, on: On, flow: &FlowSummary) {
    let intact = flow.receivers.iter().filter(|r| r.intact == Some(true)).count();
    let mut intact = format!("{} yes", count(intact as u64));
    let total = count(flow.receivers.len() as u64);
    for (cells, word) in flow.receiver_spread(on).into_iter().zip(["Least", "Median", "Greatest"]) {
        let lead = [format!("{word} of {total}"), escape(&flow.name)];
        let cells = lead.into_iter().chain(cells).chain([std::mem::take(&mut intact)]);
        table.row("sum", &cells.collect::<Vec<_>>());
    }
}

pub(super) fn links(header: &Header, summary: &Summary) -> String {
    let mut busy = summary.busy_links();
    if busy.is_empty() {
        return String::new();
    }
    let used = busy.len();
    let shown = &busy[..used.min(LINK_ROWS_MAX)];
    let top =
        link_table("In the counted time; those that drop and carry most come first", header, shown);
    let mut html = format!("<div class=\"card\">{top}</div>\n");
    if used > LINK_ROWS_MAX {
        busy.truncate(LINKS_FOLDED_MAX);
        let label = if used > LINKS_FOLDED_MAX {
            format!("{LINKS_FOLDED_MAX} of {} links that carried packets", count(used as u64))
        } else {
            format!("All {used} links that carried packets")
        };
        let all = link_table("Links that carried packets", header, &busy);
        html.push_str(&folded(&label, &all));
    }
    html
}

fn link_table(caption: &str, header: &Header, links: &[(usize, &LinkSummary)]) -> String {
    let head =
        "Link|Rate, delay, queue|Used|Throughput|Dropped|Drop ratio|Causes|Queue mean|Queue max";
    let mut table = HtmlTable::new(caption, 2, &head.split('|').collect::<Vec<_>>());
    for (index, link) in links {
        let about = header.links.get(*index).map_or_else(String::new, |h| {
            format!("{}, {}, {}", rate(h.rate_bps as f64), seconds(h.delay_s), h.queue)
        });
        let [utilisation, throughput, dropped, ratio, mean, max] = link.cells();
        let cells = [
            escape(&format!("{} → {}", link.from, link.to)),
            escape(&about),
            utilisation + &bar(link.utilisation, 0),
            throughput,
            dropped,
            ratio,
            causes(link),
            mean,
            max,
        ];
        table.row("", &cells);
    }
    table.finish()
}

fn causes(link: &LinkSummary) -> String {
    let drops = &link.drops;
    let all = [
        (drops.queue_full, "queue full"),
        (drops.red_early, "RED early"),
        (drops.red_forced, "RED forced"),
        (drops.loss, "lost on the wire"),
        (drops.ttl, "time to live"),
        (drops.no_route, "no route"),
        (drops.listed, "on purpose"),
        (drops.burst, "in bursts"),
        (drops.outage, "while down"),
        (drops.too_long, "for their length"),
    ];
    let happened: Vec<String> = all
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{} {word}", count(*number)))
        .collect();
    if happened.is_empty() { "–".into() } else { happened.join(", ") }
}
