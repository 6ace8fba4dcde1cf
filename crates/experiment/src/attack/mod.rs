//! Attacks on a transfer over real sockets, by a host beside it.
//!
//! A sender, two receivers and an attacker in network namespaces on one bridge. The attacker hears
//! the group and sends from whatever address it likes; it has no key. Each attack meets a transfer
//! of its own, which is measured before, while and after it lasts, and then has to end well.

mod attacker;
mod forge;
mod hostile;
mod transfer;
mod tree;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use faircast_proto::catalog;
use faircast_proto::pgm::wire::OptionType;
use serde::Serialize;

use crate::Error;
use crate::files::json;
use crate::host::{Network, Shape, need_root};
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use crate::wire::ours;
use hostile::{Attempt, Hostile, Sent, TreeAttack};
use transfer::{GIVE_UP, Order, Pace, RECEIVERS, Transfer};

const TITLE: &str = "What can a host on the network do to a transfer?";

/// What the sender may send at most, so that a busy machine does not decide.
const RATE_MBIT_PER_S: u64 = 100;

/// Times of a transfer: until it is steady, while it is measured before and after, how soon it must
/// be what it was, what is left then, and what its end may take.
const SETTLING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);
const RECOVERY: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(4);
const END_MAX: Duration = Duration::from_secs(30);

const FLOOD: Duration = Duration::from_secs(10);

const START_MAX: Duration = Duration::from_secs(20);

/// Of the rate before, that afterwards is the same: a second's progress is a point of measurement.
const SAME: f64 = 0.8;

/// What is on the wire for the rate of payload: headers of Ethernet, IP, UDP and PGM, and reports.
const WIRE_MAX: f64 = 1.1;

/// Of a flood of requests: what is left of the rate, of which a quarter is theirs and some goes while
/// thousands join; and what it may cost the sender, in cores.
const FLOODED: f64 = 0.4;
const FLOODED_CPU: f64 = 0.5;

/// How soon an honest request for metrics is answered.
const ANSWER_MAX: Duration = Duration::from_secs(2);

struct Attack {
    id: &'static str,
    title: &'static str,
    kind: Attempt,
}

const ATTACKS: &[Attack] = &[
    attack("nothing", "no attack, to compare with", Attempt::Nothing),
    attack(
        "data",
        "one packet of data from 100 000 ahead",
        Attempt::Once(|heard| heard.data_ahead(100_000)),
    ),
    attack(
        "lead",
        "one SPM whose lead is 100 000 ahead",
        Attempt::Once(|heard| heard.spm_with(|spm| spm.lead += 100_000, None, None)),
    ),
    attack(
        "spm",
        "one SPM whose own number is 100 000 000 ahead",
        Attempt::Once(|heard| heard.spm_with(|spm| spm.sequence += 100_000_000, None, None)),
    ),
    attack(
        "fin",
        "one SPM that says that this is the end",
        Attempt::Once(|heard| heard.spm_with(|_| {}, Some(OptionType::FIN), None)),
    ),
    attack(
        "rst",
        "one SPM that says that the source has given up",
        Attempt::Once(|heard| heard.spm_with(|_| {}, Some(OptionType::RST), None)),
    ),
    attack(
        "scheme",
        "one SPM of another scheme",
        Attempt::Once(|heard| heard.spm_with(|_| {}, None, Some(b"\x01\x07another"))),
    ),
    attack("sealed", "one damaged datagram of a session with a key", Attempt::Sealed),
    attack(
        "damage",
        "6000 damaged packets a second in the source's name, for 10 s",
        Attempt::Damage,
    ),
    attack("sessions", "3000 invented sessions a second, for 10 s", Attempt::Sessions),
    attack(
        "sessions-first",
        "the same before the receivers are started",
        Attempt::SessionsFirst { from: false },
    ),
    attack(
        "sessions-from",
        "the same, of receivers with --from",
        Attempt::SessionsFirst { from: true },
    ),
    attack(
        "member",
        "one invented receiver that never gets on, 95 packets a minute",
        Attempt::Member,
    ),
    attack(
        "members",
        "10 000 invented receivers with 8000 requests a second, for 10 s",
        Attempt::Members,
    ),
    attack("connections", "145 silent connections to the port of metrics", Attempt::Connections),
    attack("end", "one beacon that says that this is the end", tree(TreeAttack::End)),
    attack("ahead", "one packet of data from 50 ahead", tree(TreeAttack::Ahead)),
    attack(
        "removal",
        "one packet to each receiver, in the source's name, that it was removed",
        tree(TreeAttack::Removal),
    ),
    attack("goodbye", "one goodbye in each receiver's name", tree(TreeAttack::Goodbye)),
    attack(
        "settings-first",
        "settings of another scheme, twice a second, before the receivers are started",
        tree(TreeAttack::Settings),
    ),
    attack(
        "repeats",
        "one invented member that repeats an acknowledgement 20 times a second, for 10 s",
        tree(TreeAttack::Member),
    ),
    attack(
        "catalogue",
        "20 forged packets a second, of all kinds and in all names, for 10 s",
        tree(TreeAttack::Catalogue),
    ),
];

