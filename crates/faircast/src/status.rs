//! Status of senders and receivers for applications: members, progress, outcomes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use faircast_base::{Bitrate, Duration, NodeId, Time};
use faircast_net::{Counters, Live, RelayAbove};
use faircast_proto::Machine;
use faircast_proto::object::{MemberState, MemberStatus, ObjectStatus, PathLimit, TreePlace};
use faircast_seal::Refusals;

use crate::{KeyMismatch, SchemeMismatch};

/// Receiver, as its sender knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Identifier in this session.
    pub id: u64,
    /// Name that the receiver reports; printable, may be empty.
    pub name: String,
    /// Address of the receiver; `None` if forgotten.
    pub address: Option<SocketAddr>,
    /// State of the receiver.
    pub state: MemberState,
    /// Bytes of content that the receiver has.
    pub bytes: u64,
    /// Bytes of content that the receiver had before the transfer.
    pub found: u64,
    /// Share of the transfer's packets that the receiver lost, by its reports: 0 to 1.
    pub loss: f64,
    /// First packet from the receiver, since the start of the session.
    pub since: Duration,
    /// Last packet from the receiver, since the start of the session.
    pub heard: Duration,
    /// Completion of the receiver, since the start of the session.
    pub done: Option<Duration>,
    /// Reason of a failure, as the receiver reports it; printable.
    pub reason: String,
    /// Highest rate of payload that the receiver requests.
    pub rate_max: Option<Bitrate>,
    /// Place in the tree of repair heads, if there is one.
    pub seat: Option<Seat>,
    /// Longest packets that reach the receiver, if longer ones do not.
    pub path: Option<PathLimit>,
    /// True if the receiver limits the rate now.
    pub limits: bool,
    /// True if the receiver was present at the start of content, or was requested by name.
    pub expected: bool,
}

/// Place of an end in a tree of repair heads, and its work there, as the end reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Label of the head; `None` without a head.
    pub head: Option<String>,
    /// Level in the tree: 1 for the sender, its head's plus 1 for a receiver; 0 without a head.
    pub level: u8,
    /// Members that the end repairs for.
    pub members: u32,
    /// Repairs that the end has sent to its members.
    pub repairs: u64,
}

/// Label of the sender as a repair head.
pub const SENDER: &str = "the sender";

impl Seat {
    pub(crate) fn new(place: TreePlace, call: impl Fn(u64) -> Option<String>) -> Self {
        let TreePlace { head, level, members, repairs, .. } = place;
        let named = || call(head).unwrap_or_else(|| format!("{head:016x}"));
        Self { head: (head != 0).then(named), level, members, repairs }
    }
}

impl Member {
    /// Returns the name, or else the address, or else the id.
    pub fn label(&self) -> String {
        match (self.name.is_empty(), self.address) {
            (false, _) => self.name.clone(),
            (true, Some(address)) => address.to_string(),
            (true, None) => format!("{:016x}", self.id),
        }
    }
}

/// Status of a sender.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct SendStatus {
    /// Status of the object; only [`members`](Self::members) has its receivers.
    pub object: ObjectStatus,
    pub elapsed: Duration,
    /// Start of content, since the start of the sender.
    pub begun: Option<Duration>,
    pub members: Vec<Member>,
    /// Requested names that have not been heard yet.
    pub missing: Vec<String>,
    pub traffic: Counters,
    /// Counts of packets refused for lack of the right key.
    pub refusals: Refusals,
    /// Last receiver with another key.
    pub mismatch: Option<KeyMismatch>,
    /// Pairs of live receivers with copies of one folder and identity, by [id](Member::id).
    pub clones: Vec<(u64, u64)>,
    /// Relay above; `None` without relays.
    pub relay: Option<RelayAbove>,
    pub ended: bool,
}

impl SendStatus {
    /// True if all expected receivers have everything, also after a restart under another address.
    pub fn succeeded(&self) -> bool {
        let done = |member: &Member| member.state == MemberState::Done;
        let mut expected = self.members.iter().filter(|member| member.expected).peekable();
        expected.peek().is_some() && self.missing.is_empty() && expected.all(done)
    }

    /// Returns the bytes of the content; if [growing](ObjectStatus::growing), those read so far.
    pub fn bytes_total(&self) -> u64 {
        self.object.bytes_total.unwrap_or_default()
    }

    /// Returns the number of receivers that have everything.
    pub fn done(&self) -> usize {
        self.members.iter().filter(|member| member.state == MemberState::Done).count()
    }
}

/// Incoming object.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Incoming {
    /// Number of the session, in order of arrival at this receiver.
    pub number: u64,
    pub source: Option<SocketAddr>,
    pub scheme: String,
    /// Name of the object; `None` before its list of files is complete.
    pub name: Option<String>,
    /// First packet, since the start of the receiver.
    pub since: Duration,
    /// Last new message of the sender, since the start of the receiver.
    pub heard: Option<Duration>,
    /// Place of this end in the tree of repair heads, if there is one.
    pub seat: Option<Seat>,
    pub object: ObjectStatus,
}

/// File of a received object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ReceivedFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// BLAKE3, as `b3sum` prints it; `None` beyond the first 64 GiB of holes in the object.
    pub blake3: Option<[u8; 32]>,
}

