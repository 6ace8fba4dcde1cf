//! Sending files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use faircast_base::{Bytes, Duration, Event, FlowId, NodeId, Time};
use faircast_files::{
    FilesSupply, PIPE_NAME, PipeSupply, Scan, ScanOptions, ScanTotals, SupplyHandle, Warning,
};
use faircast_net::{
    App, DriverSettings, Ended, Live, NetError, SessionId, SessionOptions, Sockets, Target, Waker,
};
use faircast_proto::object::{
    Fec, MemberState, MemberStatus, ObjectSource, ObjectSourceSetup, ObjectStatus, SlowPolicy,
    Stage, Supply,
};
use faircast_proto::options::OptionValue;
use faircast_trace::{Record, Sink as _, Subject};
use tokio::sync::watch;

use crate::Error;
use crate::common::{Common, common_settings, family, group_to, host_load, sender_settings};
use crate::envelope::{Watched, Wrapper};
use crate::session::{self, Plan, Worker, new_tsi};
use crate::status::{SendStatus, members};
use crate::trace::{About, LiveTrace};

/// Makes a [`Sender`]. Every setting has a default that suits a local network.
#[derive(Clone, Debug)]
#[must_use]
pub struct SenderBuilder {
    target: Target,
    common: Common,
    scan: ScanOptions,
    fec: Fec,
    slow: SlowPolicy,
    wait_for: u32,
    names: Vec<String>,
    start_after: Option<Duration>,
    wait_max: Option<Duration>,
    give_up: Duration,
}

/// Sends files and folders to many receivers, in a thread of its own: this is by what it is watched
/// and ended. Dropped, it ends as after [`close`](Self::close).
#[derive(Debug)]
pub struct Sender {
    waker: Waker<ObjectSource>,
    status: watch::Receiver<SendStatus>,
    supply: SupplyHandle,
    warnings: Vec<Warning>,
    totals: ScanTotals,
    link_mtu: Option<Bytes>,
    port: (u16, Option<String>),
}

impl Sender {
    /// Begins to say how it is to be made.
    pub fn builder(target: Target) -> SenderBuilder {
        SenderBuilder {
            target,
            common: Common::default(),
            scan: ScanOptions::default(),
            fec: Fec::Auto,
            slow: SlowPolicy::Wait,
            wait_for: 1,
            names: Vec::new(),
            start_after: None,
            wait_max: None,
            give_up: Duration::from_secs(30),
        }
    }

    /// How it stands, a few times a second. The last one has [`SendStatus::ended`] set.
    pub fn status(&self) -> watch::Receiver<SendStatus> {
        self.status.clone()
    }

    /// The files that it sends.
    pub fn supply(&self) -> &SupplyHandle {
        &self.supply
    }

    /// What was left out, and what may go wrong at receivers.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// How much is sent, and what was left out.
    pub const fn totals(&self) -> ScanTotals {
        self.totals
    }

    /// Bytes of the largest IP packet that leaves this host whole; `None` where that is not known.
    pub const fn link_mtu(&self) -> Option<Bytes> {
        self.link_mtu
    }

    /// The port to which receivers answer, and why it is not that of the target, where it is not.
    pub fn port(&self) -> (u16, Option<&str>) {
        (self.port.0, self.port.1.as_deref())
    }

    /// Begins to send content to whoever is there, though not all have come that are waited for.
    pub fn begin(&self) {
        self.waker.run(|live| {
            let all: Vec<SessionId> = live.sessions().collect();
            for id in all {
                live.with(id, |machine, cx| machine.begin(cx));
            }
        });
    }

    /// Ends it and tells the receivers. What they have stays with them.
    pub fn close(&self) {
        self.waker.close();
    }

    /// Ends it without a word.
    pub fn abort(&self) {
        self.waker.stop();
    }

