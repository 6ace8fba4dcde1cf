//! Application in a receiver's driver thread: sessions, from the first packet to the reported end.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use faircast_base::{Duration, Seq, Time};
use faircast_net::{App, Ended, Live, NetError, NewSession, SessionId, random};
use faircast_proto::catalog::DEFAULT_SCHEME;
use faircast_proto::object::{ObjectReceiverInput, ObjectReceiverSetup, Stage};
use faircast_proto::options::Options;
use faircast_proto::pgm::wire::{Body, Nla, OptionType, Packet, Tsi};
use faircast_proto::{FlowEvent, Machine as _};
use lru::LruCache;
use tokio::sync::{mpsc, watch};

use super::ReceiverBuilder;
use super::transfer::{Origin, Transfer, outcome_text};
use crate::common::{GATHER, Speaks, host_load};
use crate::ends::{Carrier, Hops, Receiving};
use crate::envelope::Watched;
use crate::session::Worker;
use crate::status::{
    Incoming, ReceiveOutcome, ReceiveStatus, Received, ReceivedFile, Seat, StaysFor,
};
use crate::trace::{self, About, LiveTrace};
use crate::watched_store::{Holders, WatchedStore};

pub(super) struct Setup {
    pub(super) group: Nla,
    pub(super) speaks: Speaks,
    pub(super) builder: ReceiverBuilder,
    pub(super) status_sender: watch::Sender<ReceiveStatus>,
    pub(super) outcome_sender: mpsc::Sender<Received>,
    pub(super) watched: Watched,
    pub(super) trace: Option<LiveTrace>,
}

pub(super) struct Work {
    started_at: Time,
    setup: Setup,
    is_ending: bool,
    stays_for: Option<StaysFor>,
    begun_at: Option<Time>,
    holders: Holders,
    sessions: BTreeMap<SessionId, Transfer>,
    next_session: Option<Transfer>,
    /// Last [`PAST_MAX`] ended sessions; one set aside in silence begins again with a newer SPM.
    past: LruCache<Tsi, Option<Seq>>,
    /// Last [`PAST_MAX`] objects received whole.
    received: LruCache<[u8; 32], Origin>,
    count: u64,
    complete: u64,
    packets: u64,
    packet_at: Option<Time>,
    scheme: String,
}

fn is_begun(live: &Live<Receiving>, id: SessionId) -> bool {
    live.machine(id).is_some_and(|machine| machine.status().answers > 0)
}

impl Work {
    pub(super) fn new(started_at: Time, setup: Setup) -> Self {
        Self {
            started_at,
            setup,
            is_ending: false,
            stays_for: None,
            begun_at: None,
            holders: Holders::default(),
            sessions: BTreeMap::new(),
            next_session: None,
            past: LruCache::new(PAST_MAX),
            received: LruCache::new(PAST_MAX),
            count: 0,
            complete: 0,
            packets: 0,
            packet_at: None,
            scheme: DEFAULT_SCHEME.to_string(),
        }
    }

    fn incoming(&self, live: &Live<Receiving>, id: SessionId) -> Option<Incoming> {
        let session = self.sessions.get(&id)?;
        let machine = live.machine(id)?;
        let (object, spoken) = (machine.status(), machine.spoken());
        Some(Incoming {
            seat: object.place.map(|place| Seat::new(place, |_| None)),
            number: session.number,
            source: live.source(id),
            scheme: spoken.unwrap_or(session.stack).name(),
            name: session.notes.name.get().cloned(),
            since: session.since.since(self.started_at),
            heard: object.heard.map(|at| at.since(self.started_at)),
            object,
        })
    }

