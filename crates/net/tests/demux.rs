//! Protocol whose packets begin with their session's number: a driver needs only a demultiplexer.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/echo.rs"]
mod echo;
#[path = "common/numbers.rs"]
mod numbers;

use std::net::UdpSocket;
use std::thread;

use faircast_net::{
    AddressBook, App, Driver, DriverSettings, Ended, Listen, Live, SocketSettings, Sockets,
};

use echo::Echo;
use numbers::Numbers;

struct Even;

impl App<Echo, Numbers> for Even {
    fn accept(&mut self, _: &mut Live<Echo, Numbers>, heard: &u8) -> Option<Echo> {
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
            socket.send_to(b"\x03x", to).unwrap();
        }
        socket.send_to(sent, to).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], want[..]);
    }
    socket.send_to(b"\x04.", to).unwrap();
    driver.join().unwrap();
}
