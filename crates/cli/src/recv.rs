//! `faircast recv`: receives objects that are sent to a group.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration as WallDuration, Instant};

use faircast::{
    CommandOptions, DeviceOptions, Incoming, Listen, Multicast, ObjectStatus, PathLimit,
    ReceiveOutcome, ReceiveStatus, Received, ReceivedFile, Receiver, ReceiverBuilder, RepairTree,
    SocketSettings, Stage, StaysFor, shown_path,
};
use faircast_base::Duration;
use faircast_net::interface_name;
use faircast_proto::options::OptionValue;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::args::RecvArgs;
use crate::error::Failure;
use crate::live::display::{Hints, Meter};
use crate::live::metrics::{counters, gauges, traffic};
use crate::live::words::{bytes, count, hex, path_text, rate, seat_json, time};
use crate::live::{self, Above, Output, with};
use crate::progress::{interrupted, listen};

pub(crate) fn recv(args: &RecvArgs) -> Result<(), Failure> {
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args))
}

async fn run(args: &RecvArgs) -> Result<(), Failure> {
    let listener = live::metrics::listen(&args.watch).await?;
    let Some(mut receiver) = open(args).await? else { return Ok(()) };
    if let Some(listener) = listener {
        let status = receiver.status();
        live::metrics::serve(listener, move |registry| metrics(registry, &status.borrow()));
    }
    let output = Output::new(&args.watch);
    if let Some(group) = args.group.filter(|group| args.from.is_none() && is_of_one_source(*group))
    {
        output.warn(&format!(
            "{}: routers forward such groups only to who names the sender; use --from, or another \
             group",
            group.ip()
        ))?;
    }
    let addresses = [args.group, args.listen].into_iter().flatten().map(|at| at.to_string());
    let place: Vec<_> = addresses.chain(args.via.meeting.clone()).collect();
    let place = place.join(" and ");
    output.tell(
        "listening",
        &match args.via.via.is_empty() {
            true => format!("listening on {place}, {}", target(args)),
            false => format!("meeting senders at {place}, {}", target(args)),
        },
        json!({
            "on": place, "into": args.into, "device": args.to_device, "command": args.to_command,
        }),
    )?;
    let mut show = Show::new(output, args);
    show.keeps = args.into.is_some() || args.journal.is_some();
    let status = receiver.status();
    let mut closing = false;
    loop {
        tokio::select! {
            biased;
            received = receiver.next() => match received {
                Some(received) => show.ended(&received)?,
                None => break,
            },
            () = tokio::time::sleep(LOOK) => {
                let now = status.borrow().clone();
                show.update(&now)?;
                let given_up = given_up(args, &now);
                if !closing && (interrupted() || given_up.is_some()) {
                    closing = true;
                    show.given_up = given_up.is_some();
                    let interrupted = "ending, and telling the senders; Ctrl-C again ends at once";
                    show.output.warn(given_up.as_deref().unwrap_or(interrupted))?;
                    receiver.close();
                }
            }
        }
    }
    show.finish(args)
}

async fn open(args: &RecvArgs) -> Result<Option<Receiver>, Failure> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        let error = match builder(args)?.receive() {
            Ok(receiver) => return Ok(Some(receiver)),
            Err(error) => error,
        };
        let limit = args.give_up.into_iter().chain(args.wait_max).min();
        let limit = limit.map(|limit| WallDuration::from_nanos(limit.as_nanos()));
        let given_up = limit.is_some_and(|limit| begun.elapsed() > limit);
        if args.once || given_up || !live::is_away(&error) {
            return Err(live::failure(error, args.group.is_some()));
        }
        if !told {
            told = true;
            Output::new(&args.watch)
                .warn(&format!("{error}; waiting until the network is there"))?;
        }
        tokio::time::sleep(AWAY_PAUSE).await;
        if interrupted() {
            return Ok(None);
        }
    }
}

/// True if a group is for source-specific multicast: 232.0.0.0/8 and ff3x::/32 (RFC 4607 s1).
fn is_of_one_source(group: SocketAddr) -> bool {
    match group.ip() {
        IpAddr::V4(ip) => ip.octets()[0] == 232,
        IpAddr::V6(ip) => ip.segments()[0] & 0xfff0 == 0xff30 && ip.segments()[1] == 0,
    }
}

