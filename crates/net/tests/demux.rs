//! A protocol that is not PGM: its packets begin with the number of their session, and a demultiplexer of
//! its own is all that a driver needs to know of it.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/echo.rs"]
mod echo;

use std::net::UdpSocket;
use std::thread;

use faircast_base::Time;
use faircast_net::{
    AddressBook, App, Arrival, Demux, Driver, DriverSettings, Ended, Found, Listen, Live,
    SessionId, SocketSettings, Sockets,
};

use echo::Echo;

/// Sessions by their numbers.
#[derive(Default)]
struct Numbers(Vec<(SessionId, u8)>);

impl Demux for Numbers {
    type Key = u8;
    type Heard<'a> = u8;

    fn add(&mut self, _: Time, id: SessionId, key: u8) {
        self.0.push((id, key));
    }

    fn remove(&mut self, id: SessionId) {
        self.0.retain(|(other, _)| *other != id);
    }

    fn find(&mut self, arrival: Arrival<'_>, datagram: &[u8]) -> Option<Found<u8>> {
        let number = datagram[0];
        let from = arrival.book.node(arrival.from)?;
        let known = self.0.iter().find(|(_, key)| *key == number);
        Some(known.map_or(Found::New(number), |(id, _)| Found::Session(*id, from)))
    }

    fn key(&self, heard: &u8) -> u8 {
        *heard
    }
}

/// Takes part in sessions with even numbers.
struct Even;

impl App<Echo, Numbers> for Even {
    fn heard(&mut self, _: &mut Live<Echo, Numbers>, heard: &u8) -> Option<Echo> {
        let even = heard.is_multiple_of(2);
        even.then(|| Echo::new(&[*heard]))
    }
}

#[test]
fn a_driver_serves_any_protocol_that_brings_its_demultiplexer() {
    let on = Listen::Unicast("127.0.0.1:0".parse().unwrap());
    let sockets = Sockets::receiver(on, SocketSettings::default()).unwrap();
    let to = sockets.local_address();
    let driver = thread::spawn(move || {
        let (book, settings) = (AddressBook::native(), DriverSettings::default());
        let mut driver = Driver::with_demux(sockets, book, Numbers::default(), settings).unwrap();
        assert_eq!(driver.run(&mut Even).unwrap(), Ended::Idle);
        assert_eq!(driver.live().counters().refused.foreign, 1);
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 10];
    for (sent, want) in
        [(b"\x02a", b"\x02\x02a"), (b"\x04b", b"\x04\x04b"), (b"\x02.", b"\x02\x02.")]
    {
        if want[0] == 4 {
            // Nobody takes part in that one.
            socket.send_to(b"\x03x", to).unwrap();
        }
        socket.send_to(sent, to).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], want[..]);
    }
    socket.send_to(b"\x04.", to).unwrap();
    driver.join().unwrap();
}