    fn end(&mut self, live: &mut Live<Receiving>, id: SessionId, outcome: ReceiveOutcome) {
        let Some(last) = self.incoming(live, id) else { return };
        let now = live.now();
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_reported)
        else {
            return;
        };
        session.is_reported = true;
        let origin = session.origin(live, id);
        let took = now.since(session.since);
        tracing::debug!(
            target: "faircast::session",
            object = session.number,
            outcome = outcome_text(&outcome),
            "an object has ended"
        );
        let object = session.notes.object.get().copied();
        use ReceiveOutcome::{GivenUp, SenderGone, Superseded};
        let remarks = session.notes.remarks.get().cloned().unwrap_or_default();
        let may_return = matches!(outcome, SenderGone | GivenUp | Superseded);
        if matches!(outcome, ReceiveOutcome::Complete { .. }) {
            self.complete += 1;
            if let Some(object) = object {
                self.received.put(object, origin);
            }
        }
        self.is_ending |= self.setup.builder.once && !may_return;
        if self.setup.outcome_sender.try_send(Received { last, took, outcome, remarks }).is_err() {
            tracing::debug!(target: "faircast::session", "nobody takes note of the objects that were received");
        }
        self.end_after_last(live);
    }

    fn end_after_last(&mut self, live: &mut Live<Receiving>) {
        if !self.is_ending {
            return;
        }
        let (now, is_cut_off) = (live.now(), live.outage().is_some());
        // A live sender without a note of this end would count the receiver as lost.
        let owes = |machine: &Receiving| {
            let heard = machine.status().heard;
            let is_live = heard.is_some_and(|at| now.since(at) < SILENT_AFTER);
            machine.awaits_note() && (is_cut_off || is_live)
        };
        let stays = |(id, session): (&SessionId, &Transfer)| {
            if !session.is_reported {
                return is_begun(live, *id).then_some(StaysFor::Objects);
            }
            let machine = live.machine(*id)?;
            let repairs = machine.serves().then_some(StaysFor::Repairs);
            repairs.or_else(|| owes(machine).then_some(StaysFor::Note))
        };
        // A sender that left may never return: the receiver does not wait for it.
        self.stays_for = self.sessions.iter().filter_map(stays).min();
        if self.stays_for.is_none() {
            live.close();
        }
    }

    fn decline(&mut self, live: &mut Live<Receiving>, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_reported = true;
            live.close_session(id);
        }
    }

    fn is_unwanted(&self, session: &Transfer) -> bool {
        let object = session.notes.object.get();
        session.notes.unwanted.get().is_some()
            || session.is_late && object.is_some_and(|object| !self.is_open(object))
    }

    fn is_open(&self, object: &[u8; 32]) -> bool {
        let open = |session: &&Transfer| !session.is_reported && !session.is_late;
        self.sessions.values().filter(open).any(|it| it.notes.object.get() == Some(object))
    }

    fn is_superseded(&self, live: &Live<Receiving>, id: SessionId, session: &Transfer) -> bool {
        let origin = session.origin(live, id);
        self.received.iter().any(|(_, other)| other.supersedes(&origin))
    }

    fn files(&self, id: SessionId) -> Vec<ReceivedFile> {
        let files = self.sessions.get(&id).and_then(|session| session.notes.files.get());
        let files = files.into_iter().flatten().map(|(path, bytes, blake3)| ReceivedFile {
            path: self.setup.builder.destination.path(path),
            bytes: *bytes,
            blake3: *blake3,
        });
        files.collect()
    }

    fn tidy(&mut self, live: &mut Live<Receiving>) {
        self.adopt(live);
        self.hand_over(live);
        let now = live.now();
        let packets = live.counters().received.packets;
        if packets != self.packets {
            (self.packets, self.packet_at) = (packets, Some(now));
        }
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in all {
            let Some(status) = live.machine(id).map(|machine| machine.status()) else {
                self.sessions.remove(&id);
                continue;
            };
            let idle = live.machine(id).is_none_or(|machine| machine.next_timeout().is_none());
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.observe(now, &status);
            let named = self.setup.builder.object.is_none()
                || session.notes.name.get() == self.setup.builder.object.as_ref();
            if status.answers > 0 && named {
                self.begun_at.get_or_insert(now);
            }
            if status.answers != session.answers {
                session.answers = status.answers;
                live.confirm(id);
            }
            // Without answers and without new packets the session is a replay.
            let silent = status.heard.is_none_or(|at| now.since(at) > FOREIGN_AFTER);
            if status.answers == 0 && status.stage == Stage::Gathering && silent {
                self.set_aside(live, id);
                continue;
            }
            let Some(session) = self.sessions.get(&id) else { continue };
            if !session.is_reported && self.is_unwanted(session) {
                self.decline(live, id);
                continue;
            }
            // Without an object and an answer, a session is no transfer.
            let foreign = status.bytes_total.is_none()
                && status.answers == 0
                && status.stage == Stage::Gathering
                && now.since(session.packet_at) > FOREIGN_AFTER;
            if session.is_reported && idle || foreign {
                self.forget(live, id, None);
            }
        }
    }

    /// Takes objects from silent or stalled sessions if other sessions wait for them. A waiting
    /// session has had an answer from its sender, so a replayed recording takes nothing away.
    ///
    /// Also ends silent sessions whose object came from elsewhere, is superseded, or is all the
    /// receiver stays for.
    fn hand_over(&mut self, live: &mut Live<Receiving>) {
        let now = live.now();
        let contested = self.holders.contested();
        let mut over = Vec::new();
        for (&id, session) in self.sessions.iter().filter(|(_, session)| !session.is_reported) {
            let heard = live.machine(id).and_then(|machine| machine.status().heard);
            let silence = now.since(heard.unwrap_or(session.since));
            let is_silent = silence >= SILENT_AFTER;
            let is_abandoned = self.is_ending && silence >= ABANDONED_AFTER;
            let is_stalled = session.progress.0 == Stage::Sending
                && now.since(session.progress_at) >= STALLED_AFTER;
            let object = session.notes.object.get();
            let is_here = object.is_some_and(|object| self.received.contains(object));
            let superseded = is_silent && !is_here && self.is_superseded(live, id, session);
            let is_taken = contested.contains(&session.number) && (is_silent || is_stalled);
            if is_taken || is_here && is_silent || superseded || is_abandoned {
                over.push((id, object.copied(), superseded));
            }
        }
        for (id, object, superseded) in over {
            tracing::debug!(target: "faircast::session", session = ?id, superseded, "another session has taken its object over");
            let heirs =
                self.sessions.values_mut().filter(|it| it.notes.object.get() == object.as_ref());
            heirs.for_each(|it| it.is_late = false);
            if superseded {
                live.input(id, ObjectReceiverInput::Discard);
                self.end(live, id, ReceiveOutcome::Superseded);
            } else {
                self.end(live, id, ReceiveOutcome::SenderGone);
            }
            self.set_aside(live, id);
        }
    }

    fn set_aside(&mut self, live: &mut Live<Receiving>, id: SessionId) {
        let newest = live.newest_spm(id);
        self.forget(live, id, newest);
    }

    fn forget(&mut self, live: &mut Live<Receiving>, id: SessionId, newest: Option<Seq>) {
        live.remove(id);
        if let Some(session) = self.sessions.remove(&id) {
            self.past.put(session.tsi, newest);
        }
    }

    fn is_past(&self, new: &NewSession<'_>) -> bool {
        let Some(newest) = self.past.peek(&new.tsi) else { return false };
        // Packets of TRAM have no number that distinguishes new packets from replays.
        let Ok(packet) = Packet::decode(new.packet, 0) else { return true };
        let ends = [OptionType::FIN, OptionType::RST].map(|kind| packet.options.has(kind));
        let spm = match packet.body {
            Body::Spm(spm) if !ends.contains(&true) => Some(spm.sequence),
            _ => None,
        };
        !spm.zip(*newest).is_some_and(|(spm, newest)| spm.after(newest))
    }

    fn adopt(&mut self, live: &Live<Receiving>) {
        let Some(session) = self.next_session.take() else { return };
        match live.sessions().find(|id| live.tsi(*id) == Some(session.tsi)) {
            Some(id) => {
                self.sessions.insert(id, session);
            }
            None => self.next_session = Some(session),
        }
    }

    fn report(&mut self, live: &mut Live<Receiving>, ended: bool) {
        let now = live.now();
        let incidents = *self.setup.watched.lock();
        let open = self.sessions.iter().filter(|(_, session)| !session.is_reported);
        let incoming = open.filter_map(|(id, _)| self.incoming(live, *id)).collect();
        self.setup.status_sender.send_replace(ReceiveStatus {
            elapsed: now.since(self.started_at),
            incoming,
            complete: self.complete,
            stays_for: self.stays_for,
            heard: self.packet_at.map(|at| at.since(self.started_at)),
            begun: self.begun_at.map(|at| at.since(self.started_at)),
            traffic: *live.counters(),
            refusals: incidents.refusals,
            mismatch: incidents.mismatch,
            relay: live.relay(),
            ended,
        });
    }
}

