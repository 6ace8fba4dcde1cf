//! Sweeps of a small scenario: runs, keys, and stored files.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use faircast_sim::Observer;
use faircast_trace::{On, Sink};

use super::*;
use crate::table::Table;
use crate::{Backend, BackendOutcome, Monitor};

const SMALL: &str = "title = \"Is this small?\"\nduration = \"2 s\"\n[[link]]\nbetween = [\"a\", \"b\"]\n\
    rate = \"1 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", packets = 10 }\n[[flow]]\n\
    name = \"tcp\"\nprotocol = \"tcp-reno\"\nfrom = \"a\"\nto = [\"b\"]\ncount = 2\n\
    start = { uniform = [\"0 s\", \"1 s\"] }\n";

fn program() -> Program {
    Program { version: "1".into(), build: "b".into() }
}

/// Backend that only has the name of the lab.
struct Lab;

impl Backend for Lab {
    fn on(&self) -> On {
        On::Lab
    }

    fn run(
        &self,
        _: &Scenario,
        _: &mut dyn Observer,
        _: &mut dyn Sink,
    ) -> Result<BackendOutcome, Error> {
        unreachable!("the tests run nothing in the lab")
    }
}

static SIMULATED: LazyLock<Study<'static>> = LazyLock::new(Study::default);
static IN_LAB: LazyLock<Study<'static>> =
    LazyLock::new(|| Study { backend: &Lab, ..Study::default() });

fn try_sweep(
    set: &[&str],
    seeds: u64,
    study: &'static Study<'static>,
) -> Result<Sweep<'static>, Error> {
    let draft = Draft::read(Path::new("small.toml"), SMALL).unwrap();
    let axes = set.iter().map(|set| Axis::parse(set).unwrap()).collect();
    Sweep::new(study, draft, axes, 1..=seeds).map(|sweep| Sweep { program: program(), ..sweep })
}

pub(super) fn sweep(set: &[&str], seeds: u64) -> Sweep<'static> {
    try_sweep(set, seeds, &SIMULATED).unwrap()
}

fn keys(sweep: &Sweep<'_>) -> Vec<String> {
    sweep.jobs().unwrap().into_iter().map(|job| job.key).collect()
}

#[test]
fn every_combination_is_run_with_every_seed() {
    let sweep = sweep(&["link.0.rate=1 Mbit/s,2 Mbit/s", "flow.0.protocol=tcp-reno,tcp-sack"], 2);
    let jobs = sweep.jobs().unwrap();
    let choices: Vec<_> = jobs.iter().map(|job| (job.choice.clone(), job.seed)).collect();
    let want = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|choice| choice.to_vec());
    let want: Vec<_> =
        want.into_iter().flat_map(|choice| [(choice.clone(), 1), (choice, 2)]).collect();
    assert_eq!(choices, want);
    assert_eq!(sweep.named(&jobs[3]), "link.0.rate=1 Mbit/s, flow.0.protocol=tcp-sack, seed 2");
}

#[test]
fn a_key_is_of_what_is_run_and_of_nothing_else() {
    let first = &keys(&sweep(&[], 2));
    assert_ne!(first[0], first[1], "the seed");
    assert_eq!(*first, keys(&sweep(&[], 2)), "again");
    // Equal values in other notations, and settings without effect on a run.
    for same in ["duration=2 s", "duration=2000 ms", "link.0.rate=1000 kbit/s", "title=Another?"] {
        assert_eq!(*first, keys(&sweep(&[same], 2)), "{same}");
    }
    for other in [
        "duration=3 s",
        "warmup=1 s",
        "link.0.queue.packets=11",
        "flow.0.options.min_rto=1 s",
        "flow.0.count=3",
    ] {
        assert_ne!(first[0], keys(&sweep(&[other], 1))[0], "{other}");
    }
    let mut other = sweep(&[], 1);
    other.program.build = "another".into();
    assert_ne!(first[0], keys(&other)[0], "another build");
    assert_ne!(first[0], keys(&try_sweep(&[], 1, &IN_LAB).unwrap())[0], "another place");
}

