//! Tables of a run's page: flows, receivers and links.

use faircast_trace::{Header, On};
use maud::{Markup, html};

use super::super::html::{HtmlTable, cell, folded};
use super::all_receivers;
use crate::plots;
use crate::series::Series;
use crate::summary::{FlowCounts, FlowSummary, LinkSummary, ReceiverSummary, Summary};
use crate::table::intact_word;
use crate::text::{DASH, count, or_dash, percent, rate, seconds, spread};

const FLOW_ROWS_MAX: usize = 50;
const RECEIVER_ROWS_MAX: usize = 12;
const WORST_ROWS: usize = 10;
const RECEIVERS_FOLDED_MAX: usize = 500;
const LINK_ROWS_MAX: usize = 12;
const LINKS_FOLDED_MAX: usize = 500;

fn coloured(name: &str, colour: Option<usize>) -> Markup {
    html! {
        @if let Some(c) = colour {
            span.swatch style={ "--swatch:var(--c" (c) ")" } aria-hidden="true" {}
        }
        (name)
    }
}

/// Value with a bar as long as its share of the greatest value.
fn with_bar(value: &str, share: f64, colour: usize) -> Markup {
    let width = (share * 100.0).clamp(0.0, 100.0);
    let style = format!("--w:{width:.1}%;--swatch:var(--c{colour})");
    html! { (value) span.bar style=(style) aria-hidden="true" { i {} } }
}

pub(super) fn flows(summary: &Summary, series: &Series) -> Option<Markup> {
    if summary.flows.is_empty() {
        return None;
    }
    // Shares are comparable only in the shared time: that column comes first and has the bars.
    let shared = summary.shared_time();
    let compared = |flow: &FlowSummary| match shared {
        Some(_) => summary.share_bps(flow),
        None => flow.rates.throughput_bps,
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
    if summary.flows.len() > FLOW_ROWS_MAX {
        for (protocol, flows) in summary.flows_by_protocol() {
            if flows.len() > 3 {
                let values = spread(flows.iter().map(|flow| compared(flow))).unwrap_or_default();
                push_flow_spread(&mut table, &protocol, flows.len(), values, head.len());
            }
        }
    }
    for (index, flow) in summary.flows.iter().enumerate().take(FLOW_ROWS_MAX) {
        let colour = plots::colour_of(series, index);
        let value = compared(flow);
        let names = [
            coloured(&flow.name, colour),
            cell(&flow.protocol),
            with_bar(&rate(value), value / most, colour.unwrap_or(6)),
        ];
        let mut figures = vec![rate(flow.rates.active_throughput_bps)];
        figures.extend(shared.map(|_| rate(flow.rates.throughput_bps)));
        let FlowCounts { sent_packets, repair_packets, timeouts, cuts, .. } = flow.counts;
        let FlowCounts { ack_packets, nak_packets, .. } = flow.counts;
        let counts = [sent_packets, repair_packets, ack_packets, nak_packets, cuts, timeouts];
        figures.extend(counts.map(|value| flow.of_sender(summary.on, value)));
        figures.extend([
            or_dash(flow.loss_ratio.map(percent)),
            or_dash(flow.rtt_mean_s.map(seconds)),
            or_dash(flow.completed_s.map(seconds)),
        ]);
        table.row("", names.into_iter().chain(figures.iter().map(cell)));
    }
    Some(html! {
        div.card { (table.finish()) }
        @if summary.flows.len() > FLOW_ROWS_MAX {
            p.soft.small {
                "The first " (FLOW_ROWS_MAX) " of " (count(summary.flows.len() as u64))
                " flows are listed."
            }
        }
    })
}

fn push_flow_spread(
    table: &mut HtmlTable<'_>,
    protocol: &str,
    flows: usize,
    values: [f64; 3],
    columns: usize,
) {
    for (word, value) in ["Least", "Median", "Greatest"].into_iter().zip(values) {
        let mut cells = vec![String::new(); columns];
        cells[0] = format!("{word} of {}", count(flows as u64));
        cells[1] = protocol.to_owned();
        cells[2] = rate(value);
        table.row("sum", cells);
    }
}

const RECEIVER_HEAD: [&str; 9] = [
    "Receiver",
    "Flow",
    "Goodput",
    "Delivered",
    "Lost",
    "Given up",
    "Loss ratio",
    "Completed",
    "Intact",
];

fn push_receiver(
    table: &mut HtmlTable<'_>,
    on: On,
    flow: &FlowSummary,
    receiver: &ReceiverSummary,
) {
    let names = [cell(&receiver.node), cell(&flow.name)].into_iter();
    let figures = receiver.cells(on).into_iter().map(cell);
    let intact = match receiver.intact {
        Some(false) => html! { strong.bad { "NO" } },
        intact => cell(intact_word(intact)),
    };
    table.row("", names.chain(figures).chain([intact]));
}

pub(super) fn receivers(summary: &Summary) -> Option<Markup> {
    let total = all_receivers(summary).count();
    if total == 0 {
        return None;
    }
    let mut table = HtmlTable::new(
        "Lost: packets that did not arrive in time or late, repaired or not. Given up: never repaired. \
         Goodput is over the counted time, counts and the loss ratio over the whole run. Of many \
         receivers the spread and the worst are shown.",
        2,
        &RECEIVER_HEAD,
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
            let intact = flow.receivers.iter().filter(|r| r.intact == Some(true)).count();
            let mut intact = format!("{} yes", count(intact as u64));
            let total = count(flow.receivers.len() as u64);
            let names = ["Least", "Median", "Greatest"];
            for (cells, word) in flow.receiver_spread(summary.on).into_iter().zip(names) {
                let lead = [format!("{word} of {total}"), flow.name.clone()];
                let last = [std::mem::take(&mut intact)];
                table.row("sum", lead.into_iter().chain(cells).chain(last));
            }
        }
        for receiver in flow.worst_receivers(RECEIVER_ROWS_MAX, WORST_ROWS) {
            push_receiver(&mut table, summary.on, flow, receiver);
            rows += 1;
        }
    }
    Some(html! {
        div.card { (table.finish()) }
        @if is_shortened { (folded_receivers(summary, total)) }
    })
}

