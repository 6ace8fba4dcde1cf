//! UFTP and NORM where TFMCC is measured: real programs on the hosts of a field, with the links of the
//! lab between them.
//!
//! UFTP has TFMCC, with differences that it documents; NORM-CC (RFC 5740) is derived from it. Two
//! questions to each and to ours: who limits the sender where one of two receivers is worse, and how
//! much of a link is left to TCP. The figures of peers are what there is to compare with, and their
//! ranges are wide: they are not ours to mend.

mod packets;
mod run;

use std::time::Duration;

use faircast_report::Row;
use nix::unistd::Uid;

use crate::Error;
use crate::monitor::{Monitor, Runs};
use crate::request::Request;
use crate::suite::judge::one_value;
use run::{Context, PROGRAMS, PeerRun, Program, SENDER, TCP_RECEIVER, TCP_SENDER};

/// What all ids of these rows begin with.
pub(crate) const ID: &str = "peers";

/// How long data flows before anything counts, and how long it counts.
const CHOICE_BEFORE: Duration = Duration::from_secs(8);
const CHOICE: Duration = Duration::from_secs(16);

/// How long a session has the link to itself, so that no slow start meets a link that TCP has filled
/// already; how long both flow before anything counts, and how long it counts.
const ALONE: Duration = Duration::from_secs(5);
const SHARE_BEFORE: Duration = Duration::from_secs(5);
const SHARE: Duration = Duration::from_secs(14);

/// One receiver is near and loses little, the other far and loses much: by TCP's equation (1428 bytes;
/// 22 ms and 0.2 %, 82 ms and 2 %) 13 and 1 Mbit/s.
const UNEQUAL: &str = include_str!("unequal.toml");

/// The bottleneck of the suite's own rows beside TCP.
const SHARED: &str = include_str!("shared.toml");

pub(crate) fn is_chosen(only: Option<&str>) -> bool {
    chosen(only).next().is_some()
}

