//! Application in a sender's driver thread: starts content, and reports the state of receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use faircast_base::{Duration, Event, FlowId, NodeId, Time};
use faircast_files::SupplyHandle;
use faircast_net::{App, Ended, Live, NetError, SessionId};
use faircast_proto::object::{MemberState, MemberStatus, ObjectSourceInput, ObjectStatus, Stage};
use faircast_trace::{Record, Sink as _, Subject};
use tokio::sync::watch;

use super::restarts::Restarts;
use crate::common::host_load;
use crate::ends::{Carrier, Sending};
use crate::envelope::Watched;
use crate::session::Worker;
use crate::status::{SendStatus, members};
use crate::trace::{About, LiveTrace};

pub(super) struct Setup {
    pub(super) session: SessionId,
    pub(super) files: SupplyHandle,
    pub(super) started_at: Time,
    pub(super) names: BTreeSet<String>,
    pub(super) start_after: Option<Time>,
    pub(super) wait_for: u32,
    pub(super) wait_max: Option<Duration>,
    pub(super) give_up: Duration,
    pub(super) status_sender: watch::Sender<SendStatus>,
    pub(super) watched: Watched,
    pub(super) trace: Option<LiveTrace>,
    pub(super) title: String,
    pub(super) carrier: Carrier,
    pub(super) packet_bytes: u64,
}

pub(super) struct Work {
    setup: Setup,
    given_up: Option<String>,
    next_look_at: Time,
    expected: BTreeSet<u64>,
    /// Expected receivers that a restarted one has replaced. They may come back.
    replaced: BTreeSet<u64>,
    clones: Vec<(u64, u64)>,
    takers: BTreeSet<u64>,
    begun_at: Option<Time>,
    traced: BTreeMap<NodeId, MemberState>,
    limiting: Option<NodeId>,
    addresses: BTreeMap<u64, SocketAddr>,
}

impl Work {
    pub(super) fn new(setup: Setup) -> Self {
        Self {
            next_look_at: setup.started_at,
            setup,
            given_up: None,
            expected: BTreeSet::new(),
            replaced: BTreeSet::new(),
            clones: Vec::new(),
            takers: BTreeSet::new(),
            begun_at: None,
            traced: BTreeMap::new(),
            limiting: None,
            addresses: BTreeMap::new(),
        }
    }

    fn watch_host(&mut self, live: &mut Live<Sending>) {
        let Some((outage, reason)) = live.outage() else { return };
        let give_up = self.setup.give_up;
        live.input(self.setup.session, ObjectSourceInput::ExcuseSilence);
        if outage >= give_up && self.given_up.is_none() {
            self.given_up = Some(format!(
                "nothing has left this host for {give_up} (--give-up): {reason}; look at its address, its route to the \
                 receivers and its firewall, and start the sender again; receivers keep what they have"
            ));
            live.close();
        }
    }

    fn follow_receivers(&mut self, live: &mut Live<Sending>, status: &ObjectStatus) {
        for member in &status.members {
            let Some(address) = live.address(member.home) else { continue };
            if let Some(old) = self.addresses.insert(member.id, address)
                && old != address
            {
                live.retarget(old, address);
            }
        }
        if self.addresses.len() > 2 * status.members.len() {
            let ids: BTreeSet<u64> = status.members.iter().map(|member| member.id).collect();
            self.addresses.retain(|id, _| ids.contains(id));
        }
    }

