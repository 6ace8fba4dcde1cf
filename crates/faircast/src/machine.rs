//! The machines of transfers and of streams, as one type each that a driver can hold.

use std::fmt;

use faircast_base::{Cx, Time};
use faircast_proto::object::{Transfer, TransferSource};
use faircast_proto::{AppEvent, Datagram, Machine, Transmit};

/// The sending end of a transfer.
pub(crate) struct Sending(pub(crate) Box<dyn TransferSource>);

/// A receiving end of a transfer.
pub(crate) struct Receiving(pub(crate) Box<dyn Transfer>);

/// An end of a stream.
pub(crate) struct Streaming(pub(crate) Box<dyn Machine + Send>);

macro_rules! machine {
    ($($name:ty),*) => { $(
        impl Machine for $name {
            fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
                self.0.handle_datagram(cx, datagram);
            }

            fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
                self.0.handle_timeout(cx);
            }

            fn handle_close(&mut self, cx: &mut Cx<'_>) {
                self.0.handle_close(cx);
            }

            fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
                self.0.poll_transmit(cx, buf)
            }

            fn poll_event(&mut self) -> Option<AppEvent> {
                self.0.poll_event()
            }

            fn next_timeout(&self) -> Option<Time> {
                self.0.next_timeout()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )* };
}

machine!(Sending, Receiving, Streaming);
