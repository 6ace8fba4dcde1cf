//! Clause 11: impossible reports have no effect and are counted.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use faircast_base::{Cx, Duration, Event, Time};
use faircast_proto::catalog::{SCHEMES, SchemeEntry};
use faircast_proto::stack::Stack;
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit, passes_on};
use faircast_sim::{Simulation, Unobserved};
use faircast_trace::{Record, Sink};

use crate::forge::{Said, report_place, with_report};
use crate::lies::{Boxed, Mixed, schemes};
use crate::watch::Watched;
use crate::world::World;

/// Sender that gets forged reports before each true report, each in a NAK that requests no packet.
struct Forging {
    inner: Boxed,
    option: u8,
    book: Rc<RefCell<Book>>,
}

#[derive(Default)]
struct Book {
    heard: Vec<(Time, Vec<u8>)>,
    /// True reports of a run without forgeries; forged reports replay these too early or too late.
    earlier: Vec<(Time, Vec<u8>)>,
    /// True if the sender takes round-trip times from reports; otherwise these echo no timestamps.
    timed: bool,
    rates: Vec<usize>,
    template: Option<(Vec<u8>, u32)>,
    forged: u64,
    by_rate: u64,
    believed: Vec<&'static str>,
    sent: Vec<(Time, Vec<u8>)>,
}

const EARLY: Duration = Duration::from_secs(5);

const LATE: Duration = Duration::from_secs(66);

impl Book {
    fn forgeries(&self, now: Time, value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let mut all = vec![
            ("nothing", Vec::new()),
            ("too short", value[..value.len() - 1].to_vec()),
            ("too long", [value, &[0]].concat()),
        ];
        let at = |at: Time| {
            let place = self.earlier.partition_point(|(heard, _)| *heard < at);
            self.earlier.get(place).map(|(_, value)| value.clone())
        };
        if self.timed {
            all.extend(at(now + EARLY).map(|value| ("an echo of the future", value)));
        }
        if self.timed && now > Time::ZERO + LATE + Duration::from_secs(5) {
            all.extend(at(now - LATE - Duration::from_secs(1)).map(|value| ("stale", value)));
        }
        for place in self.rates.iter().filter(|place| is_rate(value, **place)) {
            for rate in [0.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                let mut value = value.to_vec();
                value[*place..place + 4].copy_from_slice(&rate.to_be_bytes());
                all.push(("no rate", value));
            }
        }
        all
    }

    /// Returns the offsets of rates in the later half of `heard`: early reports may have none.
    fn rates_of(heard: &[(Time, Vec<u8>)]) -> Vec<usize> {
        let heard = &heard[heard.len() / 2..];
        let len = heard.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
        let places = (0..len / 4).map(|i| 4 * i);
        places.filter(|at| heard.iter().all(|(_, value)| is_rate(value, *at))).collect()
    }
}

/// True if the word is from one bit/s to one Tbit/s, which timestamps of short runs are not.
fn is_rate(value: &[u8], at: usize) -> bool {
    let word = value.get(at..at + 4).map(|word| word.try_into().expect("four bytes"));
    word.is_some_and(|word| (1.0..1e12).contains(&f32::from_be_bytes(word)))
}

impl Forging {
    fn forge(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) {
        let Datagram { bytes, zeros, .. } = *datagram;
        let mut book = self.book.borrow_mut();
        if with_report(bytes, zeros, self.option, &[]).is_some() {
            book.template = Some((bytes.to_vec(), zeros));
        }
        let Some(value) = report_place(bytes, zeros, self.option).map(|it| &bytes[it]) else {
            return;
        };
        book.heard.push((cx.now, value.to_vec()));
        let (Some((template, zeros)), false) = (book.template.clone(), book.earlier.is_empty())
        else {
            return;
        };
        for (name, value) in book.forgeries(cx.now, value) {
            let bytes = with_report(&template, zeros, self.option, &value).expect("as before");
            let mut said = Said::default();
            let mut aside = Cx::new(cx.now, &mut *cx.rng, &mut said);
            let forged = Datagram::new(datagram.from, datagram.to, &bytes);
            self.inner.handle_datagram(&mut aside, forged);
            book.forged += 1;
            book.by_rate += u64::from(name == "no rate");
            if said.refused != 1 {
                book.believed.push(name);
            }
        }
    }
}

impl Machine for Forging {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(datagram.to, Destination::Node(_)) {
            self.forge(cx, &datagram);
        }
        self.inner.handle_datagram(cx, datagram);
    }

    passes_on!(inner: handle_timeout, handle_close, poll_membership, poll_event, next_timeout);

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.inner.poll_transmit(cx, buf)?;
        self.book.borrow_mut().sent.push((cx.now, buf.clone()));
        Some(transmit)
    }
}

#[derive(Default)]
struct Timed(bool);

impl Sink for Timed {
    fn record(&mut self, record: &Record) {
        self.0 |= matches!(record.event, Event::RttSample { .. });
    }
}

fn forge(scheme: &SchemeEntry, protocol: Stack, quiet: Option<&Book>) -> (u64, Book) {
    let scenario = World::new(3, 80).scenario(protocol);
    let book = quiet.map_or_else(Book::default, |quiet| Book {
        earlier: quiet.heard.clone(),
        rates: Book::rates_of(&quiet.heard),
        timed: quiet.timed,
        ..Book::default()
    });
    let (option, book) = (scheme.view.report_option, Rc::new(RefCell::new(book)));
    let mixed = Mixed {
        watched: Watched::without_notes(),
        sender: |inner: Boxed| -> Boxed { Box::new(Forging { inner, option, book: book.clone() }) },
        receiver: |_, inner: Boxed| inner,
    };
    let mut timed = Timed::default();
    let simulation = Simulation::new(&scenario, &mixed, &mut timed).expect("no file is read");
    let hash = simulation.run(&mut Unobserved).event_hash;
    let mut book = book.take();
    book.timed = timed.0;
    (hash, book)
}

#[test]
fn reports_that_cannot_be_true_change_nothing_and_are_counted() {
    let (mut by_rate, mut by_time) = (0, 0);
    for (scheme, protocol) in schemes() {
        let name = protocol.name();
        let (hash, quiet) = forge(scheme, protocol, None);
        assert!(quiet.heard.len() > 50 && quiet.forged == 0, "{name}");
        let (forged_hash, book) = forge(scheme, protocol, Some(&quiet));
        println!("{name}: {} forged, {} of them rates", book.forged, book.by_rate);
        assert!(book.forged > 150, "{name}: {} forged", book.forged);
        let believed: BTreeSet<_> = book.believed.iter().collect();
        assert!(believed.is_empty(), "{name}: {believed:?}");
        assert!(quiet.sent.len() > 1000 && book.sent == quiet.sent, "{name}: it had an effect");
        assert_eq!(forged_hash, hash, "{name}: it had an effect");
        by_rate += usize::from(book.by_rate > 0);
        by_time += usize::from(quiet.timed);
    }
    let all = schemes().len() >= SCHEMES.len();
    assert!(!all || by_rate >= 2, "schemes whose receivers report rates are known by reports");
    assert!(!all || by_time >= 3, "and those whose reports echo timestamps");
}
