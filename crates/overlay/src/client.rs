//! Clients of a daemon: queues of events, and history for clients that resume.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Time, fresh};
use smallvec::SmallVec;

use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX, Names, Service};
use crate::daemon::CLIENT_BYTES_MAX;
use crate::group::MemberId;
use crate::ids::{DaemonRun, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::price::Purse;

/// Reason of a membership change of a group: a request or the end of a client, or a view in which
/// daemons joined or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants are what their names say")]
pub enum Reason {
    Join,
    Leave,
    Disconnect,
    Network,
}

/// Reason for which a daemon refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum SendError {
    #[error("the client's name is unknown, taken, empty or longer than {CLIENT_BYTES_MAX} bytes")]
    Name,
    #[error("a message has 1 to {GROUPS_MAX} groups, with names of 1 to {GROUP_BYTES_MAX} bytes")]
    Group,
    #[error("the message is longer than 16 MB")]
    Length,
    #[error("the members of the view change; try again")]
    Changing,
    #[error("not all daemons have the earlier messages yet; try again")]
    Retention,
    #[error("a member of the group is slow, and the group asks senders to wait")]
    Held,
    #[error("the message is too expensive now")]
    Price,
    #[error("the view in which the message was to be delivered is over")]
    View,
}

/// Payload of a message in parts; most messages have one part.
pub type Parts = SmallVec<[Bytes; 1]>;

/// Event for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum ClientEvent {
    /// Message to a group of which the client is a member; `sequence` counts at its source daemon.
    Message {
        from: MemberId,
        service: Service,
        groups: Names,
        parts: Parts,
        view: ViewId,
        sequence: u64,
    },
    /// Membership change of a group, whose members all members list in the same order. `subject`:
    /// client that joined or left, `None` for a change of daemons. `position`: place in the common
    /// order.
    Group {
        group: Bytes,
        members: Arc<[MemberId]>,
        reason: Reason,
        subject: Option<MemberId>,
        position: (u64, u64, u64),
        view: ViewId,
    },
    /// Start of the end of a view: only the daemons `members` know the events up to the next view.
    Transitional { closes: ViewId, members: Vec<DaemonRun> },
    /// Start of a view. The daemons `together` come from the view `previous`, which is `None` for
    /// the first view of a client.
    View {
        id: ViewId,
        members: Vec<DaemonRun>,
        names: Vec<String>,
        together: Vec<DaemonRun>,
        previous: Option<ViewId>,
    },
    /// Receipt: the client's message has its place in the agreed order and is delivered. `members`
    /// counts those that get the message, or whose daemons fail; a safe one has arrived.
    Receipt { request: u64, members: u32, view: ViewId },
    /// The groups of a message have no members. Not repeated until a message has found members.
    NoMembers { request: u64, groups: Names },
    /// Refusal of a request.
    Refused { request: u64, reason: SendError },
    /// Loss of the events with these first and last numbers: the client was too slow, or away for
    /// too long. `closes`: the driver closes the connection after this event. The client resumes.
    Cut { lost: (u64, u64), closes: bool },
}

impl ClientEvent {
    fn fifo_sender(&self) -> Option<&MemberId> {
        match self {
            Self::Message { from, service: Service::Fifo, .. } => Some(from),
            _ => None,
        }
    }

    fn is_unreliable(&self) -> bool {
        matches!(self, Self::Message { service: Service::Unreliable, .. })
    }

    fn state(&self) -> Option<StateKind> {
        match self {
            Self::View { .. } => Some(StateKind::View),
            Self::Transitional { .. } => Some(StateKind::Transitional),
            Self::Group { group, .. } => Some(StateKind::Members(group.clone())),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        64 + match self {
            Self::Message { parts, .. } => parts.iter().map(Bytes::len).sum(),
            Self::Group { members, .. } => 64 * members.len(),
            _ => 0,
        }
    }
}

/// Join in progress: an announcement to all daemons, then a step in the agreed order.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) group: Bytes,
    /// Configuration and number of the announcement's cell, while its stability is awaited.
    pub(crate) announced: Option<(ViewId, u64)>,
    /// Lamport time of the join step, once sent.
    pub(crate) joins_at: Option<u64>,
    /// True if the client asks the group's senders to wait for slow members.
    pub(crate) holds_senders: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) waiting: usize,
    pub(crate) history: usize,
}

