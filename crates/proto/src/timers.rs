//! Tables of named timers: the reasons for which a machine wakes up, with their times.

use core::marker::PhantomData;

use faircast_base::Time;

pub(crate) trait Reason: Copy + 'static {
    const ALL: &'static [Self];

    fn number(self) -> usize;
}

/// Defines an enum of [`Reason`]s, numbered from 0 in the order of its variants.
macro_rules! reasons {
    ($(#[doc = $about:literal])* enum $name:ident {
        $($(#[doc = $doc:literal])* $variant:ident,)+
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug)]
        enum $name { $($(#[doc = $doc])* $variant,)+ }

        impl $crate::timers::Reason for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn number(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use reasons;

/// Timers of a machine, one for each of its `N` reasons. Caches the earliest for speed.
#[derive(Debug)]
pub(crate) struct Timers<R, const N: usize> {
    /// Expiry of each timer; [`Time::MAX`] if not armed.
    at: [Time; N],
    next: Time,
    reasons: PhantomData<R>,
}

impl<R: Reason, const N: usize> Default for Timers<R, N> {
    fn default() -> Self {
        const { assert!(R::ALL.len() == N, "there is a timer for each reason") };
        Self { at: [Time::MAX; N], next: Time::MAX, reasons: PhantomData }
    }
}

impl<R: Reason, const N: usize> Timers<R, N> {
    pub(crate) fn arm(&mut self, reason: R, at: Time) {
        let before = core::mem::replace(&mut self.at[reason.number()], at);
        if at <= self.next {
            self.next = at;
        } else if before == self.next {
            self.next = self.at.iter().copied().fold(Time::MAX, Time::min);
        }
    }

    /// Arms a timer, unless it expires earlier.
    pub(crate) fn arm_by(&mut self, reason: R, at: Time) {
        self.arm(reason, at.min(self.at[reason.number()]));
    }

    pub(crate) fn disarm(&mut self, reason: R) {
        self.arm(reason, Time::MAX);
    }

    pub(crate) fn disarm_all(&mut self) {
        (self.at, self.next) = ([Time::MAX; N], Time::MAX);
    }

    pub(crate) fn is_armed(&self, reason: R) -> bool {
        self.at[reason.number()] < Time::MAX
    }

    pub(crate) fn take_due(&mut self, reason: R, now: Time) -> bool {
        let due = self.at[reason.number()] <= now && now < Time::MAX;
        if due {
            self.disarm(reason);
        }
        due
    }

    pub(crate) fn next(&self) -> Option<Time> {
        Some(self.next).filter(|at| *at < Time::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Duration;

    reasons! {
        enum Why {
            One,
            Two,
            Three,
        }
    }

    proptest::proptest! {
        #[test]
        fn the_next_is_the_earliest_that_is_armed(
            steps in proptest::collection::vec((0usize..3, 0u64..5, 0u8..4), 0..60),
        ) {
            let mut timers = Timers::<Why, 3>::default();
            let mut model = [None; 3];
            for (which, s, what) in steps {
                let (why, at) = (Why::ALL[which], Time::ZERO + Duration::from_secs(s));
                match what {
                    0 => timers.disarm(why),
                    1 => timers.arm(why, at),
                    2 => timers.arm_by(why, at),
                    _ => {
                        let due = model[which].is_some_and(|armed| armed <= at);
                        proptest::prop_assert_eq!(timers.take_due(why, at), due);
                    }
                }
                model[which] = match what {
                    0 => None,
                    1 => Some(at),
                    2 => Some(model[which].map_or(at, |armed: Time| armed.min(at))),
                    _ => model[which].filter(|armed| *armed > at),
                };
                proptest::prop_assert_eq!(timers.is_armed(why), model[which].is_some());
                proptest::prop_assert_eq!(timers.next(), model.iter().flatten().min().copied());
            }
        }
    }
}
