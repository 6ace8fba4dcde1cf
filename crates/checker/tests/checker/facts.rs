//! Facts about good traces, by which mutants find their places.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::model::Lines;

/// Stay of a process in a view: lines from its `view` event to before the next one.
pub(super) struct Stay {
    pub(super) process: usize,
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) view: String,
    /// Next view, or "quiet"; `None` if the stay is open.
    pub(super) next: Option<String>,
    pub(super) is_cut: bool,
    /// Groups of which the process is a member throughout, unless a cut hides the membership.
    pub(super) full: BTreeSet<String>,
}

#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) process: usize,
    pub(super) line: usize,
    pub(super) id: String,
    pub(super) service: String,
    pub(super) groups: BTreeSet<String>,
    pub(super) send: (usize, usize),
    pub(super) sender: String,
    pub(super) stay: usize,
    pub(super) transitional: bool,
}

pub(super) struct Facts {
    pub(super) stays: Vec<Stay>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) by_id: BTreeMap<String, Vec<usize>>,
}

pub(super) fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

pub(super) fn is(line: &Value, event: &str) -> bool {
    text(line, "event") == event
}

pub(super) fn list(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_string()).collect()
}

impl Facts {
    pub(super) fn new(lines: &Lines) -> Self {
        let (mut stays, mut deliveries) = (Vec::new(), Vec::new());
        let mut sends = BTreeMap::new();
        for (process, (_, of)) in lines.iter().enumerate() {
            for (line, it) in of.iter().enumerate().filter(|(_, it)| is(it, "send")) {
                sends.insert(text(it, "id").to_string(), (process, line));
            }
        }
        for (process, (name, of)) in lines.iter().enumerate() {
            let mut members: BTreeSet<String> = BTreeSet::new();
            let mut open: Option<Stay> = None;
            for (line, it) in of.iter().enumerate() {
                match text(it, "event") {
                    "start" => members.clear(),
                    "view" => {
                        let view = text(it, "id").to_string();
                        if let Some(stay) = &mut open {
                            // A cut may hide another view in between.
                            let is_next = text(it, "previous") == stay.view;
                            (stay.end, stay.next) = (line, is_next.then(|| view.clone()));
                        }
                        stays.extend(open.take());
                        let (begin, end, full) = (line, line, members.clone());
                        let (next, is_cut) = (None, false);
                        open = Some(Stay { process, begin, end, view, next, is_cut, full });
                    }
                    "crash" | "stop" | "quiet" => {
                        if let Some(stay) = &mut open {
                            stay.end = line;
                            let is_quiet = is(it, "quiet") && text(it, "view") == stay.view;
                            stay.next = is_quiet.then(|| "quiet".to_string());
                        }
                        stays.extend(open.take());
                    }
                    "cut" => {
                        members.clear();
                        open.iter_mut().for_each(|stay| stay.is_cut = true);
                    }
                    "group" => {
                        let group = text(it, "group").to_string();
                        let is_in = list(&it["members"]).contains(name);
                        let changes = !is_in || text(it, "subject") == name;
                        if let Some(stay) = open.as_mut().filter(|_| changes) {
                            stay.full.remove(&group);
                        }
                        _ = if is_in { members.insert(group) } else { members.remove(&group) };
                    }
                    "deliver" if open.is_some() => {
                        let id = text(it, "id").to_string();
                        let send = sends[&id];
                        let sent = &lines[send.0].1[send.1];
                        deliveries.push(Delivery {
                            process,
                            line,
                            id,
                            service: text(sent, "service").into(),
                            groups: list(&sent["groups"]),
                            send,
                            sender: format!("{}/{}", sent["process"], sent["incarnation"]),
                            stay: stays.len(),
                            transitional: it["transitional"] == true,
                        });
                    }
                    _ => {}
                }
            }
            assert!(open.is_none());
        }
        let mut by_id: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, delivery) in deliveries.iter().enumerate() {
            by_id.entry(delivery.id.clone()).or_default().push(index);
        }
        Self { stays, deliveries, by_id }
    }

    pub(super) fn stay(&self, delivery: &Delivery) -> &Stay {
        &self.stays[delivery.stay]
    }

    pub(super) fn is_full(&self, it: &Delivery) -> bool {
        let stay = self.stay(it);
        !stay.is_cut && it.groups.iter().any(|group| stay.full.contains(group))
    }

    pub(super) fn together(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.stays[one], &self.stays[other]);
        one.view == other.view && one.next.is_some() && one.next == other.next
    }

    pub(super) fn others<'a>(&'a self, it: &'a Delivery) -> impl Iterator<Item = &'a Delivery> {
        let all = self.by_id[&it.id].iter().map(|index| &self.deliveries[*index]);
        all.filter(move |other| (other.process, other.line) != (it.process, it.line))
    }

    pub(super) fn find(&self, id: &str, stay: usize) -> Option<&Delivery> {
        self.by_id.get(id)?.iter().map(|it| &self.deliveries[*it]).find(|it| it.stay == stay)
    }

    /// Returns pairs of deliveries in the same phase of one stay, earlier one first.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Delivery, &Delivery)> {
        self.deliveries.iter().enumerate().flat_map(move |(index, one)| {
            let rest = self.deliveries[index + 1..].iter().take(40);
            let rest = rest.take_while(|it| it.stay == one.stay);
            rest.filter(|it| it.transitional == one.transitional).map(move |other| (one, other))
        })
    }
}