fn given_up(args: &RecvArgs, status: &ReceiveStatus) -> Option<String> {
    let silent = status.elapsed.saturating_sub(status.heard.unwrap_or(Duration::ZERO));
    if let Some(limit) = args.give_up.filter(|limit| silent > *limit) {
        return Some(format!("no sender was heard for too long (--give-up {limit})"));
    }
    let limit = args.wait_max.filter(|limit| status.begun.is_none() && status.elapsed > *limit)?;
    let heard = match status.heard {
        Some(_) => "what was heard is not for this receiver, or its sender does not answer",
        None => "no sender was heard",
    };
    Some(format!("nothing has begun to come within {limit}: {heard}"))
}

fn target(args: &RecvArgs) -> String {
    match (&args.to_device, &args.to_command, &args.into) {
        (Some(device), ..) => format!("to {}", device.display()),
        (_, Some(command), _) => format!("to the command `{command}`"),
        (.., into) => format!("into {}", into.as_deref().unwrap_or(Path::new(".")).display()),
    }
}

/// Returns the group on the interface that the zone of `--from` names. Fails if the group or
/// `--listen` has another zone: a host on another link could have the sender's address.
fn group_on_zone(args: &RecvArgs) -> Result<Option<SocketAddr>, Failure> {
    let zone_of = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let zone = args.from.map_or(0, zone_of);
    let known = args.group.or(args.listen).map_or(0, zone_of);
    let mut group = args.group;
    if zone == 0 || zone == known {
        return Ok(group);
    }
    match &mut group {
        Some(SocketAddr::V6(group)) if known == 0 => group.set_scope_id(zone),
        _ => {
            let option = if group.is_some() { "--group" } else { "--listen" };
            let name = interface_name(zone).unwrap_or_else(|| zone.to_string());
            return Err(Failure::Usage(format!(
                "--from: the zone %{name} is one interface, and {option} names another or none; give both the zone %{name}"
            )));
        }
    }
    Ok(group)
}

fn builder(args: &RecvArgs) -> Result<ReceiverBuilder, Failure> {
    let interfaces = vec![live::interface(args.interface.as_deref())];
    let from = args.from.map(|from| from.ip());
    let group = group_on_zone(args)?;
    let group = group.map(|group| Multicast { group, source: from, interfaces });
    let listen = match (group, args.listen) {
        (Some(group), None) => Listen::Multicast(group),
        (Some(group), Some(address)) => Listen::Both(group, address),
        (None, Some(address)) => Listen::Unicast(address),
        (None, None) => Listen::Unicast(SocketAddr::from(([0, 0, 0, 0], 0))),
    };
    let dash = |path: &Option<PathBuf>| path.as_ref().is_some_and(|it| it.as_os_str() == "-");
    if args.to_stdout || dash(&args.into) || dash(&args.to_device) {
        // The reader of standard output could not tell a truncated object from a complete one.
        let text = "nothing is received to standard output; use --to-command 'COMMAND', which reads it, \
                    and is killed where it is cut off or damaged";
        return Err(Failure::Usage(text.to_string()));
    }
    let object = args.object.clone().unwrap_or_default();
    let builder = match (&args.to_device, &args.to_command, &args.into) {
        (Some(device), ..) => {
            let journal = args.journal.clone();
            let options = DeviceOptions { journal, ..DeviceOptions::new(device, object) };
            Receiver::to_device(listen, options)
        }
        (_, Some(command), _) => {
            Receiver::to_command(listen, CommandOptions { command: command.clone(), object })
        }
        (.., Some(into)) => Receiver::builder(listen, into),
        (None, None, None) => unreachable!("the parser asks for one"),
    };
    let mut builder = builder
        .sockets(SocketSettings { only_from: from, ..SocketSettings::default() })
        .overwrite(args.overwrite)
        .owner(args.owner)
        .xattrs(args.xattrs)
        .sync(!args.no_sync)
        .once(args.once)
        .via(live::relays(&args.via, args.group)?)
        .name(args.name.clone().unwrap_or_else(live::host_name));
    for (key, value) in live::options(&args.options)? {
        builder = builder.option(key, value);
    }
    if let Some(role) = &args.head {
        builder = builder.option("head", OptionValue::Text(role.clone()));
    }
    if let Some(path) = &args.tree {
        let tree = RepairTree::read(path).map_err(|error| Failure::Usage(error.to_string()))?;
        builder = builder.tree(tree);
    }
    builder = with(builder, args.via.meeting.as_ref(), ReceiverBuilder::meeting);
    builder = with(builder, args.rate_max, ReceiverBuilder::rate_max);
    builder = with(builder, args.object.as_ref(), ReceiverBuilder::object);
    builder = with(builder, args.scheme.as_ref(), ReceiverBuilder::scheme);
    builder = with(builder, live::read_key(&args.key)?, ReceiverBuilder::key);
    Ok(with(builder, args.trace.as_ref(), ReceiverBuilder::trace))
}

