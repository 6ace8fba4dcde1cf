//! `faircast send`: files to many receivers.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration as WallDuration, Instant};

use faircast::{
    Fec, MemberState, Multicast, SendStatus, Sender, SenderBuilder, SlowPolicy, SocketSettings,
    Stage, Target,
};
use serde_json::json;
use tokio::time::{sleep, timeout};

use self::report::{member_json, metrics, summary_json, summary_text};
use crate::args::{FecChoice, SendArgs, Slow};
use crate::error::Failure;
use crate::interrupt::{interrupted, listen};
use crate::live::display::Meter;
use crate::live::words::{bytes, rate, time};
use crate::live::{self, Output};

/// Sends, shows who joins and how far it is, and ends with a table of who has everything.
pub(crate) fn send(args: &SendArgs) -> Result<(), Failure> {
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args))
}

async fn run(args: &SendArgs) -> Result<(), Failure> {
    let sender = builder(args)?.send(&args.paths).map_err(live::failure)?;
    let output = Output::new(&args.watch);
    for warning in sender.warnings() {
        output.warn(&warning.to_string())?;
    }
    if let Some(address) = args.watch.metrics {
        let status = sender.status();
        let fill = move |registry: &mut _| metrics(registry, &status.borrow());
        live::metrics::serve(address, fill).await?;
    }
    let counts = sender.supply().counts();
    output.tell(
        "waiting",
        &format!(
            "{} files, {}, to {}; waiting for receivers",
            counts.files,
            bytes(counts.bytes),
            place(args)
        ),
        json!({ "to": place(args), "files": counts.files, "bytes": counts.bytes }),
    )?;
    let mut show = Show::new(output);
    let last = watch(&sender, &mut show).await?;
    finish(args, &sender, &last, &mut show.output)
}

/// Shows what happens until it has ended.
async fn watch(sender: &Sender, show: &mut Show) -> Result<SendStatus, Failure> {
    let mut status = sender.status();
    let mut closing = false;
    loop {
        let now = status.borrow_and_update().clone();
        show.update(&now)?;
        if now.ended {
            return Ok(now);
        }
        if interrupted() && !closing {
            closing = true;
            show.output.warn("ending, and telling the receivers; Ctrl-C again ends at once")?;
            sender.close();
        }
        match timeout(LOOK, status.changed()).await {
            // The thread has gone without a last word.
            Ok(Err(_)) if !status.borrow().ended => {
                return Err(Failure::Work("the sending thread has failed".to_string()));
            }
            // Not more often than a person can follow.
            Ok(_) => sleep(LOOK / 4).await,
            Err(_) => {}
        }
    }
}

fn finish(
    args: &SendArgs,
    sender: &Sender,
    last: &SendStatus,
    output: &mut Output,
) -> Result<(), Failure> {
    let counted = args.receivers.is_none() && args.start_after.is_none();
    let enough = !counted || last.done() >= args.wait_for as usize;
    let good = last.succeeded() && enough;
    let hashes = sender.supply().file_hashes().ok().flatten().unwrap_or_default();
    let mut text = summary_text(last);
    if let Some(reason) = last.reason.as_ref().filter(|_| !good) {
        text.push_str(&format!("\nended: {reason}\n"));
    }
    output.result("summary", &text, summary_json(last, good, &hashes))?;
    if good { Ok(()) } else { Err(Failure::Verdict) }
}

fn builder(args: &SendArgs) -> Result<SenderBuilder, Failure> {
    let target = match args.group {
        Some(group) => {
            let interface = live::interface(args.interface.as_deref());
            Target::Multicast(Multicast { interface, ..Multicast::new(group) })
        }
        None => {
            let all = args.to.iter().map(|host| live::resolve(host));
            Target::Unicast(all.collect::<Result<_, _>>()?)
        }
    };
    let mut builder = Sender::builder(target)
        .scheme(&args.scheme)
        .sockets(SocketSettings { hops: args.ttl, ..SocketSettings::default() })
        .mtu(args.mtu)
        .wait_for(args.wait_for)
        .give_up(args.give_up)
        .fec(match args.fec {
            FecChoice::Auto => Fec::Auto,
            FecChoice::Off => Fec::Off,
            FecChoice::Ratio(ratio) => Fec::Ratio(ratio),
        })
        .slow(match args.slow {
            Slow::Wait => SlowPolicy::Wait,
            Slow::DropBelow(rate) => SlowPolicy::DropBelow(rate),
        });
    for (key, value) in live::options(&args.options)? {
        builder = builder.option(key, value);
    }
    if let Some(rate) = args.rate_max {
        builder = builder.rate_max(rate);
    }
    if let Some(rate) = args.rate_min {
        builder = builder.rate_min(rate);
    }
    if let Some(key) = live::read_key(&args.key)? {
        builder = builder.key(key);
    }
    if let Some(after) = args.start_after {
        builder = builder.start_after(after);
    }
    if let Some(file) = &args.receivers {
        builder = builder.wait_for_names(names(file)?);
    }
    if let Some(file) = &args.watch.trace {
        builder = builder.trace(file);
    }
    Ok(builder)
}

