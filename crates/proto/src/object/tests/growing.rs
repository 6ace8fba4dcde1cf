//! Tests of content of unknown length, and of stores that take it in a window.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use faircast_base::{Duration, Time};

use super::world::*;
use crate::object::{ObjectError, ObjectResult, Part, Stage, Supply};

#[derive(Default)]
struct Pipe {
    bytes: usize,
    ended: bool,
    broken: bool,
}

struct Piped {
    object: Object,
    pipe: Arc<Mutex<Pipe>>,
}

impl Supply for Piped {
    fn len(&self, part: Part) -> u64 {
        let pipe = self.pipe.lock().unwrap();
        match part {
            Part::Content if !pipe.ended => pipe.bytes as u64,
            _ => Supply::len(&self.object, part),
        }
    }

    fn growing(&self) -> bool {
        !self.pipe.lock().unwrap().ended
    }

    fn object(&self) -> [u8; 32] {
        self.object.object()
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        let pipe = self.pipe.lock().unwrap();
        if pipe.broken {
            return Err(ObjectError::new("the pipe broke"));
        }
        if pipe.ended { self.object.digests() } else { Ok(None) }
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let here = Supply::len(self, part);
        assert!(offset + u64::from(len) <= here, "{part:?} {offset} {len}: only {here} are here");
        self.object.read(part, offset, len, out)
    }
}

pub(super) fn piped(
    content: usize,
    receivers: usize,
    choices: &Choices,
    seed: u64,
) -> (World, Flow) {
    let mut world = World::new(content, receivers, choices, seed);
    let (supply, flow) = pipe_of(&world.object);
    world.source = Host::new(SOURCE, source_of(supply, choices, Time::ZERO), seed);
    (world, flow)
}

pub(super) fn pipe_of(object: &Object) -> (Box<dyn Supply>, Flow) {
    let pipe = Arc::new(Mutex::new(Pipe::default()));
    let content = object.0[Part::Content as usize].len();
    let supply = Piped { object: object.clone(), pipe: pipe.clone() };
    (Box::new(supply), Flow { pipe, content })
}

#[derive(Default)]
pub(super) struct Flow {
    pipe: Arc<Mutex<Pipe>>,
    content: usize,
}

impl Flow {
    pub(super) fn write_all(&self, world: &mut World, bytes: usize) {
        let mut ended = false;
        while !ended {
            world.run_for(ms(50));
            ended = self.write(bytes);
        }
    }

    pub(super) fn write(&self, bytes: usize) -> bool {
        let mut pipe = self.pipe.lock().unwrap();
        pipe.bytes = (pipe.bytes + bytes).min(self.content);
        pipe.ended = pipe.bytes == self.content;
        pipe.ended
    }
}

#[test]
fn a_pipe_of_any_length_gets_to_all() {
    for content in [0, 1, 6399, 6400, 6401, 2 * 6400, 120_000] {
        for (percent, step) in [(0, 5000), (0, 200_000), (10, 5000), (10, 40_000)] {
            let choices = Choices { wait_for: 3, ..Choices::default() };
            let share = f64::from(percent) / 100.0;
            let (world, flow) = piped(content, 3, &choices, 1);
            let mut world = world.with_network(losing(share));
            flow.write_all(&mut world, step);
            world.complete_by(s(300));
            let case = std::format!("{content} bytes, {step} at once, {percent} % lost");
            assert!(world.source.said(&FlowEvent::Completed), "{case}");
            assert_eq!(world.source.machine.next_timeout(), None, "{case}");
            let status = world.receivers[0].machine.status();
            assert_eq!((status.bytes_done, status.growing), (content as u64, false), "{case}");
            let most = if percent == 0 { 1.02 } else { 1.6 };
            let overhead = world.overhead();
            assert!(overhead < most || content < 100_000, "{case}: {overhead}");
        }
    }
}

