//! What can be named in a scenario: one row per scheme, one row per program for routers. Adding a
//! scheme is its folder, its page and its row here.

use alloc::boxed::Box;

use faircast_base::{FlowId, NodeId, Time};

use crate::Machine;
use crate::content::Content;
use crate::endpoint::{self, PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::options::{OptionSpec, Options};
use crate::promises::Promises;
use crate::relay::{ElementConfig, PGM_ELEMENT_OPTIONS, PgmElement, RelayProgram};
use crate::schemes::pgmcc::{self, PgmccConfig, PgmccReceiver, PgmccSender};
use crate::wire::pgm::{Gsi, Nla, Tsi};

/// A scheme: a protocol that a multicast flow can run.
#[derive(Clone, Copy, Debug)]
pub struct SchemeEntry {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its settings and those of the transport below it.
    pub options: &'static [OptionSpec],
    /// What it promises to the network.
    pub promises: Promises,
    /// Makes the sending end.
    pub sender: fn(SenderSetup<'_>) -> Box<dyn Machine>,
    /// Makes a receiving end.
    pub receiver: fn(ReceiverSetup<'_>) -> Box<dyn Machine>,
}

/// What the sending end of a flow is made from.
pub struct SenderSetup<'a> {
    /// The flow.
    pub flow: FlowId,
    /// The node that it runs on.
    pub node: NodeId,
    /// When it begins.
    pub start: Time,
    /// Bytes of payload in every data packet but the last; 1 to 65535.
    pub payload: u32,
    /// What it sends.
    pub content: Box<dyn Content>,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

/// What a receiving end of a flow is made from.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSetup<'a> {
    /// The flow.
    pub flow: FlowId,
    /// The node that it runs on.
    pub node: NodeId,
    /// The node of the sending end.
    pub source: NodeId,
    /// When it joins.
    pub start: Time,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

/// A program that a router can run beside forwarding.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEntry {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its settings.
    pub options: &'static [OptionSpec],
    /// Makes the program of the router at a node, with settings checked against its table.
    pub program: fn(NodeId, &Options) -> Box<dyn RelayProgram>,
}

/// All schemes.
pub const SCHEMES: &[SchemeEntry] = &[SchemeEntry {
    name: "pgmcc",
    about: "window control between the sender and the slowest receiver, over PGM",
    options: &PGMCC_OPTIONS,
    promises: pgmcc::PROMISES,
    sender: pgmcc_sender,
    receiver: pgmcc_receiver,
}];

/// All programs for routers.
pub const PROGRAMS: &[ProgramEntry] = &[ProgramEntry {
    name: "pgm-element",
    about: "PGM network element: confirms and aggregates NAKs, constrains repairs",
    options: PGM_ELEMENT_OPTIONS,
    program: pgm_element,
}];

/// The scheme of this name.
pub fn scheme(name: &str) -> Option<&'static SchemeEntry> {
    SCHEMES.iter().find(|entry| entry.name == name)
}

/// The program of this name.
pub fn program(name: &str) -> Option<&'static ProgramEntry> {
    PROGRAMS.iter().find(|entry| entry.name == name)
}

const PGMCC_OPTIONS: [OptionSpec; pgmcc::OPTIONS.len() + endpoint::OPTIONS.len()] =
    joined(pgmcc::OPTIONS, endpoint::OPTIONS);

