//! File transfers of faircast on real sockets: costs of a key, and of a tree of repair heads.
//!
//! Hosts are network namespaces on one bridge. Each round runs each case once, so that disturbances
//! affect all cases; ratios are judged. `compare/wire.py` measures other programs in the same way.

mod memory;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use faircast_lab::lan::{INTERFACE, Lan};
use faircast_report::{Row, Values, spread};

use crate::Error;
use crate::host::{Running, hash_of, make_content, make_key, need_root, sent_bytes, text, words};
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use memory::{Ballast, Memory};

const TITLE: &str = "How fast are files on real sockets, with a key and over a tree?";

#[derive(Debug)]
struct Case {
    id: &'static str,
    title: &'static str,
    receivers: usize,
    key: bool,
    /// True for TRAM, whatever the requested scheme.
    tree: bool,
}

const CASE: Case = Case { id: "", title: "", receivers: 4, key: false, tree: false };
const GROUP: Case = Case { receivers: 20, ..CASE };

const CASES: [Case; 4] = [
    Case { id: "faircast", title: "faircast send", ..CASE },
    Case { id: "faircast-key", title: "faircast send --key", key: true, ..CASE },
    Case { id: "group-faircast", title: "faircast send to 20 receivers", ..GROUP },
    Case {
        id: "group-tram",
        title: "faircast send --scheme tram to 20 receivers",
        tree: true,
        ..GROUP
    },
];

/// Goals: row, title, the case and its reference; least ratio; question, reason.
const GOALS: [([&str; 4], f64, [&str; 2]); 2] = [
    (
        ["key", "goodput with a key / without", "faircast-key", "faircast"],
        0.75,
        ["What does encryption cost?", "encryption must not be a reason to send in the clear"],
    ),
    (
        ["tram", "goodput over TRAM / without", "group-tram", "group-faircast"],
        0.5,
        [
            "What does it cost that receivers repair for each other and all acknowledge?",
            "everybody's window is waited for, where pgmcc follows one receiver",
        ],
    ),
];

const SENDER: usize = 0;

const HEAD_START: Duration = Duration::from_millis(500);

const FAREWELL: Duration = Duration::from_secs(10);

/// Figures of [`Figures::values`]: row, title, unit. Content time counts from its first bytes.
const FIGURES: [[&str; 3]; 5] = [
    ["goodput", "content", "Mbit/s"],
    ["total", "time to the last copy", "s"],
    ["cpu-send", "CPU of the sender", "s/GB"],
    ["cpu-receive", "CPU of a receiver", "s/GB"],
    ["sent", "sent for each byte", "bytes"],
];

#[derive(Clone, Debug, Default)]
struct Figures {
    complete: bool,
    values: [f64; FIGURES.len()],
    trouble: Option<String>,
}

type Measured = (&'static Case, Vec<Figures>);

fn cases(request: &Request) -> Result<Vec<&'static Case>, Error> {
    chosen("wire", "row", &CASES, |case| case.id, request.only.as_deref())
}

pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let cases = cases(request)?.into_iter();
    Ok(listing("wire", TITLE, cases.map(|case| ("", case.id, case.title))))
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let cases = cases(request)?;
    need_root("wire")?;
    memory::remove_leftovers();
    let count = cases.len() * request.rounds as usize;
    monitor.begin(Runs { name: "wire", count, weight: count as u64, long: false });
    let mut measured = Vec::new();
    for same in cases.chunk_by(|a, b| a.receivers == b.receivers) {
        let sitting = Sitting::new(same[0].receivers, request, monitor)?;
        let mut here: Vec<Measured> = same.iter().map(|case| (*case, Vec::new())).collect();
        for _ in 0..request.rounds {
            for (case, runs) in &mut here {
                runs.push(sitting.run(case)?);
                if monitor.is_to_stop() {
                    let why = "a sitting that is not finished has no verdict";
                    return Err(Error::Interrupted(why));
                }
                monitor.ended(1);
            }
        }
        measured.extend(here);
    }
    monitor.finish();
    Ok(Results::of("wire", TITLE, rows(&measured)))
}

struct Sitting<'a> {
    lan: Lan,
    receivers: usize,
    folder: Memory,
    bytes: u64,
    hash: blake3::Hash,
    request: &'a Request,
    monitor: &'a dyn Monitor,
}

