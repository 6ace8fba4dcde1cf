//! `faircast node top`: rates of a daemon's links and clients, refreshed at an interval.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Instant;

use faircast_base::escaped;
use serde_json::Value;

use super::fetch;
use crate::args::NodeTopArgs;
use crate::error::{Failure, Result, print};
use crate::interrupt::{INTERRUPT_INTERVAL, interrupted, listen};
use crate::live::words::bytes;

const INTERVAL_MIN: faircast_base::Duration = faircast_base::Duration::from_millis(100);
const ROWS_MAX: usize = 15;
/// Escape sequences: cursor to the upper left corner, then clear the screen.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

pub(super) async fn top(args: &NodeTopArgs) -> Result {
    if args.interval < INTERVAL_MIN {
        let text = format!("--interval {}: expected {INTERVAL_MIN} or more", args.interval);
        return Err(Failure::Usage(text));
    }
    listen();
    let mut before: Option<(Instant, Value)> = None;
    let mut left = args.count;
    loop {
        let now = Instant::now();
        let status = fetch(args.at).await?;
        if let Some((then, old)) = &before {
            let page = page(&status, old, now.duration_since(*then).as_secs_f64());
            if stdout().is_terminal() {
                let _ = stdout().write_all(CLEAR);
            }
            print(&format!("{page}\n"))?;
            if let Some(left) = &mut left {
                *left -= 1;
            }
        }
        before = Some((now, status));
        while now.elapsed().as_secs_f64() < args.interval.as_secs_f64() && left != Some(0) {
            if interrupted() {
                return Ok(());
            }
            tokio::time::sleep(INTERRUPT_INTERVAL).await;
        }
        if left == Some(0) || interrupted() {
            return Ok(());
        }
    }
}

