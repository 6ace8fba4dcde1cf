//! Limits of one daemon: a subscriber that reads nothing, and ten thousand clients.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faircast_overlay::DaemonSettings;
use faircast_report::Row;

use super::client::{Subscriber, member, runtime, within};
use super::daemons::Daemons;
use super::{Case, judged, transfer};
use crate::wire::row;

/// Bytes of an event beside its payload, as the daemon counts them.
const EVENT_BYTES: usize = 64;
/// Interval between looks at a daemon's log.
const LOOK: Duration = Duration::from_millis(5);
/// Clients of the crowd, each with a group of its own.
const CROWD: usize = 10_000;

/// Least share of the rate that others keep beside a subscriber that reads nothing.
const SHARE_MIN: f64 = 0.9;
/// Longest time from the limit of a client's queue until the client is cut off.
const CUT_MAX_S: f64 = 1.0;
/// Longest time until all clients of the crowd are members.
const CROWD_TIME_MAX: Duration = Duration::from_secs(60);
/// Most memory of a daemon with the crowd. NATS takes 51 kB for a client.
const CROWD_MAX_MB: f64 = 500.0;

/// Measures the rate of subscribers beside one that reads nothing, and when that one is cut off.
pub(super) fn stuck(case: &Case, daemons: &Daemons) -> io::Result<Vec<Row>> {
    let before = transfer(case, daemons, None, false)?.rate();
    // Nothing drives the runtime of this client from now on.
    let silent = Subscriber::connect(daemons.ends().0, "silent")?;
    let is_over = AtomicBool::new(false);
    let (run, cut_at) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if daemons.log(0).contains("too slow") {
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
    let share = row("stuck.share", title, vec![2.0 * run.rate() / (before + after)]);
    let title = "from the limit of its queue until it is cut off";
    let cut = Row { unit: "s".into(), ..row("stuck.cut", title, vec![cut_s]) };
    Ok(vec![judged(share, Some(SHARE_MIN), None), judged(cut, None, Some(CUT_MAX_S))])
}

/// Measures the memory of a daemon with many clients and groups.
pub(super) fn crowd(daemons: &Daemons) -> io::Result<Vec<Row>> {
    let memory_mb = within(&runtime()?, CROWD_TIME_MAX, async {
        let mut clients = Vec::with_capacity(CROWD);
        for number in 0..CROWD {
            let (name, group) = (format!("c{number}"), format!("g{number}"));
            clients.push(member(daemons.ends().0, &name, &group).await?);
        }
        Ok(daemons.memory_mb())
    })?;
    let title = "memory with 10 000 clients and 10 000 groups";
    let memory = Row { unit: "MB".into(), ..row("crowd.memory", title, vec![memory_mb]) };
    Ok(vec![judged(memory, None, Some(CROWD_MAX_MB))])
}