#[test]
fn daemons_and_their_clients_are_parts_of_the_key() {
    let text = "title = \"Do they talk?\"\nduration = \"2 s\"\n[[link]]\nbetween = [\"a\", \"b\"]\n\
        rate = \"1 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", packets = 10 }\n\
        [[daemon]]\nnode = \"a\"\n[[daemon]]\nnode = \"b\"\npeers = \"a\"\n[[client]]\nname = \"c\"\n\
        node = [\"a\", \"b\"]\ngroups = \"g\"\nsend = { groups = \"g\", size = \"100 B\", rate = \"2 kbit/s\" }\n";
    let key = |set: &[&str]| {
        let draft = Draft::read(Path::new("talk.toml"), text).unwrap();
        let axes = set.iter().map(|set| Axis::parse(set).unwrap()).collect();
        keys(&Sweep::new(&SIMULATED, draft, axes, [1]).unwrap())
    };
    for other in ["client.0.send.rate=3 kbit/s", "client.0.send.service=agreed", "client.0.count=2"]
    {
        assert_ne!(key(&[]), key(&[other]), "{other}");
    }
    assert_eq!(key(&[]), key(&["client.0.send.rate=2000 bit/s"]));
}

#[test]
fn the_content_of_a_file_that_is_sent_is_a_part_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("s.toml"), folder.path().join("data"));
    std::fs::write(&file, format!("{SMALL}data = {{ file = \"data\" }}\n")).unwrap();
    let key = |content: &str| {
        std::fs::write(&data, content).unwrap();
        keys(&Sweep::new(&SIMULATED, Draft::load(&file).unwrap(), Vec::new(), [1]).unwrap())
    };
    let first = key("abc");
    assert_ne!(first, key("abd"));
    assert_eq!(first, key("abc"));
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let error = |set: &[&str], seeds| match try_sweep(set, seeds, &SIMULATED) {
        Ok(sweep) => sweep.jobs().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error(&["durtion=1 s"], 1).contains("did you mean \"duration\"?"));
    let line = error(&["link.0.rate=1 Mbit/s,2 Mbit/s", "duration=3 s,1 parsec"], 1);
    assert!(
        line.contains("--set duration=1 parsec: duration: \"1 parsec\" has an unknown unit"),
        "{line}"
    );
    assert!(error(&["a=1", "a=2"], 1).contains("--set a: is there twice"));
    assert!(error(&["duration=1 s,2 s"], RUNS_MAX).contains("200000 runs; expected at most"));
}

struct Count {
    ended: AtomicUsize,
    stop_after: usize,
}

impl Count {
    fn new(stop_after: usize) -> Self {
        Self { ended: AtomicUsize::new(0), stop_after }
    }
}

impl Monitor for Count {
    fn ended(&self, _weight: u64) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn is_to_stop(&self) -> bool {
        self.ended.load(Ordering::Relaxed) >= self.stop_after
    }
}

#[test]
fn a_sweep_that_was_stopped_goes_on_where_it_was() {
    let out = tempfile::tempdir().unwrap();
    let store = Store::open(out.path()).unwrap();
    let sweep = sweep(&["link.0.rate=1 Mbit/s,2 Mbit/s,3 Mbit/s"], 2);
    let jobs = sweep.jobs().unwrap();
    let missing = |store: &Store| -> Vec<Job> {
        jobs.iter().filter(|job| !store.has(job, false)).cloned().collect()
    };
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let go = |jobs: &[Job], stop_after| {
        let jobs: Vec<&Job> = jobs.iter().collect();
        let study = Study { monitor: &Count::new(stop_after), ..Study::default() };
        let sweep = Sweep { study: &study, ..sweep.clone() };
        one.install(|| run(&sweep, &jobs, &store, false))
    };
    let first = go(&jobs, 4);
    assert!(first.stopped && first.failed.is_empty());
    assert_eq!((first.done, missing(&store).len()), (4, 2));
    let rest = go(&missing(&store), usize::MAX);
    assert_eq!((rest.done, rest.stopped), (2, false));
    assert!(missing(&store).is_empty());
    let scenario = sweep.scenario(&jobs[5].choice, Some(jobs[5].seed)).unwrap();
    let again = SIMULATED.run(&scenario, &mut faircast_sim::Unobserved, &mut ()).unwrap();
    assert_eq!(store.get(&jobs[5]).unwrap().trace_hash, again.summary.trace_hash);
    let text = std::fs::read_to_string(store.path(&jobs[0])).unwrap();
    for (from, to) in
        [("{", "["), ("\"timeouts\":", "\"timeouts\":1"), ("{\"hash\":\"", "{\"hash\":\"0")]
    {
        std::fs::write(store.path(&jobs[0]), text.replacen(from, to, 1)).unwrap();
        assert_eq!(missing(&store), [jobs[0].clone()], "{from}");
        assert!(
            matches!(store.find(&jobs[0]), StoredRun::Altered(file) if file == store.path(&jobs[0]))
        );
    }
    assert_eq!(store.others(&jobs[1..]), 1);
}

