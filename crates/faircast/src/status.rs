//! Status of senders and receivers as applications see it: members, progress, outcomes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use faircast_base::{Bitrate, Duration, NodeId, Time};
use faircast_net::{Counters, Live, RelayAbove};
use faircast_proto::Machine;
use faircast_proto::object::{MemberState, MemberStatus, ObjectStatus, PathLimit, TreePlace};
use faircast_seal::Refusals;

use crate::{KeyMismatch, SchemeMismatch};

/// One receiver, as a sender knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// By which it is known for this session.
    pub id: u64,
    /// The name that it gave itself; printable, may be empty.
    pub name: String,
    /// Where it is; `None` where that was forgotten.
    pub address: Option<SocketAddr>,
    /// How it is.
    pub state: MemberState,
    /// Bytes of content that it has.
    pub bytes: u64,
    /// Of those, bytes that it had before content was sent to it.
    pub found: u64,
    /// Share of the packets of the whole transfer that it lost, as its reports tell it: 0 to 1.
    pub loss: f64,
    /// When it was first heard, since the session began.
    pub since: Duration,
    /// When it was last heard, since the session began.
    pub heard: Duration,
    /// When it was done, since the session began.
    pub done: Option<Duration>,
    /// Why it failed, in its own words; printable.
    pub reason: String,
    /// The rate of payload that it asks for at most.
    pub rate_max: Option<Bitrate>,
    /// Where it is in the tree of repair heads, where there is one.
    pub seat: Option<Seat>,
    /// The longest packets that reach it, where longer ones do not.
    pub path: Option<PathLimit>,
    /// Whether it limits the rate now.
    pub limits: bool,
    /// Whether it was there when content began, or was waited for by name.
    pub expected: bool,
}

/// Where an end is in a tree of repair heads, and what it does there; by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// What its head is called; `None` without one.
    pub head: Option<String>,
    /// How many heads are between it and the sender, which has level 1, and itself; 0 without a head.
    pub level: u8,
    /// How many it repairs for.
    pub members: u32,
    /// Packets that it has sent them again.
    pub repairs: u64,
}

/// What the sender is called where it is somebody's head.
pub const SENDER: &str = "the sender";

impl Seat {
    /// That of an end at `place`, whose head `call` knows by its number.
    fn new(place: TreePlace, call: impl Fn(u64) -> Option<String>) -> Self {
        let TreePlace { head, level, members, repairs, .. } = place;
        let named = || call(head).unwrap_or_else(|| format!("{head:016x}"));
        Self { head: (head != 0).then(named), level, members, repairs }
    }
}

impl Member {
    /// Its name, or else its address, or else its id.
    pub fn label(&self) -> String {
        match (self.name.is_empty(), self.address) {
            (false, _) => self.name.clone(),
            (true, Some(address)) => address.to_string(),
            (true, None) => format!("{:016x}", self.id),
        }
    }
}

/// How a sender stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendStatus {
    /// How its object stands; its receivers are in [`members`](Self::members) alone.
    pub object: ObjectStatus,
    /// Since it began.
    pub elapsed: Duration,
    /// When content began, since it began.
    pub begun: Option<Duration>,
    /// All receivers that it knows.
    pub members: Vec<Member>,
    /// Names that are waited for and were not heard yet.
    pub missing: Vec<String>,
    /// What its sockets have done.
    pub traffic: Counters,
    /// What was refused for want of the right key.
    pub refusals: Refusals,
    /// A receiver with another key, heard last.
    pub mismatch: Option<KeyMismatch>,
    /// Pairs of receivers, by their [ids](Member::id), of which one has a copy of the other's folder and state. Both
    /// claim one identity and both speak.
    pub clones: Vec<(u64, u64)>,
    /// The relay above; `None` without relays.
    pub relay: Option<RelayAbove>,
    /// Whether it has ended.
    pub ended: bool,
}

impl SendStatus {
    /// True if all receivers that were waited for have everything. A restarted receiver is known by the identity in
    /// its folder, or else by its name, at whatever address.
    pub fn succeeded(&self) -> bool {
        let done = |member: &Member| member.state == MemberState::Done;
        let mut expected = self.members.iter().filter(|member| member.expected).peekable();
        expected.peek().is_some() && self.missing.is_empty() && expected.all(done)
    }

