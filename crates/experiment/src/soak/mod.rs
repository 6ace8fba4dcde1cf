//! Rounds of faults: real programs on real sockets with faults around them.
//!
//! Each round draws a plan from its seed, runs `faircast` on a [field](faircast_lab::Field) of
//! hosts, injects the faults, and at the end compares every receiver's copy with the sent files.

mod noise;
mod overlay;
mod plan;
mod program;
mod relays;
mod result;
mod round;
mod sequence;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faircast_base::{Bytes, NodeId};
use faircast_lab::Field;
use faircast_proto::catalog::DEFAULT_SCHEME;
use faircast_scenario::{Overrides, Scenario};
use serde::Serialize;
use tempfile::TempDir;

use crate::Error;
use crate::files::{json, make_folder, write};
use crate::lab::refused;
use crate::monitor::Monitor;
use plan::{Plan, distinct};
use result::RoundResult;
use round::{MEMORY_MAX, Round};

/// File of host names, which programs find at /etc/hosts.
const NAMES: &str = "hosts";

macro_rules! faults {
    ($($id:ident $name:literal $modes:literal $about:literal)*) => {
        /// Kind of fault that a round can inject.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $(#[doc = $about] $id,)*
        }

        impl Fault {
            /// All kinds with their names on the command line and a short description.
            pub const ALL: &[(Self, &str, &str)] = &[$((Self::$id, $name, $about)),*];

            /// Returns the faults of a mode: `s` for single faults, `r` for faults over relays.
            fn of(mode: char) -> Vec<Self> {
                let all = [$((Self::$id, $modes)),*].into_iter();
                all.filter(|(_, modes)| modes.contains(mode)).map(|(fault, _)| fault).collect()
            }
        }
    };
}

faults! {
    Loss "loss" "so" "Links lose packets independently"
    BurstLoss "burst-loss" "" "Links lose packets in bursts"
    Reorder "reorder" "s" "Links deliver packets out of order"
    Duplicate "duplicate" "s" "Links deliver packets twice"
    Corrupt "corrupt" "s" "Links flip bits"
    Outage "outage" "s" "Links are down for seconds"
    KillReceiver "kill-receiver" "sr" "A receiver is killed (SIGKILL) and started again"
    KillSender "kill-sender" "sr" "The sender is killed and started again"
    StopReceiver "stop-receiver" "sr" "A receiver is stopped (SIGSTOP) for up to 30 s"
    JoinLeave "join-leave" "" "A receiver comes late, leaves and comes back"
    Interface "interface" "s" "A host's interface is set down for 5 s"
    SecondSender "second-sender" "" "Another sender sends other files to the same group"
    ReadOnly "read-only" "" "One receiver more cannot write to its folder"
    FullDisk "full-disk" "s" "One receiver more has no room on its disk"
    Noise "noise" "s" "An outsider floods sender and group with garbage, replayed and mutated packets"
    Clock "clock" "" "A receiver is killed and started again with its monotonic clock days ahead (time namespace)"
    Partition "partition" "o" "Half of the receivers are cut off for 10 s; with --overlay one daemon or two are"
    JoinEverySecond "join-every-second" "" "Receivers come one by one, a second apart, while data is sent"
    HeavyLoss "heavy-loss" "" "Every link loses a fifth of all packets"
    FarLoss "far-loss" "" "250 ms lie between any two, and a tenth of all packets is lost"
    KillHead "kill-head" "" "A repair head is killed and stays away (schemes with heads)"
    KillHeads "kill-heads" "" "Half of the repair heads are killed at once and stay away"
    StopHead "stop-head" "" "A repair head is stopped for 10 s"
    StopSender "stop-sender" "sr" "The sender is stopped (SIGSTOP) for up to 20 s"
    Address "address" "sro" "A host has another address from then on"
    BlackHole "black-hole" "sr" "Long packets from and to a host vanish"
    LoseReceiver "lose-receiver" "r" "A receiver is killed and stays away (--relays)"
    KillRelay "kill-relay" "r" "A relay is killed and started again"
    StopRelay "stop-relay" "r" "A relay is stopped for up to 20 s"
    Remap "remap" "r" "Address translation gives a host's packets another port (--relays)"
    Rename "rename" "r" "A relay has another address, and its name with it"
    Idle "idle" "r" "A host joins, and does nothing (--relays)"
    KillDaemon "kill-daemon" "o" "A daemon is killed and started again after up to 20 s (--overlay)"
    StopDaemon "stop-daemon" "o" "A daemon is stopped for up to 12 s (--overlay)"
    OneWay "one-way" "o" "One daemon or two reach no other, but are reached (--overlay)"
    CutLink "cut-link" "o" "One link between two daemons is down (--overlay)"
    Delay "delay" "o" "One link between two daemons takes 20 to 200 ms (--overlay)"
    KillClients "kill-clients" "o" "A program with ten clients is killed and started again (--overlay)"
    StopClients "stop-clients" "o" "A program with ten clients stands still for 5 s (--overlay)"
}