impl<'a> Sitting<'a> {
    fn new(
        receivers: usize,
        request: &'a Request,
        monitor: &'a dyn Monitor,
    ) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::doing("the file to send", error);
        let bytes = request.size.min(memory::room_for(receivers + 1));
        let lan = Lan::new(1 + receivers).map_err(|error| Error::doing("hosts", error))?;
        let folder = Memory::new().map_err(failed)?;
        let content = folder.path().join("content");
        let hash = make_content(&content, "faircast bench wire", bytes).map_err(failed)?;
        make_key(&folder.path().join("key"))?;
        Ok(Self { lan, receivers, folder, bytes, hash, request, monitor })
    }

    fn copy(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("run/{host}/content"))
    }

    fn run(&self, case: &Case) -> Result<Figures, Error> {
        let failed = |error: std::io::Error| Error::doing(case.id, error);
        for host in SENDER..=self.receivers {
            std::fs::create_dir_all(self.copy(host).with_file_name("")).map_err(failed)?;
        }
        let run = self.folder.path().join("run");
        let ballast = Ballast::new(&run.join("ballast"), self.bytes, case.receivers as u64);
        let figures = self.transfer(case, &ballast.map_err(failed)?);
        std::fs::remove_dir_all(run).map_err(failed)?;
        figures
    }

    fn start(&self, case: &Case, host: usize, mut more: Vec<String>) -> Result<Running, Error> {
        more.insert(0, text(&self.request.own));
        more.extend(words(&["--group", "239.1.2.3:7500"], &format!("--interface {INTERFACE}")));
        if case.key {
            more.extend(["--key".into(), text(&self.folder.path().join("key"))]);
        }
        Running::on(&self.lan, host, &more, self.copy(host).with_file_name("log"))
    }

    fn transfer(&self, case: &Case, ballast: &Ballast) -> Result<Figures, Error> {
        let mut receivers = Vec::new();
        for host in 1..=self.receivers {
            let into = text(&self.copy(host).with_file_name(""));
            let receive = words(&["recv", "--into", &into], &format!("--once --name host-{host}"));
            receivers.push(self.start(case, host, receive)?);
        }
        std::thread::sleep(HEAD_START);
        let started = Instant::now();
        let content = text(&self.folder.path().join("content"));
        let send = words(&["send", &content, "--wait-for"], &case.receivers.to_string());
        let scheme =
            if case.tree { words(&[], "--scheme tram") } else { self.request.scheme_words() };
        let mut sender = self.start(case, SENDER, [send, scheme].concat())?;
        let limit_s = 20.0 + self.bytes as f64 * 8e-6 * case.receivers as f64 / 160.0;
        let mut deadline = started + Duration::from_secs_f64(limit_s);
        let (mut zero, mut first, mut bytes) = (None, None, 0);
        while receivers.iter_mut().any(|one| one.ended().is_none()) && Instant::now() < deadline {
            if let Some(count) = sent_bytes(sender.id()) {
                bytes = count - *zero.get_or_insert(count);
                ballast.gone(bytes);
            }
            // Content counts as started when a fiftieth of it, or a megabyte, is sent.
            if bytes >= (self.bytes / 50).min(1_000_000) {
                first.get_or_insert_with(Instant::now);
            }
            if self.monitor.is_to_stop() {
                deadline = Instant::now();
            } else if sender.ended().is_some() {
                deadline = deadline.min(Instant::now() + FAREWELL);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        let open = receivers.iter_mut().find_map(|one| match one.ended() {
            Some(ended) if ended.well => None,
            _ => Some(one.last_words()),
        });
        let left = if open.is_none() { FAREWELL } else { Duration::ZERO };
        let sent = sender.end(Instant::now() + left);
        let received: Vec<_> =
            receivers.into_iter().filter_map(|one| one.end(Instant::now())).collect();
        let last = received.iter().map(|ended| ended.at).max().filter(|_| open.is_none());
        let is_whole = |host| hash_of(&self.copy(host)) == Some(self.hash);
        let whole = (1..=self.receivers).all(is_whole);
        let gigabytes = self.bytes as f64 / 1e9;
        let cpu: f64 = received.iter().map(|ended| ended.cpu_s).sum();
        let span = |from: Option<Instant>| Some((last? - from?).as_secs_f64());
        Ok(Figures {
            complete: whole && last.is_some(),
            values: [
                span(first).map_or(0.0, |s| self.bytes as f64 * 8e-6 / s),
                span(Some(started)).unwrap_or(limit_s),
                sent.map_or(0.0, |ended| ended.cpu_s) / gigabytes,
                cpu / case.receivers as f64 / gigabytes,
                bytes as f64 / self.bytes as f64,
            ],
            trouble: open.or_else(|| (!whole).then(|| "a copy differs".into())),
        })
    }
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, runs) in measured {
        for (place, [id, title, unit]) in FIGURES.into_iter().enumerate() {
            let whole = runs.iter().filter(|run| run.complete);
            let all = whole.map(|run| run.values[place]).collect();
            let row = row(&format!("{}.{id}", case.id), title, unit, all);
            rows.push(measured_only(row, case.title));
        }
    }
    let runs = |id: &str| measured.iter().find(|(case, _)| case.id == id).map(|(_, runs)| runs);
    for ([id, title, ours, theirs], least, [question, reason]) in GOALS {
        let (Some(ours), Some(theirs)) = (runs(ours), runs(theirs)) else { continue };
        let whole = ours.iter().zip(theirs).filter(|(a, b)| a.complete && b.complete);
        let ratios = whole.map(|(a, b)| a.values[0] / b.values[0]).collect();
        let mut row = judged(row(id, title, "ratio", ratios), Some(least), None);
        row.source.question = question.into();
        row.accepted.reason = reason.into();
        rows.push(row);
    }
    let all: Vec<&Figures> = measured.iter().flat_map(|(_, runs)| runs).collect();
    let share = all.iter().filter(|run| run.complete).count() as f64 / all.len() as f64;
    let row = row("whole", "runs in which every copy is whole", "ratio", vec![share]);
    let mut row = judged(row, Some(1.0), None);
    row.cause.explained = all.iter().find_map(|run| run.trouble.clone());
    rows.push(row);
    rows
}