    /// Bytes of content in all; of what is [growing](ObjectStatus::growing), those that have come.
    pub fn bytes_total(&self) -> u64 {
        self.object.bytes_total.unwrap_or_default()
    }

    /// How many receivers have everything.
    pub fn done(&self) -> usize {
        self.members.iter().filter(|member| member.state == MemberState::Done).count()
    }
}

/// An object that is being received.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Counts the sessions that this receiver has heard.
    pub number: u64,
    /// From where it comes.
    pub source: Option<SocketAddr>,
    /// The scheme that is spoken with it.
    pub scheme: String,
    /// What the sender calls the object; `None` before the list of its files is there.
    pub name: Option<String>,
    /// When it was first heard, since the receiver began.
    pub since: Duration,
    /// Time of the sender's last new message, since the receiver began.
    pub heard: Option<Duration>,
    /// Where this end is in the tree of repair heads, where there is one.
    pub seat: Option<Seat>,
    /// How it stands.
    pub object: ObjectStatus,
}

impl Incoming {
    pub(crate) fn seat(status: &ObjectStatus) -> Option<Seat> {
        status.place.map(|place| Seat::new(place, |_| None))
    }
}

/// One file of an object that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Its BLAKE3, as `b3sum` prints it; `None` where the object has more than 64 GiB of holes, and
    /// this file those beyond.
    pub blake3: Option<[u8; 32]>,
}

/// What came of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The last that was known of it.
    pub last: Incoming,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub outcome: ReceiveOutcome,
    /// Differences to the object that are no failure, such as modes that the file system does not keep, in
    /// words.
    pub remarks: Vec<String>,
}

/// How the receiving of an object ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiveOutcome {
    /// It is all there, compared with its digests, in its place.
    Complete {
        /// Its files.
        files: Vec<ReceivedFile>,
    },
    /// The content came whole and agrees with its digests. Entries that the file system can hold are in their places;
    /// others are left out.
    Partial {
        /// Files that are in their places.
        files: Vec<ReceivedFile>,
        /// Paths that are left out, each with the reason; the first ones, and how many more.
        left_out: Vec<String>,
        /// Summary of what is left out.
        reason: String,
    },
    /// The sender is gone. What is there is kept for another time.
    SenderGone,
    /// The sender has given the object up: content changed there, or was a pipe. A newer version takes over what is here.
    GivenUp,
    /// Superseded: a later object of the same name came whole from the same host, and the sender of this one is silent.
    /// The state is removed.
    Superseded,
    /// It cannot be received, for this reason.
    Failed(String),
    /// The sender speaks another scheme.
    OtherScheme(SchemeMismatch),
    /// This end was closed before it was complete. What is there is kept for another time.
    Closed,
}

/// Reason for which a receiver stays that has the object it was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StaysFor {
    /// Objects that began to come before: [`ReceiveStatus::incoming`].
    Objects,
    /// Members of the repair tree, which lack something.
    Repairs,
    /// The sender, which has not noted yet how an object ended here.
    Note,
}

/// State of a receiver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiveStatus {
    /// Since it began.
    pub elapsed: Duration,
    /// Objects that are being received.
    pub incoming: Vec<Incoming>,
    /// Objects that were received whole.
    pub complete: u64,
    /// Reason for which the receiver stays although it has the object it was started for; `None` until then.
    pub stays_for: Option<StaysFor>,
    /// When a source was last heard, since it began.
    pub heard: Option<Duration>,
    /// When the first object was begun that is taken, since it began.
    pub begun: Option<Duration>,
    /// What its sockets have done.
    pub traffic: Counters,
    /// What was refused for want of the right key.
    pub refusals: Refusals,
    /// A sender with another key, heard last.
    pub mismatch: Option<KeyMismatch>,
    /// The relay above; `None` without relays.
    pub relay: Option<RelayAbove>,
    /// Whether it has ended.
    pub ended: bool,
}

/// The receivers of a source, as people want to see them.
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
