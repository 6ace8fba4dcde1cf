//! Runs: each transport once in every round, so that what disturbs the machine disturbs all.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::memory::{Ballast, Memory};
use super::transports::{Over, Part, Place, Transport};
use crate::Error;
use crate::host::{
    Ended, Network, Running, SENDER_PORT, enter, hash_of, make_content, received_bytes,
};
use crate::monitor::Monitor;

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figures {
    /// Whether every copy is equal to what was sent.
    pub(super) complete: bool,
    /// Content, from when the first of it went until the last receiver had all of it.
    pub(super) mbit_per_s: f64,
    /// From the start of the sender until then: with whatever a transport does before and after.
    pub(super) total_s: f64,
    /// CPU time of the sender's program for each gigabyte of content.
    pub(super) cpu_send_s_per_gb: f64,
    /// The mean of the receivers' programs.
    pub(super) cpu_receive_s_per_gb: f64,
    /// Bytes that left the sender for each byte of content.
    pub(super) sent_per_useful: f64,
    /// What went wrong, in the words of the program.
    pub(super) trouble: Option<String>,
}

pub(super) struct Sitting {
    folder: Memory,
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    hash: blake3::Hash,
    ours: Vec<String>,
}

/// How long programs have to begin to listen.
const HEAD_START: Duration = Duration::from_millis(500);

/// How long a sender has to end by itself when every receiver has all.
const FAREWELL: Duration = Duration::from_secs(10);

/// A run slower than this on average is given up.
const fn slowest_mbit_per_s(over: Over) -> f64 {
    match over {
        Over::Fast => 40.0,
        Over::Group => 10.0,
        Over::Uplink => 5.0,
    }
}

impl Sitting {
    /// Makes content that does not compress.
    pub(super) fn new(bytes: u64, ours: Vec<String>) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::doing("the file to send", error);
        let folder = Memory::new().map_err(failed)?;
        std::fs::create_dir(folder.path().join("tools")).map_err(failed)?;
        let file = folder.path().join("content");
        let hash = make_content(&file, "faircast bench wire", bytes).map_err(failed)?;
        Ok(Self { folder, file, bytes, hash, ours })
    }

    pub(super) fn tools(&self) -> PathBuf {
        self.folder.path().join("tools")
    }

    pub(super) fn run(
        &self,
        network: &Network,
        transport: &Transport,
        monitor: &dyn Monitor,
    ) -> Result<Figures, Error> {
        let failed = |error: std::io::Error| Error::doing(&transport.id, error);
        let folder = self.folder.path().join("run");
        for host in network.hosts() {
            std::fs::create_dir_all(folder.join(host.to_string())).map_err(failed)?;
        }
        let tools = self.tools();
        let place = Place {
            network,
            tools: &tools,
            file: &self.file,
            bytes: self.bytes,
            folder: &folder,
            ours: &self.ours,
        };
        let figures = self.run_in(&place, transport, monitor);
        std::fs::remove_dir_all(&folder).map_err(failed)?;
        figures
    }

    fn run_in(
        &self,
        place: &Place<'_>,
        transport: &Transport,
        monitor: &dyn Monitor,
    ) -> Result<Figures, Error> {
        let copies = place.network.receivers().count() as u64;
        let ballast = match transport.writes_files() {
            true => Some(
                self.folder
                    .hold(self.bytes, copies)
                    .map_err(|error| Error::Work(format!("memory for the copies: {error}")))?,
            ),
            false => None,
        };
        let start = |host: u32, part: Part| {
            let log = place.folder.join(format!("{host}.log"));
            place.network.start(host, part.words, part.done, log)
        };
        let mut receivers = Vec::new();
        for host in place.network.receivers() {
            receivers.push(start(host, transport.receiver(place, host))?);
        }
        std::thread::sleep(HEAD_START);
        let counter = Counter::start(place.network.bridge_path(), self.bytes, ballast)?;
        let started = Instant::now();
        let mut sender = start(1, transport.sender(place))?;
        let slowest = slowest_mbit_per_s(transport.over);
        let limit_s = 20.0 + self.bytes as f64 * 8e-6 / slowest;
        let deadline = started + Duration::from_secs_f64(limit_s);
        let ended = wait_for_all(&mut receivers, &mut sender, deadline, monitor);
        let mut trouble = None;
        if ended.is_none() {
            // Who has ended knows more than who waits still.
            let open = receivers.iter_mut().filter_map(|receiver| {
                let open = receiver.wait_done(Instant::now()).is_none();
                open.then(|| (receiver.has_ended(), receiver.last_words()))
            });
            let stuck = open.max_by_key(|(ended, _)| *ended).map(|(_, words)| words);
            trouble = Some(stuck.unwrap_or_else(|| sender.last_words()));
        }
        let farewell = match transport.sender_stays() || ended.is_none() {
            true => Instant::now(),
            false => Instant::now() + FAREWELL,
        };
        let sent = sender.end(farewell);
        let received: Vec<Ended> =
            receivers.into_iter().map(|receiver| receiver.end(Instant::now())).collect();
        let (first, bytes) = counter.stop();
        let complete = ended.is_some()
            && place.network.receivers().all(|host| {
                !transport.makes_files()
                    || hash_of(&place.copy(host)).is_some_and(|h| h == self.hash)
            });
        let gigabytes = self.bytes as f64 / 1e9;
        let cpu: f64 = received.iter().map(|ended| ended.cpu_s).sum();
        let span = |from: Option<Instant>| Some((ended? - from?).as_secs_f64());
        Ok(Figures {
            complete,
            mbit_per_s: span(first).map_or(0.0, |s| self.bytes as f64 * 8e-6 / s),
            total_s: span(Some(started)).unwrap_or(limit_s),
            cpu_send_s_per_gb: sent.cpu_s / gigabytes,
            cpu_receive_s_per_gb: cpu / received.len() as f64 / gigabytes,
            sent_per_useful: bytes as f64 / self.bytes as f64,
            trouble: trouble.or_else(|| (!complete).then(|| "a copy differs".into())),
        })
    }
}