    /// Waits until it has ended, and returns how it stood then.
    ///
    /// # Errors
    /// The content could not be read, or the network not be used.
    pub async fn finish(&mut self) -> Result<SendStatus, Error> {
        let last = self.status.wait_for(|status| status.ended).await;
        last.map(|status| status.clone()).map_err(|_| Error::Closed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.waker.close();
    }
}

impl SenderBuilder {
    common_settings!();
    sender_settings!();

    /// What is taken of the paths, and what it is called. Default: all but links that lead out of
    /// them, under the last component of the first path.
    pub fn scan(mut self, options: ScanOptions) -> Self {
        self.scan = options;
        self
    }

    /// Whether losses are repaired by parity. Default [`Fec::Auto`].
    pub fn fec(mut self, fec: Fec) -> Self {
        self.fec = fec;
        self
    }

    /// What is done about slow receivers. Default [`SlowPolicy::Wait`].
    pub fn slow(mut self, policy: SlowPolicy) -> Self {
        self.slow = policy;
        self
    }

    /// Content is sent once so many receivers are there. Default 1.
    pub fn wait_for(mut self, receivers: u32) -> Self {
        self.wait_for = receivers.max(1);
        self
    }

    /// Content is sent once the receivers of these names are there, and the sender has succeeded
    /// once they have it. Others are served too. Default: names do not matter.
    pub fn wait_for_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }

    /// Content is sent after this time with whoever is there, and where nobody is, as soon as
    /// somebody comes, for which it waits no longer than [`give_up`](Self::give_up) unless
    /// [`wait_max`](Self::wait_max) says otherwise. Default: never without those who are waited for.
    pub fn start_after(mut self, time: Duration) -> Self {
        self.start_after = Some(time);
        self
    }

    /// Where content has not begun after this time it ends, for want of receivers. Default: it waits
    /// for ever, unless there is a time to [`start_after`](Self::start_after).
    pub fn wait_max(mut self, time: Duration) -> Self {
        self.wait_max = Some(time);
        self
    }

    /// Silence after which a receiver counts as lost. Default 30 s.
    pub fn give_up(mut self, silence: Duration) -> Self {
        self.give_up = silence;
        self
    }

    /// Scans `paths`, each of which arrives under its last component, opens sockets and begins. A
    /// block device is sent alone, as an image of all that it has.
    ///
    /// # Errors
    /// A path cannot be sent, a setting is wrong, or the network cannot be used.
    pub fn send<P: AsRef<Path>>(self, paths: &[P]) -> Result<Sender, Error> {
        let found = Scan::new(paths, &self.scan)?;
        let seen = (found.warnings().to_vec(), found.totals());
        let supply = FilesSupply::new(found)?;
        let handle = supply.handle();
        self.start(Box::new(supply), handle, seen, title(paths))
    }

    /// Opens sockets and sends what `pipe` gives, as an image of the name that was set, or `pipe`. All
    /// of it is kept in an unnamed file in the folder `spool` until this ends, so that losses can be
    /// repaired and late receivers served; the pipe waits for the receivers.
    ///
    /// # Errors
    /// The folder cannot be used, a setting is wrong, or the network cannot be used.
    pub fn send_pipe(
        self,
        pipe: impl Read + Send + 'static,
        spool: impl AsRef<Path>,
    ) -> Result<Sender, Error> {
        let name = self.scan.name.as_deref().unwrap_or(PIPE_NAME);
        let title = format!("the pipe {name} to many receivers");
        let supply = PipeSupply::new(pipe, name, spool.as_ref())?;
        let handle = supply.handle();
        // How much it is shows in the end.
        let seen = (Vec::new(), ScanTotals { files: 1, ..ScanTotals::default() });
        self.start(Box::new(supply), handle, seen, title)
    }