/// Kind of state that an event sets; a later event of the same kind replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StateKind {
    View,
    Transitional,
    Members(Bytes),
}

#[derive(Clone, Debug)]
enum Queued {
    Event(Arc<ClientEvent>),
    /// Number of events lost here, and the last lost event of each state.
    Lost(u64, BTreeMap<StateKind, Arc<ClientEvent>>),
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) member: MemberId,
    pub(crate) encoded: Bytes,
    pub(crate) purse: Purse,
    pub(crate) joining: Vec<Joining>,
    /// Groups that the client has asked to leave, with the Lamport time of the request.
    pub(crate) leaving: Vec<(Bytes, u64)>,
    /// Messages that wait for the client's join, and FIFO messages of their senders behind them.
    pub(crate) deferred: Vec<Arc<ClientEvent>>,
    pub(crate) away_since: Option<Time>,
    pub(crate) is_ready: bool,
    waiting: VecDeque<Queued>,
    waiting_bytes: usize,
    taken: u64,
    /// Taken events up to that number, for a client that resumes.
    history: VecDeque<Arc<ClientEvent>>,
    history_bytes: usize,
    /// Last dropped event of each state, with its number: no later event repeats the state.
    states: BTreeMap<StateKind, (u64, Arc<ClientEvent>)>,
    /// True if events were lost because the queue was full: the connection must close.
    pub(crate) is_cut: bool,
    /// Cell numbers of messages that want receipts, with their request numbers.
    pub(crate) receipts: VecDeque<(u64, u64)>,
    /// Groups without members of which the client has been informed.
    pub(crate) empty: BTreeSet<Bytes>,
}

impl Client {
    /// True if the client asked to leave before `time`: others may still route messages here.
    pub(crate) fn has_left(&self, group: &[u8], time: u64) -> bool {
        self.leaving.iter().any(|(name, at)| *at < time && name == group)
    }

    pub(crate) fn is_behind(&self, event: &ClientEvent) -> bool {
        let sender = event.fifo_sender().filter(|_| !breaks(Mutant::FifoPassesDeferred));
        sender.is_some() && self.deferred.iter().any(|it| it.fifo_sender() == sender)
    }

    pub(crate) fn new(member: MemberId, purse: Purse) -> Self {
        fresh! {
            Self { encoded: member.encode(), member, purse, }
            joining, leaving, deferred, away_since, is_ready, waiting, waiting_bytes, taken, history, history_bytes, states, is_cut, receipts, empty
        }
    }

    /// Queues an event. A full queue drops its oldest unreliable messages, else cuts the client.
    pub(crate) fn push(&mut self, event: Arc<ClientEvent>, room: Room) {
        if self.is_cut {
            return self.lose(event);
        }
        let is_unreliable =
            |it: &Queued| matches!(it, Queued::Event(event) if event.is_unreliable());
        while self.waiting_bytes + event.bytes() > room.waiting {
            let Some(at) = self.waiting.iter().position(is_unreliable) else {
                self.is_cut = true;
                return self.lose(event);
            };
            if let Some(Queued::Event(event)) = self.waiting.remove(at) {
                self.waiting_bytes -= event.bytes();
            }
        }
        self.waiting_bytes += event.bytes();
        self.waiting.push_back(Queued::Event(event));
    }

    fn lose(&mut self, event: Arc<ClientEvent>) {
        if !matches!(self.waiting.back(), Some(Queued::Lost(..))) {
            self.waiting.push_back(Queued::Lost(0, BTreeMap::new()));
        }
        let Some(Queued::Lost(count, states)) = self.waiting.back_mut() else { return };
        *count += 1;
        let Some(state) = event.state() else { return };
        if state == StateKind::View {
            states.remove(&StateKind::Transitional);
        }
        states.insert(state, event);
    }