    fn begin(&mut self, live: &mut Live<Sending>, status: &ObjectStatus) {
        if status.stage != Stage::Gathering {
            return;
        }
        let now = live.now();
        // A receiver that cannot take the object is present too; the end reports its failure.
        let come = [MemberState::Receiving, MemberState::Done, MemberState::Failed];
        let present: Vec<&str> = status
            .members
            .iter()
            .filter(|member| come.contains(&member.state))
            .map(|member| member.name.as_str())
            .collect();
        let Setup { names, start_after, wait_max, wait_for, .. } = &self.setup;
        let missing: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !present.contains(name)).collect();
        let all = !names.is_empty() && missing.is_empty();
        let is_due = start_after.is_some_and(|at| at <= now) && !present.is_empty();
        if all || is_due {
            live.input(self.setup.session, ObjectSourceInput::Begin);
        } else if let Some(limit) =
            wait_max.filter(|limit| now.since(self.setup.started_at) >= *limit)
            && self.given_up.is_none()
        {
            self.given_up = Some(match (present.len(), &missing[..]) {
                (0, _) => format!("no receiver came within {limit}"),
                (count, []) => format!("{count} of {wait_for} receivers came within {limit}"),
                (_, missing) => {
                    format!("within {limit} these did not come: {}", missing.join(", "))
                }
            });
            live.close();
        }
    }

    fn note(&mut self, live: &mut Live<Sending>, status: &ObjectStatus) {
        let logs = tracing::enabled!(target: "faircast::session", tracing::Level::DEBUG);
        if self.setup.trace.is_none() && !logs {
            return;
        }
        let at = live.now();
        if logs {
            self.log_changes(live, status);
        }
        for member in &status.members {
            let before = self.traced.insert(member.reporter, member.state);
            let Some(trace) = &mut self.setup.trace else { continue };
            let subject =
                Subject::Endpoint { flow: FlowId(0), node: member.reporter, sender: false };
            let mut record = |event| trace.record(&Record { at, subject, event });
            if before.is_none() {
                record(Event::Joined);
            }
            match member.state {
                state if before == Some(state) => {}
                MemberState::Done => record(Event::Completed { bytes: member.bytes }),
                MemberState::Left | MemberState::Lost | MemberState::Failed => record(Event::Left),
                _ => {}
            }
        }
    }

    fn log_changes(&mut self, live: &Live<Sending>, status: &ObjectStatus) {
        for member in &status.members {
            let before = self.traced.get(&member.reporter);
            if before != Some(&member.state) {
                tracing::debug!(
                    target: "faircast::session",
                    receiver = member.name,
                    address = live.address(member.node).map(tracing::field::display),
                    node = member.reporter.0,
                    ?before,
                    now = ?member.state,
                    reason = member.reason,
                    "a receiver"
                );
            }
        }
        if status.limiting != self.limiting {
            self.limiting = status.limiting;
            let member =
                status.members.iter().find(|member| Some(member.reporter) == status.limiting);
            tracing::debug!(
                target: "faircast::control",
                receiver = member.map(|member| &*member.name),
                address = member
                    .and_then(|member| live.address(member.node))
                    .map(tracing::field::display),
                "who limits the rate"
            );
        }
    }

    fn replace_restarted(&mut self, live: &mut Live<Sending>, status: &ObjectStatus) -> bool {
        let restarts =
            Restarts::new(&status.members, live.now(), status.bytes_total.unwrap_or_default());
        self.clones = restarts.clones();
        let pairs = restarts.pairs(&self.setup.names, |node| Some(live.address(node)?.ip()));
        let again = status.members.iter().map(|it| it.id).filter(|id| self.replaced.remove(id));
        self.expected.extend(again);
        for &(old, new) in &pairs {
            if self.expected.remove(&old) {
                self.expected.insert(new);
                self.replaced.insert(old);
            }
            live.input(self.setup.session, ObjectSourceInput::Dismiss { id: old });
        }
        !pairs.is_empty()
    }

    fn status(&self, live: &Live<Sending>) -> Option<ObjectStatus> {
        live.machine(self.setup.session).map(|machine| machine.status())
    }

    fn report(
        &mut self,
        live: &mut Live<Sending>,
        mut status: ObjectStatus,
        ended: bool,
        failure: Option<String>,
    ) {
        if self.replace_restarted(live, &status) {
            let Some(without) = self.status(live) else { return };
            status = without;
        }
        let now = live.now();
        if status.begun.is_some() && self.begun_at.is_none() {
            self.begun_at = status.begun;
            if self.setup.names.is_empty() {
                let gone = [MemberState::Left, MemberState::Lost];
                let here = status.members.iter().filter(|member| !gone.contains(&member.state));
                self.expected = here.map(|member| member.id).collect();
            }
        }
        let took = |member: &&MemberStatus| match member.state {
            MemberState::Joined => false,
            MemberState::Left => self.takers.contains(&member.id),
            _ => true,
        };
        // Other members are forgotten: their number is unlimited.
        let takers = status.members.iter().filter(took).map(|member| member.id).collect();
        self.takers = takers;
        // A receiver that left without the list of files wanted another object.
        for member in status.members.iter().filter(|member| member.state == MemberState::Left) {
            if !self.takers.contains(&member.id) {
                self.expected.remove(&member.id);
            }
        }
        let incidents = *self.setup.watched.lock();
        let is_expected =
            |id: u64, name: &str| self.expected.contains(&id) || self.setup.names.contains(name);
        let members = members(live, self.setup.started_at, &status, is_expected);
        let heard: BTreeSet<&str> = members.iter().map(|member| &*member.name).collect();
        let missing = self.setup.names.iter().filter(|name| !heard.contains(&***name)).cloned();
        let missing = missing.collect();
        let reason = failure.or(status.reason.take());
        self.setup.status_sender.send_replace(SendStatus {
            object: ObjectStatus { members: Vec::new(), reason, ..status },
            elapsed: now.since(self.setup.started_at),
            begun: self.begun_at.map(|at| at.since(self.setup.started_at)),
            members,
            missing,
            traffic: *live.counters(),
            refusals: incidents.refusals,
            mismatch: incidents.mismatch,
            clones: self.clones.clone(),
            relay: live.relay(),
            ended,
        });
    }
}

