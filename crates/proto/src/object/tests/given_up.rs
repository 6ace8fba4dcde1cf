//! Objects that a source gives up: changed content, pipes, and forged messages of that kind.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use faircast_base::{Seq, Time};

use super::world::*;
use crate::object::wire::{Answer, Status};
use crate::object::{ObjectError, ObjectResult, Part, Stage, Supply};
use crate::pgm::wire::{Body, NO_WINDOW_LEAD, Nla, OptionType, Spm};
use crate::world::forge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Sound,
    Unreadable,
    Changed,
}

struct Breaking {
    object: Object,
    content: Arc<Mutex<Content>>,
}

pub(super) fn breaking(object: &Object) -> (Box<dyn Supply>, Arc<Mutex<Content>>) {
    let content = Arc::new(Mutex::new(Content::Sound));
    (Box::new(Breaking { object: object.clone(), content: content.clone() }), content)
}

impl Supply for Breaking {
    fn len(&self, part: Part) -> u64 {
        Supply::len(&self.object, part)
    }

    fn object(&self) -> [u8; 32] {
        self.object.object()
    }

    fn is_repeatable(&self) -> bool {
        *self.content.lock().unwrap() != Content::Changed
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        self.object.digests()
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        match *self.content.lock().unwrap() {
            Content::Sound => self.object.read(part, offset, len, out),
            _ => Err(ObjectError::new("it cannot be read")),
        }
    }
}

fn under_way(bytes: usize, seed: u64) -> (World, Arc<Mutex<Content>>) {
    let choices = Choices { wait_for: 2, ..Choices::default() };
    let mut world = World::new(bytes, 2, &choices, seed);
    let (supply, content) = breaking(&world.object);
    world.source = Host::new(SOURCE, source_of(supply, &choices, Time::ZERO), seed);
    (world, content)
}

#[test]
fn what_has_changed_is_given_up_and_what_may_come_again_is_kept() {
    for (what, share, want) in [
        (Content::Changed, 0.0, true),
        (Content::Changed, 0.2, true),
        (Content::Unreadable, 0.0, false),
    ] {
        let (world, content) = under_way(2_000_000, 5);
        let mut world = world.with_network(losing(share));
        world.run_until(s(2));
        *content.lock().unwrap() = what;
        world.run_until(s(60));
        for host in &world.receivers {
            let status = host.machine.status();
            assert!(host.said(&FlowEvent::Gone), "{what:?} {share}: {status:?}");
            assert_eq!((status.stage, status.failure.given_up), (Stage::Failed, want), "{what:?}");
            assert_eq!(host.machine.next_timeout(), None, "nobody waits for anything");
        }
        assert_eq!(world.source.machine.next_timeout(), None);
    }
}

#[test]
fn a_source_that_is_told_to_end_or_killed_gives_nothing_up() {
    for killed in [false, true] {
        let (mut world, _) = under_way(2_000_000, 6);
        world.run_until(s(2));
        if killed {
            world.network = Box::new(|hop, _| match hop.from == SOURCE {
                true => Fate::drop(),
                false => Fate::pass(),
            });
        } else {
            let now = world.now;
            world.source.act(now, |machine, cx| machine.handle_close(cx));
        }
        world.run_until(s(400));
        assert!(world.receivers.iter().all(|host| host.said(&FlowEvent::Gone)), "killed: {killed}");
        assert!(world.receivers.iter().all(|host| !host.machine.status().failure.given_up));
    }
}

#[test]
fn a_forged_word_is_taken_back_by_the_packets_that_follow() {
    for breaks in [false, true] {
        let object = Arc::new(Mutex::new(None::<Vec<u8>>));
        let heard = object.clone();
        let (world, content) = under_way(4_000_000, 7);
        let mut world = world.with_network(move |hop, _| {
            if let Some(option) = hop.packet.options.find(OptionType::OBJECT) {
                heard.lock().unwrap().get_or_insert(option.value.to_vec());
            }
            Fate::pass()
        });
        world.run_until(s(1));
        let announced = object.lock().unwrap().clone().expect("it was announced");
        let (node, id) = (world.receivers[0].node, world.receivers[0].id());
        let answer = Answer { status: Status::GivenUp, number: 0, id }.encode();
        let (sequence, path) = (Seq::new(900), Nla::V4([0; 4]));
        let spm = Spm { sequence, trail: Seq::new(0), lead: NO_WINDOW_LEAD, path };
        let options = [
            (OptionType::OBJECT, &announced[..]),
            (OptionType::MEMBER, &answer[..]),
            (OptionType::FIN, &[][..]),
        ];
        let forged = forge(&Body::Spm(spm), &options, &[]);
        for _ in 0..5 {
            world.unicast(SOURCE, node, &forged);
            world.run_for(ms(100));
        }
        if breaks {
            // An old message does not count if the source ends for another reason.
            world.run_until(s(6));
            assert!(world.receivers.iter().all(|host| host.app.is_empty()), "it is under way");
            *content.lock().unwrap() = Content::Unreadable;
            world.run_until(s(60));
            assert!(world.receivers.iter().all(|host| host.said(&FlowEvent::Gone)));
            assert!(world.receivers.iter().all(|host| !host.machine.status().failure.given_up));
        } else {
            world.complete_by(s(120));
        }
    }
}
