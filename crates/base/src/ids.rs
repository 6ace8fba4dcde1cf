//! Identifiers of nodes, links, flows and groups.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The identifier as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A host or router. Protocol headers carry it where they carry a network address; the driver
    /// maps it to one.
    NodeId, "n"
);
id!(
    /// One direction of one link.
    LinkId, "l"
);
id!(
    /// One flow: a session or connection with its sender and all its receivers.
    FlowId, "f"
);
id!(
    /// A group of a flow: whoever has joined it hears what is sent to it. The driver maps it to an
    /// address.
    GroupId, "g"
);

impl GroupId {
    /// The group that every session has: its receivers are in it while they are there.
    pub const SESSION: Self = Self(0);
}