const fn tree(attack: TreeAttack) -> Attempt {
    Attempt::Tree(attack)
}

impl Attack {
    /// True if the attack is one on transfers over TRAM, with `over_tree`, or else over PGM.
    fn suits(&self, over_tree: bool) -> bool {
        match self.kind {
            Attempt::Nothing | Attempt::Sealed | Attempt::Connections => true,
            Attempt::Tree(_) => over_tree,
            _ => !over_tree,
        }
    }
}

const fn attack(id: &'static str, title: &'static str, kind: Attempt) -> Attack {
    Attack { id, title, kind }
}

/// Something that had to be so.
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
    /// Packets or connections of the attacker.
    sent: u32,
    /// `None` where receivers are started only when the attack has begun.
    before: Option<Pace>,
    during: Option<Pace>,
    after: Pace,
    checks: Vec<Check>,
    /// The last thing that was said by who has not done its work, where a check does not hold.
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
    let all = ATTACKS.iter().filter(|attack| attack.suits(over_tree));
    chosen("attack", "row", all, |attack| attack.id, request.only.as_deref())
}

pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let attacks = attacks(request)?.into_iter();
    Ok(listing("attack", TITLE, attacks.map(|attack| ("", attack.id, attack.title))))
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let attacks = attacks(request)?;
    need_root("attack")?;
    Network::remove_leftovers();
    let hosts = 1 + RECEIVERS.len() as u32;
    let network = Network::make("attack", hosts, Shape::default(), &request.own)?;
    let (count, weight) = (attacks.len(), attacks.len() as u64);
    monitor.begin(Runs { name: "attack", count, weight, long: true });
    let mut outcomes = Vec::new();
    for attack in attacks {
        outcomes.push(meet(attack, &network, request, monitor)?);
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

fn meet(
    attack: &Attack,
    network: &Network,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<AttackResult, Error> {
    let failed = |error: std::io::Error| Error::doing(attack.id, error);
    let kind = attack.kind;
    let lasts = if kind.is_flood() { FLOOD } else { RECOVERY };
    let span = SETTLING + MEASURED + lasts + RECOVERY + MEASURED + REST;
    let order = Order {
        program: request.program.as_ref().unwrap_or(&request.own).clone(),
        bytes: RATE_MBIT_PER_S * 125_000 * span.as_secs(),
        rate: format!("{RATE_MBIT_PER_S}Mbit/s"),
        key: matches!(kind, Attempt::Sealed),
        from: matches!(kind, Attempt::SessionsFirst { from: true }),
        scheme: ours(request),
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let mut transfer = Transfer::new(network, folder.path(), order, monitor)?;
    let hostile = Hostile::start(kind, network);
    let late = kind.is_first();
    transfer.start_sender()?;
    let mut before = None;
    if !late {
        transfer.start_receivers()?;
        let deadline = Instant::now() + START_MAX;
        if !transfer.wait_until(deadline, |transfer| transfer.runs())? {
            let said = transfer.last_words();
            return Err(Error::Work(format!("{}: does not begin: {said}", attack.id)));
        }
        transfer.rest(SETTLING)?;
        let from = transfer.count();
        transfer.rest(MEASURED)?;
        before = Some((from, transfer.count()));
    }
    let begun = transfer.count();
    hostile.go();
    let mut started = Instant::now();
    if late {
        transfer.rest(Duration::from_secs(1))?;
        started = Instant::now();
        transfer.start_receivers()?;
    }
    transfer.rest(lasts.saturating_sub(started.elapsed()))?;
    transfer.wait_until(Instant::now() + END_MAX, |_| hostile.is_over() || !kind.is_flood())?;
    let (over, during) = (Instant::now(), transfer.count());
    if late {
        transfer.wait_until(over + START_MAX, |transfer| transfer.runs())?;
    }
    if kind.is_flood() {
        transfer.rest(RECOVERY)?;
    }
    let from = transfer.count();
    transfer.rest(MEASURED)?;
    let to = transfer.count();
    let deadline = Instant::now() + END_MAX;
    transfer.wait_until(deadline, |transfer| transfer.complete_at().is_some())?;
    // Whoever was invented goes on until the sender has ended.
    let deadline = Instant::now() + GIVE_UP + END_MAX / 3;
    let complete = transfer.complete_at();
    if complete.is_some() {
        transfer.wait_until(deadline, Transfer::sender_has_ended)?;
    }
    let ended = complete.map(|at| at.elapsed());
    let Sent { count, answered } = hostile.end().map_err(failed)?;
    let before = before.map(|(from, to)| transfer.pace(from, to));
    let after = transfer.pace(from, to);
    let during = (!late).then(|| transfer.pace(begun, during));
    let joined = transfer.joined_at(RECEIVERS.len());
    let (known, warnings) = (transfer.joined(), transfer.warnings());
    let last_words = transfer.last_words();
    let well = transfer.end();

    let mut checks = Vec::new();
    let mut check = |what, holds, seen: String| checks.push(Check { what, holds, seen });
    let mbit = |rate: f64| format!("{rate:.1} Mbit/s");
    let rate = RATE_MBIT_PER_S as f64;
    let usual = before.map_or(rate, |pace| pace.mbit_per_s);
    let attacked = count > 0 || matches!(kind, Attempt::Nothing);
    check("its rate again", after.mbit_per_s >= SAME * usual, mbit(after.mbit_per_s));
    check("was attacked", attacked, format!("{count} sent"));
    let whole = transfer.copies_are_whole();
    check("whole copies", whole, if whole { "equal" } else { "a copy differs" }.into());
    let seen = match ended {
        Some(ended) => format!("{:.1} s after the last copy", ended.as_secs_f64()),
        None => "it was ended".into(),
    };
    check("the sender's end", well, seen);
    let wire = during.unwrap_or(after).wire_mbit_per_s.max(after.wire_mbit_per_s);
    check("rate on the wire", wire <= WIRE_MAX * rate, mbit(wire));
    match kind {
        Attempt::Members => {
            let pace = during.expect("receivers were there before");
            check("most of its rate", pace.mbit_per_s >= FLOODED * usual, mbit(pace.mbit_per_s));
            check("CPU", pace.cpu <= FLOODED_CPU, format!("{:.2} cores", pace.cpu));
            check("invented ones known", known > RECEIVERS.len(), format!("{known} joined"));
        }
        Attempt::Member => {
            check("invented one known", known > RECEIVERS.len(), format!("{known} joined"));
        }
        Attempt::Sealed => {
            let seen = warnings.first().cloned().unwrap_or_default();
            check("no warning", warnings.is_empty(), seen);
        }
        Attempt::Tree(TreeAttack::Member | TreeAttack::Catalogue) => {
            let pace = during.expect("receivers were there before");
            check("most of its rate", pace.mbit_per_s >= FLOODED * usual, mbit(pace.mbit_per_s));
        }
        Attempt::Tree(TreeAttack::Settings) => {
            let took = joined.map(|at| at.saturating_duration_since(started));
            let seen = took.map_or("never".into(), |took| format!("{:.1} s", took.as_secs_f64()));
            check("heard soon", took.is_some_and(|took| took <= RECOVERY), seen);
        }
        Attempt::SessionsFirst { from } => {
            let since = if from { started } else { over };
            let took = joined.map(|at| at.saturating_duration_since(since));
            let seen = took.map_or("never".into(), |took| format!("{:.1} s", took.as_secs_f64()));
            check("heard soon", took.is_some_and(|took| took <= RECOVERY), seen);
        }
        Attempt::Connections => {
            let holds = answered.is_some_and(|took| took <= ANSWER_MAX);
            let seen =
                answered.map_or("never".into(), |took| format!("{:.2} s", took.as_secs_f64()));
            check("metrics soon", holds, seen);
        }
        _ => {}
    }
    let last_words = checks.iter().any(|check| !check.holds).then_some(last_words);
    let (id, title) = (attack.id, attack.title);
    Ok(AttackResult { id, title, sent: count, before, during, after, checks, last_words })
}

/// Characters of what a program said last; `--json` has all of it.
const WORDS_SHOWN: usize = 120;

/// What came of all attacks, a line for each, and below it what does not hold.
fn table(outcomes: &[AttackResult]) -> String {
    let mut text = format!(
        "{:<15} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}  {:<5} {}\n",
        "attack", "before", "during", "after", "wire", "CPU", "CPU", "", "checked"
    );
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
