//! Faults of a `[[link]]`: bursts of losses, reordering, duplicates, corruption, MTU and outages.

use faircast_base::{Bytes, Time};
use faircast_link::{BurstLoss, FaultChange, Faults, Outage, Reorder};

use crate::error::Problem;
use crate::limits::{BURST_PACKETS_MAX, DELAY_NS_MAX};
use crate::link_config::{moment, probability};
use crate::read::Table;
use crate::value::SettingValue;

pub(crate) fn read(table: &Table<'_>, duration_ns: u64) -> Result<Faults, Problem> {
    let FaultChange { burst_loss, reorder, duplicate, corrupt, mtu } =
        read_change(table)?.unwrap_or_default();
    Ok(Faults {
        burst_loss: burst_loss.unwrap_or_default(),
        reorder: reorder.unwrap_or_default(),
        duplicate: duplicate.unwrap_or(0.0),
        corrupt: corrupt.unwrap_or(0.0),
        mtu,
        outages: table
            .optional("outages", |value| outages(value, duration_ns))?
            .unwrap_or_default(),
    })
}

pub(crate) fn read_change(table: &Table<'_>) -> Result<Option<FaultChange>, Problem> {
    let change = FaultChange {
        burst_loss: table.optional("burst_loss", burst_loss)?,
        reorder: table.optional("reorder", reorder)?,
        duplicate: table.optional("duplicate", probability)?,
        corrupt: table.optional("corrupt", probability)?,
        mtu: table.optional("mtu", mtu)?,
    };
    Ok((change != FaultChange::default()).then_some(change))
}

fn burst_loss(value: &SettingValue) -> Result<BurstLoss, Problem> {
    let table = value.table(&["loss", "packets"])?;
    let loss = table.required("loss", "0.02", probability)?;
    let packets = table.required("packets", "5", |value| {
        let range = format!("of packets from 1 to {BURST_PACKETS_MAX}");
        value.number(&range, |x| (1.0..=BURST_PACKETS_MAX).contains(&x))
    })?;
    // At least one packet separates two bursts.
    let most = packets / (packets + 1.0);
    if loss > most && loss < 1.0 {
        let message = format!(
            "is {loss}; with bursts of {packets} packets expected at most {most:.4}, because a \
             packet arrives between two bursts, or 1"
        );
        return Err(table.problem("loss", message));
    }
    Ok(BurstLoss { loss, packets })
}

fn mtu(value: &SettingValue) -> Result<u32, Problem> {
    let bytes: Bytes = value.quantity(MTU_MIN..=MTU_MAX)?;
    Ok(u32::try_from(bytes.count()).expect("MTU_MAX fits"))
}

/// Limits of an MTU in bytes: every IPv4 link takes 68 (RFC 791), and lengths have 16 bits.
const MTU_MIN: u64 = 68;
const MTU_MAX: u64 = 65_535;

fn reorder(value: &SettingValue) -> Result<Reorder, Problem> {
    let table = value.table(&["share", "delay"])?;
    Ok(Reorder {
        share: table.required("share", "0.02", probability)?,
        delay: table.required("delay", "\"5 ms\"", |value| value.duration(1..=DELAY_NS_MAX))?,
    })
}

fn outages(value: &SettingValue, duration_ns: u64) -> Result<Vec<Outage>, Problem> {
    let mut earlier = Time::ZERO;
    value.each("a list such as [ { from = \"20 s\", to = \"25 s\" } ]", |index, entry| {
        let table = entry.table(&["from", "to"])?;
        let from = table.required("from", "\"20 s\"", |value| moment(value, duration_ns))?;
        if index > 0 && from < earlier {
            let message = format!(
                "is {from}, before the end of the outage before it at {earlier}; expected rising \
                 times"
            );
            return Err(table.problem("from", message));
        }
        // An outage may last beyond the end of the run.
        let to = table.required("to", "\"25 s\"", |value| {
            let to = Time::ZERO + value.duration(0..=u64::MAX)?;
            let after = || value.wrong(format!("a moment after from, which is {from}"));
            if to > from { Ok(to) } else { Err(after()) }
        })?;
        earlier = to;
        Ok(Outage { from, to })
    })
}
