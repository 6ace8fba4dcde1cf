//! Settings of a `[[link]]`: rate, delay, queue, loss, and their changes.

use faircast_base::{Bitrate, Bytes, Duration, Time};
use faircast_link::{LinkChange, LinkConfig, QueueConfig, RedConfig, Timing};

use crate::error::Problem;
use crate::limits::{
    DELAY_NS_MAX, PACKET_BYTES_MAX, QUEUE_BYTES_MAX, QUEUE_PACKETS_MAX, RATE_BITS_PER_S_MAX,
};
use crate::link_faults;
use crate::names::name;
use crate::options::registered;
use crate::read::Table;
use crate::value::{Kind, SettingValue};

pub(crate) const CONFIG_KEYS: &[&str] = &[
    "rate",
    "delay",
    "queue",
    "loss",
    "burst_loss",
    "reorder",
    "duplicate",
    "corrupt",
    "mtu",
    "tick",
    "jitter",
    "outages",
    "changes",
    "drop_list",
];

pub(crate) fn read(table: &Table<'_>, duration_ns: u64) -> Result<LinkConfig, Problem> {
    Ok(LinkConfig {
        rate: table.required("rate", "\"10 Mbit/s\"", rate)?,
        delay: table.required("delay", "\"1 ms\"", delay)?,
        queue: table.optional("queue", queue)?.unwrap_or(DEFAULT_QUEUE),
        loss: table.optional("loss", probability)?.unwrap_or(0.0),
        changes: table
            .optional("changes", |value| changes(value, duration_ns))?
            .unwrap_or_default(),
        drop_list: table.optional("drop_list", drop_list)?.unwrap_or_default(),
        faults: link_faults::read(table, duration_ns)?,
        timing: Timing {
            tick: table.optional("tick", timing)?.unwrap_or_default(),
            jitter: table.optional("jitter", timing)?.unwrap_or_default(),
        },
    })
}

fn timing(value: &SettingValue) -> Result<Duration, Problem> {
    value.duration(0..=TIMING_NS_MAX)
}

fn rate(value: &SettingValue) -> Result<Bitrate, Problem> {
    value.quantity(1..=RATE_BITS_PER_S_MAX)
}

pub(crate) fn delay(value: &SettingValue) -> Result<Duration, Problem> {
    value.duration(0..=DELAY_NS_MAX)
}

pub(crate) fn probability(value: &SettingValue) -> Result<f64, Problem> {
    value.number("from 0 to 1", |p| (0.0..=1.0).contains(&p))
}

fn changes(value: &SettingValue, duration_ns: u64) -> Result<Vec<LinkChange>, Problem> {
    let mut earlier: Option<Time> = None;
    value.each("a list such as [ { at = \"50 s\", rate = \"3 Mbit/s\" } ]", |_, entry| {
        let table = entry.table(CHANGE_KEYS)?;
        let at = table.required("at", "\"50 s\"", |value| moment(value, duration_ns))?;
        if let Some(earlier) = earlier.replace(at).filter(|earlier| *earlier >= at) {
            let message =
                format!("is {at}, not after the change at {earlier}; expected rising times");
            return Err(table.problem("at", message));
        }
        let change = LinkChange {
            at,
            rate: table.optional("rate", rate)?,
            delay: table.optional("delay", delay)?,
            loss: table.optional("loss", probability)?,
            faults: link_faults::read_change(&table)?,
        };
        let LinkChange { rate, delay, loss, faults, .. } = &change;
        if rate.is_none() && delay.is_none() && loss.is_none() && faults.is_none() {
            let keys = CHANGE_KEYS[1..].join(", ");
            let message = format!("changes nothing; expected one or more of {keys}");
            return Err(entry.problem(message));
        }
        Ok(change)
    })
}

pub(crate) fn moment(value: &SettingValue, duration_ns: u64) -> Result<Time, Problem> {
    let at = Time::ZERO + value.duration(0..=u64::MAX)?;
    if at.as_nanos() < duration_ns {
        return Ok(at);
    }
    let end = Time::from_nanos(duration_ns);
    Err(value.wrong(format!("a moment before the end of the run at {end}")))
}

fn drop_list(value: &SettingValue) -> Result<Vec<u64>, Problem> {
    let mut earlier = 0;
    value.each("a list of packet numbers such as [28, 29]", |_, item| {
        let number = item.integer(1..=i64::MAX as u64)?;
        if number <= earlier {
            let message = format!("is {number}, not after {earlier}; expected rising numbers");
            return Err(item.problem(message));
        }
        earlier = number;
        Ok(number)
    })
}

