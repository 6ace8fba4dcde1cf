//! Deliberate faults of the daemon, for tests that the checker detects them.

/// Rule that a daemon violates on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Omits the earlier cells for a daemon newly added to a client's FIFO messages.
    NoEarlierCells,
    /// Sends ordered messages only to daemons with members.
    PrunedOrder,
    /// Acknowledges safe messages before the clocks of all sources have passed them.
    HastySafe,
    /// Delivers safe messages that not all members have.
    UnsafeSafe,
    /// Delivers ordered messages before the clocks of all sources have passed them.
    HastyOrder,
    /// Delivers ordered messages of lost sources that depend on messages that no member has.
    NoEnd,
    /// Moves together with all members of the old view, even from other configurations.
    TogetherByMembers,
    /// Forgets an abandoned change of routes, though others may have completed it.
    NoFollow,
    /// Truncates the messages of lost sources though all of them are known.
    EndOfKnown,
    /// Delivers FIFO messages before deferred ones of the same sender.
    FifoPassesDeferred,
    /// Delivers messages of the next configuration during the recovery.
    EarlyNext,
    /// Delivers FIFO messages before ordered ones that their sender sent earlier.
    FifoOvertakes,
    /// Retransmits no cells of the first member.
    NoRecovery,
    /// Delivers deferred messages to a client that has left their groups.
    DeferredAfterLeave,
    /// Sends no step at the end of a client's session.
    NoDisconnect,
    /// Gives all views the same round.
    OneNumber,
    /// Delivers the last messages before a change of routes twice.
    TwiceOnReroute,
    /// Keeps the groups of the old view in a new one.
    OldTable,
    /// Reports a gap of events that is too short.
    ShortCut,
    /// Delivers no message to its sender.
    NotToSelf,
}

#[cfg(test)]
std::thread_local! {
    static MUTANT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn set(mutant: Option<Mutant>) {
    MUTANT.set(mutant);
}

#[cfg(test)]
pub(crate) fn breaks(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

#[cfg(not(test))]
pub(crate) const fn breaks(_: Mutant) -> bool {
    false
}