struct Growth<'a> {
    seconds: f64,
    before: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Growth<'a> {
    fn of(list: &'a Value, key: &str, seconds: f64) -> Self {
        let entries = list.as_array().into_iter().flatten();
        let before = entries.filter_map(|it| Some((it[key].as_str()?, it))).collect();
        Self { seconds, before }
    }

    fn per_s(&self, name: &str, entry: &Value, counter: &str) -> f64 {
        let old = self.before.get(name).map_or(0, |it| count(&it[counter]));
        rate(count(&entry[counter]), old, self.seconds)
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Returns the growth per second. A counter below its earlier value belongs to a new run.
fn rate(new: u64, old: u64, seconds: f64) -> f64 {
    new.checked_sub(old).unwrap_or(new) as f64 / seconds.max(1e-3)
}

fn dollars(value: &Value) -> Option<String> {
    value.as_f64().map(|it| format!("{it:.2}"))
}

fn word(value: &Value) -> String {
    escaped(value.as_str().unwrap_or("-")).into_owned()
}

fn page(status: &Value, old: &Value, seconds: f64) -> String {
    let counters =
        |key: &str| rate(count(&status["counters"][key]), count(&old["counters"][key]), seconds);
    let members = status["members"].as_array().map_or(0, Vec::len);
    let changing = if status["settled"] == true { "" } else { ", changing" };
    let mut out = format!(
        "{}: view {} of {members} daemons{changing}\n{:.0} messages/s in ({}/s), {:.0} events/s \
         out, {} not at all daemons, clients cut: {}\n",
        word(&status["name"]),
        word(&status["view"]),
        counters("messages"),
        bytes(counters("message_bytes") as u64),
        counters("events"),
        bytes(count(&status["unstable_bytes"])),
        count(&status["counters"]["cuts"]),
    );
    let links = Growth::of(&old["neighbors"], "address", seconds);
    let rows = list(&status["neighbors"]).map(|it| {
        let address = it["address"].as_str().unwrap_or_default();
        let sent = links.per_s(address, it, "sent_bytes");
        let rtt = format!("{:.1} ms", it["rtt_ms"].as_f64().unwrap_or_default());
        let cells = [
            format!("{} {}", word(&it["daemon"]), escaped(address)),
            rtt,
            format!("{}/s", bytes(sent as u64)),
            bytes(count(&it["queued_bytes"])),
            dollars(&it["price"]).map(|it| format!("price {it}")).unwrap_or_default(),
        ];
        (sent, cells)
    });
    table(&mut out, ["link", "round trip", "sent", "wait", ""], rows.collect());
    let clients = Growth::of(&old["clients"], "name", seconds);
    let rows = list(&status["clients"]).map(|it| {
        let name = it["name"].as_str().unwrap_or_default();
        let (sends, gets) = (clients.per_s(name, it, "request"), clients.per_s(name, it, "event"));
        let queued = count(&it["queued_bytes"]);
        let away = if it["connected"] == true { "" } else { "away " };
        let waits = it["waiting"].as_str().map_or(String::new(), |it| format!("waits: {it}"));
        let purse = dollars(&it["purse"]).map(|money| {
            let waited = clients.per_s(name, it, "waited_ms") / 10.0;
            format!("purse {money}, blocked {waited:.0} % ")
        });
        let purse = purse.unwrap_or_default();
        let cells = [
            escaped(name).into_owned(),
            format!("{sends:.0}/s"),
            format!("{gets:.0}/s"),
            bytes(queued),
            format!("{away}{purse}{}", escaped(&waits)),
        ];
        (queued as f64 + sends + gets, cells)
    });
    table(&mut out, ["client", "requests", "events", "wait", ""], rows.collect());
    let rows = list(&status["groups"]).map(|it| {
        let members = count(&it["members"]);
        let cells = [
            word(&it["name"]),
            members.to_string(),
            count(&it["here"]).to_string(),
            String::new(),
            String::new(),
        ];
        (members as f64, cells)
    });
    table(&mut out, ["group", "members", "here", "", ""], rows.collect());
    out
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn table(out: &mut String, head: [&str; 5], mut rows: Vec<(f64, [String; 5])>) {
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let more = rows.len().saturating_sub(ROWS_MAX);
    let mut line = |cells: [&str; 5]| {
        let [name, a, b, c, note] = cells;
        let text = format!("{name:32} {a:>12} {b:>12} {c:>12}  {note}");
        *out += &format!("{}\n", text.trim_end());
    };
    line(["", "", "", "", ""]);
    line(head);
    for (_, cells) in rows.iter().take(ROWS_MAX) {
        line(cells.each_ref().map(String::as_str));
    }
    if more > 0 {
        line([&format!("and {more} more"), "", "", "", ""]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prices_and_purses_are_shown_where_messages_have_a_price() {
        let state = |waited_ms: u64| {
            json!({ "name": "north", "view": "1.a.1", "members": ["north"], "settled": true,
                    "neighbors": [{ "daemon": "south", "address": "10.0.0.2:4804", "rtt_ms": 1.0,
                                   "queued_bytes": 0, "sent_bytes": 0, "price": 7.249 }],
                    "clients": [{ "name": "c", "connected": true, "event": 0, "queued_bytes": 0,
                                 "request": 0, "purse": 3.1, "waited_ms": waited_ms,
                                 "waiting": "too expensive now: price 8.2, purse 3.1" }],
                    "groups": [], "unstable_bytes": 0, "counters": {} })
        };
        let page = page(&state(2500), &state(2000), 2.0);
        assert!(page.contains("0 B  price 7.25\n"), "{page}");
        assert!(page.contains("purse 3.10, blocked 25 % waits: too expensive now"), "{page}");
    }

    #[test]
    fn rates_are_growth_in_a_second_and_the_busiest_come_first() {
        let client = |name: &str, request: u64, queued: u64| {
            json!({ "name": name, "connected": true, "event": 0, "queued_bytes": queued,
                    "request": request, "waiting": null })
        };
        let state = |clients: Vec<Value>, messages: u64| {
            json!({ "name": "north", "view": "1.a.1", "members": ["north"], "settled": true,
                    "neighbors": [], "groups": [], "clients": clients, "unstable_bytes": 0,
                    "counters": { "messages": messages, "message_bytes": 0, "events": 0, "cuts": 1 } })
        };
        let old = state(vec![client("slow", 100, 0), client("again", 500, 0)], 1000);
        let mut clients: Vec<Value> =
            (0..20).map(|it| client(&format!("idle{it:02}"), 0, 0)).collect();
        clients.extend([client("slow", 300, 5_000_000), client("again", 40, 0)]);
        clients.push(client("bad\u{1b}[2J", 0, 1));
        let page = page(&state(clients, 3000), &old, 2.0);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], "north: view 1.a.1 of 1 daemons");
        assert!(lines[1].starts_with("1000 messages/s in (0 B/s), 0 events/s out"), "{page}");
        let at = lines.iter().position(|line| line.starts_with("client ")).unwrap();
        let row = |place: usize| lines[at + place].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row(1), "slow 100/s 0/s 5.0 MB");
        assert_eq!(row(2), "again 20/s 0/s 0 B");
        assert!(!page.contains('\u{1b}'));
        assert!(page.contains("and 8 more"), "{page}");
    }
}
