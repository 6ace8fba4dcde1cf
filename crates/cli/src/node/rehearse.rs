//! `faircast node rehearse`: runs a program against daemons with injected faults.

use std::process::{Child, Command};
use std::time::Duration;

use faircast::groups::Rehearsal;
use faircast_net::random;

use crate::args::NodeRehearseArgs;
use crate::error::{Failure, Result, note};
use crate::interrupt::{INTERRUPT_INTERVAL, interrupted, listen};

pub(super) async fn rehearse(args: &NodeRehearseArgs) -> Result {
    listen();
    let seed = args.seed.unwrap_or_else(|| random() % 1_000_000);
    let failed = |error: &dyn std::fmt::Display| Failure::Work(format!("rehearsal: {error}"));
    let started = Rehearsal::start(usize::from(args.daemons), seed).await;
    let mut rehearsal = started.map_err(|error| failed(&error))?;
    let addresses = rehearsal.addresses();
    note(&format!("seed {seed}; daemons: {}", addresses.join(" ")));
    let mut program = match args.command.split_first() {
        None => None,
        Some((name, words)) => {
            let mut command = Command::new(name);
            command.args(words);
            command.env("FAIRCAST_DAEMONS", addresses.join(" "));
            command.env("FAIRCAST_SEED", seed.to_string());
            let child = command.spawn();
            Some(child.map_err(|error| Failure::Work(format!("{name}: {error}")))?)
        }
    };
    let span = Duration::from_nanos(args.faults.as_nanos());
    let faults = async {
        let happened = rehearsal.faults(span, note).await;
        happened.map_err(|error| failed(&error))?;
        std::future::pending().await
    };
    let done = tokio::select! {
        ended = watch(&mut program) => ended,
        failed = faults => failed,
    };
    if let Some(mut child) = program {
        let _ = child.kill();
        let _ = child.wait();
    }
    done.map_err(|error| match error {
        Failure::Work(text) => Failure::Work(format!("{text}; again by --seed {seed}")),
        other => other,
    })
}

async fn watch(program: &mut Option<Child>) -> Result {
    loop {
        if interrupted() {
            return Ok(());
        }
        let ended = program.as_mut().map_or(Ok(None), Child::try_wait);
        match ended.map_err(Failure::work)? {
            None => tokio::time::sleep(INTERRUPT_INTERVAL).await,
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Failure::Work(format!("the program has failed: {status}"))),
        }
    }
}
