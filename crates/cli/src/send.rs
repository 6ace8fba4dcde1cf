//! `faircast send`: files to many receivers.

mod plan;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration as WallDuration, Instant};

use faircast::{
    Fec, GroupKey, Limit, Member, MemberState, Multicast, PathLimit, SendStatus, Sender,
    SenderBuilder, SocketSettings, Stage, Target,
};
use faircast_base::{Bitrate, Duration};
use serde_json::json;
use tokio::time::{sleep, timeout};

use self::report::{Labels, Summary, limited_by, member_json, metrics, summary_json, summary_text};
use crate::args::{SendArgs, fec};
use crate::error::{Failure, Result};
use crate::interrupt::{interrupted, listen};
use crate::live::display::{Hints, Left, Meter};
use crate::live::words::{bytes, count, rate};
use crate::live::{self, Above, Output, with};

pub(crate) fn send(args: &SendArgs) -> Result {
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args))
}

async fn run(args: &SendArgs) -> Result {
    let pipe = pipe(args)?;
    if args.files.dry_run {
        return plan::show(args);
    }
    let to = live::receivers(&args.to, args.group)?;
    let wanted = match &args.wait.receivers {
        Some(file) => Wanted::Names(names(file)?),
        None => Wanted::Count(args.wait_for.unwrap_or(to.len().max(1) as u32)),
    };
    let listener = live::metrics::listen(&args.watch).await?;
    let is_for_this_host = is_for_this_host(&to);
    let builder = builder(args, to, &wanted)?;
    let sender = match pipe {
        Some(pipe) => builder.send_pipe(pipe, plan::spool(args)),
        None => builder.send(&args.paths),
    };
    let sender = sender.map_err(|error| live::failure(error, args.group.is_some()))?;
    let output = Output::new(&args.watch);
    for warning in sender.warnings() {
        output.warn(&warning.to_string())?;
    }
    if let Some(link) = sender.link_mtu().filter(|link| *link < args.repair.mtu) {
        output.warn(&format!(
            "--mtu {}: the link takes {} bytes, so that each packet is cut into pieces and lost \
             with any of them; use --mtu {}, or raise the MTU of the interface",
            args.repair.mtu.count(),
            link.count(),
            link.count()
        ))?;
    }
    if let (port, Some(why)) = sender.port()
        && !is_for_this_host
    {
        output.warn(&format!(
            "{why}; so receivers answer to port {port}, which a firewall may not pass: end what has \
             the other port, or choose another one"
        ))?;
    }
    if let Some(listener) = listener {
        let status = sender.status();
        let fill = move |registry: &mut _| metrics(registry, &status.borrow());
        live::metrics::serve(listener, fill, || None);
    }
    let (what, place) = (plan::what(args, &sender.totals()), plan::place(args));
    output.tell(
        "waiting",
        &format!("{what}, to {place}; waiting for receivers"),
        plan::json(args, &sender.totals()),
    )?;
    let mut reporter = Reporter::new(output, wanted, args.repair.rate_min);
    let last = watch(&sender, &mut reporter).await?;
    reporter.finish(args, &sender, &last)
}

fn pipe(args: &SendArgs) -> Result<Option<File>> {
    let wrong = |text: &str| Err(Failure::usage(text));
    match (plan::is_pipe(args), &args.files.spool) {
        (false, None) => return Ok(None),
        (false, Some(_)) => return wrong("--spool: keeps what comes from a pipe; expected send -"),
        (true, _) if args.paths.len() > 1 => {
            return wrong("-: standard input is sent alone; send files one time and it another");
        }
        (true, _) => {}
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return wrong("-: standard input is a terminal; expected a pipe or a file");
    }
    let input = input.as_fd().try_clone_to_owned();
    let input = input.map_err(|error| Failure::Work(format!("-: cannot be read: {error}")))?;
    Ok(Some(File::from(input)))
}

fn is_for_this_host(to: &[SocketAddr]) -> bool {
    to.iter().any(|to| UdpSocket::bind((to.ip(), 0)).is_ok())
}

