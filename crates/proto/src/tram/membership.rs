//! Membership: finding and keeping heads, and being one (src: tram s2.2, s3.6).
//!
//! Input: advertisements, solicitations, bind requests and their answers, hellos, acknowledgements,
//! and times of silence. Output: the parent of a receiver and its level ([`Affiliation`]); the
//! members of a head, the last packet that they allow and the first that they lack ([`Members`]);
//! and the control packets of a head ([`Head`]). Elections of heads are in `election`, times of
//! advertisements in `advertising`, receivers that left in `departures`.

mod advertising;
mod affiliation;
mod departures;
mod election;
mod head;
mod members;
mod past_parents;

pub(super) use affiliation::{
    Affiliation, Parent, ParentChange, Request, SOLICIT_INTERVAL, Seeker,
};
pub(super) use head::{Head, HeadStatus};
pub(super) use past_parents::{PastParents, PreviousParent};
