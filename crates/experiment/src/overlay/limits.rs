//! Limits of one daemon: a subscriber that reads nothing, and ten thousand clients.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faircast_overlay::DaemonSettings;
use faircast_report::Row;

use super::client::{BlockingClient, member, runtime, within};
use super::daemons::Daemons;
use super::{Case, transfer};
use crate::host::{Running, memory_bytes, said};
use crate::wire::{judged, row};

/// Overhead of an event in bytes, as the daemon counts it.
const EVENT_BYTES: usize = 64;
const LOOK: Duration = Duration::from_millis(5);
const CROWD: usize = 10_000;

/// Least rate of other subscribers beside one that reads nothing, as a share of their usual rate.
const SHARE_MIN: f64 = 0.9;
/// Longest time between a full client queue and the disconnection of the client, in seconds.
const CUT_MAX_S: f64 = 1.0;
const CROWD_TIME_MAX: Duration = Duration::from_secs(60);
/// Most memory of a daemon with the crowd. For comparison, NATS needs 51 kB for a client.
const CROWD_MAX_MB: f64 = 500.0;

pub(super) fn stuck(case: &Case, daemons: &Daemons) -> io::Result<Vec<Row>> {
    let before = transfer(case, daemons, None, false)?.rate();
    let silent = BlockingClient::subscriber(daemons.ends().0, "silent")?;
    let is_over = AtomicBool::new(false);
    let (run, cut_at) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if said(&daemons.programs[0].log).contains("too slow") {
                    return Some(Instant::now());
                }
                std::thread::sleep(LOOK);
            }
            None
        });
        let run = transfer(case, daemons, None, false);
        is_over.store(true, Ordering::Relaxed);
        (run, watch.join().unwrap_or_default())
    });
    let run = run?;
    drop(silent);
    let after = transfer(case, daemons, None, false)?.rate();
    let each = run.rate() / case.subscribers as f64;
    let limit = DaemonSettings::default().client_bytes / (case.bytes + EVENT_BYTES);
    let full_s = limit as f64 / each;
    let cut_s = cut_at.map_or(f64::INFINITY, |at| (at - run.began).as_secs_f64() - full_s);
    let title = "rate beside a subscriber that reads nothing / without";
    let share = row("stuck.share", title, "ratio", vec![2.0 * run.rate() / (before + after)]);
    let title = "from the limit of its queue until it is cut off";
    let cut = row("stuck.cut", title, "s", vec![cut_s]);
    Ok(vec![judged(share, Some(SHARE_MIN), None), judged(cut, None, Some(CUT_MAX_S))])
}

pub(super) fn crowd(daemons: &Daemons) -> io::Result<Vec<Row>> {
    let memory = |daemon: &Running| memory_bytes(daemon.id(), "VmRSS:");
    let bytes: u64 = within(&runtime()?, CROWD_TIME_MAX, async {
        let mut clients = Vec::with_capacity(CROWD);
        for number in 0..CROWD {
            let (name, group) = (format!("c{number}"), format!("g{number}"));
            clients.push(member(daemons.ends().0, &name, &group).await?);
        }
        Ok(daemons.programs.iter().filter_map(memory).sum())
    })?;
    let title = "memory with 10 000 clients and 10 000 groups";
    let memory = row("crowd.memory", title, "MB", vec![bytes as f64 / 1024e3]);
    Ok(vec![judged(memory, None, Some(CROWD_MAX_MB))])
}