async fn watch(sender: &Sender, reporter: &mut Reporter) -> Result<SendStatus> {
    let mut status = sender.status();
    let mut closing = false;
    loop {
        let now = status.borrow_and_update().clone();
        reporter.update(&now)?;
        if now.ended {
            return Ok(now);
        }
        if interrupted() && !closing {
            closing = true;
            reporter.output.warn("ending, and telling the receivers; Ctrl-C again ends at once")?;
            sender.close();
        }
        match timeout(STATUS_INTERVAL, status.changed()).await {
            Ok(Err(_)) if !status.borrow().ended => {
                return Err(Failure::work("the sending thread has failed"));
            }
            Ok(_) => sleep(STATUS_INTERVAL / 4).await,
            Err(_) => {}
        }
    }
}

fn builder(args: &SendArgs, to: Vec<SocketAddr>, wanted: &Wanted) -> Result<SenderBuilder> {
    let interfaces = args.interface.iter().map(|name| live::interface(Some(name))).collect();
    let group = args.group.map(|group| Multicast { interfaces, ..Multicast::new(group) });
    let target = match group {
        Some(group) if to.is_empty() => Target::Multicast(group),
        Some(group) => Target::Both(group, to),
        None => Target::Unicast(to),
    };
    let (fec, options) = parity(args)?;
    let mut builder = Sender::builder(target)
        .scheme(&args.repair.scheme)
        .sockets(SocketSettings { hops: args.repair.ttl, ..SocketSettings::default() })
        .mtu(args.repair.mtu)
        .give_up(args.wait.give_up)
        .stall_max(args.wait.stall_max)
        .via(live::relays(&args.via, args.group)?)
        .host_name(live::host_name())
        .fec(fec)
        .slow(args.wait.slow);
    for (key, value) in live::options(&options)? {
        builder = builder.option(key, value);
    }
    if let (Some(least), Some(most)) = (args.repair.rate_min, args.rate_max)
        && least > most
    {
        return Err(Failure::usage(
            "--rate-min is more than --rate-max; expected no more than that",
        ));
    }
    if let (Some(after), Some(max)) = (args.wait.start_after, args.wait.wait_max)
        && max < after
    {
        return Err(Failure::usage(
            "--wait-max is less than --start-after; expected no less than that",
        ));
    }
    builder = builder.scan(args.files.scan()?);
    builder = with(builder, args.via.meeting.as_ref(), SenderBuilder::meeting);
    builder = with(builder, args.rate_max, SenderBuilder::rate_max);
    builder = with(builder, args.repair.rate_min, SenderBuilder::rate_min);
    builder = with(builder, live::read_key(&args.key, GroupKey::read)?, SenderBuilder::key);
    builder = with(builder, args.wait.start_after, SenderBuilder::start_after);
    builder = with(builder, args.wait.wait_max, SenderBuilder::wait_max);
    builder = with(builder, args.trace.as_ref(), SenderBuilder::trace);
    Ok(match wanted {
        Wanted::Count(count) => builder.wait_for(*count),
        Wanted::Names(names) => builder.wait_for_names(names.iter().cloned()),
    })
}

fn parity(args: &SendArgs) -> Result<(Fec, Vec<String>)> {
    let is_parity = |text: &&String| text.split('=').next().is_some_and(|key| key.trim() == "fec");
    let (named, others): (Vec<_>, Vec<_>) = args.repair.options.iter().partition(is_parity);
    let mut choices: Vec<Fec> = args.repair.fec.into_iter().collect();
    for text in named {
        let value = text.split_once('=').map_or("", |(_, value)| value.trim().trim_matches('"'));
        let choice =
            fec(value).map_err(|error| Failure::Usage(format!("--option fec={value}: {error}")))?;
        choices.push(choice);
    }
    if choices.iter().any(|choice| *choice != choices[0]) {
        return Err(Failure::usage(
            "--fec and --option fec say different things; expected one of them",
        ));
    }
    let fec = choices.first().copied().unwrap_or(Fec::Auto);
    Ok((fec, others.into_iter().cloned().collect()))
}

