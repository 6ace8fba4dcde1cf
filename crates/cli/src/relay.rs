//! `faircast relay`: connects sites that have no multicast between them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faircast::{
    ConnectionStats, Multicast, NodeLimits, NodeStatus, ProgramHost, RUNS_PROGRAMS, Refusals,
    RelayAbove, RelayBuilder, RelayReport, RelaySecret, RelayServer, RelayStatus, SocketSettings,
    UplinkState, program_host,
};
use faircast_base::escaped;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::args::{RelayArgs, RelayStatusArgs, RelayVerb};
use crate::error::{Failure, Result, print};
use crate::interrupt::{interrupted, listen};
use crate::live::metrics::{
    Figure, Labels, counters, gauges, labelled_gauges, other_answer, traffic,
};
use crate::live::words::{bytes, rate};
use crate::live::{self, Above, Output};

pub(crate) fn relay(args: &RelayArgs) -> Result {
    let listen_at = match (&args.verb, args.listen) {
        (Some(RelayVerb::Status(status)), _) => {
            return live::runtime()?.block_on(print_status(status));
        }
        (None, Some(at)) => at,
        (None, None) => return Err(Failure::usage("--listen: at which address?")),
    };
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args, listen_at))
}

async fn run(args: &RelayArgs, listen_at: SocketAddr) -> Result {
    let watch = &args.watch;
    let listener = live::metrics::listen(watch).await?;
    let parents = live::names("--parent", &args.parent)?;
    let limits = NodeLimits {
        neighbours: args.neighbours_max as usize,
        at_host: args.at_host_max as usize,
        ..NodeLimits::default()
    };
    let name = args.name.clone().unwrap_or_else(live::host_name);
    let mut builder = RelayServer::builder(listen_at).name(&name).parents(parents).limits(limits);
    if let Some(group) = args.group {
        let interfaces = args.interface.iter().map(|name| live::interface(Some(name))).collect();
        let sockets = SocketSettings { hops: args.ttl, ..SocketSettings::default() };
        let multicast = Multicast { interfaces, ..Multicast::new(group) };
        builder = builder.multicast(multicast).sockets(sockets);
    }
    if let Some(key) = live::read_key(&args.key, RelaySecret::read)? {
        builder = builder.key(key);
    }
    for (key, value) in live::options(&args.options)? {
        builder = builder.option(key, value);
    }
    builder = live::with(builder, args.rate_max, RelayBuilder::rate_max);
    let programs = programs(args, listen_at).map_err(Failure::usage)?;
    if let Some(host) = programs {
        builder = builder.programs(host);
    }
    let relay = builder.start().map_err(|error| live::failure(error, false))?;
    if let Some(listener) = listener {
        let (status, document) = (relay.status(), relay.status());
        let fill = move |registry: &mut Registry| metrics(registry, &status.borrow());
        let document = move || Some(json_of(document.borrow().report.as_ref()?).to_string());
        live::metrics::serve(listener, fill, document);
    }
    let reporter = Reporter {
        output: Output::new(watch),
        neighbours: BTreeSet::new(),
        above: Above::new(),
        refused: (0, None),
    };
    let local = relay.local_address();
    reporter.output.tell(
        "listening",
        &format!("relaying at {local}"),
        json!({
            "at": local.to_string(),
            "parents": args.parent,
            "group": args.group.map(|group| group.to_string()),
        }),
    )?;
    if args.key.key.is_none() && !listen_at.ip().is_loopback() {
        reporter.output.warn(
            "without --key anybody who reaches this address may send and receive through it",
        )?;
    }
    watch_until_end(relay, reporter).await
}

async fn watch_until_end(relay: RelayServer, mut reporter: Reporter) -> Result {
    let status = relay.status();
    let mut closing = false;
    loop {
        tokio::time::sleep(STATUS_INTERVAL).await;
        let is_closed = status.has_changed().is_err();
        let now = status.borrow().clone();
        reporter.update(&now)?;
        if now.ended {
            return now.failed.map_or(Ok(()), |error| Err(Failure::Work(error)));
        }
        if is_closed {
            return Err(Failure::work(
                "the relay has ended by a fault of faircast; the lines above have it",
            ));
        }
        if interrupted() && !closing {
            closing = true;
            relay.close();
        }
    }
}

/// Returns the host for the programs of sessions. An open relay runs signed programs only.
fn programs(
    args: &RelayArgs,
    listen_at: SocketAddr,
) -> Result<Option<Arc<dyn ProgramHost>>, faircast::Error> {
    let closed = args.key.key.is_some() || listen_at.ip().is_loopback();
    match &args.signers[..] {
        [] if closed && RUNS_PROGRAMS => program_host(None).map(Some),
        [] => Ok(None),
        signers => program_host(Some(signers)).map(Some),
    }
}