fn source_text(incoming: &Incoming) -> String {
    incoming.source.map_or_else(|| "a relay".to_string(), |source| source.to_string())
}

/// Silence of the `--from` address before a warning: 10 s.
const FROM_SILENT: Duration = Duration::from_secs(10);

struct Show {
    output: Output,
    known: BTreeMap<u64, bool>,
    mismatch: bool,
    from: Option<IpAddr>,
    is_silent: bool,
    paths: BTreeMap<u64, PathLimit>,
    once: bool,
    list: bool,
    hints: Hints,
    ending_hints: Hints,
    ending_since: Option<Duration>,
    above: Above,
    got: Meter,
    done: Meter,
    complete: u64,
    failed: u64,
    cut: bool,
    given_up: bool,
    keeps: bool,
}

impl Show {
    fn new(output: Output, args: &RecvArgs) -> Self {
        Self {
            output,
            known: BTreeMap::new(),
            mismatch: false,
            from: args.from.map(|from| from.ip()),
            is_silent: false,
            paths: BTreeMap::new(),
            once: args.once,
            list: args.list,
            hints: Hints::default(),
            ending_hints: Hints::at_once(),
            ending_since: None,
            above: Above::new(),
            got: Meter::of_now(),
            done: Meter::of_late(),
            complete: 0,
            failed: 0,
            cut: false,
            given_up: false,
            keeps: true,
        }
    }

    fn update(&mut self, status: &ReceiveStatus) -> Result<(), Failure> {
        self.above.update(&self.output, status.relay.as_ref())?;
        if self.once && status.begun.is_none() && self.hints.is_due(status.elapsed) {
            let text = match status.heard {
                None => {
                    "still waiting: no sender was heard; is `faircast send` running, with the same \
                     group, port and key, and does multicast get through?"
                }
                Some(_) => "still waiting: a sender is heard, and does not answer",
            };
            self.output.tell("waiting", text, json!({}))?;
        }
        if let Some(reason) = status.stays_for {
            let since = *self.ending_since.get_or_insert(status.elapsed);
            let waited = status.elapsed.saturating_sub(since);
            let is_shown = reason != StaysFor::Note || waited >= SILENT_AFTER;
            if is_shown && self.ending_hints.is_due(waited) {
                let objects: Vec<Value> = status.incoming.iter().map(incoming_json).collect();
                let (word, text) = waits_for(status, reason);
                self.output.tell("waiting", &text, json!({ "objects": objects, "for": word }))?;
            }
        }
        if let (Some(mismatch), false) = (status.mismatch, self.mismatch) {
            self.mismatch = true;
            self.output.warn(&format!("a sender cannot be heard: {mismatch}"))?;
        }
        self.silence(status)?;
        for incoming in &status.incoming {
            self.begun(incoming)?;
            let path = incoming.object.path;
            // A failed object has no path limit: its long packets are missing for another reason.
            let failed = incoming.object.stage == Stage::Failed;
            if !failed && path != self.paths.get(&incoming.number).copied() {
                self.path(incoming.number, path)?;
            }
        }
        self.progress(status)
    }

    fn silence(&mut self, status: &ReceiveStatus) -> Result<(), Failure> {
        let Some((from, heard)) = self.from.zip(status.heard) else { return Ok(()) };
        let silent = status.elapsed.saturating_sub(heard);
        let is_silent = silent >= FROM_SILENT && !status.incoming.is_empty();
        if std::mem::replace(&mut self.is_silent, is_silent) || !is_silent {
            return Ok(());
        }
        self.output.warn(&format!(
            "nothing has come from {from} for {FROM_SILENT}: if the sender has another address now, end this and \
             start it again with --from and the new address; what is here is kept"
        ))
    }