/// Two tables as one; `N` is the sum of their lengths.
const fn joined<const N: usize>(first: &[OptionSpec], second: &[OptionSpec]) -> [OptionSpec; N] {
    assert!(N == first.len() + second.len());
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

fn pgmcc_sender(setup: SenderSetup<'_>) -> Box<dyn Machine> {
    let control = PgmccSender::new(PgmccConfig::from_options(setup.options));
    let (group, tsi) = (group(setup.flow), session(setup.flow, setup.node));
    let config = SourceConfig {
        start: setup.start,
        payload: setup.payload,
        ..SourceConfig::from_options(setup.node, group, tsi, setup.options)
    };
    Box::new(PgmSource::new(config, setup.content, control))
}

fn pgmcc_receiver(setup: ReceiverSetup<'_>) -> Box<dyn Machine> {
    let feedback = PgmccReceiver::new(PgmccConfig::from_options(setup.options), setup.node);
    let config = ReceiverConfig {
        start: setup.start,
        tsi: Some(session(setup.flow, setup.source)),
        ..ReceiverConfig::from_options(group(setup.flow), setup.options)
    };
    Box::new(PgmReceiver::new(config, feedback))
}

fn pgm_element(node: NodeId, options: &Options) -> Box<dyn RelayProgram> {
    Box::new(PgmElement::new(node, ElementConfig::from_options(options)))
}

/// The PGM session of a flow: its source by node, its port by flow. Both ends compute the same.
fn session(flow: FlowId, source: NodeId) -> Tsi {
    let [a, b, c, d] = source.0.to_be_bytes();
    // "fc", for faircast: not the id that another implementation would make from a host name.
    let gsi = Gsi([b'f', b'c', a, b, c, d]);
    // The upper half of the port numbers, so that none is the data-destination port.
    Tsi { gsi, port: 0x8000 | (flow.0 & 0x7fff) as u16 }
}

/// The group of a flow, in the organisation-local block 239.192.0.0/14 of RFC 2365.
fn group(flow: FlowId) -> Nla {
    Nla::V4((0xefc0_0001 + (flow.0 & 0x1_ffff)).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Zeros;
    use crate::options::OptionValue;
    use alloc::string::ToString;
    use faircast_base::Duration;

    #[test]
    fn names_and_keys_are_unique_and_every_row_builds() {
        let start = Time::ZERO + Duration::from_secs(3);
        for (i, entry) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..i].iter().all(|other| other.name != entry.name));
            for (j, spec) in entry.options.iter().enumerate() {
                let same = |other: &OptionSpec| other.name == spec.name;
                assert!(!entry.options[..j].iter().any(same), "{}: {}", entry.name, spec.name);
            }
            let options = Options::default();
            let (flow, source) = (FlowId(0), NodeId(0));
            let content = Box::new(Zeros { len: None });
            let (payload, options) = (1400, &options);
            let sender = SenderSetup { flow, node: source, start, payload, content, options };
            assert_eq!((entry.sender)(sender).next_timeout(), Some(start));
            let receiver = ReceiverSetup { flow, node: NodeId(1), source, start, options };
            assert_eq!((entry.receiver)(receiver).next_timeout(), Some(start));
            assert_eq!(scheme(entry.name).map(|found| found.name), Some(entry.name));
        }
        for (i, entry) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS[..i].iter().all(|other| other.name != entry.name));
            let program = (entry.program)(NodeId(1), &Options::default());
            assert_eq!(program.next_timeout(), None);
        }
        assert!(scheme("nothing").is_none() && program("nothing").is_none());
    }

    #[test]
    fn settings_of_scheme_and_transport_are_checked_in_one_table() {
        let checked = |key: &str, value: OptionValue| {
            Options::checked([(key.to_string(), value)], scheme("pgmcc").unwrap().options)
        };
        assert!(checked("acker_bias", OptionValue::Float(0.6666)).is_ok());
        assert!(checked("reliable", OptionValue::Bool(false)).is_ok());
        let error = checked("acker_bais", OptionValue::Float(0.6666)).unwrap_err();
        assert!(error.to_string().contains("acker_bias"), "{error}");
    }

    #[test]
    fn sessions_differ_by_source_and_flow() {
        let all = [(0, 0), (0, 1), (1, 0), (1, 1), (70_000, 0)];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let session = |x: &(u32, u32)| session(FlowId(x.0), NodeId(x.1));
                assert_ne!(session(a), session(b));
            }
        }
        assert_ne!(group(FlowId(0)), group(FlowId(1)));
        assert_eq!(group(FlowId(0)), Nla::V4([239, 192, 0, 1]));
    }
}
