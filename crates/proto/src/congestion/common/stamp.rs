//! Timestamps that another host echoes.

use faircast_base::{Duration, Time};

/// Longest credible round trip: 64 s, the maximum that R_max can express (src: RFC 4654 s2.2.1).
pub(crate) const RTT_MAX: Duration = Duration::from_secs(64);

/// Returns the wire timestamp in microseconds, modulo 2^32: 71 minutes.
pub(crate) fn microseconds(now: Time) -> u32 {
    (now.since(Time::ZERO).as_nanos() / 1000) as u32
}

/// Returns the wire timestamp in milliseconds, modulo 2^32: 49 days.
pub(crate) fn milliseconds(now: Time) -> u32 {
    now.since(Time::ZERO).as_millis() as u32
}

/// Units from `then` to `now` modulo 2^32, at most `max`; 0 up to `tolerance` in the future.
pub(crate) fn elapsed(now: u32, then: u32, tolerance: i32, max: u32) -> Option<u32> {
    let units = now.wrapping_sub(then) as i32;
    (units >= -tolerance && i64::from(units) <= i64::from(max)).then_some(units.max(0) as u32)
}

/// Returns the time since `echo_us`, an own timestamp plus its holding time. `None` if longer than
/// `longest`, over `tolerance_us` in the future, or before the clock began.
pub(crate) fn echoed_us(
    now: Time,
    echo_us: u32,
    tolerance_us: i32,
    longest: Duration,
) -> Option<Duration> {
    let max = u32::try_from(longest.as_nanos() / 1000).unwrap_or(u32::MAX);
    let us = elapsed(microseconds(now), echo_us, tolerance_us, max)?;
    let time = Duration::from_micros(u64::from(us));
    (time <= now.since(Time::ZERO)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_from_the_future_from_long_ago_and_from_before_the_start_are_absurd() {
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let (us, s) = (Duration::from_micros, Duration::from_secs);
        for (now, back_us, want) in [
            (at(100), 40_000, Some(us(40_000))),
            (at(100), 0, Some(us(0))),
            (at(100), -1000, Some(us(0))),
            (at(100), -1001, None),
            (at(100), 64_000_000, Some(s(64))),
            (at(100), 64_000_001, None),
            (at(100), i32::MIN, None),
            (at(4295), 40_000, Some(us(40_000))),
            (at(10), 10_000_000, Some(s(10))),
            (at(10), 10_000_001, None),
        ] {
            let echo_us = microseconds(now).wrapping_sub(back_us as u32);
            assert_eq!(echoed_us(now, echo_us, 1000, RTT_MAX), want, "{now} - {back_us} us");
        }
    }

    #[test]
    fn units_are_those_of_the_caller() {
        assert_eq!(milliseconds(Time::ZERO + Duration::from_micros(2999)), 2);
        assert_eq!(elapsed(5, u32::MAX - 4, 1, 64_000), Some(10));
        assert_eq!((elapsed(5, 6, 1, 64_000), elapsed(5, 7, 1, 64_000)), (Some(0), None));
        assert_eq!(elapsed(64_002, 1, 1, 64_000), None);
    }
}