fn look_interval(receivers: usize) -> Duration {
    (LOOK_EACH * receivers as u64).min(LOOK_MAX)
}

const LOOK_EACH: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_secs(3);

impl App<Sending> for Work {
    fn tick(&mut self, live: &mut Live<Sending>) {
        let load = host_load(live, self.setup.files.counts().waited);
        live.input(self.setup.session, ObjectSourceInput::Host(load));
        if live.now() < self.next_look_at {
            return;
        }
        self.watch_host(live);
        let Some(mut status) = self.status(live) else { return };
        self.follow_receivers(live, &status);
        match (live.send_singly(status.whole_lost), status.whole_lost) {
            (false, _) => {}
            (true, true) => tracing::warn!(
                "a receiver gets single packets of full length, and no data: packets are handed to the kernel one \
                 by one from now on (without UDP segmentation offload)"
            ),
            (true, false) => tracing::info!(
                "the receiver that got no data from UDP segmentation offload is served no more: packets are handed \
                 to the kernel together again"
            ),
        }
        self.next_look_at = live.now() + look_interval(status.members.len());
        self.note(live, &status);
        if self.begun_at.is_none() {
            self.begin(live, &status);
            let Some(after) = self.status(live) else { return };
            status = after;
        }
        // Under credits nothing is sent without receivers, so remaining content would never end.
        let over = [MemberState::Done, MemberState::Left, MemberState::Lost, MemberState::Failed];
        let is_over = |member: &MemberStatus| over.contains(&member.state);
        let all_over = !status.members.is_empty() && status.members.iter().all(is_over);
        if live.is_behind_relay() && self.begun_at.is_some() && all_over {
            live.close();
        }
        self.report(live, status, false, None);
    }
}

impl Worker<Sending> for Work {
    fn ended(mut self, live: &mut Live<Sending>, ended: Result<Ended, NetError>) {
        let status = self.status(live);
        if let Some(status) = &status {
            self.note(live, status);
        }
        let mut failure = ended.as_ref().err().map(ToString::to_string);
        failure = failure.or(self.given_up.take());
        if let Some(trace) = &self.setup.trace {
            let (mut names, mut aliases) = (BTreeMap::new(), BTreeMap::new());
            let mut intact = BTreeSet::new();
            for member in status.iter().flat_map(|status| &status.members) {
                if member.node != member.reporter {
                    aliases.insert(member.node, member.reporter);
                }
                if member.state == MemberState::Done {
                    intact.insert(member.reporter);
                }
                names.insert(member.node, member.name.clone());
                names.insert(member.reporter, member.name.clone());
            }
            let about = About {
                name: "transfer".to_string(),
                title: self.setup.title.clone(),
                scheme: self.setup.carrier.stack().name(),
                names,
                aliases,
                intact,
                packet_bytes: self.setup.packet_bytes,
                interrupted: !matches!(ended, Ok(Ended::Idle)),
            };
            failure = failure.or(trace.finish(&about).err().map(|error| error.to_string()));
        }
        if let Some(status) = status {
            self.report(live, status, true, failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_looked_at_seldom_and_some_each_tick() {
        for (receivers, ms) in [(0, 0), (1, 0), (1000, 100), (10_000, 1000), (65_536, 3000)] {
            assert_eq!(look_interval(receivers).as_millis(), ms, "{receivers}");
        }
    }
}