    fn start(
        self,
        supply: Box<dyn Supply>,
        handle: SupplyHandle,
        (warnings, totals): (Vec<Warning>, ScanTotals),
        title: String,
    ) -> Result<Sender, Error> {
        let (address, group) = (family(&self.target), group_to(&self.target));
        let unrepaired = [("reliable", OptionValue::Bool(false))];
        let (scheme, options) = self.common.scheme(&unrepaired)?;
        let payload = self.common.payload(address, scheme)?;
        // Symbols are of an even number of bytes, and begin with a header.
        let symbol_bytes = (payload - SYMBOL_HEADER_BYTES).min(SYMBOL_BYTES_MAX) & !1;
        let sockets = Sockets::source(self.target.clone(), self.common.sockets.clone())?;
        let link_mtu = sockets.link_mtu();
        let port =
            (sockets.local_address().port(), sockets.port_refused().map(ToString::to_string));
        let watched = Watched::default();
        let trace = self.common.trace.as_deref().map(LiveTrace::create).transpose()?;
        let (tell, status) = watch::channel(SendStatus {
            missing: self.names.clone(),
            ..SendStatus::new(handle.counts().bytes)
        });
        let plan = Plan {
            name: "faircast-send",
            sockets,
            settings: DriverSettings { patience: PATIENCE, ..DriverSettings::default() },
            pgm: Default::default(),
            wrapper: Wrapper::source(self.common.key.clone(), watched.clone())?,
            trace: trace.clone(),
        };
        let files = handle.clone();
        let waker = session::start(plan, move |live: &mut Live<ObjectSource>| {
            let tsi = new_tsi();
            let started = live.now();
            let mut machine = scheme.object_source(ObjectSourceSetup {
                node: live.node(),
                group,
                tsi,
                data_port: address.port(),
                start: started,
                supply,
                symbol_bytes: symbol_bytes as u16,
                fec: self.fec,
                // By names it is begun from here.
                wait_for: if self.names.is_empty() { self.wait_for } else { u32::MAX },
                give_up: self.give_up,
                slow: self.slow,
                options: &options,
            });
            let names: BTreeSet<String> = self.names.into_iter().collect();
            machine.wait_for_names(names.clone());
            let session = live.add(machine, SessionOptions { key: Some(tsi), subject: None });
            Ok(Work {
                session,
                files,
                started,
                names,
                start_after: self.start_after.map(|after| started + after),
                wanted: self.wait_for,
                wait_max: self.wait_max.or(self.start_after.map(|after| after + self.give_up)),
                gave_up: None,
                look_at: started,
                expected: BTreeSet::new(),
                takers: BTreeSet::new(),
                begun: None,
                tell,
                watched,
                trace,
                traced: BTreeMap::new(),
                limiting: None,
                title,
                scheme: scheme.name,
                packet_bytes: symbol_bytes.into(),
            })
        })?;
        Ok(Sender { waker, status, supply: handle, warnings, totals, link_mtu, port })
    }
}

/// What the thread does beside driving.
struct Work {
    session: SessionId,
    files: SupplyHandle,
    started: Time,
    /// Receivers that are waited for by name.
    names: BTreeSet<String>,
    start_after: Option<Time>,
    /// How many receivers are waited for where they are not by name.
    wanted: u32,
    /// How long it waits for content to begin, and why it has ended where it waited in vain.
    wait_max: Option<Duration>,
    gave_up: Option<String>,
    /// When all receivers are looked at again.
    look_at: Time,
    /// Receivers that were there when content began.
    expected: BTreeSet<u64>,
    /// Receivers that have taken the list of files, or said why they cannot.
    takers: BTreeSet<u64>,
    begun: Option<Time>,
    tell: watch::Sender<SendStatus>,
    watched: Watched,
    trace: Option<LiveTrace>,
    /// What the trace and the log know of receivers.
    traced: BTreeMap<NodeId, MemberState>,
    /// Who limits the rate, as the log knows it.
    limiting: Option<NodeId>,
    title: String,
    scheme: &'static str,
    packet_bytes: u64,
}

