//! Results of a transfer: the final table, its JSON for programs, and metrics.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use faircast::{
    Cause, FileHash, Limit, Member, MemberState, PacketCounts, Seat, SendStatus, Skipped,
};
use faircast_base::{Bitrate, Duration};
use prometheus_client::registry::Registry;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::plan::skipped_json;
use crate::live::metrics::{counters, gauges, traffic};
use crate::live::words::{bytes, count, hex, path_text, percent, rate, seat_json, time};

pub(super) fn summary_text(status: &SendStatus) -> String {
    let mut rows = vec![HEADINGS.map(String::from)];
    let labels = Labels::new(&status.members);
    for member in &status.members {
        let took = duration(status, member);
        rows.push([
            labels.of(member),
            state_name(member.state).to_string(),
            bytes(member.bytes),
            took.map(time).unwrap_or_default(),
            receive_rate(member, took).map(rate).unwrap_or_default(),
            percent(member.loss),
            member.seat.as_ref().map(head_text).unwrap_or_default(),
            member.seat.as_ref().map(repairs_text).unwrap_or_default(),
            member.reason.clone(),
        ]);
    }
    for name in &status.missing {
        let mut row = [const { String::new() }; HEADINGS.len()];
        (row[0], row[1]) = (name.clone(), "never joined".to_string());
        rows.push(row);
    }
    if rows.len() == 1 {
        return "no receiver joined\n".to_string();
    }
    if status.members.iter().all(|member| member.seat.is_none()) {
        rows[0][HEAD_COLUMN..HEAD_COLUMN + 2].iter_mut().for_each(String::clear);
    }
    let mut text = table(&rows);
    let all = status.members.len() + status.missing.len();
    let _ = writeln!(
        text,
        "\n{} of {} {} all {}. {} were sent, with {} and {}.",
        status.done(),
        count(all as u64, "receiver"),
        if status.done() == 1 || all == 1 { "has" } else { "have" },
        bytes(status.bytes_total()),
        bytes(status.traffic.sent.bytes),
        count(status.object.packets.repairs, "repair packet"),
        count(status.object.packets.parity, "parity packet"),
    );
    if let Some(limits) = limits_text(status, &labels) {
        let _ = writeln!(text, "{limits}");
    }
    text
}

const HEAD_COLUMN: usize = 6;
const HEADINGS: [&str; 9] =
    ["receiver", "", "has", "time", "rate", "loss", "repaired by", "for others", ""];

fn head_text(seat: &Seat) -> String {
    let head = seat.head.as_deref().unwrap_or("nobody");
    if seat.level > 2 { format!("{head}, level {}", seat.level) } else { head.to_string() }
}

fn repairs_text(seat: &Seat) -> String {
    match (seat.members, seat.repairs) {
        (0, 0) => String::new(),
        (members, packets) => format!("{} to {members}", count(packets, "packet")),
    }
}

fn limits_text(status: &SendStatus, labels: &Labels) -> Option<String> {
    let whole: f64 = status.object.limits.iter().map(|limit| limit.time.as_secs_f64()).sum();
    if whole < LIMITS_FROM_S {
        return None;
    }
    let share = |limit: &Limit| limit.time.as_secs_f64() / whole;
    let shown = status.object.limits.iter().filter(|limit| share(limit) >= LIMIT_SHARE);
    let words: Vec<String> = shown
        .take(LIMITS_SHOWN)
        .map(|limit| {
            let member = status.members.iter().find(|member| Some(member.id) == limit.member);
            let words = match (limit.cause, &status.relay) {
                (Cause::SenderLink, Some(relay)) => match &relay.slow {
                    Some(slow) => slow.name.clone(),
                    None => "the relay above, or the link to it".to_string(),
                },
                (cause, _) => {
                    let label = member.map_or("a receiver".to_string(), |member| labels.of(member));
                    limit_words(cause, member, &label, status.object.rtt)
                }
            };
            format!("{words} ({:.0} % of the time)", share(limit) * 100.0)
        })
        .collect();
    (!words.is_empty()).then(|| format!("No faster because of {}.", words.join(", ")))
}