fn json_of(report: &RelayReport) -> Value {
    let RelayReport { node, above, addresses, .. } = report;
    let neighbours = node.neighbours.iter().map(|it| {
        let mut json = json!({
            "address": addresses.get(&it.at).map(ToString::to_string),
            "name": it.name,
            "version": it.software,
            "is": kind(it.is_relay),
            "groups": it.groups,
            "receivers": it.receivers,
            "multicast": it.multicast,
        });
        connection_json(&mut json, &it.connection);
        json
    });
    let neighbours: Vec<Value> = neighbours.collect();
    let parent = above.as_ref().map(|above| {
        let name = match &above.state {
            UplinkState::Attached(name) => Some(name),
            _ => None,
        };
        let mut json = json!({ "relay": above.at, "attached": name.is_some(), "name": name });
        if let Some(connection) = &above.connection {
            connection_json(&mut json, connection);
        }
        json
    });
    json!({
        "parent": parent,
        "neighbours": neighbours,
        "sessions": node.served.sessions,
        "plain_sessions": node.served.plain,
        "programs": node.served.programs,
        "programs_failed": node.served.failed,
        "held_packets": node.held,
        "packets_in": node.received,
        "packets_out": node.sent,
        "bytes_out": report.counters.sent.bytes,
        "lost": node.refused.lost,
    })
}

fn connection_json(json: &mut Value, connection: &ConnectionStats) {
    json["rtt_ms"] = json!(connection.rtt.as_secs_f64() * 1e3);
    json["window_bytes"] = json!(connection.window_bytes);
    json["sent_bytes"] = json!(connection.sent_bytes);
    json["sent_bits_per_s"] = json!(connection.sent_bits_per_s);
    json["queued_bytes"] = json!(connection.queued_bytes);
    json["sent_packets"] = json!(connection.sent_packets);
    json["lost_packets"] = json!(connection.lost_packets);
    json["mtu_bytes"] = json!(connection.mtu_bytes);
}

const fn kind(is_relay: bool) -> &'static str {
    if is_relay { "relay" } else { "host" }
}

async fn print_status(args: &RelayStatusArgs) -> Result {
    let status = live::metrics::status(args.at, "").await?;
    let neighbours = status["neighbours"].as_array().ok_or_else(|| other_answer(args.at))?;
    if args.json {
        // Serialised again, so that no control characters reach the terminal.
        return print(&format!("{status}\n"));
    }
    let word = |value: &Value| escaped(value.as_str().unwrap_or_default()).into_owned();
    let connection = |it: &Value| {
        let rtt = it["rtt_ms"].as_f64().unwrap_or_default();
        let sent = rate(it["sent_bits_per_s"].as_f64().unwrap_or_default());
        let queued = bytes(it["queued_bytes"].as_u64().unwrap_or_default());
        format!("round trip {rtt:.1} ms, sends {sent}, {queued} wait")
    };
    let above = match &status["parent"] {
        Value::Null => "the uppermost relay".to_string(),
        parent if parent["attached"] == true => {
            format!("below {}, {}", word(&parent["relay"]), connection(parent))
        }
        parent => format!("not attached; it asks {}", word(&parent["relay"])),
    };
    let mut out = format!("{}: {above}\n", args.at);
    for (name, key) in [
        ("sessions under credits", "sessions"),
        ("sessions without a program for them", "plain_sessions"),
        ("programs of sessions kept", "programs"),
        ("sessions whose programs were refused or failed", "programs_failed"),
        ("packets that wait", "held_packets"),
        ("packets in", "packets_in"),
        ("packets out", "packets_out"),
        ("bytes out", "bytes_out"),
        ("packets that had nowhere to go", "lost"),
    ] {
        out += &format!("  {name}: {}\n", status[key]);
    }
    out += &format!("  attached: {}\n", neighbours.len());
    for it in neighbours {
        let (is, address, name) = (word(&it["is"]), word(&it["address"]), word(&it["name"]));
        let (groups, receivers) = (&it["groups"], &it["receivers"]);
        let by = if it["multicast"] == true { ", by multicast" } else { "" };
        out += &format!("    {is} {name} at {address}, {}, groups: {groups}, ", connection(it));
        out += &format!("receivers: {receivers}{by}\n");
    }
    print(&out)
}

struct Reporter {
    output: Output,
    /// Reported neighbours: address, name, and true for a relay.
    neighbours: BTreeSet<(SocketAddr, String, bool)>,
    above: Above,
    refused: (u64, Option<Instant>),
}

