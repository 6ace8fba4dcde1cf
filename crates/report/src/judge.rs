//! A report from a trace file alone.

use faircast_trace::{Header, Outcome, ReadError, Reader, Sink, Tee};

use crate::{Metrics, Series, Summary};

/// Reads a trace to its end and gives what a report needs, the same as the live run gave.
///
/// A trace without its last line is that of a run which was killed: its summary says that it was
/// interrupted, ends at the last record, and knows neither of real time nor of intact data.
///
/// # Errors
/// The trace cannot be read; the error names file and line.
pub fn judge(mut reader: Reader<'_>) -> Result<(Header, Summary, Series), ReadError> {
    let header = reader.header().clone();
    let mut sinks = Tee(Metrics::new(&header), Series::new(&header));
    let mut events = 0;
    while let Some(record) = reader.next_record()? {
        sinks.record(&record);
        events += 1;
    }
    let Tee(metrics, series) = sinks;
    let killed = Outcome { at: series.ended, interrupted: true, events, ..Outcome::default() };
    let summary = metrics.finish(reader.outcome().unwrap_or(&killed));
    Ok((header, summary, series))
}

#[cfg(test)]
mod tests {
    use faircast_base::{Event, FlowId, NodeId, Time};
    use faircast_trace::{FlowHeader, On, Record, Subject, write_line};

    use super::*;

    #[test]
    fn a_killed_run_is_judged_up_to_its_last_record() {
        let flow = FlowHeader { to: vec![NodeId(1)], packet_bytes: 1000, ..FlowHeader::default() };
        let header = Header {
            on: On::Lab,
            duration_s: 100.0,
            nodes: vec!["a".into(), "b".into()],
            flows: vec![flow],
            ..Header::default()
        };
        let mut text = serde_json::to_vec(&header).unwrap();
        text.push(b'\n');
        for seq in 0..=10 {
            let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(0), sender: true };
            let event = Event::DataSent { seq, bytes: 1000, repair: false };
            let record = Record { at: Time::from_nanos(seq * 1_000_000_000), subject, event };
            write_line(&record, &mut text);
        }
        let (_, summary, series) = judge(Reader::new(&text[..], "t").unwrap()).unwrap();
        assert!(summary.interrupted);
        assert_eq!((summary.ended_s, summary.events), (10.0, 11));
        assert_eq!(summary.flows[0].throughput_bps, 8_800.0);
        assert_eq!(summary.flows[0].receivers[0].intact, None);
        assert_eq!(series.flows[0].sent.points().len(), 11);
    }
}