fn names(file: &std::path::Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("--receivers {}: {error}", file.display())))?;
    let lines = text.lines().map(str::trim);
    let names: BTreeSet<String> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(Into::into).collect();
    if names.is_empty() {
        let file = file.display();
        return Err(Failure::Usage(format!("--receivers {file}: expected one name a line")));
    }
    Ok(names)
}

struct Reporter {
    output: Output,
    wanted: Wanted,
    rate_min: Option<Bitrate>,
    states: BTreeMap<u64, MemberState>,
    is_begun: bool,
    warned: Warned,
    hints: Hints,
    above: Above,
    sent: Meter,
    received: Meter,
    limits: (Instant, Vec<Limit>),
    limited: Option<&'static str>,
}

enum Wanted {
    Count(u32),
    Names(BTreeSet<String>),
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

fn clones(status: &SendStatus, (one, other): (u64, u64)) -> String {
    let called = |id: u64| {
        let member = status.members.iter().find(|member| member.id == id);
        let at = member.and_then(|it| it.address).map_or_else(String::new, |it| format!(" ({it})"));
        member.map_or_else(|| format!("{id:016x}"), |it| it.label()) + &at
    };
    format!(
        "{} and {} have one identity: the folder of one is a copy of the other's, with its .faircast. Both count; \
         should one be started again it may be taken for lost. Remove .faircast from the copy before the next start",
        called(one),
        called(other)
    )
}

#[derive(Default)]
struct Warned {
    mismatch: bool,
    clones: BTreeSet<(u64, u64)>,
    unsent: bool,
    paths: BTreeMap<u64, PathLimit>,
}

impl Reporter {
    fn new(output: Output, wanted: Wanted, rate_min: Option<Bitrate>) -> Self {
        Self {
            output,
            wanted,
            rate_min,
            states: BTreeMap::new(),
            is_begun: false,
            warned: Warned::default(),
            hints: Hints::default(),
            above: Above::new(),
            sent: Meter::short_term(),
            received: Meter::long_term(),
            limits: (Instant::now(), Vec::new()),
            limited: None,
        }
    }

    fn update(&mut self, status: &SendStatus) -> Result {
        self.above.update(&self.output, status.relay.as_ref())?;
        let labels = Labels::new(&status.members);
        let mut changed = Vec::new();
        for member in &status.members {
            let before = self.states.insert(member.id, member.state);
            if before.is_none() {
                let at = member.address.map_or(String::new(), |it| format!(" ({it})"));
                let text = format!("{}{at} joined", member.label());
                self.output.tell("joined", &text, member_json(member))?;
                if let (Some(limit), Some(least)) = (member.rate_max, self.rate_min)
                    && limit < least
                {
                    self.output.warn(&format!(
                        "{} asks for no more than {limit}: --rate-min {least} is more, and holds",
                        member.label()
                    ))?;
                }
            }
            if before != Some(member.state) {
                changed.push((before, member));
            }
        }
        // Changes of one look: members that join or receive are reported before members that ended.
        changed.sort_by_key(|(_, member)| member.state > MemberState::Receiving);
        let first = changed.partition_point(|(_, member)| member.state <= MemberState::Receiving);
        let (ready, others) = changed.split_at(first);
        ready.iter().try_for_each(|(before, member)| self.state(*before, member, &labels))?;
        if status.begun.is_some() && !self.is_begun {
            self.is_begun = true;
            let here = status.members.len() as u64;
            let text = format!("sending to {}", count(here, "receiver"));
            self.output.tell("begun", &text, json!({ "receivers": here }))?;
        }
        others.iter().try_for_each(|(before, member)| self.state(*before, member, &labels))?;
        self.paths(status)?;
        self.trouble(status)?;
        if self.is_begun { self.progress(status, &labels) } else { self.gathering(status) }
    }