const WITH_HEADS: &str = "tram";

impl Fault {
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(fault, ..)| *fault == self).expect("all of them are there").1
    }

    fn is_of_networks(self) -> bool {
        self >= Self::LoseReceiver
    }

    fn is_of_heads(self) -> bool {
        matches!(self, Self::KillHead | Self::KillHeads | Self::StopHead)
    }
}

/// Request for rounds.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Request {
    /// Time in which rounds may begin.
    pub duration: Duration,
    /// Number of rounds; overrides the duration.
    pub rounds: Option<u32>,
    /// Seed of the first round; drawn if `None`.
    pub seed: Option<u64>,
    pub receivers: u32,
    pub scheme: String,
    /// True if a group key seals all packets. One by one, half of the seeds seal them in any case.
    pub key: bool,
    /// True if faults happen one after the other, and the rate must recover after each.
    pub one_by_one: bool,
    /// True if relays connect all hosts; faults then happen one after the other.
    pub relays: bool,
    /// True for daemons and clients of the overlay, with faults for the whole duration.
    pub overlay: bool,
    pub only: Vec<Fault>,
    /// Bytes sent in a round; drawn from the seed if `None`.
    pub size: Option<Bytes>,
    /// Folder for the programs' output and files, including rounds that hold.
    pub out: Option<PathBuf>,
    pub trace: bool,
    pub own: PathBuf,
}

#[derive(Debug, Serialize)]
struct Row {
    seed: u64,
    faults: Vec<&'static str>,
    unicast: bool,
    relays: bool,
    overlay: bool,
    sealed: bool,
    holds: bool,
    #[serde(flatten)]
    result: RoundResult,
    again: String,
    kept: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    faircast: &'static str,
    seed: u64,
    scheme: &'a str,
    receivers: u32,
    memory_bytes_max: u64,
    rounds: &'a [Row],
    holds: bool,
}

/// Rounds, run one after the other.
pub struct Soak {
    request: Request,
    seed: u64,
    begun: Instant,
    rows: Vec<Row>,
}

impl Soak {
    /// Prepares the rounds; runs none yet.
    pub fn new(request: Request) -> Result<Self, Error> {
        if !nix::unistd::geteuid().is_root() {
            let message = "soak makes network namespaces and interfaces, which needs root: sudo faircast soak";
            return Err(Error::Work(message.into()));
        }
        request.check()?;
        // Short enough to read aloud and type.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let drawn = since.map_or(1, |since| u64::from(since.subsec_nanos()) % 1_000_000);
        let seed = request.seed.unwrap_or(drawn);
        Ok(Self { request, seed, begun: Instant::now(), rows: Vec::new() })
    }

    /// Returns a line about the planned rounds.
    pub fn heading(&self) -> String {
        let Request { scheme, receivers, key, .. } = &self.request;
        if self.request.overlay {
            return format!("seed {}, {}\n", self.seed, overlay::HEADING);
        }
        let sealed = if *key { ", sealed" } else { "" };
        format!("seed {}, {scheme}, {receivers} receivers{sealed}\n", self.seed)
    }

    /// Runs the next round, and returns its report; `None` after the last round or a stop.
    pub fn next_round(&mut self, monitor: &dyn Monitor) -> Result<Option<String>, Error> {
        let done = self.rows.len();
        let goes_on = match self.request.rounds {
            Some(rounds) => done < rounds as usize,
            None if self.request.overlay => done == 0,
            None => done == 0 || self.begun.elapsed() < self.request.duration,
        };
        if !goes_on || monitor.is_to_stop() {
            return Ok(None);
        }
        let row = match round(&self.request, self.seed.wrapping_add(done as u64), monitor) {
            Err(_) if monitor.is_to_stop() => return Ok(None),
            row => row?,
        };
        let told = line(&row, done);
        self.rows.push(row);
        Ok(Some(told))
    }