impl Work {
    /// Begins content once it is time.
    fn begin(&mut self, live: &mut Live<ObjectSource>, status: &ObjectStatus) {
        if status.stage != Stage::Gathering {
            return;
        }
        let now = live.now();
        // Who cannot take it has come nevertheless, and is told at the end.
        let come = [MemberState::Receiving, MemberState::Done, MemberState::Failed];
        let here: BTreeSet<&str> = status
            .members
            .iter()
            .filter(|member| come.contains(&member.state))
            .map(|member| member.name.as_str())
            .collect();
        let all = !self.names.is_empty() && self.names.iter().all(|name| here.contains(&**name));
        let late = self.start_after.is_some_and(|at| at <= now) && !here.is_empty();
        if all || late {
            live.with(self.session, |machine, cx| machine.begin(cx));
        } else if let Some(limit) = self.wait_max.filter(|limit| now.since(self.started) >= *limit)
            && self.gave_up.is_none()
        {
            let missing: Vec<&str> =
                self.names.iter().map(String::as_str).filter(|name| !here.contains(name)).collect();
            let come = status.members.iter().filter(|member| come.contains(&member.state)).count();
            self.gave_up = Some(match (come, &missing[..]) {
                (0, _) => format!("no receiver came within {limit}"),
                (_, []) => format!("{come} of {} receivers came within {limit}", self.wanted),
                (_, missing) => {
                    format!("within {limit} these did not come: {}", missing.join(", "))
                }
            });
            live.close();
        }
    }

    /// Notes in the trace and in the log what receivers have said of themselves.
    fn note(&mut self, live: &mut Live<ObjectSource>, status: &ObjectStatus) {
        let logs = tracing::enabled!(target: "faircast::session", tracing::Level::DEBUG);
        if self.trace.is_none() && !logs {
            return;
        }
        let at = live.now();
        if logs {
            self.log_changes(live, status);
        }
        for member in &status.members {
            let before = self.traced.insert(member.reporter, member.state);
            let Some(trace) = &mut self.trace else { continue };
            let subject =
                Subject::Endpoint { flow: FlowId(0), node: member.reporter, sender: false };
            let mut tell = |event| trace.record(&Record { at, subject, event });
            if before.is_none() {
                tell(Event::Joined);
            }
            match member.state {
                state if before == Some(state) => {}
                MemberState::Done => tell(Event::Completed { bytes: member.bytes }),
                MemberState::Left | MemberState::Lost | MemberState::Failed => tell(Event::Left),
                _ => {}
            }
        }
    }

