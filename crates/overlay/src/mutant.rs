//! Rules of the daemon that a test breaks on purpose, so that the checker is seen to find it.

/// Rule that a daemon breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Sends no earlier cells to a daemon that FIFO messages begin to go to.
    NoKept,
    /// Sends ordered messages to daemons with members only.
    PrunedOrder,
    /// Acknowledges safe messages before the clocks of all sources have passed them.
    HastySafe,
    /// Delivers safe messages before all daemons have them.
    UnsafeSafe,
    /// Delivers ordered messages before the clocks of all sources have passed them.
    HastyOrder,
    /// Delivers ordered messages of lost sources that depend on what nobody has.
    NoEnd,
    /// Moves together with all members of the old view, wherever they come from.
    TogetherByMembers,
    /// Forgets a change of routes that was given up, though others may have made it.
    NoFollow,
    /// Ends lost sources' messages though all of them are known.
    EndOfKnown,
    /// Delivers FIFO messages before earlier ones that wait for a client to join.
    FifoPassesHeld,
    /// Delivers messages of the next view at once.
    EarlyNext,
    /// Delivers FIFO messages before ordered ones of the same client.
    FifoOvertakes,
    /// Recovers no messages of the first source.
    NoRecovery,
    /// Delivers messages that waited for a client to join, though the client has left again.
    HeldAfterLeave,
    /// Ends sessions of clients without a step.
    NoGone,
    /// Numbers all views as the first one.
    OneNumber,
    /// Delivers what waits at a change of routes twice.
    TwiceOnReroute,
    /// Keeps the table of groups from the old view.
    OldTable,
    /// Tells a client that is cut off of one lost event less.
    ShortCut,
    /// Delivers no messages to their sender.
    NotToSelf,
}

#[cfg(test)]
std::thread_local! {
    static MUTANT: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

/// Has the daemons of this thread break a rule.
#[cfg(test)]
pub(crate) fn set(mutant: Option<Mutant>) {
    MUTANT.set(mutant);
}

/// True if daemons of this thread break the rule: never outside of tests.
#[cfg(test)]
pub(crate) fn breaks(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// True if daemons of this thread break the rule: never outside of tests.
#[cfg(not(test))]
pub(crate) const fn breaks(_: Mutant) -> bool {
    false
}