fn queue(value: &SettingValue) -> Result<QueueConfig, Problem> {
    let example = "\"droptail\"";
    let kind = value.any_table()?.required("kind", example, |kind| {
        name(kind)?;
        registered(kind, "queue", [("droptail", "droptail"), ("red", "red")].into_iter())
    })?;
    match kind {
        "droptail" => droptail(&value.table(&["kind", "packets", "bytes"])?),
        _ => red(&value.table(&[
            "kind",
            "min",
            "max",
            "weight",
            "max_p",
            "gentle",
            "packets",
            "mean_packet",
        ])?),
    }
}

fn droptail(table: &Table<'_>) -> Result<QueueConfig, Problem> {
    let packets = table.optional("packets", packets)?;
    let bytes = table.optional("bytes", |value| match value.kind {
        Kind::Integer(_) => value.integer(1..=QUEUE_BYTES_MAX),
        _ => size(value, QUEUE_BYTES_MAX).map(Bytes::count),
    })?;
    match (packets, bytes) {
        (Some(packets_max), None) => Ok(QueueConfig::DropTail { packets_max }),
        (None, Some(bytes_max)) => Ok(QueueConfig::DropTailBytes { bytes_max }),
        (None, None) => {
            Err(table.problem("packets", "is missing; a droptail queue needs packets or bytes"))
        }
        (Some(_), Some(_)) => {
            Err(table.problem("bytes", "stands beside packets; allowed: one of packets and bytes"))
        }
    }
}

fn red(table: &Table<'_>) -> Result<QueueConfig, Problem> {
    let above_zero =
        |value: &SettingValue| value.number("above 0, at most 1", |x| x > 0.0 && x <= 1.0);
    let threshold = |value: &SettingValue| {
        value.number("of packets above 0, at most 10000000", |x| {
            x > 0.0 && x <= f64::from(QUEUE_PACKETS_MAX)
        })
    };
    let red = RedConfig {
        min: table.required("min", "5", threshold)?,
        max: table.required("max", "15", threshold)?,
        weight: table.optional("weight", above_zero)?.unwrap_or(RED_WEIGHT),
        max_p: table.optional("max_p", above_zero)?.unwrap_or(RED_MAX_P),
        gentle: table.optional("gentle", SettingValue::flag)?.unwrap_or(true),
        packets_max: table.required("packets", "50", packets)?,
        mean_packet_bytes: table
            .optional("mean_packet", |value| size(value, PACKET_BYTES_MAX))?
            .map_or(0, |bytes| u32::try_from(bytes.count()).expect("PACKET_BYTES_MAX fits")),
    };
    if red.max <= red.min {
        let message = format!("is {}; expected more than min, which is {}", red.max, red.min);
        return Err(table.problem("max", message));
    }
    if f64::from(red.packets_max) < red.max {
        let message = format!(
            "is {}; expected at least max, which is {}, or RED never drops at random there",
            red.packets_max, red.max
        );
        return Err(table.problem("packets", message));
    }
    Ok(QueueConfig::Red(red))
}

fn packets(value: &SettingValue) -> Result<u32, Problem> {
    let packets = value.integer(1..=u64::from(QUEUE_PACKETS_MAX))?;
    Ok(u32::try_from(packets).expect("QUEUE_PACKETS_MAX fits"))
}

pub(crate) fn size(value: &SettingValue, max: u64) -> Result<Bytes, Problem> {
    value.quantity(1..=max)
}

/// Longest tick and jitter: 1 s. Clocks of kernels tick each 1 to 10 ms.
const TIMING_NS_MAX: u64 = 1_000_000_000;
const CHANGE_KEYS: &[&str] =
    &["at", "rate", "delay", "loss", "burst_loss", "reorder", "duplicate", "corrupt", "mtu"];
/// src: ns-2.35 ns-default.tcl: Queue limit_ 50.
const DEFAULT_QUEUE: QueueConfig = QueueConfig::DropTail { packets_max: 50 };
/// src: floyd-jacobson-1993: w_q 0.002.
const RED_WEIGHT: f64 = 0.002;
/// src: ns-2.35 ns-default.tcl: Queue/RED linterm_ 10.
const RED_MAX_P: f64 = 0.1;