impl App<Receiving> for Work {
    fn accept(&mut self, live: &mut Live<Receiving>, new: &NewSession<'_>) -> Option<Receiving> {
        self.adopt(live);
        if self.is_past(new) {
            return None;
        }
        let (carrier, options) = self.setup.speaks.after(new.packet)?;
        self.past.pop(&new.tsi);
        self.count += 1;
        let source = Some(new.from.ip()).filter(|_| !live.is_behind_relay());
        let store = self.setup.builder.destination.store(source);
        let disk = store.1.clone();
        let (holders, wanted) = (self.holders.clone(), self.setup.builder.object.clone());
        let alone = self.setup.builder.destination.only().is_some();
        let (store, notes) = WatchedStore::new(store, holders, wanted, self.count, alone);
        self.packet_at = Some(new.now);
        let mut session = Transfer::new(self.count, carrier.stack(), new, notes, disk);
        session.is_late = self.is_ending;
        self.next_session = Some(session);
        self.scheme = carrier.stack().name();
        tracing::debug!(
            target: "faircast::session",
            object = self.count,
            session = ?new.tsi,
            from = %new.from,
            scheme = %carrier.stack(),
            "a sender is heard"
        );
        let Setup { builder, .. } = &self.setup;
        let head = builder.tree.as_ref().and_then(|it| it.head(&builder.name, new.source));
        let setup = ObjectReceiverSetup {
            node: live.node(),
            group: self.setup.group,
            tsi: new.tsi,
            data_port: new.data_port,
            start: new.now,
            store: Box::new(store),
            // A new id each time: answers to an earlier machine are not for this one.
            id: random(),
            name: self.setup.builder.name.clone(),
            head,
            limit: builder.rate_max,
            headers: builder.common.headers(new.from),
            options: &options,
        };
        // Carriers without an acknowledgement of each packet allow batched reads.
        let through_relays = live.is_behind_relay();
        if through_relays || matches!(carrier, Carrier::Tram(_)) {
            live.set_gather(GATHER);
        }
        let none = Options::default();
        let hops = through_relays.then(|| Hops::new(live, new.tsi, &none));
        let insists = self.setup.speaks.required.is_some();
        Some(carrier.receiver(setup, new.source, insists, hops.as_ref()))
    }

