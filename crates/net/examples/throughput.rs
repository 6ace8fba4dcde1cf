//! How fast, and at what cost: a pgmcc source to receivers in network namespaces on one bridge.
//!
//! ```sh
//! cargo run --release -p faircast-net --example throughput -- 4 200
//! ```
//!
//! The arguments are the number of receivers and the megabytes; `key=value` sets an option of the
//! scheme, `offload=false` does without GSO and GRO, `segments=false` has the source's link cut large
//! packets, as a network card would, `buffer=8` gives receivers that many MiB, and `trace=true`
//! shows what the source does.

#![allow(clippy::unwrap_used, reason = "an example")]

#[path = "../tests/common/lan.rs"]
#[allow(dead_code, reason = "shared with tests")]
mod lan;

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use faircast_base::{Bytes, Duration, FlowId, Time};
use faircast_net::{
    App, Counters, Driver, DriverSettings, Heard, Listen, Live, Multicast, SessionId,
    SessionOptions, SocketSettings, Sockets, Target,
};
use faircast_proto::catalog;
use faircast_proto::content::Zeros;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{AppEvent, Machine};
use faircast_trace::{Record, Sink};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

type Boxed = Box<dyn Machine>;

const PAYLOAD: u32 = 1408;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| {
        arguments.get(i).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (receivers, bytes) = (number(0, 1) as usize, number(1, 200) * 1_000_000);
    let set: Vec<_> = arguments.iter().filter_map(|text| text.split_once('=')).collect();
    let on = |key: &str| !set.contains(&(key, "false"));
    let offload = on("offload");
    let buffer = set.iter().find(|(key, _)| *key == "buffer");
    let buffer: u64 = buffer.and_then(|(_, text)| text.parse().ok()).unwrap_or(32);
    let options: Vec<_> = set
        .iter()
        .filter(|(key, _)| !["offload", "segments", "trace", "buffer"].contains(key))
        .map(|&(key, value)| (key.to_string(), parse(value)))
        .collect();
    let table = catalog::scheme("pgmcc").unwrap().options;
    let options = move || Options::checked(options.clone(), table).unwrap();
    let Some(lan) = lan::Lan::new(1 + receivers) else { return };
    if !on("segments") {
        let host = lan.host(0);
        let command = format!("netns exec {host} ethtool -K e0 tx-udp-segmentation off");
        Command::new("ip").args(command.split(' ')).status().unwrap();
    }
    let (ready, is_ready) = mpsc::channel();
    let (done, results) = mpsc::channel();
    let start = Instant::now();
    for i in 0..receivers {
        let (host, options) = (lan.host(1 + i).to_string(), options());
        let (ready, done) = (ready.clone(), done.clone());
        thread::spawn(move || {
            enter(&host);
            let sockets =
                Sockets::receiver(Listen::Multicast(group()), sockets(offload, buffer)).unwrap();
            let mut driver = Driver::<Boxed>::new(sockets, DriverSettings::default()).unwrap();
            ready.send(()).unwrap();
            let mut end = End { options, bytes: 0, first: None, last: start, lost: 0 };
            driver.run(&mut end).unwrap();
            let seconds = end.last.duration_since(end.first.unwrap_or(start)).as_secs_f64();
            done.send((
                format!("receiver {i}"),
                end.bytes,
                seconds,
                cpu(),
                *driver.live().counters(),
            ))
            .unwrap();
        });
    }
    for _ in 0..receivers {
        is_ready.recv().unwrap();
    }
    let (host, trace) = (lan.host(0).to_string(), set.contains(&("trace", "true")));
    let (source_options, source_done) = (options(), done.clone());
    thread::spawn(move || {
        enter(&host);
        let target = Target::Multicast(group());
        let sockets = Sockets::source(target, sockets(offload, buffer)).unwrap();
        let mut driver = Driver::<Boxed>::new(sockets, DriverSettings::default()).unwrap();
        driver.set_trace(Box::new(Watch { start: Time::ZERO, next: Time::ZERO, show: trace }));
        let live = driver.live();
        let (node, start) = (live.node(), live.now());
        let setup = EndSetup::new(FlowId(0), node, std::slice::from_ref(&node), &source_options);
        let setup = EndSetup { start, payload: PAYLOAD, ..setup };
        let role = Role::Source(Box::new(Zeros { len: Some(bytes) }));
        let machine = catalog::end("pgmcc", role, setup).unwrap();
        live.add(machine, SessionOptions::default());
        driver.run(&mut ()).unwrap();
        source_done.send(("source".into(), bytes, 0.0, cpu(), *driver.live().counters())).unwrap();
    });
    drop(done);
    for (who, got, seconds, cpu, counters) in results {
        print(&who, got, seconds, cpu, &counters);
    }
}