pub(crate) fn judged(mut row: Row, low: Option<f64>, high: Option<f64>) -> Row {
    let ours = row.values.ours;
    row.accepted.holds = low.is_none_or(|low| ours >= low) && high.is_none_or(|high| ours <= high);
    (row.accepted.low, row.accepted.high) = (low, high);
    row
}

/// Makes a row that is not judged, in the group `group`.
pub(crate) fn measured_only(mut row: Row, group: &str) -> Row {
    (row.accepted.measured_only, row.accepted.holds) = (true, true);
    row.source.group = group.into();
    row
}

pub(crate) fn row(id: &str, title: &str, unit: &str, all: Vec<f64>) -> Row {
    let [low, ours, high] = spread(all.iter().copied()).unwrap_or([f64::NAN; 3]);
    Row {
        id: id.into(),
        title: title.into(),
        unit: unit.into(),
        values: Values { ours, low, high, seeds: all.len() as u32, optimum: None },
        per_seed: (1..).zip(all).collect(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_in_which_both_were_whole() {
        let runs = |speeds: &[f64]| {
            let run = |speed: &f64| Figures {
                complete: *speed > 0.0,
                values: [*speed, 1.0, 1.0, 1.0, 1.0],
                trouble: (*speed == 0.0).then(|| "gone".into()),
            };
            speeds.iter().map(run).collect::<Vec<_>>()
        };
        let with_key = runs(&[200.0, 500.0, 9.0]);
        let all = rows(&[(&CASES[0], runs(&[400.0, 500.0, 0.0])), (&CASES[1], with_key)]);
        let one = |id: &str| all.iter().find(|row| row.id == id).unwrap();
        let goodput = one("faircast.goodput");
        let values = &goodput.values;
        assert_eq!((values.ours, values.seeds, goodput.accepted.holds), (450.0, 2, true));
        let key = one("key");
        let Values { low, ours, high, .. } = key.values;
        assert_eq!((low, ours, high, key.accepted.holds), (0.5, 0.75, 1.0, true));
        let whole = one("whole");
        assert!(!whole.accepted.holds && whole.cause.explained.as_deref() == Some("gone"));
        assert!(all.iter().all(|row| row.id != "tram"));
    }

    #[test]
    fn every_goal_names_cases_that_there_are() {
        let there = |id: &str| CASES.iter().any(|case| case.id == id);
        assert!(GOALS.iter().all(|([_, _, sides @ ..], ..)| sides.iter().all(|id| there(id))));
    }
}