    /// True if at least one round ran and all rounds hold.
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.holds)
    }

    /// Returns a table of all rounds for people.
    pub fn table(&self) -> String {
        let rows = &self.rows;
        let sum =
            |count: fn(&RoundResult) -> u64| rows.iter().map(|row| count(&row.result)).sum::<u64>();
        let held = rows.iter().filter(|row| row.holds).count();
        let memory = rows.iter().map(|row| row.result.memory_bytes).max().unwrap_or(0);
        let mut text = format!("\n{held} of {} rounds hold\n", rows.len());
        let mut add = |what: &str, value: String| {
            let _ = writeln!(text, "  {what:<34} {value:>12}");
        };
        add(
            "megabytes to each receiver",
            format!("{:.1}", sum(|result| result.bytes) as f64 / 1e6),
        );
        add("messages to clients of daemons", sum(|result| result.messages).to_string());
        add("starts of programs", sum(|result| result.starts.into()).to_string());
        add("packets lost by links", sum(|result| result.packets.lost_packets).to_string());
        add("packets doubled", sum(|result| result.packets.duplicated_packets).to_string());
        add("packets corrupted", sum(|result| result.packets.corrupted_packets).to_string());
        add("packets delayed", sum(|result| result.packets.delayed_packets).to_string());
        add(
            "packets dropped for their length",
            sum(|result| result.packets.too_long_packets).to_string(),
        );
        add("packets of the outsider", sum(|result| result.noise_packets).to_string());
        let most = memory_max(self.request.overlay);
        let limit = format!("{} of {} MiB", memory >> 20, most >> 20);
        add("most memory of a program", limit);
        text
    }

    /// Returns all rounds as JSON.
    pub fn to_json(&self) -> String {
        let Request { scheme, receivers, .. } = &self.request;
        json(&Document {
            faircast: env!("CARGO_PKG_VERSION"),
            seed: self.seed,
            scheme,
            receivers: *receivers,
            memory_bytes_max: memory_max(self.request.overlay),
            rounds: &self.rows,
            holds: self.holds(),
        })
    }
}

impl Request {
    fn check(&self) -> Result<(), Error> {
        let heads = self.scheme == WITH_HEADS;
        if let Some(fault) = self.only.iter().find(|fault| fault.is_of_heads() && !heads) {
            let name = fault.name();
            let message =
                format!("--only {name}: there are no repair heads without --scheme {WITH_HEADS}");
            return Err(Error::Usage(message));
        }
        let all = Fault::ALL.iter().map(|(fault, ..)| *fault);
        let (mode, known) = match (self.overlay, self.relays, self.one_by_one) {
            (true, ..) => ("with --overlay", Fault::of('o')),
            (_, true, _) => ("with --relays", Fault::of('r')),
            (_, _, true) => ("with --one-by-one", Fault::of('s')),
            _ => ("without --relays", all.filter(|fault| !fault.is_of_networks()).collect()),
        };
        if let Some(fault) = self.only.iter().find(|fault| !known.contains(fault)) {
            let known: Vec<&str> = known.into_iter().map(Fault::name).collect();
            let (fault, known) = (fault.name(), known.join(", "));
            let message = format!("--only {fault}: expected {mode} some of {known}");
            return Err(Error::Usage(message));
        }
        if self.relays && !(2..relays::RECEIVERS_MAX).contains(&self.receivers) {
            let message = format!("--relays takes 2 to {} --receivers", relays::RECEIVERS_MAX - 1);
            return Err(Error::Usage(message));
        }
        Ok(())
    }
}