    fn paths(&mut self, status: &SendStatus) -> Result {
        let is_served =
            |member: &&Member| matches!(member.state, MemberState::Joined | MemberState::Receiving);
        let is_changed =
            |member: &&Member| self.warned.paths.get(&member.id).copied() != member.path;
        let changed: Vec<&Member> = status.members.iter().filter(is_changed).collect();
        for member in changed.iter().filter(|member| member.path.is_none()) {
            self.warned.paths.remove(&member.id);
            if is_served(member) {
                self.output.warn(&format!("{} gets long packets again", member.label()))?;
            }
        }
        let mut short: BTreeMap<(u32, u32), Vec<&Member>> = BTreeMap::new();
        for member in changed {
            if let Some(path) = member.path {
                self.warned.paths.insert(member.id, path);
                short.entry((path.arrives, path.sent)).or_default().push(member);
            }
        }
        let others = status.members.iter().filter(is_served).any(|member| member.path.is_none());
        for ((arrives, sent), members) in short {
            let names = listed(members.iter().map(|member| member.label()));
            let get = if members.len() == 1 { "gets" } else { "get" };
            let (way, rest) = match others {
                true => ("the way there", "; the others go on"),
                false => ("this host or the way", ""),
            };
            self.output.warn(&format!(
                "{names} {get} only packets of up to {arrives} bytes, and content is sent in packets of {sent}: \
                 start the sender again with --mtu {arrives}, or raise the MTU of {way}{rest}"
            ))?;
        }
        Ok(())
    }

    fn state(&self, before: Option<MemberState>, member: &Member, labels: &Labels) -> Result {
        let label = labels.of(member);
        let (event, text) = match member.state {
            MemberState::Joined => return Ok(()),
            MemberState::Receiving if before == Some(MemberState::Deferred) => {
                ("ready", format!("{label} is served now"))
            }
            MemberState::Receiving => ("ready", String::new()),
            MemberState::Done => ("done", format!("{label} has everything")),
            MemberState::Deferred => {
                ("deferred", format!("{label} is too slow, and is served after the others"))
            }
            MemberState::Failed => ("failed", format!("{label} failed: {}", member.reason)),
            MemberState::Left => ("left", format!("{label} left")),
            MemberState::Lost => ("lost", format!("{label} fell silent")),
        };
        self.output.tell(event, &text, member_json(member))
    }

    fn trouble(&mut self, status: &SendStatus) -> Result {
        for pair in &status.clones {
            if self.warned.clones.insert(*pair) {
                self.output.warn(&clones(status, *pair))?;
            }
        }
        if let (Some(mismatch), false) = (status.mismatch, self.warned.mismatch) {
            self.warned.mismatch = true;
            self.output.warn(&format!("a receiver cannot join: {mismatch}"))?;
        }
        let sent = &status.traffic.sent;
        let late = status.elapsed > UNSENT_AFTER;
        if late && sent.unsent > 0 && sent.datagrams == 0 && !self.warned.unsent {
            self.warned.unsent = true;
            self.output.warn(
                "the network takes nothing: is the interface up, and has it an address and a route \
                 to the group?",
            )?;
        }
        Ok(())
    }

    fn gathering(&mut self, status: &SendStatus) -> Result {
        let present = status
            .members
            .iter()
            .filter(|member| matches!(member.state, MemberState::Receiving | MemberState::Done));
        let text = match &self.wanted {
            Wanted::Count(wanted) => {
                format!("{} of {} here", present.clone().count(), count(*wanted, "receiver"))
            }
            Wanted::Names(names) => {
                let here: BTreeSet<&str> = present.clone().map(|member| &*member.name).collect();
                let missing = names.iter().filter(|name| !here.contains(&***name));
                format!("waiting for {}", listed(missing.cloned()))
            }
        };
        self.output.waiting(|| text.clone());
        if status.ended || !self.hints.is_due(status.elapsed) {
            return Ok(());
        }
        let mut text = format!("still waiting, {text}");
        if status.members.is_empty() {
            text.push_str(NOBODY_ANSWERS);
        }
        self.output.tell("waiting", &text, json!({ "receivers": status.members.len() }))
    }