    fn path(&mut self, number: u64, path: Option<PathLimit>) -> Result<(), Failure> {
        let Some(path) = path else {
            self.paths.remove(&number);
            return self.output.warn("long packets arrive again");
        };
        self.paths.insert(number, path);
        self.output.warn(&format!(
            "only packets of up to {} bytes arrive here, and content comes in packets of {}: start the sender with \
             --mtu {}, or raise the MTU of the way here (links, tunnels, firewalls)",
            path.arrives, path.sent, path.arrives
        ))
    }

    fn begun(&mut self, incoming: &Incoming) -> Result<(), Failure> {
        let from = source_text(incoming);
        if let Entry::Vacant(new) = self.known.entry(incoming.number) {
            new.insert(false);
            let text = format!("a sender at {from}");
            self.output.tell("sender", &text, incoming_json(incoming))?;
        }
        let told = self.known.get(&incoming.number) == Some(&true);
        if let (Some(total), false) = (incoming.object.bytes_total, told) {
            self.known.insert(incoming.number, true);
            let text = match incoming.object.growing {
                true => format!("a pipe from {from}"),
                false => format!("{} from {from}", bytes(total)),
            };
            self.output.tell("object", &text, incoming_json(incoming))?;
        }
        Ok(())
    }

    fn progress(&mut self, status: &ReceiveStatus) -> Result<(), Failure> {
        let active =
            status.incoming.iter().filter(|incoming| incoming.object.stage > Stage::Gathering);
        let (mut total, mut done, mut verifying) = (0, 0, true);
        for incoming in active.clone() {
            total += incoming.object.bytes_total.unwrap_or_default();
            done += incoming.object.bytes_done;
            verifying &= incoming.object.stage >= Stage::Verifying;
        }
        if active.clone().next().is_none() {
            return Ok(());
        }
        let now = Instant::now();
        self.got.observe(now, status.traffic.received.bytes);
        self.done.observe(now, done);
        let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
        let speed = self.got.per_s() * 8.0;
        // The remaining time of a pipe is unknown.
        let growing = active.clone().any(|incoming| incoming.object.growing);
        let left = self.done.left(now, total.saturating_sub(done), STALLED_AFTER);
        let left = left.filter(|_| !growing);
        let text = || {
            let mut text = format!("{}, {} of {}", rate(speed), bytes(done), bytes(total));
            if growing {
                text.push_str(" so far");
            }
            if verifying {
                text.push_str(", comparing");
            } else if let Some(left) = left {
                text.push_str(&format!(", {}", left.words()));
            }
            text
        };
        let json = || {
            let objects: Vec<Value> = active.clone().map(incoming_json).collect();
            json!({
                "seconds": status.elapsed.as_secs_f64(),
                "bytes_received": status.traffic.received.bytes,
                "received_bits_per_s": speed,
                "objects": objects,
            })
        };
        self.output.progress(share, text, json)
    }

