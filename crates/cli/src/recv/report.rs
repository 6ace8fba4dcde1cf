//! Reports of a receiver: its objects, their progress and outcomes, and the summary.

use std::collections::BTreeMap;
use std::time::{Duration as WallDuration, Instant};

use faircast::{
    Incoming, ObjectStatus, ReceiveOutcome, ReceiveStatus, Received, ReceivedFile, Stage,
    shown_path,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::waits::WaitHints;
use super::warnings::Warnings;
use crate::args::RecvArgs;
use crate::error::{Failure, Result};
use crate::live::display::Meter;
use crate::live::metrics::{counters, gauges, traffic};
use crate::live::words::{bytes, count, hex, path_text, rate, seat_json, time};
use crate::live::{Above, Output};

const FILES_SHOWN: usize = 12;

const STALLED_AFTER: WallDuration = WallDuration::from_secs(5);

pub(super) struct Reporter {
    pub(super) output: Output,
    above: Above,
    waits: WaitHints,
    warnings: Warnings,
    known: BTreeMap<u64, bool>,
    received: Meter,
    done: Meter,
    list: bool,
    keeps_partial: bool,
    complete: u64,
    failed: u64,
    is_cut: bool,
    /// True if a limit of the wait for senders has ended the receiver.
    given_up: bool,
}

impl Reporter {
    pub(super) fn new(output: Output, args: &RecvArgs) -> Self {
        Self {
            output,
            above: Above::new(),
            waits: WaitHints::new(args.once),
            warnings: Warnings::new(args.accept.from.map(|from| from.ip())),
            known: BTreeMap::new(),
            received: Meter::short_term(),
            done: Meter::long_term(),
            list: args.list,
            keeps_partial: args.into.is_some() || args.target.journal.is_some(),
            complete: 0,
            failed: 0,
            is_cut: false,
            given_up: false,
        }
    }

    pub(super) fn update(&mut self, status: &ReceiveStatus) -> Result {
        self.above.update(&self.output, status.relay.as_ref())?;
        self.waits.update(&self.output, status)?;
        self.warnings.senders(&self.output, status)?;
        for incoming in &status.incoming {
            self.begun(incoming)?;
            self.warnings.path(&self.output, incoming)?;
        }
        self.progress(status)
    }

    pub(super) fn give_up(&mut self, reason: &str) -> Result {
        self.given_up = true;
        self.output.warn(reason)
    }

    fn begun(&mut self, incoming: &Incoming) -> Result {
        let from = source_text(incoming);
        let has_size = self.known.get(&incoming.number).copied();
        if has_size.is_none() {
            self.known.insert(incoming.number, false);
            let text = format!("a sender at {from}");
            self.output.tell("sender", &text, incoming_json(incoming))?;
        }
        if let (Some(total), Some(false) | None) = (incoming.object.bytes_total, has_size) {
            self.known.insert(incoming.number, true);
            let text = match incoming.object.growing {
                true => format!("a pipe from {from}"),
                false => format!("{} from {from}", bytes(total)),
            };
            self.output.tell("object", &text, incoming_json(incoming))?;
        }
        Ok(())
    }

    fn progress(&mut self, status: &ReceiveStatus) -> Result {
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
        self.received.observe(now, status.traffic.received.bytes);
        self.done.observe(now, done);
        let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
        let speed = self.received.per_s() * 8.0;
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

    pub(super) fn ended(&mut self, received: &Received) -> Result {
        let Received { last, took, outcome, remarks } = received;
        self.begun(last)?;
        let mut json = incoming_json(last);
        json["took_seconds"] = json!(took.as_secs_f64());
        for remark in remarks {
            self.output.warn(remark)?;
        }
        match outcome {
            ReceiveOutcome::Complete { files } => self.completed(received, files, json),
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
                let then = match self.keeps_partial {
                    true => "what is here is kept for when it comes back",
                    false => "it begins anew should it come back",
                };
                self.gone(&format!("the sender is gone ({reason}); {then}"), json)
            }
            ReceiveOutcome::GivenUp => {
                let then = match self.keeps_partial {
                    true => "its next version takes over what has not changed",
                    false => "nothing of it is kept",
                };
                self.gone(
                    &format!(
                        "the sender has given the object up: a file changed there, or content came from a pipe; {then}"
                    ),
                    json,
                )
            }
            ReceiveOutcome::Superseded => {
                let text = "a later object of this name has come from the same host; nothing of this one is kept";
                json["kept"] = json!(false);
                self.output.tell("gone", text, json)
            }
            ReceiveOutcome::Failed(reason) => self.failed(reason, json),
            ReceiveOutcome::OtherScheme(mismatch) => {
                let reason = mismatch.to_string();
                json["reason"] = json!(reason);
                json["sender_speaks"] = json!((!mismatch.is_newer()).then_some(&mismatch.sender));
                json["receiver_speaks"] = json!(mismatch.receiver);
                self.failed(&reason, json)
            }
            ReceiveOutcome::Closed => {
                self.is_cut = true;
                let text = match self.keeps_partial {
                    true => "not complete; what is here is kept for another time",
                    false => "not complete; another time it begins anew",
                };
                self.output.tell("closed", text, json)
            }
        }
    }

    fn completed(&mut self, received: &Received, files: &[ReceivedFile], json: Value) -> Result {
        let (last, took) = (&received.last, received.took);
        self.complete += 1;
        self.files(last, files)?;
        let fresh = last.object.bytes_done.saturating_sub(last.object.bytes_found);
        let speed = rate(fresh as f64 * 8.0 / took.as_secs_f64().max(0.001));
        let took = time(took);
        let how = match (last.object.bytes_found, fresh) {
            (0, 0) => format!(" in {took}"),
            (0, _) => format!(" in {took}, {speed}"),
            (_, 0) => ", all of it was here already".to_string(),
            (found, _) => format!(" ({} were here already) in {took}, {speed}", bytes(found)),
        };
        let text = format!(
            "complete: {}, {}{how}{}",
            count(files.len() as u64, "file"),
            bytes(last.object.bytes_done),
            if self.is_listed(files) { "" } else { " (--list prints what each file hashes to)" }
        );
        self.output.tell("complete", &text, json)
    }

    fn gone(&self, text: &str, mut json: Value) -> Result {
        json["kept"] = json!(self.keeps_partial);
        self.output.tell("gone", text, json)
    }

    fn failed(&mut self, reason: &str, mut json: Value) -> Result {
        self.failed += 1;
        json["reason"] = json!(reason);
        self.output.warn(&format!("cannot be received: {reason}"))?;
        self.output.tell("failed", "", json)
    }

    fn is_listed(&self, files: &[ReceivedFile]) -> bool {
        self.list || files.len() <= FILES_SHOWN
    }

    fn files(&self, last: &Incoming, files: &[ReceivedFile]) -> Result {
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

    pub(super) fn finish(mut self, once: bool) -> Result {
        let Self { complete, failed, is_cut, given_up, .. } = self;
        let lacks_object = once && complete == 0;
        // Incomplete: objects that `--once` expected are missing.
        let gave_up_early = given_up && (once || complete == 0);
        let good = failed == 0 && !is_cut && !lacks_object && !gave_up_early;
        let verb = if complete == 1 { "was" } else { "were" };
        let text = format!("{} {verb} received\n", count(complete, "object"));
        let json = json!({
            "ok": good, "complete": complete, "failed": failed, "given_up": given_up,
        });
        self.output.result("summary", &text, &json)?;
        if good { Ok(()) } else { Err(Failure::AlreadyTold) }
    }
}

pub(super) fn source_text(incoming: &Incoming) -> String {
    incoming.source.map_or_else(|| "a relay".to_string(), |source| source.to_string())
}

pub(super) fn incoming_json(incoming: &Incoming) -> Value {
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

pub(super) fn metrics(registry: &mut Registry, status: &ReceiveStatus) {
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