impl Reporter {
    fn update(&mut self, status: &RelayStatus) -> Result {
        let Some(report) = &status.report else { return Ok(()) };
        let neighbours =
            report.node.neighbours.iter().filter_map(|it| {
                Some((*report.addresses.get(&it.at)?, it.name.clone(), it.is_relay))
            });
        let now: BTreeSet<_> = neighbours.collect();
        let tell = |event, (address, name, is_relay): &(SocketAddr, String, bool), what| {
            let kind = kind(*is_relay);
            let json = json!({ "neighbour": address.to_string(), "name": name, "is": kind });
            let name = escaped(name);
            self.output.tell(event, &format!("{kind} {name} at {address} {what}"), json)
        };
        now.difference(&self.neighbours).try_for_each(|it| tell("attached", it, "is attached"))?;
        self.neighbours.difference(&now).try_for_each(|it| tell("gone", it, "is gone"))?;
        self.neighbours = now;
        let refused = report.node.refused.unauthenticated;
        let (reported, at) = self.refused;
        if refused > reported && at.is_none_or(|at| at.elapsed() >= REFUSAL_INTERVAL) {
            self.refused = (refused, Some(Instant::now()));
            self.output.warn(&format!(
                "{refused} connections of hosts or relays without this key were refused so far: \
                 give them the same --key"
            ))?;
        }
        self.above.update(&self.output, report.above.as_ref())
    }
}

fn metrics(registry: &mut Registry, status: &RelayStatus) {
    let Some(report) = &status.report else { return };
    let RelayReport { node, above, .. } = report;
    traffic(registry, &report.counters, &Refusals::default());
    let NodeStatus { neighbours, served, refused, .. } = node;
    let relays = neighbours.iter().filter(|it| it.is_relay).count();
    let receivers: u32 = neighbours.iter().map(|it| it.receivers).sum();
    let multicast = neighbours.iter().filter(|it| it.multicast).count();
    let is_attached = |it: &RelayAbove| matches!(it.state, UplinkState::Attached(_));
    let attached = if above.as_ref().is_some_and(is_attached) { 1.0 } else { 0.0 };
    neighbour_metrics(registry, report);
    let plain = "Sessions that pass as by any router, without a program";
    let all = [
        ("relay_hosts", "Hosts that are attached", (neighbours.len() - relays) as f64),
        ("relay_relays", "Relays that are attached", relays as f64),
        ("relay_multicast", "Hosts that have a group by multicast", multicast as f64),
        ("relay_receivers", "Receivers at them or behind them", f64::from(receivers)),
        ("relay_attached", "Whether it is attached to a relay above", attached),
        ("relay_held_packets", "Packets that wait for their turn", node.held as f64),
        ("relay_sessions", "Sessions under credits", served.sessions as f64),
        ("relay_plain_sessions", plain, served.plain as f64),
        ("relay_programs", "Programs of sessions that are kept", served.programs as f64),
    ];
    gauges(registry, all);
    let unauthenticated = "Connections of hosts and relays without the key";
    let failed = "Sessions whose programs were refused or have failed";
    let all = [
        ("relay_packets_in", "Packets of sessions that came", node.received),
        ("relay_packets_out", "Packets of sessions that left", node.sent),
        ("relay_refused_foreign", "Datagrams of no connection", refused.foreign),
        ("relay_refused_malformed", "Connections that broke the protocol", refused.malformed),
        ("relay_refused_unauthenticated", unauthenticated, refused.unauthenticated),
        ("relay_refused_unknown", "Packets of groups without their neighbour", refused.unknown),
        ("relay_refused_full", "Requests for which there was no room", refused.full),
        ("relay_refused_loops", "Requests of relays above this one", refused.loops),
        ("relay_refused_misplaced", "Packets of a node that is elsewhere", refused.misplaced),
        ("relay_programs_failed", failed, served.failed),
        ("relay_lost", "Packets that had nowhere to go", refused.lost),
    ];
    counters(registry, all);
}

fn neighbour_metrics(registry: &mut Registry, report: &RelayReport) {
    let labels =
        |name: &str, address: String| vec![("name", name.to_string()), ("address", address)];
    let neighbours = report.node.neighbours.iter().map(|neighbour| {
        let address = report.addresses.get(&neighbour.at).map(ToString::to_string);
        (labels(&neighbour.name, address.unwrap_or_default()), neighbour.connection)
    });
    let above = report.above.iter().filter_map(|above| {
        let UplinkState::Attached(name) = &above.state else { return None };
        Some((labels(name, above.at.clone()), above.connection?))
    });
    let all: Vec<(Labels, ConnectionStats)> = neighbours.chain(above).collect();
    let figures: [Figure<ConnectionStats>; 7] = [
        ("rtt_seconds", "Smoothed round trip", |it| it.rtt.as_secs_f64()),
        ("window_bytes", "Congestion window", |it| it.window_bytes as f64),
        ("sent_bytes", "Bytes that were sent", |it| it.sent_bytes as f64),
        ("sent_bits_per_second", "Rate of these bytes", |it| it.sent_bits_per_s as f64),
        ("queued_bytes", "Bytes of packets that wait", |it| it.queued_bytes as f64),
        ("sent_packets", "QUIC packets that were sent", |it| it.sent_packets as f64),
        ("lost_packets", "QUIC packets that were lost", |it| it.lost_packets as f64),
    ];
    labelled_gauges(registry, "relay_neighbour", &all, &figures);
}

const STATUS_INTERVAL: Duration = Duration::from_millis(200);
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);