    fn ended(&mut self, received: &Received) -> Result<(), Failure> {
        let Received { last, took, outcome, remarks } = received;
        self.begun(last)?;
        let mut json = incoming_json(last);
        json["took_seconds"] = json!(took.as_secs_f64());
        for remark in remarks {
            self.output.warn(remark)?;
        }
        match outcome {
            ReceiveOutcome::Complete { files } => {
                self.complete += 1;
                self.files(last, files)?;
                let listed = self.is_listed(files);
                let fresh = last.object.bytes_done.saturating_sub(last.object.bytes_found);
                let speed = fresh as f64 * 8.0 / took.as_secs_f64().max(0.001);
                let took = time(*took);
                let how = match (last.object.bytes_found, fresh) {
                    (0, 0) => format!(" in {took}"),
                    (0, _) => format!(" in {took}, {}", rate(speed)),
                    (_, 0) => ", all of it was here already".to_string(),
                    (found, _) => {
                        format!(" ({} were here already) in {took}, {}", bytes(found), rate(speed))
                    }
                };
                let text = format!(
                    "complete: {}, {}{}{}",
                    count(files.len() as u64, "file"),
                    bytes(last.object.bytes_done),
                    how,
                    if listed { "" } else { " (--list prints what each file hashes to)" }
                );
                self.output.tell("complete", &text, json)
            }
            ReceiveOutcome::Partial { files, left_out, reason } => {
                self.failed += 1;
                self.files(last, files)?;
                json["reason"] = json!(reason);
                json["left_out"] = json!(left_out);
                for line in left_out {
                    self.output.warn(&format!("left out: {line}"))?;
                }
                let text = format!("partial: {}; {reason}", count(files.len() as u64, "file"));
                self.output.tell("partial", &text, json)
            }
            ReceiveOutcome::SenderGone => {
                let reason = last.object.reason.as_deref().unwrap_or("it fell silent");
                let then = match self.keeps {
                    true => "what is here is kept for when it comes back",
                    false => "it begins anew should it come back",
                };
                let text = format!("the sender is gone ({reason}); {then}");
                json["kept"] = json!(self.keeps);
                self.output.tell("gone", &text, json)
            }
            ReceiveOutcome::GivenUp => {
                let then = match self.keeps {
                    true => "its next version takes over what has not changed",
                    false => "nothing of it is kept",
                };
                let text = format!(
                    "the sender has given the object up: a file changed there, or content came from a \
                     pipe; {then}"
                );
                json["kept"] = json!(self.keeps);
                self.output.tell("gone", &text, json)
            }
            ReceiveOutcome::Superseded => {
                let text = "a later object of this name has come from the same host; nothing of this one is kept";
                json["kept"] = json!(false);
                self.output.tell("gone", text, json)
            }
            ReceiveOutcome::Failed(reason) => {
                self.failed += 1;
                json["reason"] = json!(reason);
                self.output.warn(&format!("cannot be received: {reason}"))?;
                self.output.tell("failed", "", json)
            }
            ReceiveOutcome::OtherScheme(mismatch) => {
                self.failed += 1;
                json["reason"] = json!(mismatch.to_string());
                json["sender_speaks"] = json!((!mismatch.is_newer()).then_some(&mismatch.sender));
                json["receiver_speaks"] = json!(mismatch.receiver);
                self.output.warn(&format!("cannot be received: {mismatch}"))?;
                self.output.tell("failed", "", json)
            }
            ReceiveOutcome::Closed => {
                self.cut = true;
                let text = match self.keeps {
                    true => "not complete; what is here is kept for another time",
                    false => "not complete; another time it begins anew",
                };
                self.output.tell("closed", text, json)
            }
        }
    }

    fn is_listed(&self, files: &[ReceivedFile]) -> bool {
        self.list || files.len() <= FILES_SHOWN
    }

    fn files(&self, last: &Incoming, files: &[ReceivedFile]) -> Result<(), Failure> {
        for file in files {
            let hash = file.blake3.as_ref().map(|hash| hex(hash));
            let path = shown_path(&file.path);
            let line = match self.is_listed(files) {
                true => format!("{}  {path}", hash.as_deref().unwrap_or("-")),
                false => String::new(),
            };
            let json = json!({
                "object": last.number, "path": path_text(&file.path), "bytes": file.bytes,
                "blake3": hash,
            });
            self.output.tell("file", &line, json)?;
        }
        Ok(())
    }

    fn finish(mut self, args: &RecvArgs) -> Result<(), Failure> {
        let lacking = args.once && self.complete == 0;
        // Incomplete: objects that `--once` expected are missing.
        let short = self.given_up && (args.once || self.complete == 0);
        let good = self.failed == 0 && !self.cut && !lacking && !short;
        let verb = if self.complete == 1 { "was" } else { "were" };
        let text = format!("{} {verb} received\n", count(self.complete, "object"));
        let json = json!({
            "ok": good, "complete": self.complete, "failed": self.failed,
            "given_up": self.given_up,
        });
        self.output.result("summary", &text, &json)?;
        if good { Ok(()) } else { Err(Failure::AlreadyTold) }
    }
}