fn limit_words(
    cause: Cause,
    member: Option<&Member>,
    label: &str,
    rtt: Option<Duration>,
) -> String {
    match cause {
        Cause::RateMax => "--rate-max".to_string(),
        Cause::ReceiverLimit => {
            let limit = member.and_then(|member| member.rate_max);
            let limit = limit.map_or(String::new(), |limit| format!(" {limit}"));
            format!("{label}, which asks for no more than{limit}")
        }
        Cause::Start => "its start: no limit had been reached yet".to_string(),
        Cause::Floor => format!("{label}, whose reports did not arrive"),
        Cause::Path => {
            let loss = member.map(|member| format!("loss {}", percent(member.loss)));
            let ms = |rtt: Duration| format!("round trip {:.1} ms", rtt.as_secs_f64() * 1000.0);
            let rtt = rtt.map(ms);
            let facts: Vec<String> = loss.into_iter().chain(rtt).collect();
            match facts.is_empty() {
                true => format!("the way to {label}"),
                false => format!("the way to {label}: {}", facts.join(", ")),
            }
        }
        Cause::ReceiverDisk => format!("the disk of {label}"),
        Cause::ReceiverProcessor => format!("the processor of {label}"),
        Cause::ReceiverBuffer => {
            format!("the socket buffer of {label}: raise net.core.rmem_max there")
        }
        Cause::Receivers => "receivers that were checking what they already had".to_string(),
        Cause::SenderDisk => "the disk of this host, or the source of the content".to_string(),
        Cause::SenderProcessor => "the processor here".to_string(),
        Cause::SenderLink => "the link of this host".to_string(),
    }
}

/// Returns the longest wait since `before`, after "limited by". `None` for the path to a receiver.
pub(super) fn limited_by(before: &[Limit], now: &[Limit]) -> Option<&'static str> {
    let time = |all: &[Limit], of: &Limit| {
        let same = |limit: &&Limit| (limit.cause, limit.member) == (of.cause, of.member);
        all.iter().find(same).map_or(Duration::ZERO, |limit| limit.time)
    };
    let grown = |limit: &Limit| limit.time.saturating_sub(time(before, limit));
    let most = now.iter().max_by_key(|limit| grown(limit))?;
    cause_facts(most.cause).1.filter(|_| grown(most) > Duration::ZERO)
}

/// Name of a cause in JSON, which programs read, and the words after "limited by".
fn cause_facts(cause: Cause) -> (&'static str, Option<&'static str>) {
    match cause {
        Cause::RateMax => ("rate_max", Some("--rate-max")),
        Cause::ReceiverLimit => ("receiver_limit", None),
        Cause::Start => ("start", None),
        Cause::Floor => ("floor", None),
        Cause::Path => ("path", None),
        Cause::ReceiverDisk => ("receiver_disk", None),
        Cause::ReceiverProcessor => ("receiver_processor", None),
        Cause::ReceiverBuffer => ("receiver_buffer", None),
        Cause::Receivers => ("receivers", None),
        Cause::SenderDisk => ("sender_disk", Some("the disk here")),
        Cause::SenderProcessor => ("sender_processor", Some("the processor here")),
        Cause::SenderLink => ("sender_link", Some("the link of this host")),
    }
}

const LIMITS_FROM_S: f64 = 1.0;

const LIMIT_SHARE: f64 = 0.1;
const LIMITS_SHOWN: usize = 3;

#[derive(Serialize)]
pub(super) struct Summary<'a> {
    #[serde(flatten)]
    pub(super) fields: Value,
    #[serde(serialize_with = "write_files")]
    pub(super) files: &'a [FileHash],
}

/// Serialises one file at a time: as JSON values they would take a kilobyte each.
fn write_files<S: Serializer>(files: &&[FileHash], out: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct File {
        path: String,
        blake3: Option<String>,
    }
    out.collect_seq(files.iter().map(|file| File {
        path: path_text(&file.local_path()),
        blake3: file.hash.as_ref().map(|hash| hex(hash)),
    }))
}

pub(super) fn summary_json(status: &SendStatus, good: bool, skipped: &Skipped) -> Value {
    let members = status.members.iter().map(|member| {
        let mut value = member_json(member);
        let took = duration(status, member);
        value["took_seconds"] = json!(took.map(Duration::as_secs_f64));
        value["rate_bits_per_s"] = json!(receive_rate(member, took));
        value
    });
    json!({
        "ok": good,
        "reason": status.object.reason,
        "seconds": status.elapsed.as_secs_f64(),
        "bytes_total": status.bytes_total(),
        "bytes_sent": status.traffic.sent.bytes,
        "packets_sent": status.traffic.sent.packets,
        "repairs": status.object.packets.repairs,
        "parity": status.object.packets.parity,
        "requests": status.object.packets.requests,
        "limits": status.object.limits.iter().map(|limit| json!({
            "cause": cause_facts(limit.cause).0,
            "id": limit.member.map(|id| format!("{id:016x}")),
            "seconds": limit.time.as_secs_f64(),
        })).collect::<Vec<_>>(),
        "receivers": members.collect::<Vec<_>>(),
        "missing": status.missing,
        "skipped": skipped_json(skipped),
    })
}

pub(super) fn member_json(member: &Member) -> Value {
    json!({
        "id": format!("{:016x}", member.id),
        "name": member.name,
        "address": member.address.map(|address| address.to_string()),
        "state": state_name(member.state),
        "bytes": member.bytes,
        "bytes_found": member.found,
        "loss": member.loss,
        "reason": member.reason,
        "rate_max_bits_per_s": member.rate_max.map(Bitrate::bits_per_s),
        "waited_for": member.expected,
        "tree": member.seat.as_ref().map(seat_json),
    })
}