    fn progress(&mut self, status: &SendStatus, labels: &Labels) -> Result {
        let now = Instant::now();
        self.sent.observe(now, status.traffic.sent.bytes);
        self.received.observe(now, status.object.bytes_done);
        let share = match status.bytes_total() {
            0 => 1.0,
            total => status.object.bytes_done as f64 / total as f64,
        };
        if now.duration_since(self.limits.0) >= LIMITS_INTERVAL {
            self.limited = limited_by(&self.limits.1, &status.object.limits);
            self.limits = (now, status.object.limits.clone());
        }
        let slow = status.relay.as_ref().and_then(|relay| relay.slow.as_ref());
        let limited = slow
            .map(|it| format!("{} ({})", it.name, rate(it.bits_per_s as f64)))
            .or(self.limited.map(ToString::to_string));
        let speed = self.sent.per_s() * 8.0;
        let limiting = status.members.iter().find(|member| member.limits);
        let missing = status.bytes_total().saturating_sub(status.object.bytes_done);
        let stalled_after = STALLED_AFTER.max(STALLED_PER_RECEIVER * status.members.len() as u32);
        // The remaining time of a pipe is unknown.
        let left =
            self.received.left(now, missing, stalled_after).filter(|_| !status.object.growing);
        let text = || {
            let receivers = count(status.members.len() as u64, "receiver");
            let done = format!("{} of {receivers} done", status.done());
            let then = match (left, status.object.stage) {
                _ if status.object.growing => format!(", {} so far", bytes(status.bytes_total())),
                (_, Stage::Verifying) => ", they compare what they have".to_string(),
                (Some(left), _) => format!(", {}", left.words()),
                (None, _) => String::new(),
            };
            let receiver = limiting.map(|member| labels.of(member));
            let by = limited.or(receiver);
            let by = by.map(|by| format!(" limited by {by}"));
            format!("{}{}, {done}{then}", rate(speed), by.unwrap_or_default())
        };
        let json = || {
            json!({
                "seconds": status.elapsed.as_secs_f64(),
                "bytes_total": status.bytes_total(),
                "growing": status.object.growing,
                "bytes_least": status.object.bytes_done,
                "bytes_sent": status.traffic.sent.bytes,
                "sent_bits_per_s": speed,
                "rate_bits_per_s": status.object.rate_bits_per_s,
                "rtt_seconds": status.object.rtt.map(|rtt| rtt.as_secs_f64()),
                "receivers": status.members.len(),
                "done": status.done(),
                "limiting": limiting.map(|member| labels.of(member)),
                "slow_link": slow.map(|it| json!({ "name": it.name, "rate_bits_per_s": it.bits_per_s })),
                "seconds_left": left.and_then(Left::seconds),
            })
        };
        self.output.progress(share, text, json)
    }

    fn finish(mut self, args: &SendArgs, sender: &Sender, last: &SendStatus) -> Result {
        let enough = match self.wanted {
            Wanted::Count(count) => {
                args.wait.start_after.is_some() || last.done() >= count as usize
            }
            Wanted::Names(_) => true,
        };
        let skipped = sender.totals().skipped;
        let good = last.succeeded() && enough && skipped.lacking == 0;
        let hashes = sender.supply().file_hashes().ok().flatten().unwrap_or_default();
        let mut text = summary_text(last);
        if let Some(reason) = last.object.reason.as_ref().filter(|_| !last.succeeded() || !enough) {
            text.push_str(&format!("ended: {reason}\n"));
        }
        text.push_str(&plan::skipped_text(&skipped));
        let summary = Summary { fields: summary_json(last, good, &skipped), files: &hashes };
        self.output.result("summary", &text, &summary)?;
        if good { Ok(()) } else { Err(Failure::AlreadyTold) }
    }
}

/// Time without progress that counts as stalled: 5 s, or 60 ms for each receiver if that is more.
const STALLED_AFTER: WallDuration = WallDuration::from_secs(5);
const STALLED_PER_RECEIVER: WallDuration = WallDuration::from_millis(60);

const NAMES_SHOWN: usize = 5;
const NOBODY_ANSWERS: &str = "; nobody has answered: is `faircast recv` running there, with the \
                              same group, port and key, and does multicast get through?";

/// Interval between looks at the limits, long enough to average out chance: 1 s.
const LIMITS_INTERVAL: WallDuration = WallDuration::from_secs(1);

const UNSENT_AFTER: Duration = Duration::from_secs(2);

const STATUS_INTERVAL: WallDuration = WallDuration::from_millis(200);