fn round(request: &Request, seed: u64, monitor: &dyn Monitor) -> Result<Row, Error> {
    let (folder, temporary) = round_folder(request.out.as_deref(), seed)?;
    let (faults, unicast, sealed, result) = if request.overlay {
        let (faults, result) = overlay::run(seed, &folder, request, monitor)?;
        (faults, false, true, result)
    } else {
        let plan = Plan::new(seed, request);
        let result = Round::new(&plan, seed, &folder, request, monitor)?.run()?;
        (plan.faults, plan.unicast, plan.sealed, result)
    };
    let holds = result.problems.is_empty();
    Ok(Row {
        seed,
        faults: faults.into_iter().map(Fault::name).collect(),
        unicast,
        relays: request.relays,
        overlay: request.overlay,
        sealed,
        holds,
        result,
        again: again(request, seed),
        kept: match temporary {
            None => Some(folder),
            Some(temporary) => (!holds).then(|| temporary.keep()),
        },
    })
}

fn round_folder(out: Option<&Path>, seed: u64) -> Result<(PathBuf, Option<TempDir>), Error> {
    let Some(out) = out else {
        let folder = tempfile::Builder::new().prefix("faircast-soak-").tempdir();
        let folder = folder.map_err(|error| Error::write(&std::env::temp_dir(), error))?;
        return Ok((folder.path().to_owned(), Some(folder)));
    };
    let folder = out.join(format!("round-{seed}"));
    // Files of an earlier run would count as received.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| Error::write(&folder, error))?;
    }
    make_folder(&folder)?;
    let absolute = folder.canonicalize();
    Ok((absolute.map_err(|error| Error::write(&folder, error))?, None))
}

/// Makes hosts, connected by the links of a scenario, which is kept in the folder.
fn make_field(folder: &Path, scenario: &str) -> Result<Field, Error> {
    let links = folder.join("links.toml");
    write(&links, scenario)?;
    let (none, catalog) = (Overrides::default(), faircast_sim::catalog());
    Field::new(Scenario::parse(&links, scenario, &none, &catalog)?).map_err(refused)
}

fn write_names(
    folder: &Path,
    field: &Field,
    hosts: impl Iterator<Item = (NodeId, String)>,
) -> Result<(), Error> {
    let names = hosts.map(|(node, name)| format!("{} {name}\n", field.current_address(node)));
    write(&folder.join(NAMES), names.collect::<String>())
}

fn memory_max(overlay: bool) -> u64 {
    if overlay { overlay::MEMORY_MAX } else { MEMORY_MAX }
}

fn again(request: &Request, seed: u64) -> String {
    let Request { scheme, relays, overlay, receivers, key, one_by_one, .. } = request;
    let options = [
        (scheme != DEFAULT_SCHEME, format!(" --scheme {scheme}")),
        (*relays, " --relays".into()),
        (*overlay, format!(" --overlay --duration {}s", request.duration.as_secs())),
        (*receivers != 4, format!(" --receivers {receivers}")),
        (*key, " --key".into()),
        (*one_by_one, " --one-by-one".into()),
    ];
    let options = options.into_iter().filter_map(|(is_given, option)| is_given.then_some(option));
    let only = request.only.iter().map(|fault| format!(" --only {}", fault.name()));
    let size = request.size.map(|size| format!(" --size {}B", size.count()));
    let options: String = options.chain(only).chain(size).collect();
    format!("faircast soak --seed {seed} --rounds 1{options}")
}

fn line(row: &Row, index: usize) -> String {
    let RoundResult { seconds, bytes, memory_bytes, starts, .. } = row.result;
    let mut line = format!(
        "{:>4}  seed {:<8} {:<5} {:<7} {:<6} {seconds:>6.1} s {:>7.1} MB {:>5} MiB {starts:>3} starts  {}\n",
        index + 1,
        row.seed,
        if row.holds { "holds" } else { "FAILS" },
        match (row.overlay, row.relays, row.unicast) {
            (true, ..) => "overlay",
            (_, true, _) => "relays",
            (_, _, true) => "unicast",
            _ => "group",
        },
        if row.sealed { "sealed" } else { "open" },
        bytes as f64 / 1e6,
        memory_bytes >> 20,
        row.faults.join(" ")
    );
    for said in row.result.notes.iter().chain(&row.result.problems) {
        let _ = writeln!(line, "      {said}");
    }
    if !row.holds {
        let _ = writeln!(line, "      again: sudo {}", row.again);
        if let Some(kept) = &row.kept {
            let _ = writeln!(line, "      kept:  {}", kept.display());
        }
    }
    line
}
