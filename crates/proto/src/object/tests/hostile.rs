//! Forged packets, from outside the group and from its members.

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, NodeId, Purpose, Rng, Seq, Time};
use proptest::prelude::*;

use super::world::*;
use crate::congestion::AckVector;
use crate::congestion::pgmcc::PgmccReport;
use crate::object::layout::block_id;
use crate::object::source::write_entries;
use crate::object::wire::{Answer, Claim, ENTRIES_MAX, Entry, MemberMessage, Status};
use crate::object::{MemberState, Part, Stage};
use crate::pgm::wire::{Body, Data, NO_WINDOW_LEAD, Nak, Nla, OptionType, Spm};
use crate::world::{forge, packet};

pub(super) fn report(now: Time, node: NodeId, loss: u16, rtt: Duration) -> PgmccReport {
    let now_ms = now.since(Time::ZERO).as_millis() as u32;
    let echo_ms = now_ms.wrapping_sub(rtt.as_millis() as u32);
    PgmccReport { echo_ms, loss, receiver: Some(node) }
}

pub(super) fn nak(first: u32) -> Nak {
    Nak { first: Seq::new(first), source: Nla::from_node(SOURCE), group: GROUP }
}

pub(super) fn reporting(body: &Body, report: &PgmccReport) -> Vec<u8> {
    packet(body, |encoder| {
        encoder.scheme_option(report);
    })
}

pub(super) fn wanting(first: u32, entries: &[Entry]) -> Vec<u8> {
    packet(&Body::Nnak(nak(first)), |encoder| {
        write_entries(encoder, OptionType::WANT, entries);
    })
}

fn false_reports(now: Time, node: NodeId) -> Vec<Vec<u8>> {
    let bad = report(now, node, u16::MAX, Duration::from_secs(9));
    let vector = AckVector { highest: Seq::new(3), bitmap: 0 };
    let everything = vec![Entry::Run { first: block_id(Part::Content, 0), count: 40 }; ENTRIES_MAX];
    vec![
        reporting(&Body::Ack(vector), &bad),
        reporting(&Body::Nnak(nak(3)), &bad),
        reporting(&Body::Nak(nak(3)), &bad),
        packet(&Body::Nnak(nak(3)), |encoder| {
            encoder.scheme_option(&bad);
            write_entries(encoder, OptionType::WANT, &everything);
        }),
        wanting(3, &everything),
    ]
}

fn data(data: Data, payload: &[u8], fin: bool) -> Vec<u8> {
    let end: &[(u8, &[u8])] = if fin { &[(OptionType::FIN, &[])] } else { &[] };
    forge(&Body::Odata(data), end, payload)
}

#[test]
fn a_flood_from_outside_the_group_changes_nothing() {
    let outcome = |flood: bool| {
        let mut world =
            World::new(200_000, 3, &Choices::default(), 1).with_network(losing_data(0.02));
        world.run_until(s(1));
        let mut sent = 0;
        for step in 0..400u64 {
            world.run_until(s(1) + ms(5 * step));
            if !flood {
                continue;
            }
            let outsider = NodeId(0x9999 + step as u32 % 7);
            for claimed in [outsider, NodeId(10)] {
                for bytes in false_reports(world.now, claimed) {
                    let through_elements =
                        claimed != outsider && bytes[4] == crate::pgm::wire::PacketType::Nak as u8;
                    if !through_elements {
                        world.unicast(outsider, SOURCE, &bytes);
                        sent += 1;
                    }
                }
            }
        }
        world.complete_by(s(100));
        assert_eq!(world.source.log.refused(BadInput::Foreign), sent);
        let ends: Vec<_> = world.receivers.iter().map(|host| host.completed_at()).collect();
        (ends, world.source.data_sent, world.source.sent)
    };
    let quiet = outcome(false);
    assert_eq!(outcome(true), quiet);
}

#[test]
fn data_that_says_that_it_is_the_last_ends_nothing() {
    let newest = alloc::rc::Rc::new(core::cell::RefCell::new(None));
    let heard = newest.clone();
    let mut world = World::new(400_000, 1, &Choices::default(), 5).with_network(move |hop, _| {
        if let Body::Odata(data) = hop.packet.body {
            *heard.borrow_mut() = Some((data, hop.packet.payload.bytes.to_vec()));
        }
        Fate::pass()
    });
    let mut forged = 0;
    for _ in 0..100 {
        world.run_for(ms(1));
        let Some((data, payload)) = newest.borrow_mut().take() else { continue };
        world.run_for(DELAY * 2);
        world.multicast(SOURCE, NodeId(10), &self::data(data, &payload, true));
        forged += 1;
    }
    assert!(forged > 0);
    world.complete_by(s(60));
}