    /// Logs which receivers have come to another state, and who limits the rate now.
    fn log_changes(&mut self, live: &Live<ObjectSource>, status: &ObjectStatus) {
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

    /// Lets receivers that were started again take the place of what they were before. Returns whether
    /// there were any.
    fn replace_restarted(&mut self, live: &mut Live<ObjectSource>, status: &ObjectStatus) -> bool {
        let now = live.now();
        let pairs = restarts(&status.members, now, |node| Some(live.address(node)?.ip()));
        for &(old, new) in &pairs {
            if self.expected.remove(&old) {
                self.expected.insert(new);
            }
            live.with(self.session, |machine, cx| machine.dismiss(cx, old));
        }
        !pairs.is_empty()
    }

    fn status(&self, live: &Live<ObjectSource>) -> Option<ObjectStatus> {
        live.machine(self.session).map(|machine| machine.status())
    }

    fn report(
        &mut self,
        live: &mut Live<ObjectSource>,
        mut status: ObjectStatus,
        ended: bool,
        failure: Option<String>,
    ) {
        if self.replace_restarted(live, &status) {
            let Some(without) = self.status(live) else { return };
            status = without;
        }
        let now = live.now();
        if status.begun.is_some() && self.begun.is_none() {
            self.begun = status.begun;
            if self.names.is_empty() {
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
        // Of nobody else: there may be no end of those who come and leave.
        let takers = status.members.iter().filter(took).map(|member| member.id).collect();
        self.takers = takers;
        // Who left without having taken the list of files came for another object.
        for member in status.members.iter().filter(|member| member.state == MemberState::Left) {
            if !self.takers.contains(&member.id) {
                self.expected.remove(&member.id);
            }
        }
        let incidents = *self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_expected =
            |id: u64, name: &str| self.expected.contains(&id) || self.names.contains(name);
        let members = members(live, self.started, &status, is_expected);
        let heard: BTreeSet<&str> = members.iter().map(|member| &*member.name).collect();
        let missing = self.names.iter().filter(|name| !heard.contains(&***name)).cloned();
        let missing = missing.collect();
        self.tell.send_replace(SendStatus {
            stage: status.stage,
            elapsed: now.since(self.started),
            begun: self.begun.map(|at| at.since(self.started)),
            bytes_total: status.bytes_total.unwrap_or_default(),
            growing: status.growing,
            bytes_least: status.bytes_done,
            symbols: status.symbols,
            parity: status.parity,
            repairs: status.repairs,
            requests: status.requests,
            rate_bits_per_s: status.rate_bits_per_s,
            rtt: status.rtt,
            members,
            missing,
            traffic: *live.counters(),
            refusals: incidents.refusals,
            mismatch: incidents.mismatch,
            limits: status.limits,
            reason: failure.or(status.reason),
            ended,
        });
    }
}

/// Members in whose place others have come: of the same name at the same host, after their last
/// word. Two that both speak both stay, and who has everything stays too.
fn restarts(
    members: &[MemberStatus],
    now: Time,
    host: impl Fn(NodeId) -> Option<IpAddr>,
) -> Vec<(u64, u64)> {
    use MemberState::{Done, Failed, Left, Lost};
    // Each speaks once in 20 ms for each member, and at least once a second.
    let silence = (SILENCE_EACH * members.len() as u64).max(SILENCE_MIN);
    let gone = |member: &MemberStatus| matches!(member.state, Failed | Left | Lost);
    let mut newest: BTreeMap<(&str, IpAddr), &MemberStatus> = BTreeMap::new();
    // Where it joined: whoever repeats its words from elsewhere makes it nobody else.
    let key = |member: &MemberStatus| host(member.home).filter(|_| !member.name.is_empty());
    for member in members.iter().filter(|member| !gone(member)) {
        let Some(ip) = key(member) else { continue };
        let newest = newest.entry((&member.name, ip)).or_insert(member);
        if member.since > newest.since {
            *newest = member;
        }
    }
    let mut pairs = Vec::new();
    for old in members.iter().filter(|member| member.state != Done) {
        let Some(ip) = key(old) else { continue };
        let Some(new) = newest.get(&(&*old.name, ip)) else { continue };
        let replaced = gone(old) || now.since(new.since) >= silence;
        if new.id != old.id && new.since > old.home_heard && replaced {
            pairs.push((old.id, new.id));
        }
    }
    pairs
}

/// After how long so many receivers are looked at again: some of them each tick, and of thousands, which
/// may have been invented, about as many in each second.
fn look_interval(receivers: usize) -> Duration {
    (LOOK_EACH * receivers as u64).min(LOOK_MAX)
}

/// Many times what it costs to look at one of them.
const LOOK_EACH: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_secs(3);

/// Time in which a member speaks several times: so much for each member, and at least.
const SILENCE_EACH: Duration = Duration::from_millis(60);
const SILENCE_MIN: Duration = Duration::from_secs(3);

impl App<ObjectSource> for Work {
    fn tick(&mut self, live: &mut Live<ObjectSource>) {
        let load = host_load(live, self.files.counts().waited);
        live.with(self.session, |machine, _| machine.note_host(load));
        if live.now() < self.look_at {
            return;
        }
        let Some(mut status) = self.status(live) else { return };
        self.look_at = live.now() + look_interval(status.members.len());
        self.note(live, &status);
        if self.begun.is_none() {
            self.begin(live, &status);
            let Some(after) = self.status(live) else { return };
            status = after;
        }
        self.report(live, status, false, None);
    }
}

impl Worker<ObjectSource> for Work {
    fn ended(mut self, live: &mut Live<ObjectSource>, ended: Result<Ended, NetError>) {
        let status = self.status(live);
        if let Some(status) = &status {
            self.note(live, status);
        }
        let mut failure = ended.as_ref().err().map(ToString::to_string);
        failure = failure.or(self.gave_up.take());
        if let Some(trace) = &self.trace {
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
                title: self.title.clone(),
                scheme: self.scheme.to_string(),
                names,
                aliases,
                intact,
                packet_bytes: self.packet_bytes,
                interrupted: !matches!(ended, Ok(Ended::Idle)),
            };
            failure = failure.or(trace.finish(&about).err().map(|error| error.to_string()));
        }
        if let Some(status) = status {
            self.report(live, status, true, failure);
        }
    }
}

/// What is sent, in a line.
fn title<P: AsRef<Path>>(paths: &[P]) -> String {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_path_buf()).collect();
    match &paths[..] {
        [one] => format!("{} to many receivers", one.display()),
        [first, others @ ..] => format!("{} and {} more", first.display(), others.len()),
        [] => String::new(),
    }
}

/// How long a sender that was closed waits for the last words to be said.
const PATIENCE: Duration = Duration::from_secs(3);
const SYMBOL_HEADER_BYTES: u32 = 8;
const SYMBOL_BYTES_MAX: u32 = 65_408;

#[cfg(test)]
mod tests {
    use faircast_proto::object::MemberLoad;