fn folded_receivers(summary: &Summary, total: usize) -> Markup {
    let mut all = HtmlTable::new("In the scenario’s order", 2, &RECEIVER_HEAD);
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
    folded(&label, &all.finish())
}

pub(super) fn links(header: &Header, summary: &Summary) -> Option<Markup> {
    let mut busy = summary.busy_links();
    if busy.is_empty() {
        return None;
    }
    let used = busy.len();
    let shown = &busy[..used.min(LINK_ROWS_MAX)];
    let top =
        link_table("In the counted time; those that drop and carry most come first", header, shown);
    busy.truncate(LINKS_FOLDED_MAX);
    let label = if used > LINKS_FOLDED_MAX {
        format!("{LINKS_FOLDED_MAX} of {} links that carried packets", count(used as u64))
    } else {
        format!("All {used} links that carried packets")
    };
    Some(html! {
        div.card { (top) }
        @if used > LINK_ROWS_MAX {
            (folded(&label, &link_table("Links that carried packets", header, &busy)))
        }
    })
}

fn link_table(caption: &str, header: &Header, links: &[(usize, &LinkSummary)]) -> Markup {
    const HEAD: [&str; 9] = [
        "Link",
        "Rate, delay, queue",
        "Used",
        "Throughput",
        "Dropped",
        "Drop ratio",
        "Causes",
        "Queue mean",
        "Queue max",
    ];
    let mut table = HtmlTable::new(caption, 2, &HEAD);
    for (index, link) in links {
        let about = header.links.get(*index).map_or_else(String::new, |h| {
            format!("{}, {}, {}", rate(h.rate_bps as f64), seconds(h.delay_s), h.queue)
        });
        let [utilisation, throughput, dropped, ratio, mean, max] = link.cells();
        let first = [
            html! { (link.from) " → " (link.to) },
            cell(about),
            with_bar(&utilisation, link.utilisation, 0),
        ];
        let figures = [throughput, dropped, ratio, causes(link), mean, max];
        table.row("", first.into_iter().chain(figures.into_iter().map(cell)));
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
    if happened.is_empty() { DASH.into() } else { happened.join(", ") }
}
