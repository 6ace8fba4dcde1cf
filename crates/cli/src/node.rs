//! `faircast node`: a daemon of the overlay.

mod page;
mod rehearse;
mod top;

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use faircast::groups::{Client, GroupEvent, Service};
use faircast_base::escaped;
use faircast_node::{
    ClientAddress, ClientReport, DaemonReport, Inquiry, NeighborReport, NodeConfig, Server,
    StartError, incarnation,
};
use faircast_seal::GroupKey;
use hyper::StatusCode;
use prometheus_client::registry::Registry;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::args::{NodeArgs, NodeInitArgs, NodeStatusArgs, NodeVerb, WatchOptions};
use crate::error::{Failure, Result, print};
use crate::interrupt::{INTERRUPT_INTERVAL, interrupted, listen};
use crate::live::metrics::{
    Figure, JSON, OPEN_METRICS, PLAIN, Page, counters, gauges, labelled_gauges, other_answer,
    serve_pages, text,
};
use crate::live::words::{bytes, hex};
use crate::live::{self, write_new};

const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn node(args: &NodeArgs) -> Result {
    match (&args.verb, &args.config) {
        (Some(NodeVerb::Init(args)), _) => init(args),
        (Some(NodeVerb::Status(args)), _) => live::runtime()?.block_on(print_status(args)),
        (Some(NodeVerb::Rehearse(args)), _) => live::runtime()?.block_on(rehearse::rehearse(args)),
        (Some(NodeVerb::Top(args)), _) => live::runtime()?.block_on(top::top(args)),
        (None, Some(config)) => run(args, config),
        (None, None) => Err(Failure::usage("--config: which file?")),
    }
}

fn run(args: &NodeArgs, config: &Path) -> Result {
    let config = NodeConfig::read(config).map_err(Failure::usage)?;
    let log_json = args.log_json;
    live::begin_log(&WatchOptions { metrics: None, json: false, quiet: false, log_json })?;
    listen();
    live::runtime()?.block_on(serve(config))
}

async fn serve(mut config: NodeConfig) -> Result {
    let name = config.server.name.clone();
    let shown = config.server.clients.len();
    let private = private_address(&config)?;
    config.server.clients.extend(private.iter().map(|it| it.1.clone()));
    let listener = match config.status {
        None => None,
        Some(at) => {
            let bound = TcpListener::bind(at).await;
            Some(bound.map_err(|error| Failure::Work(format!("status {at}: {error}")))?)
        }
    };
    let server = Server::start(config.server).await.map_err(|error| {
        let text = error.to_string();
        match error {
            StartError::NoKey(_) => Failure::Usage(text),
            _ => Failure::Work(text),
        }
    })?;
    let addresses: Vec<String> =
        server.addresses().iter().take(shown).map(ToString::to_string).collect();
    let local = server.local_address();
    print(&format!("{name}: daemons reach it at {local}, clients at {}\n", addresses.join(", ")))?;
    if let Some(listener) = listener {
        let inquiry = server.inquiry();
        let client = server.addresses().iter().find(|it| is_local(it)).cloned();
        serve_pages(listener, move |path| answer(path, inquiry.clone(), client.clone()));
    }
    while !interrupted() {
        if server.has_ended() {
            return Err(Failure::work(
                "the daemon has ended by a fault of faircast; the lines above have it",
            ));
        }
        tokio::time::sleep(INTERRUPT_INTERVAL).await;
    }
    server.close().await;
    Ok(())
}

/// True if clients at this address need no token. The daemon has no token of its own.
fn is_local(address: &ClientAddress) -> bool {
    !matches!(address, ClientAddress::Tls(_))
}