/// The rows that `--only` chooses. What cannot be run here is passed over with a word why.
pub(crate) fn rows(request: &Request, monitor: &dyn Monitor) -> Result<Vec<Row>, Error> {
    let passed_over = |what: &str, why: &dyn std::fmt::Display| {
        monitor.note(&format!("{ID}: {what}passed over: {why}"));
    };
    if !Uid::effective().is_root() {
        passed_over("", &"network namespaces need root");
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir().map_err(|error| Error::doing("make a folder", error))?;
    let context = Context { tools: folder.path(), own: &request.own, monitor };
    let mut runs = Vec::new();
    for (question, program) in chosen(request.only.as_deref()) {
        match program.prepare(context.tools) {
            Ok(()) => runs.push((question, program)),
            Err(why) => passed_over(&format!("{} ", id(question, program)), &why),
        }
    }
    monitor.begin(Runs { name: ID, count: runs.len(), weight: runs.len() as u64, long: false });
    let mut rows = Vec::new();
    for (question, program, run) in run_all(&runs, context) {
        match run {
            Ok(more) => rows.extend(more),
            // Neither a lab that cannot be made here, such as without /dev/net/tun, nor a peer that
            // does not work here fails the suite.
            Err(error) if !monitor.is_to_stop() && (error.is_usage() || program.is_peer()) => {
                passed_over(&format!("{} ", id(question, program)), &error);
            }
            Err(error) => return Err(error),
        }
    }
    monitor.finish();
    Ok(rows)
}

type Answer = (Question, Program, Result<Vec<Row>, Error>);

/// Runs all. Those of a choice send little, and so go at the same time.
fn run_all(runs: &[(Question, Program)], context: Context<'_>) -> Vec<Answer> {
    let of = |wanted| runs.iter().copied().filter(move |(question, _)| *question == wanted);
    let mut done = std::thread::scope(|scope| {
        let start = |(question, program)| {
            (question, program, scope.spawn(move || choice(program, context)))
        };
        let started: Vec<_> = of(Question::Choice).map(start).collect();
        let end = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started
            .into_iter()
            .map(|(q, program, handle)| (q, program, end(handle)))
            .collect::<Vec<_>>()
    });
    done.extend(of(Question::Share).map(|(q, program)| (q, program, share(program, context))));
    done
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Choice,
    Share,
}

fn chosen(only: Option<&str>) -> impl Iterator<Item = (Question, Program)> {
    let both = [Question::Choice, Question::Share];
    let all = both.into_iter().flat_map(|question| PROGRAMS.map(|program| (question, program)));
    all.filter(move |(question, program)| {
        only.is_none_or(|text| id(*question, *program).contains(text))
    })
}

fn id(question: Question, program: Program) -> String {
    let question = match question {
        Question::Choice => "choice",
        Question::Share => "share",
    };
    format!("{ID}.{question}.{}", program.id)
}

/// Whom the sender follows, and who reports how much.
fn choice(program: Program, context: Context<'_>) -> Result<Vec<Row>, Error> {
    let mut run = PeerRun::new(program, UNEQUAL, &["near", "far"], context)?;
    run.wait_for_data()?;
    run.rest(CHOICE_BEFORE + CHOICE)?;
    context.monitor.ended(1);
    let (followed, times) = run.limiting("far", CHOICE);
    let (near, far) = (run.reports("near", CHOICE), run.reports("far", CHOICE));
    let kbps = run.bits_per_s(SENDER, "far", CHOICE) / 1e3;
    let (id, title) = (id(Question::Choice, program), program.title);
    Ok(vec![
        one_value(
            format!("{id}.worse"),
            format!("{title}: the worse receiver's share of {times} times that one is named"),
            "share",
            followed,
            0.8..=1.0,
            "the other could take ten times as much, but its first loss starts its history at the \
             present rate (RFC 4654 s5.6), so that it may be named for a second or two of 16",
        ),
        one_value(
            format!("{id}.quiet"),
            format!("{title}: reports of the better / the worse ({near} / {far})"),
            "ratio",
            near as f64 / far as f64,
            0.0..=0.5,
            "the worse reports once a round trip of 82 ms, the better once a feedback round of \
             six, and while it is taken for the worse",
        ),
        one_value(
            format!("{id}.rate"),
            format!("{title}: arriving at the worse"),
            "kbit/s",
            kbps,
            250.0..=4000.0,
            "TCP's equation gives 1000 kbit/s, and a quarter and four times it are the bounds",
        ),
    ])
}

/// What TCP gets beside it.
fn share(program: Program, context: Context<'_>) -> Result<Vec<Row>, Error> {
    let mut run = PeerRun::new(program, SHARED, &["mr"], context)?;
    run.wait_for_data()?;
    run.rest(ALONE)?;
    let alone = run.bits_per_s(SENDER, "mr", ALONE / 2) / 1e6;
    run.start_tcp()?;
    run.rest(SHARE_BEFORE + SHARE)?;
    context.monitor.ended(1);
    let tcp = run.bits_per_s(TCP_SENDER, TCP_RECEIVER, SHARE);
    let own = run.bits_per_s(SENDER, "mr", SHARE);
    let (tcp_mbps, own_mbps) = (tcp / 1e6, own / 1e6);
    let title = program.title;
    Ok(vec![one_value(
        id(Question::Share, program),
        format!("TCP Reno / {title} ({tcp_mbps:.1} / {own_mbps:.1} Mbit/s; before TCP {alone:.1})"),
        "ratio",
        tcp / own,
        0.2..=5.0,
        "one run of 14 s, in real time: neither is starved",
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_can_be_asked_alone() {
        assert_eq!(chosen(None).count(), 6);
        for (question, program) in chosen(None) {
            let id = id(question, program);
            assert_eq!(chosen(Some(&id)).count(), 1, "{id}");
        }
        assert!(!is_chosen(Some("beside-tcp")));
    }
}