fn parse(text: &str) -> OptionValue {
    if let Ok(value) = text.parse() {
        OptionValue::Bool(value)
    } else if let Ok(value) = text.parse() {
        OptionValue::Integer(value)
    } else {
        text.parse().map_or(OptionValue::Text(text.to_string()), OptionValue::Float)
    }
}

fn group() -> Multicast {
    Multicast::new("239.192.0.1:3056".parse().unwrap())
}

fn sockets(offload: bool, buffer_mib: u64) -> SocketSettings {
    let receive_buffer = Bytes::new(buffer_mib << 20);
    SocketSettings { offload, receive_buffer, ..SocketSettings::default() }
}

fn enter(namespace: &str) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    setns(file, CloneFlags::CLONE_NEWNET).unwrap();
}

/// Processor time of this thread, in seconds: user, system.
fn cpu() -> (f64, f64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
    (seconds(usage.user_time()), seconds(usage.system_time()))
}

fn print(who: &str, bytes: u64, seconds: f64, (user, system): (f64, f64), counters: &Counters) {
    let gigabytes = bytes as f64 / 1e9;
    let Counters { sent, received, timers, .. } = counters;
    let per = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    if seconds > 0.0 {
        println!("{who}: {:.0} Mbit/s", bytes as f64 * 8e-6 / seconds);
    }
    println!(
        "{who}: CPU {:.2} s/GB (user {:.2}); out {} packets, {:.1} a call; in {} packets, {:.1} a \
         call; {} dropped by the kernel; {} wake-ups, {} timers late by {:.0} us, {} over 1 ms",
        (user + system) / gigabytes,
        user / gigabytes,
        sent.datagrams,
        per(sent.datagrams, sent.calls),
        received.packets,
        per(received.packets, received.calls),
        received.overflowed,
        counters.wakeups,
        timers.fired,
        timers.late.as_secs_f64() * 1e6 / timers.fired.max(1) as f64,
        timers.late_over_1ms,
    );
    println!("{who}: waits {}, failures {}, {:?}", sent.waits, sent.failures, counters.refused);
}

/// Counts what is delivered.
struct End {
    options: Options,
    bytes: u64,
    first: Option<Instant>,
    last: Instant,
    lost: u64,
}

impl App<Boxed> for End {
    fn heard(&mut self, live: &mut Live<Boxed>, heard: &Heard<'_>) -> Option<Boxed> {
        self.first = Some(Instant::now());
        let setup = EndSetup::new(
            FlowId(0),
            live.node(),
            std::slice::from_ref(&heard.source),
            &self.options,
        );
        catalog::end("pgmcc", Role::Receiver, EndSetup { start: heard.now, ..setup })
    }

    fn event(&mut self, _: &mut Live<Boxed>, _: SessionId, event: AppEvent) {
        match event {
            AppEvent::Delivered { bytes, zeros } => {
                self.bytes += bytes.len() as u64 + u64::from(zeros);
            }
            AppEvent::Lost { packets } => self.lost += u64::from(packets),
            _ => self.last = Instant::now(),
        }
    }
}

/// Prints what the source's control does.
struct Watch {
    start: Time,
    next: Time,
    show: bool,
}

impl Sink for Watch {
    fn record(&mut self, record: &Record) {
        use faircast_base::Event::{Cut, NakReceived, Representative, RttSample, Timeout, Window};
        if !self.show {
            return;
        }
        let often = matches!(record.event, Window { .. } | RttSample { .. });
        let rare = matches!(
            record.event,
            Cut { .. } | Representative { .. } | Timeout { .. } | NakReceived { .. }
        );
        if rare || often && record.at >= self.next {
            println!("{:.6} {:?}", record.at.since(self.start).as_secs_f64(), record.event);
            if often {
                self.next = record.at + Duration::from_millis(20);
            }
        }
    }
}