    use super::*;

    #[test]
    fn thousands_are_looked_at_seldom_and_some_each_tick() {
        for (receivers, ms) in [(0, 0), (1, 0), (1000, 100), (10_000, 1000), (65_536, 3000)] {
            assert_eq!(look_interval(receivers).as_millis(), ms, "{receivers}");
        }
    }

    #[test]
    fn who_comes_back_takes_its_own_place_and_nobody_elses() {
        use MemberState::{Done, Left, Receiving};
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let member = |id: u64, name: &str, since: u64, heard: u64, state| MemberStatus {
            id,
            node: NodeId(id as u32),
            home: NodeId(id as u32),
            home_heard: at(heard),
            reporter: NodeId(id as u32),
            name: name.to_string(),
            state,
            bytes: 0,
            found: 0,
            loss: 0.0,
            since: at(since),
            heard: at(heard),
            done: None,
            reason: String::new(),
            load: MemberLoad::default(),
            limit: None,
        };
        let new = |name| member(2, name, 7, 10, Receiving);
        // Somebody repeats the last word of one that was killed.
        let repeated =
            MemberStatus { node: NodeId(9), heard: at(10), ..member(1, "a", 0, 5, Receiving) };
        for (case, old, new, want) in [
            ("repeated from elsewhere", repeated, new("a"), &[(1, 2)][..]),
            ("killed", member(1, "a", 0, 5, Receiving), new("a"), &[(1, 2)][..]),
            ("both alive", member(1, "a", 0, 9, Receiving), new("a"), &[]),
            ("another name", member(1, "b", 0, 5, Receiving), new("a"), &[]),
            ("no name", member(1, "", 0, 5, Receiving), new(""), &[]),
            ("another host", member(9, "a", 0, 5, Receiving), new("a"), &[]),
            ("done", member(1, "a", 0, 5, Done), new("a"), &[]),
            ("too early", member(1, "a", 0, 5, Receiving), member(2, "a", 8, 9, Done), &[]),
            ("left", member(1, "a", 0, 5, Left), member(2, "a", 8, 9, Done), &[(1, 2)]),
            ("gone again", member(1, "a", 0, 5, Receiving), member(2, "a", 7, 8, Left), &[]),
        ] {
            let host = |node: NodeId| Some(IpAddr::from([10, 0, 0, u8::from(node.0 > 5)]));
            assert_eq!(restarts(&[old, new], at(10), host), want, "{case}");
        }
    }
}