/// Result of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Last status of the object.
    pub last: Incoming,
    /// Duration of the reception.
    pub took: Duration,
    /// Outcome.
    pub outcome: ReceiveOutcome,
    /// Harmless differences to the object, such as modes that the file system does not keep.
    pub remarks: Vec<String>,
}

/// Outcome of the reception of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiveOutcome {
    /// The object is complete, verified by its digests, and in its place.
    Complete {
        /// Files of the object.
        files: Vec<ReceivedFile>,
    },
    /// The content is verified, but the file system cannot store all entries.
    Partial {
        /// Files in their places.
        files: Vec<ReceivedFile>,
        /// First paths that are left out, each with the reason, and the number of further ones.
        left_out: Vec<String>,
        /// Summary of the paths that are left out.
        reason: String,
    },
    /// The sender is gone. Received data is kept for another session.
    SenderGone,
    /// Content changed, or was a pipe, so the sender gave up. A newer version reuses the data.
    GivenUp,
    /// A later object of the same name came from the same host. The state is removed.
    Superseded,
    /// The object cannot be received, for this reason.
    Failed(String),
    /// The sender speaks another scheme.
    OtherScheme(SchemeMismatch),
    /// This end was closed before. Received data is kept for another session.
    Closed,
}

/// Reason to stay, of a receiver that has the object it was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StaysFor {
    /// Objects that began earlier: [`ReceiveStatus::incoming`].
    Objects,
    /// Members of the repair tree, which lack packets.
    Repairs,
    /// Sender without a note of an object's end here.
    Note,
}

/// State of a receiver.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ReceiveStatus {
    pub elapsed: Duration,
    pub incoming: Vec<Incoming>,
    /// Number of objects received whole.
    pub complete: u64,
    /// Reason to stay, of a receiver that has the object it was started for; `None` before.
    pub stays_for: Option<StaysFor>,
    /// Last packet of a source, since the start.
    pub heard: Option<Duration>,
    /// Start of the first accepted object, since the start of the receiver.
    pub begun: Option<Duration>,
    pub traffic: Counters,
    /// Counts of packets refused for lack of the right key.
    pub refusals: Refusals,
    /// Last sender with another key.
    pub mismatch: Option<KeyMismatch>,
    /// Relay above; `None` without relays.
    pub relay: Option<RelayAbove>,
    pub ended: bool,
}

pub(crate) fn members<M: Machine>(
    live: &Live<M>,
    start: Time,
    status: &ObjectStatus,
    is_expected: impl Fn(u64, &str) -> bool,
) -> Vec<Member> {
    let limits = |node: NodeId| status.limiting == Some(node);
    let placed = status.members.iter().filter_map(|member| Some((member.place?.number, member)));
    let names: BTreeMap<u64, &MemberStatus> = placed.collect();
    let call = |number: u64| match names.get(&number) {
        _ if status.place.is_some_and(|own| own.number == number) => Some(SENDER.to_string()),
        Some(member) if !member.name.is_empty() => Some(member.name.clone()),
        Some(member) => live.address(member.node).map(|address| address.to_string()),
        None => None,
    };
    let all = status.members.iter().map(|member| Member {
        id: member.id,
        name: member.name.clone(),
        address: live.address(member.node),
        state: member.state,
        bytes: member.bytes,
        found: member.found,
        loss: member.loss,
        since: member.since.since(start),
        heard: member.heard.since(start),
        done: member.done.map(|at| at.since(start)),
        reason: member.reason.clone(),
        rate_max: member.limit,
        seat: member.place.map(|place| Seat::new(place, call)),
        path: member.path.filter(PathLimit::is_short),
        limits: limits(member.reporter),
        expected: is_expected(member.id, &member.name),
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, state: MemberState, expected: bool) -> Member {
        Member {
            id,
            name: name.to_string(),
            address: Some(SocketAddr::from(([10, 0, 0, 1], id as u16))),
            state,
            bytes: 0,
            found: 0,
            loss: 0.0,
            since: Duration::ZERO,
            heard: Duration::ZERO,
            done: None,
            reason: String::new(),
            rate_max: None,
            seat: None,
            path: None,
            limits: false,
            expected,
        }
    }

    #[test]
    fn success_is_that_all_that_were_waited_for_have_everything() {
        use MemberState::{Done, Lost};
        for (case, members, missing, want) in [
            ("nobody", vec![], &[][..], false),
            ("one", vec![member(1, "a", Done, true)], &[], true),
            ("one is missing", vec![member(1, "a", Done, true)], &["b".to_string()], false),
            ("a guest", vec![member(1, "a", Done, true), member(2, "b", Lost, false)], &[], true),
            (
                "one is lost",
                vec![member(1, "a", Done, true), member(2, "b", Lost, true)],
                &[],
                false,
            ),
            (
                "a namesake",
                vec![member(1, "a", Lost, true), member(2, "a", Done, false)],
                &[],
                false,
            ),
        ] {
            let status = SendStatus { members, missing: missing.to_vec(), ..SendStatus::default() };
            assert_eq!(status.succeeded(), want, "{case}");
        }
    }
}