#[test]
fn a_run_that_fails_is_named_and_loses_no_other() {
    let out = tempfile::tempdir().unwrap();
    let store = Store::open(out.path()).unwrap();
    let sweep = sweep(&["link.0.rate=1 Mbit/s,2 Mbit/s"], 2);
    let jobs = sweep.jobs().unwrap();
    std::fs::create_dir_all(store.path(&jobs[1]).join("in the way")).unwrap();
    let ran = run(&sweep, &jobs.iter().collect::<Vec<_>>(), &store, true);
    assert_eq!((ran.done, ran.stopped, ran.failed.len()), (3, false, 1));
    assert_eq!(ran.failed[0].job, jobs[1]);
    assert!(ran.failed[0].reason.contains("cannot be written"), "{}", ran.failed[0].reason);
    assert!(jobs.iter().all(|job| store.trace(job).is_file()), "traces were asked for");
    let left = std::fs::read_dir(out.path().join("runs")).unwrap().flatten();
    let parts = left.filter(|file| file.path().extension().is_some_and(|kind| kind == "part"));
    assert_eq!(parts.count(), 0, "nothing half-written is left");
}

#[test]
fn runs_that_are_the_same_are_run_once_and_have_all_their_rows() {
    let sweep = sweep(&["link.0.rate=1 Mbit/s,1000 kbit/s"], 1);
    let jobs = sweep.jobs().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(unique(&jobs), [&jobs[0]]);
}

#[test]
fn tables_have_a_row_for_each_combination_seed_and_flow() {
    let out = tempfile::tempdir().unwrap();
    let store = Store::open(out.path()).unwrap();
    let sweep = sweep(&["link.0.rate=1 Mbit/s,2 Mbit/s"], 2);
    let jobs = sweep.jobs().unwrap();
    run(&sweep, &jobs.iter().collect::<Vec<_>>(), &store, false);
    let mut tables = Tables::new(&sweep);
    for job in &jobs {
        tables.add(job, store.get(job).unwrap());
    }
    let receivers = tables.receivers.unwrap();
    assert_eq!([&tables.flows, &receivers, &tables.links].map(Table::row_count), [8, 8, 8]);
    let csv = tables.flows.csv();
    assert!(csv.starts_with("link.0.rate_bps,seed,run,flow,protocol,"), "{csv}");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[7][..5], ["2000000", "2", &jobs[3].key, "tcp-2", "tcp-reno"]);
    let row = tables.flows.rows().nth(7).unwrap();
    let throughput = row.number("throughput_bps").unwrap();
    assert_eq!(throughput, store.get(&jobs[3]).unwrap().flows[1].rates.throughput_bps);
}

#[test]
fn rows_of_a_sweep_are_those_of_its_stored_runs() {
    let out = tempfile::tempdir().unwrap();
    let store = Store::open(out.path()).unwrap();
    let sweep = sweep(&["link.0.rate=1 Mbit/s,1000 kbit/s"], 2);
    assert_eq!(sweep.title().unwrap(), "Is this small?");
    let jobs = sweep.jobs().unwrap();
    run(&sweep, &unique(&jobs), &store, false);
    let mut tables = Tables::new(&sweep);
    jobs.iter().for_each(|job| tables.add(job, store.get(job).unwrap()));
    let unstored = sweep.tables().unwrap();
    assert_eq!(tables.flows.csv(), unstored.flows.csv());
    let row = unstored.flows.rows().nth(3).unwrap();
    assert_eq!((row.text("flow"), row.number("seed")), (Some("tcp-2"), Some(2.0)));
    assert!(row.number("throughput_bps") > Some(0.0) && row.number("flow").is_none());
    let study = Study { monitor: &Count::new(0), ..Study::default() };
    let stopped = Sweep { study: &study, ..sweep.clone() }.tables();
    assert!(matches!(stopped, Err(Error::Interrupted(_))));
}