    fn forget_oldest(&mut self) -> bool {
        let number = self.taken + 1 - self.history.len() as u64;
        let Some(event) = self.history.pop_front() else { return false };
        self.history_bytes -= event.bytes();
        match &*event {
            // Without the removal clients could fill memory with groups.
            ClientEvent::Group { group, reason: Reason::Leave, subject: Some(subject), .. }
                if *subject == self.member =>
            {
                self.states.remove(&StateKind::Members(group.clone()));
            }
            _ => self.note_state(number, event),
        }
        true
    }

    fn note_state(&mut self, number: u64, event: Arc<ClientEvent>) {
        let Some(state) = event.state() else { return };
        let is_older = |it: Option<&(u64, Arc<ClientEvent>)>| it.is_none_or(|it| it.0 < number);
        if !is_older(self.states.get(&state)) {
            return;
        }
        if state == StateKind::View && is_older(self.states.get(&StateKind::Transitional)) {
            self.states.remove(&StateKind::Transitional);
        }
        self.states.insert(state, (number, event));
    }

    /// Takes the next event and its number; number 0 repeats a state of a lost event.
    pub(crate) fn pop(&mut self, room: Room) -> Option<(u64, Arc<ClientEvent>)> {
        if let Some(Queued::Lost(count, states)) = self.waiting.front_mut()
            && let Some((_, event)) = states.pop_first()
        {
            let number = self.taken + *count;
            self.note_state(number, event.clone());
            return Some((0, event));
        }
        match self.waiting.pop_front()? {
            Queued::Event(event) => {
                self.waiting_bytes -= event.bytes();
                self.history_bytes += event.bytes();
                self.history.push_back(event.clone());
                self.taken += 1;
                while self.history_bytes > room.history && self.forget_oldest() {}
                Some((self.taken, event))
            }
            Queued::Lost(count, _) => {
                while self.forget_oldest() {}
                let first = self.taken + 1;
                self.taken += count - u64::from(breaks(Mutant::ShortCut));
                let event = ClientEvent::Cut { lost: (first, self.taken), closes: self.is_cut };
                Some((self.taken, event.into()))
            }
        }
    }

    pub(crate) fn queue(&self) -> (u64, usize) {
        (self.taken, self.waiting_bytes)
    }