    fn event(&mut self, live: &mut Live<Receiving>, id: SessionId, event: FlowEvent) {
        self.adopt(live);
        match event {
            FlowEvent::Completed => {
                let files = self.files(id);
                self.end(live, id, ReceiveOutcome::Complete { files });
            }
            FlowEvent::Gone => {
                let Some(status) = live.machine(id).map(|machine| machine.status()) else { return };
                if let Some(mismatch) = status.failure.mismatch {
                    self.end(live, id, ReceiveOutcome::OtherScheme(mismatch));
                    return;
                }
                let stalled = status.reason.filter(|_| status.failure.stalled);
                let notes = self.sessions.get(&id).map(|session| session.notes.clone());
                let left_out = notes.as_ref().and_then(|notes| notes.left_out.get().cloned());
                let reason = notes.as_ref().and_then(|notes| notes.failure.get().cloned());
                match (reason.or(stalled), left_out) {
                    (Some(reason), Some(left_out)) => {
                        let files = self.files(id);
                        self.end(live, id, ReceiveOutcome::Partial { files, left_out, reason });
                    }
                    (Some(reason), None) => self.end(live, id, ReceiveOutcome::Failed(reason)),
                    (None, _) => {
                        let gone = match status.failure.given_up {
                            true => ReceiveOutcome::GivenUp,
                            false => ReceiveOutcome::SenderGone,
                        };
                        self.end(live, id, gone);
                        self.set_aside(live, id);
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, live: &mut Live<Receiving>) {
        let all = self.sessions.iter().map(|(id, session)| (*id, session.disk.counts().waited));
        for (id, waited) in all.collect::<Vec<_>>() {
            let load = host_load(live, waited);
            live.input(id, ObjectReceiverInput::Host(load));
        }
        self.tidy(live);
        self.end_after_last(live);
        self.report(live, false);
    }
}

impl Worker<Receiving> for Work {
    fn ended(mut self, live: &mut Live<Receiving>, ended: Result<Ended, NetError>) {
        let outcome = match &ended {
            Ok(_) => ReceiveOutcome::Closed,
            Err(error) => ReceiveOutcome::Failed(error.to_string()),
        };
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in all {
            // An object that was never sent to this receiver has no outcome.
            if is_begun(live, id) || ended.is_err() {
                self.end(live, id, outcome.clone());
            }
        }
        trace::finish(self.setup.trace.as_ref(), || About {
            name: "transfer".to_string(),
            title: format!("what was received into {}", self.setup.builder.destination),
            scheme: self.scheme.clone(),
            names: BTreeMap::from([(live.node(), self.setup.builder.name.clone())]),
            intact: (self.complete > 0).then(|| live.node()).into_iter().collect(),
            interrupted: self.complete == 0,
            ..About::default()
        });
        self.report(live, true);
    }
}

/// Silence of SPMs after which a sender loses its object to another session; SPMs come each second.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// Longest silence of the last sender, at a receiver that has the object it was started for.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);
const STALLED_AFTER: Duration = Duration::from_secs(30);
const PAST_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is above zero");
const FOREIGN_AFTER: Duration = Duration::from_secs(30);
