//! `faircast check`: searches for causes of poor transfers, on this host and on paths to others.

use std::ops::ControlFlow;

use faircast::GroupKey;
use faircast::check::{Event, Finding, Settings, State, check as look};
use serde_json::json;

use crate::args::CheckArgs;
use crate::error::{Failure, Result, note, print};
use crate::interrupt::{interrupted, listen};
use crate::live;
use crate::live::words::wrapped;

pub(crate) fn check(args: &CheckArgs) -> Result {
    let settings = Settings {
        group: args.group,
        via: live::names("--via", &args.via)?,
        to: live::receivers(&args.to, args.group)?,
        interface: live::interface(args.interface.as_deref()),
        wait: args.wait,
        long: args.long,
        rate: args.rate,
        hops: args.ttl,
        key: live::read_key(&args.key, GroupKey::read)?,
    };
    listen();
    let mut watch = |event| {
        match (event, args.group) {
            (Event::Waiting, Some(group)) if !args.json => {
                let shown = args.wait.as_secs_f64();
                note(&format!("waiting up to {shown:.0} s for another host that checks {group}"));
            }
            (Event::Testing(peer), _) if !args.json => note(&format!("testing with {peer}")),
            _ => {}
        }
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match look(&settings, &mut watch) {
        Ok(Some(found)) => show(args, &found),
        Ok(None) => Err(Failure::work("interrupted; a check that is not finished says nothing")),
        Err(error) => Err(live::failure(error, true)),
    }
}

fn show(args: &CheckArgs, found: &[Finding]) -> Result {
    let is_ok = found.iter().all(|found| found.state != State::Wrong);
    if args.json {
        let group = args.group.map(|group| group.to_string());
        let version = env!("CARGO_PKG_VERSION");
        let document =
            json!({ "faircast": version, "group": group, "ok": is_ok, "findings": found });
        print(&format!("{document:#}\n"))?;
    } else {
        print(&text(found))?;
    }
    if is_ok { Ok(()) } else { Err(Failure::AlreadyTold) }
}

const COLUMNS: usize = 80;

fn text(found: &[Finding]) -> String {
    let mut text = String::new();
    let mut about: Option<Option<&str>> = None;
    for found in found {
        if about != Some(found.peer.as_deref()) {
            about = Some(found.peer.as_deref());
            let heading = match &found.peer {
                None if text.is_empty() => "This host".to_string(),
                None => "All".to_string(),
                Some(peer) => format!("With {peer}"),
            };
            text.push_str(&format!("{}{heading}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let state = match found.state {
            State::Ok => "ok",
            State::Wrong => "WRONG",
            State::Untested => "-",
        };
        let head = format!("  {state:<6}{:<21}", found.check);
        text.push_str(&wrapped(&head, &found.found, COLUMNS));
        if let Some(advice) = found.advice {
            text.push_str(&wrapped("        do: ", &advice.replace('`', ""), COLUMNS));
        }
    }
    let wrong = found.iter().filter(|found| found.state == State::Wrong).count();
    let untested = found.iter().filter(|found| found.state == State::Untested).count();
    text.push_str(&format!("\n{wrong} wrong, {untested} not tested.\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fit_a_terminal() {
        let speed =
            "to it 0.0 % of 5208 lost, at 49.8 Mbit/s; from it 0.0 % of 5208 lost, at 49.7 Mbit/s";
        let found = [Finding {
            check: "speed",
            peer: Some("10.9.0.2".into()),
            state: State::Wrong,
            found: speed.into(),
            advice: Some("a slower link, or small buffers"),
        }];
        let text = text(&found);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let below = format!("\n{:29}0.0 % of 5208 lost, at 49.7 Mbit/s\n", "");
        assert!(text.contains(&below), "{text}");
        assert!(text.contains("\n        do: a slower link"), "{text}");
    }
}