pub(super) fn metrics(registry: &mut Registry, status: &SendStatus) {
    let object = &status.object;
    let number = |state: MemberState| {
        status.members.iter().filter(|member| member.state == state).count() as f64
    };
    let (rate, rtt) = (object.rate_bits_per_s, object.rtt.map(Duration::as_secs_f64));
    let (rate, rtt) = (rate.unwrap_or_default(), rtt.unwrap_or_default());
    let loss = status.members.iter().fold(0.0, |max, member| member.loss.max(max));
    let all = [
        ("content_bytes", "Bytes of content in all", status.bytes_total() as f64),
        ("content_least_bytes", "The least that a served receiver has", object.bytes_done as f64),
        ("receivers", "Receivers that were heard", status.members.len() as f64),
        ("receivers_done", "Receivers that have everything", number(MemberState::Done)),
        ("receivers_failed", "Receivers that cannot go on", number(MemberState::Failed)),
        ("receivers_lost", "Receivers that fell silent", number(MemberState::Lost)),
        ("receivers_deferred", "Receivers that are served later", number(MemberState::Deferred)),
        ("rate_bits_per_second", "Payload that the scheme allows", rate),
        ("rtt_seconds", "Round trip to the receiver that limits", rtt),
        (
            "loss_max",
            "Greatest share of the packets of the transfer that a receiver lost, 0 to 1",
            loss,
        ),
    ];
    gauges(registry, all);
    let PacketCounts { symbols, parity, repairs, requests, .. } = object.packets;
    let all = [
        ("symbol_packets", "Packets with content that were sent", symbols),
        ("parity_packets", "Packets with parity that were sent", parity),
        ("repair_packets", "Packets that were sent again, and parity in their place", repairs),
        ("requests", "Requests for repair that came", requests),
    ];
    counters(registry, all);
    traffic(registry, &status.traffic, &status.refusals);
}

/// Returns the time from the first content for the receiver until it had everything.
fn duration(status: &SendStatus, member: &Member) -> Option<Duration> {
    let begun = status.begun?.max(member.since);
    Some(member.done?.saturating_sub(begun))
}

fn receive_rate(member: &Member, took: Option<Duration>) -> Option<f64> {
    let got = member.bytes.saturating_sub(member.found);
    let took = took.filter(|took| got > 0 && *took > Duration::ZERO)?;
    Some(got as f64 * 8.0 / took.as_secs_f64())
}

/// Names of receivers that several have, which need their addresses too.
pub(super) struct Labels(BTreeSet<String>);

impl Labels {
    pub(super) fn new(members: &[Member]) -> Self {
        let mut seen = BTreeSet::new();
        let again = members.iter().filter(|member| !seen.insert(&*member.name));
        Self(again.map(|member| member.name.clone()).collect())
    }

    pub(super) fn of(&self, member: &Member) -> String {
        match member.address.filter(|_| self.0.contains(&member.name) && !member.name.is_empty()) {
            Some(address) => format!("{} ({address})", member.name),
            None => member.label(),
        }
    }
}

fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Joined => "joined",
        MemberState::Receiving => "receiving",
        MemberState::Done => "done",
        MemberState::Deferred => "deferred",
        MemberState::Failed => "failed",
        MemberState::Left => "left",
        MemberState::Lost => "lost",
    }
}

fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for row in rows {
        let filled = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells = filled.map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_limits_now_is_what_was_waited_for_most_of_late() {
        let limit =
            |cause, seconds| Limit { cause, member: None, time: Duration::from_secs_f64(seconds) };
        let before = [limit(Cause::Path, 60.0), limit(Cause::RateMax, 1.0)];
        for (now, want) in [
            (vec![limit(Cause::Path, 60.1), limit(Cause::RateMax, 1.9)], Some("--rate-max")),
            (vec![limit(Cause::Path, 60.9), limit(Cause::RateMax, 1.1)], None),
            (vec![limit(Cause::Path, 60.0), limit(Cause::SenderDisk, 0.5)], Some("the disk here")),
            (before.to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(limited_by(&before, &now), want, "{now:?}");
        }
    }

    #[test]
    fn a_summary_has_every_file_after_its_other_fields() {
        let files = [("a", Some([1; 32])), ("b", None)];
        let files = files
            .map(|(path, hash)| FileHash { path: Box::<[u8]>::from(path.as_bytes()).into(), hash });
        let fields = json!({ "ok": true, "skipped": { "links": 1 } });
        let text = serde_json::to_string(&Summary { fields, files: &files }).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["skipped"]["links"], 1);
        assert_eq!(read["files"][0], json!({ "path": "a", "blake3": "01".repeat(32) }));
        assert_eq!(read["files"][1], json!({ "path": "b", "blake3": null }));
    }
}
