//! What remains of a transfer: the table at its end, the same for programs, metrics.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use faircast::{Member, MemberState, SendStatus};
use faircast_base::Duration;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::live::metrics::{counter, gauge, traffic};
use crate::live::words::{bytes, count, hex, percent, rate, time};

/// Who has everything, and who has not and why.
pub(super) fn summary_text(status: &SendStatus) -> String {
    let mut rows = vec![["receiver", "", "has", "time", "rate", "loss", ""].map(String::from)];
    let labels = Labels::new(&status.members);
    for member in &status.members {
        let took = took(status, member);
        rows.push([
            labels.of(member),
            word(member.state).to_string(),
            bytes(member.bytes),
            took.map(time).unwrap_or_default(),
            speed(member, took).map(rate).unwrap_or_default(),
            percent(member.loss),
            member.reason.clone(),
        ]);
    }
    for name in &status.missing {
        let mut row = [const { String::new() }; 7];
        (row[0], row[1]) = (name.clone(), "never came".to_string());
        rows.push(row);
    }
    if rows.len() == 1 {
        return "nobody came\n".to_string();
    }
    let mut text = table(&rows);
    let _ = writeln!(
        text,
        "\n{} of {} {} all {}. {} were sent, with {} and {}.",
        status.done(),
        count((status.members.len() + status.missing.len()) as u64, "receiver"),
        if status.done() == 1 { "has" } else { "have" },
        bytes(status.bytes_total),
        bytes(status.traffic.sent.bytes),
        count(status.repairs, "repair packet"),
        count(status.parity, "parity packet"),
    );
    text
}

/// The same for programs.
pub(super) fn summary_json(
    status: &SendStatus,
    good: bool,
    hashes: &[faircast::FileHash],
) -> Value {
    let members = status.members.iter().map(|member| {
        let mut value = member_json(member);
        let took = took(status, member);
        value["took_seconds"] = json!(took.map(Duration::as_secs_f64));
        value["rate_bits_per_s"] = json!(speed(member, took));
        value
    });
    json!({
        "ok": good,
        "reason": status.reason,
        "seconds": status.elapsed.as_secs_f64(),
        "bytes_total": status.bytes_total,
        "bytes_sent": status.traffic.sent.bytes,
        "packets_sent": status.traffic.sent.packets,
        "repairs": status.repairs,
        "parity": status.parity,
        "requests": status.requests,
        "receivers": members.collect::<Vec<_>>(),
        "missing": status.missing,
        "files": hashes.iter().map(|file| json!({
            "path": file.path, "blake3": hex(&file.hash),
        })).collect::<Vec<_>>(),
    })
}

/// One receiver, for programs.
pub(super) fn member_json(member: &Member) -> Value {
    json!({
        "id": format!("{:016x}", member.id),
        "name": member.name,
        "address": member.address.map(|address| address.to_string()),
        "state": word(member.state),
        "bytes": member.bytes,
        "bytes_found": member.found,
        "loss": member.loss,
        "reason": member.reason,
        "waited_for": member.expected,
    })
}

/// Everything for Prometheus.
pub(super) fn metrics(registry: &mut Registry, status: &SendStatus) {
    let number = |state: MemberState| {
        status.members.iter().filter(|member| member.state == state).count() as f64
    };
    for (name, help, value) in [
        ("content_bytes", "Bytes of content in all", status.bytes_total as f64),
        ("content_least_bytes", "The least that a served receiver has", status.bytes_least as f64),
        ("receivers", "Receivers that were heard", status.members.len() as f64),
        ("receivers_done", "Receivers that have everything", number(MemberState::Done)),
        ("receivers_failed", "Receivers that cannot go on", number(MemberState::Failed)),
        ("receivers_lost", "Receivers that fell silent", number(MemberState::Lost)),
        ("receivers_deferred", "Receivers that are served later", number(MemberState::Deferred)),
        (
            "rate_bits_per_second",
            "Payload that the scheme allows",
            status.rate_bits_per_s.unwrap_or(0.0),
        ),
        (
            "rtt_seconds",
            "Round trip to the receiver that limits",
            status.rtt.map_or(0.0, Duration::as_secs_f64),
        ),
        (
            "loss_max",
            "The greatest loss of a receiver",
            status.members.iter().fold(0.0, |max, member| member.loss.max(max)),
        ),
    ] {
        gauge(registry, name, help, value);
    }
    for (name, help, value) in [
        ("symbol_packets", "Packets with content that were sent", status.symbols),
        ("parity_packets", "Packets with parity that were sent", status.parity),
        ("repair_packets", "Packets that were sent for less than a whole block", status.repairs),
        ("requests", "Requests for repair that came", status.requests),
    ] {
        counter(registry, name, help, value);
    }
    traffic(registry, &status.traffic, &status.refusals);
}

/// How long a receiver took from the beginning of content, or of its own.
fn took(status: &SendStatus, member: &Member) -> Option<Duration> {
    let begun = status.begun?.max(member.since);
    Some(member.done?.saturating_sub(begun))
}

/// How fast it got what it had not before; `None` where it had everything.
fn speed(member: &Member, took: Option<Duration>) -> Option<f64> {
    let got = member.bytes.saturating_sub(member.found);
    let took = took.filter(|took| got > 0 && *took > Duration::ZERO)?;
    Some(got as f64 * 8.0 / took.as_secs_f64())
}

/// What each receiver is called: by its name, and where several have the same, with its address.
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

fn word(state: MemberState) -> &'static str {
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

/// Columns as wide as their widest cell, two spaces between them.
fn table(rows: &[[String; 7]]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(i, cell)| format!("{cell:<w$}", w = width(i)));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