/// Returns an address for the daemon's own connection if all others need a token.
fn private_address(config: &NodeConfig) -> Result<Option<(TempDir, ClientAddress)>> {
    if config.status.is_none() || config.server.clients.iter().any(is_local) {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("faircast-").tempdir();
    let folder =
        folder.map_err(|error| Failure::Work(format!("a folder for /healthz: {error}")))?;
    let address = ClientAddress::Unix(folder.path().join("health.sock"));
    Ok(Some((folder, address)))
}

async fn answer(path: String, inquiry: Inquiry, client: Option<ClientAddress>) -> Option<Page> {
    match path.as_str() {
        "/healthz" => {
            let checked = tokio::time::timeout(HEALTH_TIMEOUT, check(client)).await;
            let late = "no message has come back within 2 s".to_string();
            Some(match checked.unwrap_or(Err(late)) {
                Ok(()) => (StatusCode::OK, PLAIN, "ok\n".to_string()),
                Err(error) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{error}\n")),
            })
        }
        "/status" => {
            let text = serde_json::to_string(&inquiry.report().await?).ok()?;
            Some((StatusCode::OK, JSON, text))
        }
        "/metrics" => {
            let report = inquiry.report().await?;
            let text = text(&|registry: &mut Registry| metrics(registry, &report));
            Some((StatusCode::OK, OPEN_METRICS, text))
        }
        other => page::file(other),
    }
}

async fn check(client: Option<ClientAddress>) -> Result<(), String> {
    let address = client.ok_or("no address of the daemon's own")?.to_string();
    let name = format!("healthz-{:x}", incarnation());
    let client = Client::connect(&address, &name).await.map_err(|error| error.to_string())?;
    let asked = async {
        client.join(&name).await?;
        loop {
            match client.next().await? {
                GroupEvent::Group { .. } => {
                    client.send(Service::Fifo, &[&name], "ok").await?;
                }
                GroupEvent::Message(_) => return Ok(()),
                _ => {}
            }
        }
    };
    let done: Result<(), faircast::groups::GroupError> = asked.await;
    client.close().await;
    done.map_err(|error| error.to_string())
}

fn metrics(registry: &mut Registry, report: &DaemonReport) {
    let connected = report.clients.iter().filter(|it| it.connected).count();
    let queued: usize = report.clients.iter().map(|it| it.queued_bytes).sum();
    let waiting = report.clients.iter().filter(|it| it.waiting.is_some()).count();
    let unstable = report.unstable_bytes;
    let greeted = report.neighbors.iter().filter(|it| it.daemon.is_some()).count();
    let all = [
        ("node_members", "Daemons of the view", report.members.len()),
        ("node_settled", "True if no change of the view is in progress", report.settled.into()),
        ("node_neighbors", "Links to daemons", greeted),
        ("node_peers", "Daemons of the configuration to which links are opened", report.peers),
        ("node_groups", "Groups with members", report.groups.len()),
        ("node_clients", "Clients with a connection", connected),
        ("node_sessions", "Clients with a session", report.clients.len()),
        ("node_clients_waiting", "Clients whose requests wait", waiting),
        ("node_queued_bytes", "Bytes of events that wait for clients", queued),
        ("node_unstable_bytes", "Bytes of messages that not all daemons have", unstable),
    ];
    gauges(registry, all.map(|(name, help, value)| (name, help, value as f64)));
    let it = &report.counters;
    let all = [
        ("node_sessions_begun", "Sessions of clients that have begun", it.sessions),
        ("node_sessions_resumed", "Sessions that were resumed", it.resumed),
        ("node_messages", "Messages of clients of this daemon", it.messages),
        ("node_message_bytes", "Bytes of these messages", it.message_bytes),
        ("node_events", "Events to clients of this daemon", it.events),
        ("node_refused", "Requests that were refused", it.refused),
        ("node_waits", "Requests that had to wait", it.waits),
        ("node_cuts", "Clients that were cut since they were too slow", it.cuts),
        ("node_received_packets", "Datagrams from other daemons", it.received_packets),
        ("node_sent_packets", "Datagrams to other daemons", it.sent_packets),
    ];
    counters(registry, all);
    let label = |text: &Option<String>| text.clone().unwrap_or_default();
    let labels = |link: &NeighborReport| {
        vec![("name", label(&link.daemon)), ("address", label(&link.address))]
    };
    let links: Vec<_> = report.neighbors.iter().map(|link| (labels(link), link)).collect();
    let figures: [Figure<&NeighborReport>; 7] = [
        ("rtt_seconds", "Smoothed round trip", |it| it.rtt_ms / 1e3),
        ("window_bytes", "Congestion window", |it| it.window_bytes as f64),
        ("queued_bytes", "Bytes that wait for the link", |it| it.queued_bytes as f64),
        ("sent_bytes", "Bytes that were sent", |it| it.sent_bytes as f64),
        ("lost_packets", "QUIC packets that were lost", |it| it.lost_packets as f64),
        ("price", "Price of a packet, 0 without flow control", |it| it.price.unwrap_or(0.0)),
        ("queue_packets", "Packets that waited for the link before the last update", |it| {
            it.queue_packets.unwrap_or(0.0)
        }),
    ];
    labelled_gauges(registry, "node_neighbor", &links, &figures);
    purses(registry, report);
}

/// Most clients whose purses are among the metrics; those that waited longest come first.
const PURSES_MAX: usize = 100;

fn purses(registry: &mut Registry, report: &DaemonReport) {
    let mut clients: Vec<_> = report.clients.iter().filter(|it| it.purse.is_some()).collect();
    clients.sort_by_key(|it| std::cmp::Reverse(it.waited_ms));
    let clients = clients.into_iter().take(PURSES_MAX);
    let clients: Vec<_> = clients.map(|it| (vec![("client", it.name.clone())], it)).collect();
    let help = "Time for which messages of a client have waited for money or prices";
    let figures: [Figure<&ClientReport>; 2] = [
        ("purse", "Money of a client in dollars", |it| it.purse.unwrap_or_default()),
        ("blocked_seconds", help, |it| it.waited_ms.unwrap_or_default() as f64 / 1e3),
    ];
    labelled_gauges(registry, "node_client", &clients, &figures);
}

async fn fetch(at: SocketAddr) -> Result<Value> {
    live::metrics::status(at, "; expected the `status` address of a running daemon").await
}

async fn print_status(args: &NodeStatusArgs) -> Result {
    let status = fetch(args.at).await?;
    let other = || other_answer(args.at);
    if args.json {
        // Serialised again, so that no control characters reach the terminal.
        return print(&format!("{status}\n"));
    }
    let word = |value: &Value| escaped(value.as_str().unwrap_or_default()).into_owned();
    let list = |key: &str| status[key].as_array().ok_or_else(other);
    let members: Vec<String> = list("members")?.iter().map(word).collect();
    let changing = if status["settled"] == true { "" } else { ", changing" };
    let mut out =
        format!("{}: view {} of {}", word(&status["name"]), word(&status["view"]), members.len());
    out += &format!(" daemons{changing}: {}\n", members.join(", "));
    let amount = |value: &Value| bytes(value.as_u64().unwrap_or_default());
    let unstable = amount(&status["unstable_bytes"]);
    out += &format!("  messages that not all daemons have: {unstable}\n");
    if let Some(error) = status["name_error"].as_str() {
        out += &format!("  a peer is not found: {}\n", escaped(error));
    }
    let neighbors = list("neighbors")?;
    out += &format!("  links: {} (peers: {})\n", neighbors.len(), status["peers"]);
    for it in neighbors {
        let rtt = it["rtt_ms"].as_f64().unwrap_or_default();
        let name = it["daemon"].as_str().unwrap_or("no daemon yet");
        let (address, queued) = (word(&it["address"]), amount(&it["queued_bytes"]));
        let name = escaped(name);
        let price = it["price"].as_f64().map(|it| format!(", price {it:.2}")).unwrap_or_default();
        out += &format!("    {name} at {address}, round trip {rtt:.1} ms, {queued} wait{price}\n");
    }
    let groups = list("groups")?;
    out += &format!("  groups: {}\n", groups.len());
    for it in groups {
        let (name, members, here) = (word(&it["name"]), &it["members"], &it["here"]);
        out += &format!("    {name}: members: {members}, here: {here}\n");
    }
    let clients = list("clients")?;
    out += &format!("  clients: {}\n", clients.len());
    for it in clients {
        let away = if it["connected"] == true { "" } else { ", away" };
        let queued = amount(&it["queued_bytes"]);
        let waits = it["waiting"].as_str().map(|reason| format!(", its requests wait: {reason}"));
        let waits = waits.unwrap_or_default();
        let purse = it["purse"].as_f64().map(|it| format!(", purse {it:.2}")).unwrap_or_default();
        out += &format!("    {}: {queued} wait{away}{purse}{waits}\n", word(&it["name"]));
    }
    print(&out)
}

fn init(args: &NodeInitArgs) -> Result {
    let (folder, sites) = (&args.folder, usize::from(args.sites));
    if args.hosts.len() > sites {
        let text = format!("--host: {} hosts; expected at most --sites {sites}", args.hosts.len());
        return Err(Failure::Usage(text));
    }
    let example = (args.hosts.len() + 1..=sites).map(|site| format!("site{site}.example"));
    let hosts: Vec<String> = args.hosts.iter().cloned().chain(example).collect();
    std::fs::create_dir_all(folder).map_err(|error| Failure::write(folder, &error))?;
    let random = || GroupKey::random().map_err(Failure::work);
    let file = folder.join("overlay.key");
    random()?.relay().write(&file).map_err(Failure::work)?;
    let mut out = format!("{}: the key of all daemons\n", file.display());
    if args.tls {
        let written = write_certificates(folder, &hosts);
        written.map_err(|error| Failure::Work(format!("--tls: {error}")))?;
        let token = hex(&random()?.relay().bytes());
        let text = format!("# NAME TOKEN, one client a line; * is any name\n* {token}\n");
        let file = folder.join("tokens.txt");
        write_new(&file, 0o600, &text).map_err(|error| Failure::write(&file, &error))?;
        let ca = folder.join("overlay-ca.pem");
        out += &format!("{}: the CA by which clients know daemons\n", ca.display());
        out += &format!("{}: the token of clients\n", file.display());
    }
    for site in 0..sites {
        let file = folder.join(format!("site{}.toml", site + 1));
        let text = NodeConfig::example(site, &hosts, args.tls);
        write_new(&file, 0o666, &text).map_err(|error| Failure::write(&file, &error))?;
        out += &format!("{}: the configuration of a site\n", file.display());
    }
    out += "Replace the example hosts in `peers`. Bring to each site its configuration and the files \
            that it names, and run: faircast node --config FILE\n";
    print(&out)
}

/// Writes a CA without its key, and for each host a certificate of the CA with its key.
fn write_certificates(folder: &Path, hosts: &[String]) -> Result<(), Box<dyn Error>> {
    let put = |name: &str, mode, text: &str| {
        let file = folder.join(name);
        write_new(&file, mode, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca.distinguished_name.push(DnType::CommonName, "CA of a faircast overlay");
    let key = KeyPair::generate()?;
    put("overlay-ca.pem", 0o666, &ca.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(ca, key);
    for (site, host) in (1..).zip(hosts) {
        let mut params = CertificateParams::new([host.clone()])?;
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name.push(DnType::CommonName, host);
        let key = KeyPair::generate()?;
        put(&format!("site{site}.pem"), 0o666, &params.signed_by(&key, &issuer)?.pem())?;
        put(&format!("site{site}-key.pem"), 0o600, &key.serialize_pem())?;
    }
    Ok(())
}