#[test]
fn what_a_member_has_said_does_nothing_when_somebody_else_says_it() {
    let said = alloc::rc::Rc::new(core::cell::RefCell::new(Vec::<(Time, Vec<u8>)>::new()));
    let heard = said.clone();
    let mut world = World::new(400_000, 2, &Choices::default(), 5).with_network(move |hop, _| {
        if hop.to == SOURCE && hop.has(OptionType::MEMBER) {
            let option = hop.packet.options.find(OptionType::MEMBER).unwrap();
            heard.borrow_mut().push((hop.now, option.value.to_vec()));
        }
        Fate::pass()
    });
    let outsider = NodeId(0x9999);
    let mut sent = 0;
    for step in 0..400u64 {
        world.run_until(at(5 * step));
        if world.source.completed_at().is_some() {
            break;
        }
        // The original of this message has arrived first.
        let arrived = |(at, _): &&(Time, Vec<u8>)| *at + DELAY * 2 < world.now;
        let replayed = said.borrow().iter().rfind(arrived).cloned();
        let Some((_, value)) = replayed else { continue };
        let message = MemberMessage::decode(&value).unwrap();
        let ends = [Claim::Done, Claim::Failed, Claim::Leaving].map(|claim| MemberMessage {
            claim,
            number: message.number + 1,
            ..message.clone()
        });
        for forged in [message].iter().chain(&ends) {
            world.unicast(outsider, SOURCE, &as_packet(forged));
            sent += 1;
        }
    }
    world.complete_by(s(60));
    let members = world.source.machine.status().members;
    assert_eq!(members.len(), 2);
    assert!(members.iter().all(|member| member.node != outsider));
    let refused = world.source.log.refused(BadInput::Foreign);
    assert!(sent > 100 && refused >= sent, "{refused} of {sent}");
}

#[test]
fn forged_answers_and_numbers_end_and_mute_nobody() {
    type Heard = (Option<MemberMessage>, Option<Vec<u8>>);
    let said = alloc::rc::Rc::new(core::cell::RefCell::new(Heard::default()));
    let heard = said.clone();
    let mut world = World::new(400_000, 2, &Choices::default(), 5).with_network(move |hop, _| {
        if hop.from == NodeId(10) && hop.to == SOURCE && hop.has(OptionType::MEMBER) {
            let option = hop.packet.options.find(OptionType::MEMBER).unwrap();
            heard.borrow_mut().0 = MemberMessage::decode(option.value);
        } else if let Some(object) = hop.packet.options.find(OptionType::OBJECT) {
            heard.borrow_mut().1 = Some(object.value.to_vec());
        }
        Fate::pass()
    });
    world.spacing = ms(2);
    let (sequence, path) = (Seq::new(900), Nla::V4([0; 4]));
    let spm = Spm { sequence, trail: Seq::new(0), lead: NO_WINDOW_LEAD, path };
    let (mut answers, mut messages) = (0, 0);
    for step in 0..200u64 {
        world.run_until(s(1) + ms(20 * step));
        let (Some(message), Some(object)) = said.borrow().clone() else { continue };
        if world.source.completed() {
            break;
        }
        for number in [0, message.number, message.number.wrapping_add(i32::MAX as u32)] {
            for status in [Status::Stalled, Status::Refused, Status::Done] {
                let answer = Answer { status, number, id: message.id }.encode();
                let options =
                    [(OptionType::OBJECT, &object[..]), (OptionType::MEMBER, &answer[..])];
                let forged = forge(&Body::Spm(spm), &options, &[]);
                world.unicast(SOURCE, NodeId(10), &forged);
                answers += 1;
            }
        }
        for ahead in [1 << 30, i32::MAX as u32] {
            let number = message.number.wrapping_add(ahead);
            let forged = MemberMessage { claim: Claim::Joined, number, ..message.clone() };
            world.unicast(NodeId(10), SOURCE, &as_packet(&forged));
            messages += 1;
        }
    }
    assert!(answers > 100 && messages > 20, "{answers} {messages}");
    world.complete_by(s(60));
    let members = world.source.machine.status().members;
    assert!(members.iter().all(|member| member.state == MemberState::Done), "{members:?}");
}

#[test]
fn who_was_heard_first_is_not_asked_once_the_source_itself_speaks() {
    let mut world = World::new(60_000, 1, &Choices::default(), 7);
    let first = Data { sequence: Seq::new(0), trail: Seq::new(0) };
    world.run_until(s(0));
    world.multicast(NodeId(0x9999), NodeId(10), &data(first, &[1; 20], false));
    assert_eq!(world.receivers[0].machine.status().heard, Some(s(0)), "it believed that");
    world.complete_by(s(20));
    assert_eq!(world.source.log.refused(BadInput::Foreign), 0);
}