    /// Resumes a session that has all events below `next`; false if `next` is out of range.
    pub(crate) fn resume(&mut self, next: u64) -> bool {
        let Some(missed) = (self.taken + 1).checked_sub(next).filter(|_| next > 0) else {
            return false;
        };
        (self.away_since, self.is_cut) = (None, false);
        let states = core::mem::take(&mut self.states).into_iter();
        let (early, late): (Vec<_>, Vec<_>) =
            states.filter(|(_, it)| it.0 >= next).partition(|(_, it)| it.0 <= self.taken);
        let gap = self.waiting.iter_mut().find_map(|it| match it {
            Queued::Lost(_, states) => Some(states),
            Queued::Event(_) => None,
        });
        if let Some(states) = gap {
            for (state, (_, event)) in late {
                states.entry(state).or_insert(event);
            }
        }
        for _ in 0..missed {
            let Some(event) = self.history.pop_back() else { break };
            self.history_bytes -= event.bytes();
            self.waiting_bytes += event.bytes();
            self.waiting.push_front(Queued::Event(event));
            self.taken -= 1;
        }
        let lost = self.taken + 1 - next;
        if lost > 0 {
            self.taken -= lost;
            let states = early.into_iter().map(|(state, (_, event))| (state, event)).collect();
            self.waiting.push_front(Queued::Lost(lost, states));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DaemonId;

    const ROOM: Room = Room { waiting: 1000, history: 500 };

    fn client() -> Client {
        let member = MemberId { daemon: DaemonId(1), name: "c".into(), incarnation: 1 };
        Client::new(member, Purse::default())
    }

    fn message(service: Service, text: &'static [u8]) -> ClientEvent {
        let from = client().member;
        let parts = [Bytes::from_static(text)].into();
        let (groups, view) = (Names::default(), ViewId::default());
        ClientEvent::Message { from, service, groups, parts, view, sequence: 0 }
    }

    fn change(reason: Reason, group: &'static str, position: u64) -> ClientEvent {
        let subject = Some(client().member);
        let position = (position, 0, 0);
        let (group, members, view) = (Bytes::from(group), [].into(), ViewId::default());
        ClientEvent::Group { group, members, reason, subject, position, view }
    }

    fn view(round: u64) -> ClientEvent {
        let id = ViewId { round, ..ViewId::default() };
        let (members, names, together) = (Vec::new(), Vec::new(), Vec::new());
        ClientEvent::View { id, members, names, together, previous: None }
    }

    fn pop(client: &mut Client) -> Option<(u64, ClientEvent)> {
        let (number, event) = client.pop(ROOM)?;
        Some((number, Arc::unwrap_or_clone(event)))
    }

    fn text(event: &ClientEvent) -> &[u8] {
        match event {
            ClientEvent::Message { parts, .. } => &parts[0],
            _ => b"",
        }
    }

    #[test]
    fn a_slow_client_is_cut_and_told_which_events_it_lost() {
        let mut client = client();
        for _ in 0..20 {
            client.push(message(Service::Fifo, b"0123456789abcdef").into(), ROOM);
        }
        let mut numbers = Vec::new();
        let cut = loop {
            match pop(&mut client).unwrap() {
                (_, ClientEvent::Cut { lost, closes }) => break (lost, closes),
                (number, _) => numbers.push(number),
            }
        };
        assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        assert_eq!(cut, ((13, 20), true));
        client.push(message(Service::Fifo, b"x").into(), ROOM);
        assert!(client.resume(21));
        client.push(message(Service::Fifo, b"y").into(), ROOM);
        let (number, event) = pop(&mut client).unwrap();
        assert_eq!((number, event), (21, ClientEvent::Cut { lost: (21, 21), closes: false }));
        let (number, event) = pop(&mut client).unwrap();
        assert_eq!((number, text(&event)), (22, &b"y"[..]));
    }

    #[test]
    fn events_after_a_cut_keep_their_numbers_if_the_client_resumes_before_it_learns_of_the_cut() {
        let mut client = client();
        for _ in 0..20 {
            client.push(message(Service::Fifo, b"0123456789abcdef").into(), ROOM);
        }
        assert!(client.is_cut && client.resume(1));
        assert!(!client.is_cut);
        let mut numbers: Vec<u64> = (0..12).map(|_| pop(&mut client).unwrap().0).collect();
        client.push(message(Service::Fifo, b"y").into(), ROOM);
        let (number, event) = pop(&mut client).unwrap();
        assert_eq!((number, event), (20, ClientEvent::Cut { lost: (13, 20), closes: false }));
        numbers.push(pop(&mut client).unwrap().0);
        assert_eq!(numbers, (1..=12).chain([21]).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_view_and_the_last_members_of_each_group_come_with_a_cut() {
        let mut client = client();
        client.push(view(1).into(), ROOM);
        assert_eq!(pop(&mut client).unwrap().0, 1);
        client.is_cut = true;
        let closes = ClientEvent::Transitional { closes: ViewId::default(), members: Vec::new() };
        let lost = [
            closes.clone(),
            change(Reason::Join, "a", 1),
            message(Service::Fifo, b"x"),
            view(2),
            change(Reason::Join, "b", 2),
            closes.clone(),
            change(Reason::Network, "a", 3),
            view(3),
            closes.clone(),
        ];
        lost.into_iter().for_each(|event| client.push(event.into(), ROOM));
        let a = (0, change(Reason::Network, "a", 3));
        let b = (0, change(Reason::Join, "b", 2));
        let told = [(0, view(3)), (0, closes), a, b];
        for taken in 0..6 {
            let got: Vec<_> = core::iter::from_fn(|| pop(&mut client)).take(taken).collect();
            assert_eq!(got[..taken.min(4)], told[..taken.min(4)]);
            assert!(client.resume(2));
        }
        client.push(message(Service::Fifo, b"y").into(), ROOM);
        let got: Vec<_> = core::iter::from_fn(|| pop(&mut client)).collect();
        assert_eq!(got[..4], told);
        assert_eq!(got[4], (10, ClientEvent::Cut { lost: (2, 10), closes: false }));
        assert_eq!(got[5..], [(11, message(Service::Fifo, b"y"))]);
        assert!(client.resume(12), "nothing is told twice");
        assert_eq!(pop(&mut client), None);
    }

    #[test]
    fn a_client_that_was_away_for_long_gets_the_view_and_the_members_with_the_cut() {
        let mut client = client();
        client.push(view(1).into(), ROOM);
        client.push(change(Reason::Join, "a", 1).into(), ROOM);
        client.push(view(2).into(), ROOM);
        client.push(change(Reason::Network, "a", 2).into(), ROOM);
        client.push(change(Reason::Leave, "b", 3).into(), ROOM);
        (0..8).for_each(|_| client.push(message(Service::Fifo, b"0123456789abcdef").into(), ROOM));
        while pop(&mut client).is_some() {}
        let states: Vec<_> = client.states.keys().cloned().collect();
        assert_eq!(states, [StateKind::View, StateKind::Members("a".into())]);
        // 500 bytes of history have room for six events of 80 bytes.
        for _ in 0..2 {
            assert!(client.resume(4));
            let got: Vec<_> = core::iter::from_fn(|| pop(&mut client)).collect();
            assert_eq!(got[0], (0, change(Reason::Network, "a", 2)));
            assert_eq!(got[1], (7, ClientEvent::Cut { lost: (4, 7), closes: false }));
            assert_eq!(
                got.iter().skip(2).map(|it| it.0).collect::<Vec<_>>(),
                [8, 9, 10, 11, 12, 13]
            );
        }
        assert!(client.resume(8));
        assert_eq!(pop(&mut client).unwrap().0, 8);
    }

    #[test]
    fn unreliable_messages_make_room_and_leave_no_gap() {
        let mut client = client();
        for i in 0..20u8 {
            let service = if i % 2 == 0 { Service::Unreliable } else { Service::Fifo };
            client.push(message(service, b"0123456789abcdef").into(), ROOM);
        }
        let events: Vec<_> = core::iter::from_fn(|| pop(&mut client)).collect();
        assert_eq!(events.iter().map(|it| it.0).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
        let reliable = events.iter().filter(|it| !it.1.is_unreliable()).count();
        assert_eq!(reliable, 10, "none of those is lost");
    }

    #[test]
    fn a_client_that_was_away_gets_what_is_kept_and_learns_what_is_not() {
        let mut client = client();
        for text in [&b"1"[..], b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"] {
            client.push(message(Service::Fifo, text).into(), ROOM);
            pop(&mut client).unwrap();
        }
        // 500 bytes of history have room for seven events of 65 bytes.
        for (next, first) in [(7, 7), (10, 10), (1, 2)] {
            assert!(client.resume(next));
            let got: Vec<_> = core::iter::from_fn(|| pop(&mut client)).collect();
            let numbers: Vec<u64> = got.iter().map(|it| it.0).collect();
            assert_eq!(numbers, (first..10).collect::<Vec<_>>());
            let cut = (2, ClientEvent::Cut { lost: (1, 2), closes: false });
            assert_eq!(got.first() == Some(&cut), next == 1);
        }
        assert!(!client.resume(11) && !client.resume(0));
    }
}