/// One name a line; empty lines and those that begin with # do not count.
fn names(file: &std::path::Path) -> Result<BTreeSet<String>, Failure> {
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

fn place(args: &SendArgs) -> String {
    args.group.map_or_else(|| args.to.join(", "), |group| group.to_string())
}

/// Turns one status after the other into events.
struct Show {
    output: Output,
    states: BTreeMap<u64, MemberState>,
    begun: bool,
    mismatch: bool,
    sent: Meter,
    got: Meter,
}

impl Show {
    fn new(output: Output) -> Self {
        let (sent, got) = (Meter::default(), Meter::default());
        Self { output, states: BTreeMap::new(), begun: false, mismatch: false, sent, got }
    }

    fn update(&mut self, status: &SendStatus) -> Result<(), Failure> {
        let now = Instant::now();
        self.sent.observe(now, status.traffic.sent.bytes);
        self.got.observe(now, status.bytes_least);
        for member in &status.members {
            let before = self.states.insert(member.id, member.state);
            if before == Some(member.state) {
                continue;
            }
            let label = member.label();
            if before.is_none() {
                let at = member.address.map_or(String::new(), |address| format!(" ({address})"));
                self.output.tell("joined", &format!("{label}{at} joined"), member_json(member))?;
            }
            let (event, text) = match member.state {
                MemberState::Joined => continue,
                MemberState::Receiving => ("ready", String::new()),
                MemberState::Done => ("done", format!("{label} has everything")),
                MemberState::Deferred => {
                    ("deferred", format!("{label} is too slow, and is served after the others"))
                }
                MemberState::Failed => ("failed", format!("{label} failed: {}", member.reason)),
                MemberState::Left => ("left", format!("{label} left")),
                MemberState::Lost => ("lost", format!("{label} fell silent")),
            };
            self.output.tell(event, &text, member_json(member))?;
        }
        if let (Some(mismatch), false) = (status.mismatch, self.mismatch) {
            self.mismatch = true;
            self.output.warn(&format!("a receiver cannot join: {mismatch}"))?;
        }
        if status.begun.is_some() && !self.begun {
            self.begun = true;
            let count = status.members.len();
            let text = format!("sending to {count} receivers");
            self.output.tell("begun", &text, json!({ "receivers": count }))?;
        }
        self.progress(status)
    }

    fn progress(&mut self, status: &SendStatus) -> Result<(), Failure> {
        if !self.begun {
            return Ok(());
        }
        let share = match status.bytes_total {
            0 => 1.0,
            total => status.bytes_least as f64 / total as f64,
        };
        let (speed, gain) = (self.sent.per_s() * 8.0, self.got.per_s());
        let limiting = status.members.iter().find(|member| member.limits);
        let left = (gain > 0.0).then(|| {
            let missing = status.bytes_total.saturating_sub(status.bytes_least);
            faircast_base::Duration::from_secs_f64(missing as f64 / gain)
        });
        let text = || {
            let mut text =
                format!("{}, {} of {}", rate(speed), status.done(), status.members.len());
            text.push_str(" receivers done");
            match (left, status.stage) {
                (_, Stage::Verifying) => text.push_str(", they compare what they have"),
                (Some(left), _) => text.push_str(&format!(", {} left", time(left))),
                (None, _) => {}
            }
            if let Some(member) = limiting {
                text.push_str(&format!(", limited by {}", member.label()));
            }
            text
        };
        let json = || {
            json!({
                "seconds": status.elapsed.as_secs_f64(),
                "bytes_total": status.bytes_total,
                "bytes_least": status.bytes_least,
                "sent_bits_per_s": speed,
                "rate_bits_per_s": status.rate_bits_per_s,
                "rtt_seconds": status.rtt.map(|rtt| rtt.as_secs_f64()),
                "receivers": status.members.len(),
                "done": status.done(),
                "limiting": limiting.map(|member| member.label()),
                "seconds_left": left.map(|left| left.as_secs_f64()),
            })
        };
        self.output.progress(share, text, json)
    }
}

/// How often it is looked what has happened.
const LOOK: WallDuration = WallDuration::from_millis(200);
