//! What a scheme is made of: its name, its settings, and how its two halves are made.

use faircast_base::NodeId;

use super::{Guarantees, ReceiverFeedback, SenderControl};
use crate::options::{OptionSpec, Options};

/// What a scheme says of itself in order to be named: all ends of all flows are made from this.
pub trait Scheme: 'static {
    /// Its name in scenario files.
    const NAME: &'static str;
    /// What it is, in one line.
    const ABOUT: &'static str;
    /// Its settings, without those of the transport below it.
    const OPTIONS: &'static [OptionSpec];
    /// What it promises to the network.
    const GUARANTEES: Guarantees;
    /// Its sender's half.
    type Control: SenderControl<Report: Send> + Send + 'static;
    /// Its receiver's half, which speaks the same.
    type Feedback: ReceiverFeedback<
            Announce = <Self::Control as SenderControl>::Announce,
            Report = <Self::Control as SenderControl>::Report,
        > + Send
        + 'static;

    /// The sender's half, with settings checked against the scheme's table.
    fn control(options: &Options) -> Self::Control;

    /// The receiver's half at a node, with settings checked against the scheme's table.
    fn feedback(options: &Options, node: NodeId) -> Self::Feedback;
}
