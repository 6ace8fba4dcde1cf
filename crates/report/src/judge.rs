//! A report from a trace file alone.

use faircast_base::Time;
use faircast_trace::{Header, Outcome, ReadError, Reader, Record, Sink, Tee};

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
    let mut sinks = Tee(Last::default(), Tee(Metrics::new(&header), Series::new(&header)));
    let outcome = reader.replay(&mut sinks)?.cloned();
    let Tee(last, Tee(metrics, series)) = sinks;
    let outcome = outcome.unwrap_or_else(|| Outcome {
        at: last.at,
        interrupted: true,
        events: last.records,
        ..Outcome::default()
    });
    Ok((header, metrics.finish(&outcome), series))
}

/// When the last record was, and how many there were.
#[derive(Default)]
struct Last {
    at: Time,
    records: u64,
}

impl Sink for Last {
    fn record(&mut self, record: &Record) {
        self.at = self.at.max(record.at);
        self.records += 1;
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{Event, FlowId, NodeId};
    use faircast_trace::{FlowHeader, On, Subject, write_line};

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
