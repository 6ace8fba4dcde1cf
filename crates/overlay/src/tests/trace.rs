//! Trace of the simulated clients in the checker's format, and checks of the final state.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_checker::{Rule, Trace, check};

use super::{CLIENTS, Daemon, World};
use crate::DaemonRun;
use crate::trace::{daemons, list, member};

pub(super) fn number_of(parts: &[Bytes]) -> usize {
    let text = parts[0].strip_prefix(b"m").unwrap();
    let digits = text.iter().take_while(|it| it.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

impl World {
    pub(super) fn note(&mut self, at: usize, client: usize, n: u64, fields: &str) {
        let run = self.hosts[at].clients[client].run;
        self.log.lines.push(format!(
            "{{\"process\":\"c{client}@d{at}\",\"incarnation\":{run},\"n\":{n},\"event\":{fields}}}"
        ));
    }

    fn component(&self, at: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::from([at]);
        loop {
            let both = self.edges.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
            let is_cut = |a, b| self.cut.contains(&(a, b)) || self.cut.contains(&(b, a));
            let is_new = |(a, b): &(usize, usize)| {
                let leads_on = reached.contains(a) && !reached.contains(b) && !is_cut(*a, *b);
                leads_on && self.hosts[*b].runs().is_some()
            };
            let more: Vec<usize> = both.filter(is_new).map(|(_, b)| b).collect();
            if more.is_empty() {
                return reached;
            }
            reached.extend(more);
        }
    }

    /// Returns the first difference in view, groups or messages of daemons that reach each other.
    pub(super) fn problem(&self) -> Option<String> {
        for (at, host) in self.hosts.iter().enumerate() {
            let Some(daemon) = host.runs() else { continue };
            let reached = self.component(at);
            let want: Vec<DaemonRun> = reached.iter().map(|it| self.me(*it)).collect();
            if !daemon.is_settled() {
                return Some(format!("d{at} is changing"));
            }
            if daemon.view().1 != want {
                return Some(format!("d{at} has {:?}, not {want:?}", daemon.view().1));
            }
            let queued: usize = host.links.iter().map(|it| daemon.queued_bytes(*it)).sum();
            let (unstable, pending) = (daemon.unstable_bytes(), daemon.pending());
            if (unstable, queued, pending) != (0, 0, 0) {
                return Some(format!("d{at}: {unstable} B unstable, {queued} B queued, {pending}"));
            }
            if daemon.groups().any(|it| it.1.is_empty()) {
                return Some(format!("d{at} keeps empty groups"));
            }
            let differs = |other: &&Daemon| {
                daemon.view() != other.view() || !daemon.groups().eq(other.groups())
            };
            if reached.iter().filter_map(|it| self.hosts[*it].runs()).any(|it| differs(&it)) {
                return Some(format!("d{at} has another view or other groups than its fellows"));
            }
        }
        None
    }

    pub(super) fn check_settled(&self) {
        assert_eq!(self.problem(), None, "at {}", self.now);
    }

    fn note_quiet(&mut self) {
        for at in 0..self.hosts.len() {
            let Some(daemon) = self.hosts[at].runs() else { continue };
            let (view, members) = daemon.view();
            let groups = daemon.groups().map(|(group, it)| {
                let members = list(it.iter().map(member));
                format!("\"{}\":{members}", String::from_utf8_lossy(group))
            });
            let groups: Vec<String> = groups.collect();
            let fields = format!(
                "\"quiet\",\"view\":\"{view}\",\"pending\":{},\"queues\":{},\"groups\":{{{}}},\
                 \"connected\":{}",
                daemon.pending(),
                daemon.unstable_bytes(),
                groups.join(","),
                daemons(members)
            );
            for client in 0..CLIENTS {
                if self.hosts[at].clients[client].reads {
                    self.note(at, client, 0, &fields);
                }
            }
        }
    }

    pub(super) fn judge(&mut self) -> (Vec<(Rule, String)>, usize) {
        self.note_quiet();
        let text = self.log.lines.join("\n");
        if let Ok(file) = std::env::var("FAIRCAST_OVERLAY_TRACE") {
            std::fs::write(file, &text).unwrap();
        }
        let trace = Trace::read([("trace".into(), text.as_bytes())]).unwrap();
        let wrong = check(&trace).iter().map(|it| (it.rule, format!("{it}"))).collect();
        (wrong, trace.counts()[1])
    }

    pub(super) fn check_trace(&mut self) -> usize {
        let (wrong, deliveries) = self.judge();
        let some = &wrong[..wrong.len().min(5)];
        assert!(wrong.is_empty(), "{} violations: {some:#?}", wrong.len());
        deliveries
    }
}
