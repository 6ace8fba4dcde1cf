//! Traces of live sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faircast_base::{Event, FlowId, NodeId, Time};
use faircast_trace::{
    FlowHeader, Header, On, Outcome, Record, SCHEMA_VERSION, Sink, Subject, Writer,
};
use parking_lot::Mutex;

use crate::{Error, Result};

/// Trace whose header is known only at the end; until then a file beside it keeps the records.
#[derive(Clone)]
pub(crate) struct LiveTrace(Arc<Mutex<Inner>>);

struct Inner {
    path: PathBuf,
    part_path: PathBuf,
    writer: Option<Writer<BufWriter<File>>>,
    nodes: Nodes,
    records: u64,
    last_at: Time,
}

#[derive(Default)]
struct Nodes {
    known: BTreeMap<Option<NodeId>, NodeId>,
    /// True if nodes beyond the limit share a number.
    has_others: bool,
}

#[derive(Default)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) scheme: String,
    pub(crate) names: BTreeMap<NodeId, String>,
    pub(crate) aliases: BTreeMap<NodeId, NodeId>,
    pub(crate) intact: BTreeSet<NodeId>,
    pub(crate) packet_bytes: u64,
    pub(crate) interrupted: bool,
}

impl LiveTrace {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let failed = |error| Error::Trace { path: path.to_owned(), error };
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part_path = path.with_file_name(name);
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let file = File::create(&part_path).map_err(failed)?;
        let writer = Writer::headless(BufWriter::new(file));
        Ok(Self(Arc::new(Mutex::new(Inner {
            path: path.to_owned(),
            part_path,
            writer: Some(writer),
            nodes: Nodes::default(),
            records: 0,
            last_at: Time::ZERO,
        }))))
    }

    pub(crate) fn finish(&self, about: &About) -> Result {
        let mut inner = self.0.lock();
        let path = inner.path.clone();
        inner.finish(about).map_err(|error| Error::Trace { path, error })
    }
}

pub(crate) fn finish(trace: Option<&LiveTrace>, about: impl FnOnce() -> About) {
    if let Some(Err(error)) = trace.map(|trace| trace.finish(&about())) {
        tracing::error!("{error}");
    }
}

impl Sink for LiveTrace {
    fn record(&mut self, record: &Record) {
        let mut inner = self.0.lock();
        let Inner { writer, nodes, records, last_at, .. } = &mut *inner;
        let subject = match record.subject {
            Subject::Endpoint { node, sender, .. } => {
                let node = if sender { nodes.source() } else { nodes.number(node) };
                Subject::Endpoint { flow: FlowId(0), node, sender }
            }
            Subject::Node(node) => Subject::Node(nodes.number(node)),
            link @ Subject::Link(_) => link,
        };
        let event = match record.event {
            Event::AckReceived { seq, bytes, from } => {
                Event::AckReceived { seq, bytes, from: nodes.number(from) }
            }
            Event::NakReceived { seq, count, from } => {
                Event::NakReceived { seq, count, from: nodes.number(from) }
            }
            Event::Representative { node, reason } => {
                Event::Representative { node: node.map(|node| nodes.number(node)), reason }
            }
            Event::RepairHead { node, level } => {
                Event::RepairHead { node: node.map(|node| nodes.number(node)), level }
            }
            Event::Incomplete { node, receivers, reason } => {
                let node = node.map(|node| nodes.number(node));
                Event::Incomplete { node, receivers, reason }
            }
            Event::RttSample { node, rtt_ns } => {
                Event::RttSample { node: nodes.number(node), rtt_ns }
            }
            other => other,
        };
        *records += 1;
        *last_at = record.at;
        if let Some(writer) = writer {
            writer.record(&Record { at: record.at, subject, event });
        }
    }
}

impl Inner {
    fn finish(&mut self, about: &About) -> io::Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let source = self.nodes.source();
        let known = &self.nodes.known;
        let itself = |who: Option<NodeId>| {
            let other = about.aliases.get(&who?)?;
            known.get(&Some(*other)).copied()
        };
        let mut names: Vec<String> = vec![String::new(); known.len()];
        let (mut to, mut intact) = (Vec::new(), Vec::new());
        for (who, number) in known.iter().filter(|(who, _)| itself(**who).is_none()) {
            let name = match who {
                None => "sender".to_string(),
                Some(node) => {
                    to.push(*number);
                    intact.push(about.intact.contains(node).then_some(true));
                    match about.names.get(node).filter(|name| !name.is_empty()) {
                        Some(name) => name.clone(),
                        None => format!("node {}", number.0),
                    }
                }
            };
            names[number.index()] = unique(&name, &names);
        }
        for (who, number) in known {
            if let Some(other) = itself(*who) {
                names[number.index()] = names[other.index()].clone();
            }
        }
        if self.nodes.has_others {
            names.resize((NODES_MAX + 1) as usize, String::new());
            names.push("others".to_string());
        }
        let header = Header {
            schema: SCHEMA_VERSION,
            faircast: env!("CARGO_PKG_VERSION").to_string(),
            scenario: about.name.clone(),
            title: about.title.clone(),
            text: String::new(),
            on: On::Net,
            seed: 0,
            duration_s: self.last_at.as_secs_f64(),
            warmup_s: 0.0,
            links: Vec::new(),
            clients: Vec::new(),
            flows: vec![FlowHeader {
                name: about.name.clone(),
                protocol: about.scheme.clone(),
                from: source,
                to,
                packet_bytes: about.packet_bytes,
                ..FlowHeader::default()
            }],
            nodes: names,
        };
        let outcome = Outcome {
            at: self.last_at,
            interrupted: about.interrupted,
            wall_s: self.last_at.as_secs_f64(),
            events: self.records,
            intact: vec![intact],
            ..Outcome::default()
        };
        writer.finish(&outcome)?.flush()?;
        let mut whole = Writer::new(BufWriter::new(File::create(&self.path)?), &header)?.part()?;
        io::copy(&mut File::open(&self.part_path)?, &mut whole)?;
        whole.flush()?;
        std::fs::remove_file(&self.part_path)
    }
}

impl Nodes {
    fn source(&mut self) -> NodeId {
        let next = NodeId(self.known.len() as u32);
        *self.known.entry(None).or_insert(next)
    }

    fn number(&mut self, node: NodeId) -> NodeId {
        let next = NodeId(self.known.len() as u32);
        if next.0 >= NODES_MAX && !self.known.contains_key(&Some(node)) {
            self.has_others = true;
            // Number above all known nodes and the source.
            return NodeId(NODES_MAX + 1);
        }
        *self.known.entry(Some(node)).or_insert(next)
    }
}

const NODES_MAX: u32 = 1024;

fn unique(name: &str, taken: &[String]) -> String {
    let all = (1..).map(|i| if i == 1 { name.to_string() } else { format!("{name} ({i})") });
    let mut free = all.filter(|name| !taken.contains(name));
    free.next().expect("the numbers do not end")
}
