//! Attacks on a transfer over real sockets, by a host beside it.
//!
//! A sender, two receivers and an attacker without a key are in network namespaces on one bridge.
//! Each attack has a transfer of its own, which must succeed.

mod attacker;
mod forge;
mod hostile;
mod transfer;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use faircast_lab::lan::Lan;
use faircast_proto::catalog;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files::json;
use crate::host::need_root;
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use hostile::{Hostile, Sends, Sent};
use transfer::{END_MAX, HOSTS, Pace, RECEIVERS, Transfer};

const TITLE: &str = "What can a host on the network do to a transfer?";

/// Rate limit of the sender, low enough that a busy machine does not matter.
const RATE_MBIT_PER_S: u64 = 100;

const SETTLING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);
const RECOVERY: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(4);

const FLOOD: Duration = Duration::from_secs(10);

const START_MAX: Duration = Duration::from_secs(20);

/// Least rate after an attack, as a share of the rate before. Progress is sampled once a second.
const SAME: f64 = 0.8;

/// Highest rate on the wire, as a share of the payload rate: packet headers, and reports.
const WIRE_MAX: f64 = 1.1;

/// Flood limits: least share of the usual rate, CPU of the sender in cores, response time.
const FLOODED: f64 = 0.4;
const FLOODED_CPU: f64 = 0.5;

const ANSWER_MAX: Duration = Duration::from_secs(2);

static TABLES: LazyLock<BTreeMap<String, Vec<Attack>>> =
    LazyLock::new(|| toml::from_str(include_str!("attacks.toml")).expect("a test reads the table"));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attack {
    id: String,
    title: String,
    sends: Sends,
    over: Option<Over>,
    #[serde(default)]
    flood: bool,
    #[serde(default)]
    first: bool,
    #[serde(default)]
    from: bool,
    #[serde(default)]
    key: bool,
}

#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Over {
    Pgm,
    Tram,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    holds: bool,
    seen: String,
}

#[derive(Debug, Serialize)]
struct AttackResult {
    id: &'static str,
    title: &'static str,
    sent: u32,
    before: Option<Pace>,
    during: Option<Pace>,
    after: Pace,
    checks: Vec<Check>,
    last_words: Option<String>,
}

impl AttackResult {
    fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

fn attacks(request: &Request) -> Result<Vec<&'static Attack>, Error> {
    let over_tree =
        request.scheme.as_deref().and_then(catalog::stack).is_some_and(|stack| stack.has_heads());
    let over = if over_tree { Over::Tram } else { Over::Pgm };
    let all =
        TABLES["attack"].iter().filter(|attack| attack.over.as_ref().is_none_or(|it| *it == over));
    chosen("attack", "row", all, |attack| &attack.id, request.only.as_deref())
}

pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let attacks = attacks(request)?.into_iter();
    Ok(listing("attack", TITLE, attacks.map(|attack| ("", &*attack.id, &*attack.title))))
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let attacks = attacks(request)?;
    need_root("attack")?;
    let lan = Lan::new(HOSTS).map_err(|error| Error::doing("hosts", error))?;
    let (count, weight) = (attacks.len(), attacks.len() as u64);
    monitor.begin(Runs { name: "attack", count, weight, long: true });
    let mut outcomes = Vec::new();
    for attack in attacks {
        let course = run_transfer(attack, &lan, request, monitor)?;
        let checks = checks(attack, &course);
        let last_words = checks.iter().any(|check| !check.holds).then_some(course.last_words);
        let Course { before, during, after, sent, .. } = course;
        let (id, title, sent) = (&*attack.id, &*attack.title, sent.count);
        outcomes.push(AttackResult { id, title, sent, before, during, after, checks, last_words });
        monitor.ended(1);
    }
    monitor.finish();
    let json = json(&outcomes);
    Ok(Results {
        table: table(&outcomes),
        files: vec![("attack.json".into(), json.clone())],
        json,
        holds: outcomes.iter().all(AttackResult::holds),
        ..Results::default()
    })
}