#[test]
fn who_is_never_answered_takes_hold_of_nothing() {
    // The second receiver gets the packets for the first one, as from a recording, and no answers.
    let deaf = NodeId(11);
    let mut world =
        World::new(120_000, 2, &Choices::default(), 6).with_network(losing_if(move |hop, _| {
            let answer = hop.to == deaf && hop.has(OptionType::MEMBER);
            answer || hop.from == deaf
        }));
    world.run_until(s(4));
    let status = |world: &World, i: usize| world.receivers[i].machine.status();
    assert!(world.receivers[0].completed_at().is_some() && world.is_intact(0));
    assert!(status(&world, 0).answers > 0);
    let disk = world.disks[1].lock().unwrap();
    assert!(disk.written[0].iter().all(|written| *written), "it has heard the manifest");
    assert_eq!((disk.asked, disk.taken), (0, 0), "and opened nothing");
    drop(disk);
    assert_eq!(status(&world, 1).answers, 0);
    assert!(status(&world, 1).heard.is_some_and(|heard| heard > at(200)), "it heard data");
}

#[test]
fn absurd_requests_of_a_member_are_refused() {
    let mut world = World::new(200_000, 2, &Choices::default(), 3);
    world.spacing = ms(2);
    world.run_until(s(1));
    let before = world.source.log.refused(BadInput::Absurd);
    let member = NodeId(10);
    let blocks = 200_000 / 6400 + 1;
    let absurd = [
        Entry::Run { first: block_id(Part::Content, 0), count: blocks + 2 },
        Entry::Run { first: block_id(Part::Content, blocks + 5), count: 1 },
        Entry::Block { block_id: block_id(Part::Manifest, 7), missing: 1, any: false },
        Entry::Block { block_id: block_id(Part::Manifest, 0), missing: 1 << 60, any: false },
    ];
    for entry in absurd {
        world.unicast(member, SOURCE, &wanting(0, &[entry]));
    }
    assert_eq!(world.source.log.refused(BadInput::Absurd), before + absurd.len());
    world.complete_by(s(60));
}

fn member_message(claim: Claim, id: u64, node: NodeId) -> Vec<u8> {
    let said = message(id, claim);
    let (number, bytes, name) = (id as u32, u64::MAX, "".into());
    as_packet(&MemberMessage { loss: 1, number, reporter: node, bytes, name, ..said })
}

fn as_packet(message: &MemberMessage) -> Vec<u8> {
    let mut value = Vec::new();
    message.encode(&mut value);
    forge(&Body::Spmr, &[(OptionType::MEMBER, &value)], &[])
}

#[test]
fn a_member_that_came_later_and_gets_nothing_does_not_hold_the_end() {
    let choices = Choices { give_up: Duration::from_secs(5), ..Choices::default() };
    let mut world = World::new(400_000, 2, &choices, 3);
    world.spacing = ms(2);
    let stage = |world: &World| world.source.machine.status().stage;
    world.run_until(s(1));
    assert_eq!(stage(&world), Stage::Sending);
    let fake = member_message(Claim::Receiving, 99, NodeId(500));
    for step in 0..100 {
        world.unicast(NodeId(500), SOURCE, &fake);
        world.run_until(s(1) + ms(600 * step));
    }
    world.assert_all_complete();
    let all_done = (0..2).map(|i| world.receivers[i].completed_at()).max().flatten().unwrap();
    let ended = world.source.completed_at().expect("it does not wait for who gets nothing");
    let waited = ended.since(all_done);
    assert!(waited < Duration::from_secs(8), "{waited:?}");
}

#[test]
fn requests_of_members_that_were_invented_take_a_share_of_the_rate_and_no_more() {
    let completed = |asks: bool| {
        let choices = Choices::default().with(&[("rate_max", "400 kbit/s")]);
        let mut world = World::new(400_000, 2, &choices, 2);
        world.run_until(s(3));
        let invented = |i: u32| NodeId(500 + i % 50);
        for step in (0..10_000u32).take_while(|_| asks) {
            if step < 50 {
                let node = invented(step);
                let join = member_message(Claim::Receiving, u64::from(node.0), node);
                world.unicast(node, SOURCE, &join);
            }
            let block = Entry::Block {
                block_id: block_id(Part::Content, step % 12),
                missing: !0,
                any: false,
            };
            world.unicast(invented(step), SOURCE, &wanting(3, &[block]));
            world.run_until(s(3) + ms(2 * u64::from(step)));
        }
        world.complete_by(s(60));
        (0..2).map(|i| world.receivers[i].completed_at()).max().flatten().unwrap()
    };
    // 3.2 Mbit take 8 s. The requests cost a quarter more of all that is sent, which is a third,
    // and the saved-up 1024 symbols of 100 bytes.
    let (quiet, asked) = (completed(false), completed(true));
    assert!(quiet > s(8) && quiet < s(11), "{quiet}");
    let lost = asked.since(quiet);
    assert!(lost > Duration::from_secs(1) && lost < Duration::from_secs(6), "{quiet} {asked}");
}

