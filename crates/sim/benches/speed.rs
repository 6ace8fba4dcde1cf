//! Benchmarks of the simulator's parts and of small simulations: `cargo bench -p faircast-sim`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use faircast_base::{Cx, Duration, FlowId, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::catalog;
use faircast_proto::content::Zeros;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::tcp;
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Datagram, Destination, FlowMachine, Machine};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved, Wheel, catalog};

fn main() {
    divan::main();
}

const WAITING: [usize; 3] = [100, 10_000, 300_000];
type Payload = [u32; 3];

/// Delay of an event: most up to tens of milliseconds, like packets; one in eight up to seconds.
fn delay(rng: &mut Rng) -> Duration {
    let longest = if rng.chance(0.125) { 4_000_000_000 } else { 60_000_000 };
    Duration::from_nanos(rng.below(longest))
}

fn rng() -> Rng {
    Rng::new(1, NodeId(0), Purpose::Machine(0))
}

#[divan::bench(args = WAITING)]
fn wheel_pop_push(bencher: Bencher<'_, '_>, waiting: usize) {
    let (mut wheel, mut rng) = (Wheel::<Payload>::default(), rng());
    for _ in 0..waiting {
        wheel.push(Time::ZERO + delay(&mut rng), [0; 3]);
    }
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        let (at, event) = wheel.pop().expect("it is never empty");
        wheel.push(at + delay(&mut rng), event);
    });
}

#[divan::bench(args = WAITING)]
fn std_heap_pop_push(bencher: Bencher<'_, '_>, waiting: usize) {
    let (mut heap, mut rng) = (BinaryHeap::<Reverse<(Time, u64, Payload)>>::new(), rng());
    let mut order = 0;
    for _ in 0..waiting {
        order += 1;
        heap.push(Reverse((Time::ZERO + delay(&mut rng), order, [0; 3])));
    }
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        let Reverse((at, _, event)) = heap.pop().expect("it is never empty");
        order += 1;
        heap.push(Reverse((at + delay(&mut rng), order, event)));
    });
}

#[divan::bench(args = ["tcp-reno", "tcp-newreno", "tcp-sack"])]
fn packet_and_acknowledgement(bencher: Bencher<'_, '_>, protocol: &str) {
    let window = [("window_max".to_string(), OptionValue::Integer(32))];
    let options = Options::checked(window, tcp::OPTIONS).expect("the setting is in range");
    let nodes = [NodeId(0), NodeId(1)];
    let setup = |own: usize| EndSetup {
        flow: FlowId(0),
        node: nodes[own],
        sources: &nodes[1 - own..][..1],
        to: Destination::Node(nodes[1 - own]),
        start: Time::ZERO,
        payload: 1400,
        header: None,
        options: &options,
        head: None,
    };
    let stack = catalog::stack(protocol).expect("it is registered");
    let end = |role, setup| stack.end(role, setup).expect("it is simulated");
    let mut ends: [FlowMachine; 2] =
        [end(Role::Source(Box::new(Zeros { len: None })), setup(0)), end(Role::Receiver, setup(1))];
    let (mut rng, mut trace, mut now) = (rng(), NullTrace, Time::ZERO);
    let mut flying = std::collections::VecDeque::new();
    let cx = Cx::new(now, &mut rng, &mut trace);
    ends[0].handle_timeout(&mut { cx });
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| {
        now += Duration::from_micros(100);
        for (end, machine) in ends.iter_mut().enumerate() {
            let mut cx = Cx::new(now, &mut rng, &mut trace);
            if let Some(place) = flying.iter().position(|(to, _, _)| *to == end) {
                let (_, bytes, zeros): (usize, Vec<u8>, u32) = flying.remove(place).expect("found");
                let (from, to) = (NodeId(1 - end as u32), Destination::Node(NodeId(end as u32)));
                let datagram = Datagram { zeros, ..Datagram::new(from, to, &bytes) };
                machine.handle_datagram(&mut cx, datagram);
            }
            let mut buf = Vec::new();
            while let Some(transmit) = machine.poll_transmit(&mut cx, &mut buf) {
                flying.push_back((1 - end, std::mem::take(&mut buf), transmit.zeros));
            }
            while machine.poll_event().is_some() {}
            if machine.next_timeout().is_some_and(|at| at <= now) {
                machine.handle_timeout(&mut cx);
            }
        }
    });
}

fn star(receivers: u32, seconds: u32) -> String {
    let names: Vec<String> = (1..=receivers).map(|i| format!("\"m{i}\"")).collect();
    let names = names.join(", ");
    format!(
        "title = \"How fast?\"\nduration = \"{seconds} s\"\n[[link]]\nbetween = [\"s\", \"r\"]\n\
         rate = \"1 Mbit/s\"\ndelay = \"10 ms\"\nqueue = {{ kind = \"droptail\", packets = 30 }}\n\
         [[link]]\nstar = {{ center = \"r\", leaves = [{names}] }}\nrate = \"10 Mbit/s\"\n\
         delay = \"5 ms\"\nloss = 0.0001\n[[flow]]\nname = \"f\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\n\
         to = [{names}]\n"
    )
}

fn parse(text: &str) -> Scenario {
    let parsed = Scenario::parse(Path::new("bench.toml"), text, &Overrides::default(), &catalog());
    parsed.expect("the scenario is right")
}

#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn parse_receivers(bencher: Bencher<'_, '_>, receivers: u32) {
    let text = star(receivers, 10);
    bencher.counter(BytesCount::of_str(&text)).bench(|| parse(black_box(&text)));
}

#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn set_up_receivers(bencher: Bencher<'_, '_>, receivers: u32) {
    let scenario = parse(&star(receivers, 10));
    bencher.counter(ItemsCount::new(receivers)).bench_local(|| {
        let mut sink = ();
        Simulation::new(&scenario, &Builtin, &mut sink).expect("no file is read");
    });
}

fn run(bencher: Bencher<'_, '_>, scenario: &Scenario) {
    let simulate = || {
        let mut sink = ();
        let simulation = Simulation::new(scenario, &Builtin, &mut sink).expect("no file is read");
        simulation.run(&mut Unobserved)
    };
    bencher.counter(ItemsCount::new(simulate().packet_hops)).bench_local(simulate);
}

#[divan::bench(sample_count = 10)]
fn run_thousand_receivers(bencher: Bencher<'_, '_>) {
    run(bencher, &parse(&star(1000, 5)));
}

#[divan::bench(args = ["pgmcc-beside-tcp", "lossy-links", "red-queue", "tcp-flavours"], sample_count = 10)]
fn run_scenario(bencher: Bencher<'_, '_>, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let path = folder.join(name).with_extension("toml");
    let scenario = Scenario::load(&path, &Overrides::default(), &catalog());
    run(bencher, &scenario.expect("the scenario is right"));
}
