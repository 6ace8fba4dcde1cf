//! `faircast relay`: joins sites without multicast between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use faircast::{
    Attachment, HopSettings, HopStatus, Multicast, ProgramHost, RUNS_PROGRAMS, Refusals,
    RelayServer, RelayStatus, SocketSettings, program_host,
};
use faircast_base::escaped;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::args::{RelayArgs, RelayStatusArgs, RelayVerb};
use crate::error::{Failure, print};
use crate::live::metrics::{counter, gauge, traffic};
use crate::live::{self, Above, Output};
use crate::progress::{interrupted, listen};

/// Works until it is interrupted.
pub(crate) fn relay(args: &RelayArgs) -> Result<(), Failure> {
    let listen_at = match (&args.verb, args.listen) {
        (Some(RelayVerb::Status(status)), _) => return live::runtime()?.block_on(tell(status)),
        (None, Some(at)) => at,
        (None, None) => return Err(Failure::Usage("--listen: at which address?".to_string())),
    };
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args, listen_at))
}

async fn run(args: &RelayArgs, listen_at: SocketAddr) -> Result<(), Failure> {
    let watch = &args.watch;
    let listener = live::metrics::listen(watch).await?;
    let parents = live::hosts("--parent", &args.parent, listen_at.is_ipv6())?;
    let limits = HopSettings {
        neighbours_max: args.neighbours_max as usize,
        at_host_max: args.at_host_max,
        ..HopSettings::default()
    };
    let mut builder = RelayServer::builder(listen_at).parents(parents).limits(limits);
    if let Some(group) = args.group {
        let interfaces = args.interface.iter().map(|name| live::interface(Some(name))).collect();
        let sockets = SocketSettings { hops: args.ttl, ..SocketSettings::default() };
        let multicast = Multicast { interfaces, ..Multicast::new(group) };
        builder = builder.multicast(multicast).sockets(sockets);
    }
    if let Some(key) = live::read_key(&args.key)? {
        builder = builder.key(key);
    }
    for (key, value) in live::options(&args.options)? {
        builder = builder.option(key, value);
    }
    let programs = programs(args, listen_at).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(host) = programs {
        builder = builder.programs(host);
    }
    let relay = builder.start().map_err(|error| live::failure(error, false))?;
    let status = relay.status();
    if let Some(listener) = listener {
        let (status, document) = (relay.status(), relay.status());
        let fill = move |registry: &mut Registry| metrics(registry, &status.borrow());
        let document = move || Some(json_of(&document.borrow().hop).to_string());
        live::metrics::serve_with(listener, fill, document);
    }
    let mut show =
        Show { output: Output::new(watch), neighbours: BTreeMap::new(), above: Above::new() };
    let local = relay.local_address();
    show.output.tell(
        "listening",
        &format!("relaying at {local}"),
        json!({
            "at": local.to_string(),
            "parents": args.parent,
            "group": args.group.map(|group| group.to_string()),
        }),
    )?;
    if args.key.key.is_none() && !listen_at.ip().is_loopback() {
        show.output.warn(
            "without --key anybody who reaches this address may send and receive through it",
        )?;
    }
    let mut closing = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = status.borrow().clone();
        show.update(&now)?;
        if now.ended {
            return now.failed.map_or(Ok(()), |error| Err(Failure::Work(error)));
        }
        if interrupted() && !closing {
            closing = true;
            relay.close();
        }
    }
}

/// What runs the programs of sessions. Where anybody can send, nobody's are run whom nobody vouches for.
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

fn json_of(hop: &HopStatus) -> Value {
    let neighbours = hop.neighbours.iter().map(|it| {
        json!({
            "address": it.address.to_string(),
            "is": if it.is_relay { "relay" } else { "host" },
            "groups": it.groups,
            "receivers": it.receivers,
            "multicast": it.multicast,
        })
    });
    let neighbours: Vec<Value> = neighbours.collect();
    let parent = hop.parent.map(|(relay, state)| {
        json!({ "relay": relay.to_string(), "attached": state == Attachment::Attached })
    });
    json!({
        "parent": parent,
        "neighbours": neighbours,
        "sessions": hop.served.sessions,
        "plain_sessions": hop.served.plain,
        "programs": hop.served.programs,
        "programs_failed": hop.served.failed,
        "held_packets": hop.held,
        "frames_in": hop.received,
        "frames_out": hop.sent,
        "bytes_out": hop.sent_bytes,
        "lost": hop.refused.lost,
    })
}

