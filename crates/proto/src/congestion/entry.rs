//! Table row of a scheme: name, settings, and constructors of both halves.

use core::fmt;

use faircast_base::NodeId;

use super::scheme::AnnounceOf;
use super::{
    Bounds, BoxControl, BoxFeedback, Guarantees, ReceiverFeedback, RouterView, Scheme,
    SenderControl, Wire, bounded_control, boxed_feedback,
};
use crate::options::{OptionSpec, Options};

/// Constructor of the sender half within the settings' bounds, for data headers of some bytes.
pub type ControlOf = dyn Fn(&Options, u32) -> BoxControl + Send + Sync;
/// Constructor of the receiver half at a node, for data headers of some bytes.
pub type FeedbackOf = dyn Fn(&Options, NodeId, u32) -> BoxFeedback + Send + Sync;

/// Congestion-control scheme of a multicast flow.
#[derive(Clone, Copy)]
pub struct SchemeEntry {
    /// Name in scenario files.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Settings of the scheme, without the transport's.
    pub own_options: &'static [OptionSpec],
    /// Guarantees to the network, over PGM.
    pub guarantees: Guarantees,
    /// Most bytes of the announcement option's value.
    pub announce_bytes_max: usize,
    /// Parts of the scheme that routers can read.
    pub view: RouterView,
    /// Constructor of the sender half.
    pub control: &'static ControlOf,
    /// Constructor of the receiver half.
    pub feedback: &'static FeedbackOf,
}

impl fmt::Debug for SchemeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl SchemeEntry {
    /// Returns the row of scheme `S`.
    ///
    /// ```
    /// use faircast_proto::congestion::{SchemeEntry, pgmcc::Pgmcc};
    ///
    /// const ENTRY: SchemeEntry = SchemeEntry::of::<Pgmcc>();
    /// assert_eq!(ENTRY.name, "pgmcc");
    /// ```
    pub const fn of<S: Scheme>() -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            own_options: S::OPTIONS,
            guarantees: S::GUARANTEES,
            announce_bytes_max: AnnounceOf::<S>::BYTES_MAX,
            view: RouterView::of::<S>(),
            control: &|options, header_bytes| {
                let mut control = S::control(options);
                control.set_header(header_bytes);
                bounded_control(control, Bounds::from_options(options))
            },
            feedback: &|options, node, header_bytes| {
                let mut feedback = S::feedback(options, node);
                feedback.set_header(header_bytes);
                boxed_feedback(feedback)
            },
        }
    }
}