#[test]
fn all_that_leaves_counts_against_the_ceiling() {
    let sent = |asks: bool| {
        let choices = Choices::default().with(&[("rate_max", "400 kbit/s")]);
        let mut world = World::new(400_000, 2, &choices, 2);
        world.run_until(s(1));
        let before = world.source.bytes_sent;
        for step in 0..2000u32 {
            world.run_until(s(1) + ms(2 * u64::from(step)));
            for i in 0..4 {
                let first = block_id(Part::Content, (4 * step + i) % 20);
                let run = [Entry::Run { first, count: 40 }];
                if asks {
                    world.unicast(NodeId(10), SOURCE, &wanting(3, &run));
                }
            }
        }
        world.source.bytes_sent - before
    };
    // 200 kB of payload in 4 s, and the headers of small packets.
    let (quiet, asked) = (sent(false), sent(true));
    assert!(quiet > 150_000 && quiet < 340_000, "{quiet}");
    assert!(asked < quiet + quiet / 10, "{asked} bytes, {quiet} where nobody asks");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_members_say_the_others_complete(seed in any::<u64>()) {
        let mut world = World::new(60_000, 2, &Choices::default(), 4).with_network(|_, rng| {
            let damage = rng.chance(0.02);
            if rng.chance(0.03) { Fate::drop() } else { Fate { damage, ..Fate::pass() } }
        });
        let mut rng = Rng::new(seed, NodeId(5), Purpose::Fault);
        let forgers = [NodeId(500), NodeId(501), NodeId(502)];
        for step in 0..300u64 {
            world.run_until(s(1) + ms(10 * step));
            let node = forgers[rng.below(3) as usize];
            let id = rng.below(5) + 1;
            let bytes = match rng.below(4) {
                0 => {
                    let claims =
                        [Claim::Joined, Claim::Receiving, Claim::Done, Claim::Failed, Claim::Leaving];
                    member_message(claims[rng.below(5) as usize], id, node)
                }
                1 => {
                    let part = Part::ALL[rng.below(3) as usize];
                    let entries: Vec<_> = (0..rng.below(40)).map(|_| {
                        let at = block_id(part, rng.below(20) as u32);
                        if rng.below(2) == 0 {
                            Entry::Run { first: at, count: 1 + rng.below(12) as u32 }
                        } else {
                            Entry::Block { block_id: at, missing: rng.bits() | 1, any: false }
                        }
                    }).collect();
                    wanting(rng.below(600) as u32, &entries)
                }
                2 => {
                    let all = false_reports(world.now, node);
                    all[rng.below(all.len() as u64) as usize].clone()
                }
                _ => {
                    let mut bytes = member_message(Claim::Joined, id, node);
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                    bytes
                }
            };
            world.unicast(node, SOURCE, &bytes);
        }
        world.complete_by(s(400));
        let members = world.source.machine.status().members.len();
        prop_assert!(members <= 7, "{}", members);
    }

    #[test]
    fn whatever_a_source_sends_a_receiver_stands(seed in any::<u64>()) {
        hear_random_symbols(seed);
    }
}

#[test]
fn random_symbols_that_once_made_a_store_be_written_twice_do_not() {
    hear_random_symbols(12_289_224_967_959_380_881);
}

fn hear_random_symbols(seed: u64) {
    let mut world = World::new(60_000, 1, &Choices::default(), 5);
    world.network = alloc::boxed::Box::new(move |_, rng| Fate {
        delays: vec![DELAY + rng.up_to(ms(30)); 1 + rng.below(2) as usize],
        damage: false,
    });
    let mut rng = Rng::new(seed, NodeId(6), Purpose::Fault);
    for step in 0..200u64 {
        world.run_until(at(5 * step));
        let number = rng.below(world.source.data_sent.max(1)) as u32;
        let numbers = Data { sequence: Seq::new(number), trail: Seq::new(0) };
        let block = rng.below(12) as u8;
        let symbol = rng.below(140) as u8;
        let payload: Vec<u8> = [1, rng.below(256) as u8 & 0x83, 0, symbol, 0, 0, 0, block]
            .into_iter()
            .chain((0..rng.below(103)).map(|i| i as u8))
            .collect();
        world.multicast(SOURCE, NodeId(10), &data(numbers, &payload, false));
    }
    world.run_until(s(60));
    assert!(!world.receivers[0].app.is_empty(), "it has come to some end");
}