fn waits_for(status: &ReceiveStatus, reason: StaysFor) -> (&'static str, String) {
    let silent = |incoming: &Incoming| {
        let silence = status.elapsed.saturating_sub(incoming.heard.unwrap_or(incoming.since));
        match silence < SILENT_AFTER {
            true => String::new(),
            false => format!(" (silent for {}, given up after 30 s)", time(silence)),
        }
    };
    let words = |incoming: &Incoming| {
        let name = incoming.name.clone().unwrap_or_else(|| "an object".to_string());
        let from = source_text(incoming);
        format!("{name} from {from}{}", silent(incoming))
    };
    let begun: Vec<String> = status.incoming.iter().map(words).collect();
    match reason {
        StaysFor::Objects => {
            ("objects", format!("still waiting for what had begun before: {}", begun.join(", ")))
        }
        StaysFor::Repairs => (
            "repairs",
            "still waiting: other receivers have this one for their repair head, and lack something"
                .to_string(),
        ),
        _ => (
            "note",
            "still waiting: the sender has not noted yet that this receiver is done; does it get packets from \
             here? Given up once it is silent for 5 s"
                .to_string(),
        ),
    }
}

fn incoming_json(incoming: &Incoming) -> Value {
    json!({
        "object": incoming.number,
        "name": incoming.name,
        "source": incoming.source.map(|source| source.to_string()),
        "scheme": incoming.scheme,
        "bytes_total": incoming.object.bytes_total,
        "growing": incoming.object.growing,
        "bytes_done": incoming.object.bytes_done,
        "bytes_found": incoming.object.bytes_found,
        "requests": incoming.object.packets.requests,
        "useless_packets": incoming.object.packets.repairs,
        "tree": incoming.seat.as_ref().map(seat_json),
    })
}

fn metrics(registry: &mut Registry, status: &ReceiveStatus) {
    let objects = status.incoming.iter().map(|incoming| &incoming.object);
    let sum = |of: fn(&ObjectStatus) -> u64| objects.clone().map(of).sum::<u64>() as f64;
    let all = [
        ("objects", "Objects that are being received", status.incoming.len() as f64),
        ("content_bytes", "Bytes of their content", sum(|it| it.bytes_total.unwrap_or_default())),
        ("content_done_bytes", "Bytes of that which are here", sum(|it| it.bytes_done)),
    ];
    gauges(registry, all);
    counters(registry, [("objects_complete", "Objects that were received whole", status.complete)]);
    traffic(registry, &status.traffic, &status.refusals);
}

const FILES_SHOWN: usize = 12;

/// Silence of a sender before it is shown: 2 s. A live sender sends once a second.
const SILENT_AFTER: Duration = Duration::from_secs(2);

const AWAY_PAUSE: WallDuration = WallDuration::from_millis(500);

/// Time without data before a transfer counts as stalled: 5 s.
const STALLED_AFTER: WallDuration = WallDuration::from_secs(5);

const LOOK: WallDuration = WallDuration::from_millis(200);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Verb};

    #[test]
    fn the_zone_of_a_sender_is_the_interface_to_hear_on() {
        let args = |words: &str| {
            let words = ["faircast", "recv", "--into", "d"].into_iter().chain(words.split(' '));
            match Args::try_parse_from(words).unwrap().verb {
                Verb::Recv(args) => args,
                _ => panic!("another verb"),
            }
        };
        let lo = "--from fe80::1%lo";
        for (words, zone) in [
            (format!("--group [ff12::7]:7500 {lo}"), 1),
            (format!("--group [ff12::7%lo]:7500 {lo}"), 1),
            ("--group [ff12::7]:7500 --from fe80::1".to_string(), 0),
        ] {
            let Ok(Some(SocketAddr::V6(group))) = group_on_zone(&args(&words)) else {
                panic!("{words}");
            };
            assert_eq!(group.scope_id(), zone, "{words}");
        }
        assert!(group_on_zone(&args(&format!("--listen [fe80::2%lo]:1 {lo}"))).is_ok());
        for words in ["--listen [::]:1", "--listen 0.0.0.0:1", "--group 239.1.2.3:1"] {
            let error = group_on_zone(&args(&format!("{words} {lo}"))).unwrap_err().to_string();
            assert!(error.contains("give both the zone %lo"), "{words}: {error}");
        }
    }

    #[test]
    fn a_receiver_says_for_whom_it_stays() {
        let status = ReceiveStatus::default();
        for (reason, word, text) in [
            (StaysFor::Objects, "objects", "what had begun before"),
            (StaysFor::Repairs, "repairs", "repair head"),
            (StaysFor::Note, "note", "the sender has not noted"),
        ] {
            let (found, said) = waits_for(&status, reason);
            assert_eq!(found, word);
            assert!(said.contains(text), "{said}");
        }
    }
}