/// Asks a relay how it stands, and prints that.
async fn tell(args: &RelayStatusArgs) -> Result<(), Failure> {
    let text = live::metrics::status(args.at)
        .await
        .map_err(|error| Failure::Work(format!("{}: {error}", args.at)))?;
    let other = || Failure::Work(format!("{}: it answers with something else", args.at));
    let status: Value = serde_json::from_str(&text).map_err(|_| other())?;
    let neighbours = status["neighbours"].as_array().ok_or_else(other)?;
    if args.json {
        // Written anew: nothing in it moves a terminal's cursor.
        return print(&format!("{status}\n"));
    }
    let word = |value: &Value| escaped(value.as_str().unwrap_or_default()).into_owned();
    let above = match &status["parent"] {
        Value::Null => "the uppermost relay".to_string(),
        parent if parent["attached"] == true => format!("below {}", word(&parent["relay"])),
        parent => format!("not attached; it asks {}", word(&parent["relay"])),
    };
    let mut out = format!("{}: {above}\n", args.at);
    for (name, key) in [
        ("sessions under credits", "sessions"),
        ("sessions without a program for them", "plain_sessions"),
        ("programs of sessions kept", "programs"),
        ("sessions whose programs were refused or failed", "programs_failed"),
        ("packets that wait", "held_packets"),
        ("packets in", "frames_in"),
        ("packets out", "frames_out"),
        ("bytes out", "bytes_out"),
        ("packets that had nowhere to go", "lost"),
    ] {
        out += &format!("  {name}: {}\n", status[key]);
    }
    out += &format!("  attached: {}\n", neighbours.len());
    for it in neighbours {
        let (is, address) = (word(&it["is"]), word(&it["address"]));
        let (groups, receivers) = (&it["groups"], &it["receivers"]);
        let by = if it["multicast"] == true { ", by multicast" } else { "" };
        out += &format!("    {is} {address}, groups: {groups}, receivers: {receivers}{by}\n");
    }
    print(&out)
}

/// Tells who comes and goes.
struct Show {
    output: Output,
    /// Neighbours, and whether each is a relay.
    neighbours: BTreeMap<SocketAddr, bool>,
    above: Above,
}

impl Show {
    fn update(&mut self, status: &RelayStatus) -> Result<(), Failure> {
        let now: BTreeMap<_, _> =
            status.hop.neighbours.iter().map(|it| (it.address, it.is_relay)).collect();
        let what = |is_relay: bool| if is_relay { "relay" } else { "host" };
        for (address, is_relay) in now.iter().filter(|(it, _)| !self.neighbours.contains_key(it)) {
            let what = what(*is_relay);
            let json = json!({ "neighbour": address.to_string(), "is": what });
            self.output.tell("attached", &format!("{what} {address} is attached"), json)?;
        }
        for (address, is_relay) in self.neighbours.iter().filter(|(it, _)| !now.contains_key(it)) {
            let what = what(*is_relay);
            let json = json!({ "neighbour": address.to_string(), "is": what });
            self.output.tell("gone", &format!("{what} {address} is gone"), json)?;
        }
        self.neighbours = now;
        self.above.update(&self.output, status.hop.parent)
    }
}

fn metrics(registry: &mut Registry, status: &RelayStatus) {
    traffic(registry, &status.counters, &Refusals::default());
    let hop = &status.hop;
    let relays = hop.neighbours.iter().filter(|it| it.is_relay).count();
    let receivers: u32 = hop.neighbours.iter().map(|it| it.receivers).sum();
    let multicast = hop.neighbours.iter().filter(|it| it.multicast).count();
    let attached = hop.parent.is_some_and(|(_, state)| state == Attachment::Attached);
    for (name, help, value) in [
        ("relay_hosts", "Hosts that are attached", (hop.neighbours.len() - relays) as f64),
        ("relay_relays", "Relays that are attached", relays as f64),
        ("relay_multicast", "Hosts that have a group by multicast", multicast as f64),
        ("relay_receivers", "Receivers at them or behind them", f64::from(receivers)),
        (
            "relay_attached",
            "Whether it is attached to a relay above",
            f64::from(u8::from(attached)),
        ),
        ("relay_held_packets", "Packets that wait for their turn", hop.held as f64),
        ("relay_sessions", "Sessions under credits", hop.served.sessions as f64),
        (
            "relay_plain_sessions",
            "Sessions that pass as by any router, without a program",
            hop.served.plain as f64,
        ),
        ("relay_programs", "Programs of sessions that are kept", hop.served.programs as f64),
    ] {
        gauge(registry, name, help, value);
    }
    let refused = &hop.refused;
    for (name, help, value) in [
        ("relay_frames_in", "Frames with packets of sessions that came", hop.received),
        ("relay_frames_out", "Frames with packets of sessions that left", hop.sent),
        ("relay_bytes_out", "Bytes of those, without UDP and IP headers", hop.sent_bytes),
        ("relay_refused_malformed", "Frames that make no sense", refused.malformed),
        ("relay_refused_forged", "Frames of somebody without the key", refused.forged),
        ("relay_refused_repeated", "Frames that came before", refused.repeated),
        ("relay_refused_unknown", "Frames of who is not attached", refused.unknown),
        ("relay_refused_full", "Requests for which there was no room", refused.full),
        ("relay_refused_loops", "Requests of relays above this one", refused.loops),
        ("relay_refused_misplaced", "Frames of a node that is elsewhere", refused.misplaced),
        (
            "relay_programs_failed",
            "Sessions whose programs were refused or have failed",
            hop.served.failed,
        ),
        ("relay_lost", "Frames that had nowhere to go", refused.lost),
    ] {
        counter(registry, name, help, value);
    }
}

const LOOK: Duration = Duration::from_millis(200);
