//! Demultiplexer for packets that begin with their session's number, for tests of drivers.

use faircast_base::Time;
use faircast_net::{Arrival, Demux, Found, SessionId};

#[derive(Default)]
pub(crate) struct Numbers(Vec<(SessionId, u8)>);

impl Demux for Numbers {
    type Key = u8;
    type NewSession<'a> = u8;

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
