//! Membership: finding and keeping heads, and being one (src: tram s2.2, s3.6). Output: the parent
//! of a receiver and its level ([`Affiliation`]); the members of a head and the packets that they
//! lack and allow ([`members`]); the control packets of a head ([`Head`]).

mod advertising;
mod affiliation;
mod departures;
mod election;
mod head;
mod members;

pub(super) use affiliation::{
    Affiliation, Parent, ParentChange, Request, SOLICIT_INTERVAL, Seeker,
};
pub(super) use head::{Head, HeadStatus};