#[test]
fn a_pipe_goes_as_fast_as_a_file_where_it_is_no_slower() {
    let end = |at_once: usize| {
        let (mut world, pipe) = piped(2_000_000, 2, &Choices::default(), 3);
        pipe.write_all(&mut world, at_once);
        world.complete_by(s(300));
        world.receivers.iter().filter_map(|host| host.completed_at()).max().unwrap()
    };
    let (known, piped) = (end(usize::MAX / 2), end(250_000));
    assert!(piped < known + ms(500), "a file until {known}, a pipe until {piped}");
}

#[test]
fn who_comes_late_to_a_pipe_or_comes_back_gets_all() {
    let (world, flow) = piped(600_000, 2, &Choices::default(), 4);
    let mut world = world.with_network(losing_data(0.02));
    for late in [500, 1500, 2900] {
        world.add(Disk::default(), at(late));
    }
    let pipe = flow.pipe.clone();
    while world.now < s(2) {
        world.run_for(ms(50));
        pipe.lock().unwrap().bytes += 10_000;
    }
    let before = world.receivers[1].machine.status().bytes_done;
    assert!(before > 50_000, "it is under way: {before}");
    world.restart_receiver(1);
    flow.write_all(&mut world, 10_000);
    world.complete_by(s(300));
    let found = world.receivers[1].machine.status().bytes_found;
    assert!(found > 0 && found <= before, "{found} of {before}");
}

#[test]
fn a_pipe_that_gives_nothing_for_long_ends_nothing() {
    let choices = Choices { give_up: Duration::from_secs(5), ..Choices::default() };
    let (mut world, flow) = piped(200_000, 1, &choices, 8);
    flow.pipe.lock().unwrap().bytes = 64_000;
    let late = world.add(Disk::default(), s(1));
    world.run_until(s(3));
    assert_eq!(world.receivers[late].machine.status().bytes_done, 64_000);
    world.close_receiver(0);
    world.run_until(s(60));
    flow.write_all(&mut world, 10_000);
    world.run_until(s(120));
    assert!(world.receivers[late].said(&FlowEvent::Completed) && world.is_intact(late));
    assert!(world.source.said(&FlowEvent::Completed));
}

#[test]
fn a_pipe_that_breaks_completes_nobody() {
    let (mut world, flow) = piped(600_000, 2, &Choices::default(), 5);
    flow.pipe.lock().unwrap().bytes = 64_000;
    world.run_until(s(3));
    assert!(world.receivers.iter().all(|host| host.machine.status().bytes_done == 64_000));
    assert_eq!(world.source.machine.status().stage, Stage::Sending, "it may go on");
    flow.pipe.lock().unwrap().broken = true;
    world.run_until(s(30));
    for host in &world.receivers {
        let events: Vec<_> = host.app.iter().map(|(_, event)| event).collect();
        assert_eq!(events, [&FlowEvent::Gone.into()]);
    }
    assert_eq!(world.source.machine.status().reason.as_deref(), Some("the pipe broke"));
}

#[test]
fn a_store_with_a_window_gets_all_in_time_and_nothing_beyond_it() {
    const WINDOW: u64 = 50_000;
    for loss in [0.0, 0.05] {
        let mut world =
            World::new(400_000, 1, &Choices::default(), 6).with_network(losing_data(loss));
        let disk = Disk { window: Some(WINDOW), ..Disk::default() };
        let slow = world.add(disk, s(0));
        // The store takes 100 kB/s, and the other one has no limit.
        let mut taken = 0;
        while world.receivers[slow].app.is_empty() && world.now < s(60) {
            world.run_for(ms(20));
            let disk = &mut *world.disks[slow].lock().unwrap();
            let here = disk.written[1].iter().take_while(|written| **written).count() as u64;
            taken = here.min(taken + 2000);
            disk.window = Some(taken + WINDOW);
        }
        world.complete_by(s(100));
        let [fast, slow] = [0, slow].map(|i| world.receivers[i].completed_at().unwrap());
        // 350 kB are taken before the last of it is requested; with losses the network is slower.
        assert!(slow > at(3500) && slow < fast + ms(4000), "{fast} {slow}");
        assert!(loss > 0.0 || fast + Duration::from_secs(1) < slow, "{fast} {slow}");
    }
}