/// When the last receiver had all; `None` where one fails, or the sender does, or time is up.
fn wait_for_all(
    receivers: &mut [Running],
    sender: &mut Running,
    deadline: Instant,
    monitor: &dyn Monitor,
) -> Option<Instant> {
    let glance = Duration::from_millis(50);
    let mut sender_gone = None;
    loop {
        let done: Vec<_> =
            receivers.iter_mut().map(|receiver| receiver.wait_done(Instant::now())).collect();
        if let Some(last) = done.iter().copied().collect::<Option<Vec<_>>>() {
            return last.into_iter().max();
        }
        let now = Instant::now();
        let failed = receivers.iter_mut().zip(&done).any(|(r, d)| d.is_none() && r.has_ended());
        if sender_gone.is_none() && sender.has_ended() {
            sender_gone = Some(now);
        }
        // What it sent last may be on its way still.
        let hopeless = sender_gone.is_some_and(|gone| now > gone + Duration::from_secs(3));
        if failed || hopeless || now > deadline || monitor.is_to_stop() {
            return None;
        }
        let open = done.iter().position(Option::is_none).unwrap_or(0);
        receivers[open].wait_done(now + glance);
    }
}

/// Watches how much the sender's interface has sent, and makes room for it.
struct Counter {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    thread: JoinHandle<Option<Instant>>,
}

impl Counter {
    /// Starts at 0 now. Content has begun to go when a fiftieth of it, or a megabyte, is gone.
    fn start(bridge: PathBuf, content: u64, ballast: Option<Ballast>) -> Result<Self, Error> {
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, count) = (Arc::clone(&stop), Arc::clone(&bytes));
        let begun = (content / 50).min(1_000_000);
        let thread = std::thread::spawn(move || {
            enter(&bridge).ok()?;
            let zero = received_bytes(SENDER_PORT)?;
            let mut first = None;
            loop {
                let over = told.load(Ordering::Relaxed);
                let now = received_bytes(SENDER_PORT)?.wrapping_sub(zero);
                count.store(now, Ordering::Relaxed);
                if let Some(ballast) = &ballast {
                    ballast.gone(now);
                }
                if first.is_none() && now >= begun {
                    first = Some(Instant::now());
                }
                if over {
                    return first;
                }
                std::thread::sleep(Duration::from_millis(if first.is_none() { 2 } else { 50 }));
            }
        });
        Ok(Self { stop, bytes, thread })
    }

    /// When content began to go, and how many bytes went.
    fn stop(self) -> (Option<Instant>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let first = self.thread.join().ok().flatten();
        (first, self.bytes.load(Ordering::Relaxed))
    }
}