struct Course {
    before: Option<Pace>,
    during: Option<Pace>,
    after: Pace,
    sent: Sent,
    /// True if the receivers were started after the attack.
    is_late: bool,
    /// Time from the last whole copy to the sender's end, by itself or by the suite.
    end_delay: Option<Duration>,
    ended_well: bool,
    copies_are_whole: bool,
    /// Time after the attack in which all receivers joined.
    join_delay: Option<Duration>,
    joined: usize,
    warnings: Vec<String>,
    last_words: String,
}

fn run_transfer(
    attack: &'static Attack,
    lan: &Lan,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<Course, Error> {
    let failed = |error: std::io::Error| Error::doing(&attack.id, error);
    let (kind, flood, is_late) = (attack.sends, attack.flood, attack.first);
    let lasts = if flood { FLOOD } else { RECOVERY };
    let folder = tempfile::tempdir().map_err(failed)?;
    let hostile = Hostile::start(attack, lan).map_err(failed)?;
    let span = SETTLING + MEASURED + lasts + RECOVERY + MEASURED + REST;
    let bytes = RATE_MBIT_PER_S * 125_000 * span.as_secs();
    let mut transfer = Transfer::new(lan, folder.path(), attack, request, monitor, bytes)?;
    let mut before = None;
    if !is_late {
        transfer.start_receivers()?;
        let deadline = Instant::now() + START_MAX;
        if !transfer.wait_until(deadline, |transfer| transfer.runs())? {
            let said = transfer.last_words();
            return Err(Error::Work(format!("{}: does not begin: {said}", attack.id)));
        }
        transfer.rest(SETTLING)?;
        before = Some(transfer.measure(MEASURED)?);
    }
    let begun = transfer.count();
    hostile.go.store(true, Ordering::Relaxed);
    let mut started = Instant::now();
    if is_late {
        transfer.rest(Duration::from_secs(1))?;
        started = Instant::now();
        transfer.start_receivers()?;
    }
    transfer.rest(lasts.saturating_sub(started.elapsed()))?;
    transfer.wait_until(Instant::now() + END_MAX, |_| hostile.thread.is_finished() || !flood)?;
    let (over, during) = (Instant::now(), transfer.count());
    if is_late {
        transfer.wait_until(over + START_MAX, |transfer| transfer.runs())?;
    }
    if flood {
        transfer.rest(RECOVERY)?;
    }
    let after = transfer.measure(MEASURED)?;
    let end_delay = transfer.wait_for_end()?;
    let sent = hostile.end().map_err(failed)?;
    // Without `--from`, invented sessions look real: time counts from the attack's end.
    let since = if attack.from || kind == Sends::Settings { started } else { over };
    let joins = transfer.joins();
    let joined_at = joins.get(RECEIVERS.len() - 1);
    Ok(Course {
        before: before.map(|(from, to)| transfer.pace(from, to)),
        during: (!is_late).then(|| transfer.pace(begun, during)),
        after: transfer.pace(after.0, after.1),
        sent,
        is_late,
        end_delay,
        join_delay: joined_at.map(|at| at.saturating_duration_since(since)),
        joined: joins.len(),
        warnings: transfer.warnings(),
        last_words: transfer.last_words(),
        copies_are_whole: transfer.copies_are_whole(),
        ended_well: transfer.end(),
    })
}

fn checks(attack: &Attack, course: &Course) -> Vec<Check> {
    let Course { before, during, after, sent, joined, warnings, .. } = course;
    let (kind, flood) = (attack.sends, attack.flood);
    let mut checks = Vec::new();
    let mut check = |what, holds, seen: String| checks.push(Check { what, holds, seen });
    let mbit = |rate: f64| format!("{rate:.1} Mbit/s");
    let rate = RATE_MBIT_PER_S as f64;
    let usual = before.map_or(rate, |pace| pace.mbit_per_s);
    let attacked = sent.count > 0 || kind == Sends::Nothing;
    check("its rate again", after.mbit_per_s >= SAME * usual, mbit(after.mbit_per_s));
    check("was attacked", attacked, format!("{} sent", sent.count));
    let whole = course.copies_are_whole;
    check("whole copies", whole, if whole { "equal" } else { "a copy differs" }.into());
    let seen = match course.end_delay {
        Some(delay) => format!("{:.1} s after the last copy", delay.as_secs_f64()),
        None => "it was ended".into(),
    };
    check("the sender's end", course.ended_well, seen);
    let wire = during.unwrap_or(*after).wire_mbit_per_s.max(after.wire_mbit_per_s);
    check("rate on the wire", wire <= WIRE_MAX * rate, mbit(wire));
    if matches!(kind, Sends::Members | Sends::Repeats | Sends::Catalogue) {
        let pace = during.expect("receivers were there before");
        check("most of its rate", pace.mbit_per_s >= FLOODED * usual, mbit(pace.mbit_per_s));
        if kind == Sends::Members {
            check("CPU", pace.cpu <= FLOODED_CPU, format!("{:.2} cores", pace.cpu));
        }
    }
    if matches!(kind, Sends::Member | Sends::Members) {
        let what = if flood { "invented ones known" } else { "invented one known" };
        check(what, *joined > RECEIVERS.len(), format!("{joined} joined"));
    }
    if kind == Sends::Sealed {
        check("no warning", warnings.is_empty(), warnings.first().cloned().unwrap_or_default());
    }
    let never_or = |took: Option<Duration>, digits: usize| {
        took.map_or("never".into(), |took| format!("{:.digits$} s", took.as_secs_f64()))
    };
    if course.is_late {
        let took = course.join_delay;
        check("heard soon", took.is_some_and(|took| took <= RECOVERY), never_or(took, 1));
    }
    if kind == Sends::Connections {
        let took = sent.answered;
        check("metrics soon", took.is_some_and(|took| took <= ANSWER_MAX), never_or(took, 2));
    }
    checks
}

const WORDS_SHOWN: usize = 120;

fn table(outcomes: &[AttackResult]) -> String {
    let mut text = "attack           before  during   after    wire    CPU    CPU        checked\n"
        .to_string();
    let shown = |pace: Option<Pace>, value: fn(&Pace) -> f64, digits: usize| {
        pace.as_ref().map_or("-".into(), |pace| format!("{:.digits$}", value(pace)))
    };
    let rate = |pace| shown(pace, |pace| pace.mbit_per_s, 1);
    let cpu = |pace| shown(pace, |pace| pace.cpu, 2);
    for outcome in outcomes {
        let AttackResult { before, during, after, .. } = outcome;
        let what: Vec<&str> = outcome.checks.iter().map(|check| check.what).collect();
        let _ = writeln!(
            text,
            "{:<15} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}  {:<5} {}",
            outcome.id,
            rate(*before),
            rate(*during),
            rate(Some(*after)),
            shown(*during, |pace| pace.wire_mbit_per_s, 1),
            cpu(*before),
            cpu(*during),
            if outcome.holds() { "holds" } else { "FAILS" },
            what.join(", ")
        );
        for check in outcome.checks.iter().filter(|check| !check.holds) {
            let _ = writeln!(text, "    {}: {}", check.what, check.seen);
        }
        if let Some(words) = &outcome.last_words {
            let words: String = words.chars().take(WORDS_SHOWN).collect();
            let _ = writeln!(text, "    last said: {words}");
        }
    }
    let held = outcomes.iter().filter(|outcome| outcome.holds()).count();
    let _ = write!(
        text,
        "{held} of {} hold. Mbit/s of content at the slower receiver, of {RATE_MBIT_PER_S} allowed; \
         what left the sender\nmeanwhile; cores that the sender took before and meanwhile.\n",
        outcomes.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_those_on_the_protocol_of_the_scheme() {
        let listed = |scheme: Option<&str>| {
            let scheme = scheme.map(str::to_string);
            list(&Request { scheme, ..Request::default() }).unwrap()
        };
        let (pgm, tram) = (listed(None), listed(Some("tram")));
        for (id, over_pgm, over_tram) in
            [(" nothing ", true, true), (" lead ", true, false), (" goodbye ", false, true)]
        {
            assert_eq!([pgm.contains(id), tram.contains(id)], [over_pgm, over_tram], "{id}");
        }
    }
}
