//! Identifiers of nodes, links, flows and groups.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the identifier as an index into a table.
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
    /// Host or router. Protocol headers have it in place of an address; the driver maps it.
    NodeId, "n"
);
id!(
    /// One direction of a link.
    LinkId, "l"
);
id!(
    /// Flow: a session or connection with its sender and all its receivers.
    FlowId, "f"
);
id!(
    /// Multicast group of a flow. The driver maps it to an address.
    GroupId, "g"
);

impl GroupId {
    /// Group of every session: a receiver is a member while it takes part.
    pub const SESSION: Self = Self(0);
}
