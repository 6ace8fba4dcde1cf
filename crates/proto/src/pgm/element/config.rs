//! The settings of an element.

use faircast_base::Duration;

use super::suppression::Suppression;
use crate::pgm::RepairTimers;
use crate::settings::settings;

// RFC 3208 gives no numbers; the defaults are ns-2's (src: ns-2.35 pgm/pgm-agent.cc,
// tcl/pgm/ns-pgm.tcl). The paper proposes chance without a number: at one half the NAK of the one
// worst of a hundred receivers passes for every other loss, and the load is halved. With adaptive
// timers a NAK is repeated four times at least, and passes once the repair is overdue: one lost
// repair would else cost all receivers below the whole time of elimination.
settings! {
    /// The settings of a [`PgmElement`](super::PgmElement), and of the relay program `pgm-element`.
    pub struct ElementConfig;
    /// Which NAKs pass for a packet that was already asked for: all, none until the elimination
    /// interval is over, those that report more loss, those that report less throughput, or some
    /// by chance (Seada and Helmy s4.3)
    suppression: Suppression = Rfc3208;
    /// The chance of each with suppression = "random"
    pass_probability: f64 [0.0, 1.0] = 0.5;
    /// A NAK passes too where its loss differs by more than this share from the last that passed;
    /// 0 for never; 0.05 as RFC 3208 appendix B has it for congestion reports
    loss_change: f64 [0.0, 10.0] = 0.0;
    /// Repetition and elimination follow measured round trips, with nak_interval as the least and
    /// elimination as the greatest value; or they are fixed, as in ns-2
    repair_timers: RepairTimers = Adaptive;
    /// Time between repetitions of an unconfirmed NAK (ns-2)
    nak_interval: Duration [1 ms, 600 s] = 50 ms;
    /// How long it is repeated: NAK_RPT_IVL (ns-2)
    nak_repeat: Duration [1 ms, 600 s] = 1 s;
    /// How long a confirmed repair is awaited: NAK_RDATA_IVL (ns-2)
    repair_wait: Duration [1 ms, 600 s] = 10 s;
    /// How long after a confirmation no further NAK for the packet passes: NAK_ELIM_IVL (ns-2)
    elimination: Duration [1 ms, 600 s] = 5 s;
}
