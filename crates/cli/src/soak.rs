//! `faircast soak`: rounds of faults in transfers of real programs.

use std::time::Duration;

use faircast_experiment::soak::{Request, Soak};

use crate::args::SoakArgs;
use crate::error::{Failure, Result, note, print, this_program};
use crate::interrupt::{interrupted, listen};
use crate::progress::RunsMonitor;

pub(crate) fn soak(args: &SoakArgs) -> Result {
    listen();
    let mut soak = Soak::new(Request {
        duration: Duration::from_nanos(args.duration.as_nanos()),
        rounds: args.rounds,
        seed: args.seed,
        receivers: args.receivers.unwrap_or(if args.relays { 12 } else { 4 }),
        scheme: args.scheme.clone(),
        key: args.key,
        one_by_one: args.one_by_one,
        relays: args.relays,
        overlay: args.overlay,
        only: args.only.clone(),
        size: args.size,
        out: args.out.clone(),
        trace: args.trace,
        own: this_program()?,
    })?;
    let told = |text: &str| if args.json { Ok(()) } else { print(text) };
    told(&soak.heading())?;
    let monitor = RunsMonitor::default();
    while let Some(lines) = soak.next_round(&monitor)? {
        told(&lines)?;
    }
    print(&if args.json { soak.to_json() } else { soak.table() })?;
    if interrupted() {
        note("interrupted; the rounds above are those that were finished");
    }
    if soak.holds() { Ok(()) } else { Err(Failure::AlreadyTold) }
}
