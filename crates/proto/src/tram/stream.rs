//! Ends of a stream: data is sent while it is written, and delivered as it arrives.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{Cx, NodeId, Time};

use super::settings::TramSettings;
use super::window::Repairer;
use super::{TramReceiver, TramSetup, TramSource, TreeNegotiation, steering_at};
use crate::content::Packets;
use crate::options::Options;
use crate::pgm::negotiation::SchemeMismatch;
use crate::pgm::wire::Tsi;
use crate::stack::Stack;
use crate::{FlowEvent, Interactive, Machine, StreamEvent, StreamInput, passes_on};

/// Returns how many sent packets of a stream over `tree` to keep; older ones are never requested.
pub fn stream_window(tree: Stack, options: &Options) -> u64 {
    let settings = TramSettings::of(options, tree.scheme.is_some());
    Repairer::new(&settings, 0).cache.room_until()
}

/// Creates the source `node` of the stream `tsi` over `tree`, which announces its settings. Data
/// that has left the window of `packets` is gone, so `late_join` must not be `full`.
pub fn stream_source(
    (tsi, node): (Tsi, NodeId),
    start: Time,
    tree: Stack,
    options: &Options,
    packets: Box<dyn Packets + Send>,
) -> TramSource {
    let session = TramSetup::of(tsi, node, start, options);
    let session = TramSetup { steering: steering_at(tree, node), ..session };
    TramSource::announcing(&session, tree, packets)
}

/// Receiver of a stream: completes once everything is delivered, and serves members after that.
pub struct TramStreamReceiver {
    tram: TramReceiver,
    source: NodeId,
    /// True once the end, or the mismatch of schemes, was reported.
    has_ended: bool,
}

impl TramStreamReceiver {
    /// Creates a receiver at `node` of the stream `tsi` from `source`.
    pub fn new(
        (tsi, source): (Tsi, NodeId),
        node: NodeId,
        start: Time,
        options: &Options,
        negotiation: TreeNegotiation,
    ) -> Self {
        let session = TramSetup::of(tsi, source, start, options);
        let tram = TramReceiver::following(&session, node, negotiation);
        Self { tram, source, has_ended: false }
    }

    /// True if the receiver no longer takes part.
    pub fn is_over(&self) -> bool {
        self.tram.is_over()
    }
}

impl Interactive for TramStreamReceiver {
    type Input = StreamInput;

    fn handle_input(&mut self, cx: &mut Cx<'_>, StreamInput::Hold(held): StreamInput) {
        self.tram.hold(cx, held);
    }
}

impl Machine for TramStreamReceiver {
    type Event = StreamEvent;

    fn poll_event(&mut self) -> Option<StreamEvent> {
        if let Some(SchemeMismatch { sender, receiver, .. }) = self.tram.mismatch() {
            let (node, sender, receiver) = (self.source, sender.clone(), receiver.clone());
            let has_ended = core::mem::replace(&mut self.has_ended, true);
            return (!has_ended).then_some(StreamEvent::OtherScheme { node, sender, receiver });
        }
        // `tram` completes too early: packets may wait for delivery, and late joiners complete too.
        while let Some(event) = self.tram.poll_event() {
            if event != FlowEvent::Completed.into() {
                return Some(event);
            }
        }
        let ends = self.tram.has_delivered_all() && !self.has_ended;
        self.has_ended |= ends;
        ends.then_some(FlowEvent::Completed.into())
    }

    passes_on!(tram: handle_datagram, handle_timeout, handle_close, poll_membership, poll_transmit, next_timeout);
}
