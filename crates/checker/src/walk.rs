//! Walk over the events of one incarnation: its stays and deliveries, and rules of single events.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Act, End, Model, Place, Refusal, Stay};
use crate::trace::{Change, Event, Line, Quiet, Service, Set};
use crate::{Findings, Rule};

#[derive(Default)]
pub(crate) struct Walk<'t> {
    here: Place,
    acts: Vec<Act>,
    /// Current stay. The first one has no view.
    stay: usize,
    /// True from a cut to the next `view` or `transitional`, as the cut may hide another view.
    is_lost: bool,
    /// Groups of the process with the start of the tenure, and groups that a cut may hide.
    open: BTreeMap<&'t str, usize>,
    hidden: BTreeSet<&'t str>,
    /// Number of requests less own joins and leaves, and true if the last request is a join.
    asked: BTreeMap<&'t str, (i64, bool)>,
    members: BTreeMap<&'t str, &'t Set>,
    /// Own undelivered messages, with a group of which the process is a member since the send.
    own: BTreeMap<usize, (&'t str, Place)>,
    /// Members of the view, and daemons that moved there or that close it.
    moved: Option<(&'t Set, &'t Set)>,
    /// Number of the last delivery, and true between a cut and its resume.
    last: u64,
    is_cut: bool,
}

impl<'t> Walk<'t> {
    pub(crate) fn run(model: &mut Model<'t>, found: &mut Findings<'_>, life: usize) {
        let (here, mut end) = (Place { life, line: 0 }, End::Open);
        let mut walk = Self { here, stay: usize::MAX, ..Self::default() };
        walk.enter(model, "", end);
        for (index, line) in model.lives[life].lines.iter().enumerate() {
            walk.here.line = index;
            walk.number(line, found);
            let stay = &mut model.stays[walk.stay];
            match &line.event {
                Event::Send(send) => {
                    let (item, place) = (model.item("", &send.id), walk.here);
                    if model.items[item].send == Some(place) {
                        walk.acts.push(Act { place, item, stay: None, transitional: false });
                        walk.owe(model, item);
                    }
                }
                Event::Deliver { .. } => walk.deliver(model, found, &line.event),
                Event::Join { group } | Event::Leave { group } => {
                    let asked = walk.asked.entry(group).or_default();
                    *asked = (asked.0 + 1, matches!(line.event, Event::Join { .. }));
                    walk.own.retain(|_, (of, _)| of != group);
                }
                Event::Group(change) => walk.change(model, found, change),
                Event::View { .. } => walk.view(model, found, &line.event),
                Event::Transitional { closes, members } => {
                    if stay.view != closes && !walk.is_lost {
                        wrong!(found, R4, [walk.here], "begins to close {closes}, where it is not");
                    }
                    walk.see(model, closes);
                    (walk.is_lost, walk.moved) = (false, Some((members, members)));
                    model.stays[walk.stay].closing = Some(members);
                }
                Event::Cut { from, to, .. } => {
                    stay.cut = stay.cut.saturating_add(to.saturating_sub(*from)).saturating_add(1);
                    (walk.is_lost, walk.moved) = (true, None);
                    walk.members.clear();
                    walk.own.clear();
                    let asked = walk.asked.iter().filter(|(_, asked)| asked.0 != 0);
                    walk.hidden.extend(asked.map(|(group, _)| *group));
                    walk.open.retain(|group, _| !walk.hidden.contains(group));
                }
                Event::Quiet(quiet) => {
                    end = if stay.view == quiet.view { End::Quiet } else { End::Open };
                    walk.quiet(model, found, quiet);
                    model.owed.extend(walk.own.iter().map(|(item, of)| (*item, of.0, of.1)));
                }
                _ => {}
            }
        }
        walk.enter(model, "", end);
        model.acts.push(walk.acts);
    }

    /// R13: numbers of events are consecutive from 1, except for cuts, which begin at the next
    /// number. A resume names the next number, before the first delivery after a closing cut.
    fn number(&mut self, line: &Line, found: &mut Findings<'_>) {
        let next = self.last.saturating_add(1);
        let (first, last, is_cut) = match line.event {
            Event::Cut { from, to, closes } => (from, to, closes != Some(false)),
            Event::Resume { next } => (next, next.saturating_sub(1), false),
            Event::Send(_) | Event::Join { .. } | Event::Leave { .. } | Event::Quiet(_) => return,
            _ => (line.n, line.n, false),
        };
        if first != next || last.saturating_add(1) < first || (self.is_cut && line.n > 0) {
            wrong!(found, R13, [self.here], "goes on from {first} to {last}; next is {next}");
        }
        (self.last, self.is_cut) = (last, is_cut);
    }

    /// R6: some process delivers a quiet process's messages to a group of which it is a member from
    /// the send to the end. Excluded: unreliable messages; refused messages; messages before a cut.
    pub(crate) fn lost(model: &Model<'t>, found: &mut Findings<'_>) {
        for (item, group, place) in &model.owed {
            let item = &model.items[*item];
            if item.view.is_none() {
                let name = item.name;
                wrong!(found, R6, [*place], "sends {name}, which no member of {group} delivers");
            }
        }
    }

    fn owe(&mut self, model: &Model<'t>, item: usize) {
        let of = &model.items[item];
        let is_in = |group: &&&str| {
            self.open.contains_key(**group) && self.asked.get(**group).is_some_and(|it| it.0 == 0)
        };
        let group = of.groups.iter().find(is_in);
        let is_owed = of.service >= Service::Reliable && !of.is_refused();
        if let Some(group) = group.filter(|_| is_owed) {
            self.own.insert(item, (*group, self.here));
        }
    }

    /// Moves to the view of an event after a cut that may hide the view.
    fn see(&mut self, model: &mut Model<'t>, view: &'t str) {
        if self.is_lost && model.stays[self.stay].view != view {
            self.enter(model, view, End::Open);
            model.stays[self.stay].cut = u64::MAX;
        }
    }

    fn enter(&mut self, model: &mut Model<'t>, view: &'t str, end: End<'t>) {
        let (begin, acts) = (self.here, self.acts.len()..self.acts.len());
        if let Some(stay) = model.stays.get_mut(self.stay) {
            (stay.end, stay.acts.end) = (end, acts.end);
            stay.tenures.extend(self.open.iter().map(|(group, begin)| (*group, *begin..acts.end)));
        }
        self.open.values_mut().for_each(|begin| *begin = acts.start);
        self.stay = model.stays.len();
        let cut = if view.is_empty() { u64::MAX } else { 0 };
        model.stays.push(Stay { begin, view, acts, cut, ..Stay::default() });
    }

    fn push(&mut self, model: &mut Model<'t>, act: Act) -> (&'t str, Option<Place>) {
        self.acts.push(act);
        self.own.remove(&act.item);
        let item = &mut model.items[act.item];
        let before = item.deliveries.last().map(|it| it.place);
        item.deliveries.push(act);
        (item.view.get_or_insert(model.stays[self.stay].view), before)
    }

    /// R3: an identifier has the form `N.daemon` and one list of members, which includes the own
    /// daemon. N grows from view to view, so common views have one order. `previous` is the view in
    /// which the process was, except in the first view and after a cut.
    ///
    /// R4: the set contains the own daemon, and only members of the new and of the previous view.
    /// `transitional` closes the current view with the set of the next one. All processes that move
    /// between the same two views have equal sets, and no daemon of a set comes from another view.
    /// Excluded: views without a previous one; daemons without a traced client; a view that closes
    /// without `transitional`.
    fn view(&mut self, model: &mut Model<'t>, found: &mut Findings<'_>, event: &'t Event) {
        let Event::View { id, members, transitional_set: set, previous } = event else { return };
        let (here, daemon) = (self.here, model.lives[self.here.life].daemon.as_str());
        let number = |id: &str| id.split_once('.')?.0.parse::<u64>().ok();
        if !members.contains(daemon) || number(id).is_none() {
            wrong!(found, R3, [here], "installs {id} with {members:?} at {daemon}");
        }
        let (other, at) = *model.views.entry(id).or_insert((members, here));
        if other != members {
            wrong!(found, R3, [here, at], "installs {id} with {members:?}, not {other:?}");
        }
        let (previous, stay) = (previous.as_deref(), &model.stays[self.stay]);
        let (view, is_hidden) = (stay.view, self.is_lost && previous != Some(stay.view));
        let is_next = previous == Some(view) || self.is_lost || view.is_empty();
        if number(id) <= number(view) || !is_next {
            wrong!(found, R3, [here, stay.begin], "installs {id} from {previous:?} in {view}");
        }
        if let Some(other) = stay.closing.filter(|it| *it != set && !is_hidden) {
            wrong!(found, R4, [here], "closes its view with {other:?}, moves with {set:?}");
        }
        let old = previous.and_then(|it| model.views.get(it)).map_or(members, |it| it.0);
        if !set.contains(daemon) || !set.is_subset(members) || !set.is_subset(old) {
            wrong!(found, R4, [here], "moves with {set:?} from {old:?} to {members:?}");
        }
        if let Some(previous) = previous {
            for daemon in set {
                let (other, at) = *model.origins.entry((id, daemon)).or_insert((previous, here));
                if other != previous {
                    wrong!(found, R4, [here, at], "moves to {id} from {previous}, not {other}");
                }
            }
            let (other, at) = *model.moves.entry((id, previous)).or_insert((set, here));
            if other != set {
                wrong!(found, R4, [here, at], "moves to {id} with {set:?}, not {other:?}");
            }
        }
        self.enter(model, id, if is_hidden { End::Open } else { End::Moved(id) });
        (self.is_lost, self.moved) = (false, previous.map(|_| (members, set)));
    }

    /// R1: the message was sent, not refused, has the same hash, and is delivered once, resumed or
    /// not. R11: the process is a member of one of the message's groups. R2: the delivery names the
    /// current view, and whether the transitional one has begun. The view is that of the
    /// acceptance, if the send names one, and the same for all deliveries. R12: for a sender with
    /// virtual synchrony, the view is the sender's view at the send; other senders may lag behind.
    fn deliver(&mut self, model: &mut Model<'t>, found: &mut Findings<'_>, event: &'t Event) {
        let Event::Deliver { view, transitional, id, hash } = event else { return };
        let (transitional, place, item) = (*transitional, self.here, model.item("", id));
        self.see(model, view);
        let stay = &model.stays[self.stay];
        let (now, closing) = (stay.view, stay.closing.is_some());
        if now != view || closing != transitional && !self.is_lost {
            wrong!(found, R2, [place], "delivers {id} in {view}, transitional: {transitional}");
        }
        let act = Act { place, item, stay: Some(self.stay), transitional };
        let (accepted, before) = self.push(model, act);
        let item = &model.items[item];
        let Some(send) = item.send else {
            return wrong!(found, R1, [place], "delivers {id}, which nobody sent");
        };
        if item.refusal == Refusal::Known {
            wrong!(found, R1, [place, send], "delivers {id}, which the daemon has refused");
        }
        if let Some(first) = before.filter(|first| first.life == place.life) {
            wrong!(found, R1, [place, first], "delivers {id} twice");
        }
        if accepted != now {
            let rule = if model.lives[send.life].virtual_synchrony { Rule::R12 } else { Rule::R2 };
            found.add(rule, &[place, send], format!("delivers {id} of {accepted} in {now}"));
        }
        if !matches!(model.event(send), Event::Send(sent) if sent.hash == *hash) {
            wrong!(found, R1, [place, send], "delivers {id} with another hash: {hash}");
        }
        let is_in = |it: &&str| self.open.contains_key(it) || self.hidden.contains(it);
        if !item.groups.iter().any(is_in) {
            wrong!(found, R11, [place, send], "delivers {id}, but is in none of its groups");
        }
    }

    /// R11: all processes receive a change in the view that it names. All in the regular view, and
    /// all in transitional views with equal sets, receive equal members, reasons and subjects. The
    /// process is a member before, or by its own join. Excluded: whether a disconnected process has
    /// failed.
    fn change(&mut self, model: &mut Model<'t>, found: &mut Findings<'_>, change: &'t Change) {
        let Change { group, members, change: name, reason, subject, view } = change;
        let (place, group, own) = (self.here, group.as_str(), &model.lives[self.here.life].process);
        self.see(model, view);
        let (before, after) = (self.open.get(group).copied(), members.contains(own));
        let is_own = subject.as_ref() == Some(own);
        self.asked.entry(group).or_default().0 -= i64::from(is_own);
        if !self.hidden.remove(group) && before.is_none() && !(is_own && reason == "join") {
            wrong!(found, R11, [place], "sees {name} of {group}, but is no member");
        }
        let old = self.members.insert(group, members);
        if let Some(old) = old.filter(|old| !self.follows(model, old, change)) {
            wrong!(found, R11, [place], "sees {old:?} become {members:?} by {reason} {name}");
        }
        let (item, of) = (model.item(group, name), &mut model.stays[self.stay]);
        let (now, closing) = (of.view, of.closing);
        if !after {
            self.members.remove(group);
            self.open.remove(group);
            of.tenures.extend(before.map(|begin| (group, begin..self.acts.len())));
        }
        model.items[item].daemon = subject.as_deref().and_then(|it| model.processes.get(it)?.0);
        let act = Act { place, item, stay: Some(self.stay), transitional: closing.is_some() };
        let (other, _) = self.push(model, act);
        if other != now || view != now {
            wrong!(found, R11, [place], "sees {name} in {now}, not in {view} and {other}");
        }
        if after {
            self.open.entry(group).or_insert(self.acts.len());
        }
        if !self.is_lost {
            let (first, at) = *model.changes.entry((item, closing)).or_insert((change, place));
            if first != change {
                wrong!(found, R11, [place, at], "sees {name} with {members:?}, unlike its fellow");
            }
        }
    }

    /// R14: no messages are pending or queued. The view is the last one of the process, and its
    /// members are the connected daemons. Other quiet processes of these daemons have the same view
    /// and tables. Tables list only quiet and connected processes. They list the process in the
    /// groups of which it is a member by its events and last request. Excluded: processes without a
    /// `quiet` line, except in tables; items in the range of a cut.
    fn quiet(&self, model: &mut Model<'t>, found: &mut Findings<'_>, quiet: &'t Quiet) {
        let (here, Quiet { view, pending, queues, groups, connected }) = (self.here, quiet);
        if *pending > 0 || *queues > 0 {
            wrong!(found, R14, [here], "has {pending} messages pending, {queues} bytes queued");
        }
        let members = model.views.get(view.as_str()).map(|it| it.0);
        let is_here = model.stays[self.stay].view == view && members == Some(connected);
        if !is_here && !self.is_lost {
            wrong!(found, R14, [here], "is quiet in {view} with {connected:?}, not as it moved");
        }
        let table = |it: &'t Quiet| it.groups.iter().filter(|(_, members)| !members.is_empty());
        for daemon in connected {
            let (other, at) = *model.quiet.entry(daemon).or_insert((quiet, here));
            if other.view != *view || table(other).ne(table(quiet)) {
                wrong!(found, R14, [here, at], "is quiet in {view}, with another view or table");
                break;
            }
        }
        let listed = groups.iter().flat_map(|(group, set)| set.iter().map(move |it| (group, it)));
        for (group, process) in listed {
            let last = model.processes.get(process.as_str()).map(|it| &model.lives[it.1]);
            if last.is_some_and(|it| !it.is_quiet() || !connected.contains(&it.daemon)) {
                wrong!(found, R14, [here], "has {process} in {group}, which is not there any more");
            }
        }
        let own = &model.lives[here.life].process;
        let names = groups.keys().map(String::as_str).chain(self.asked.keys().copied());
        for group in names.filter(|it| !self.hidden.contains(it)).collect::<BTreeSet<_>>() {
            let lists = groups.get(group).is_some_and(|it| it.contains(own));
            let wants = self.asked.get(group).is_some_and(|it| it.1);
            if lists != self.open.contains_key(group) || lists != wants {
                wrong!(found, R14, [here], "is in the table of {group} against events or request");
            }
        }
    }

    /// R11: true if the members follow from the previous ones. A join adds the subject; other
    /// changes with a subject remove it. The network neither adds nor removes a process of a daemon
    /// that moved along, and keeps no process of a daemon outside the view. Excluded: the first
    /// change of a group, also after a cut; changes by the network in the first view.
    fn follows(&self, model: &Model<'_>, before: &Set, change: &Change) -> bool {
        let after = &change.members;
        let mut changed = before.symmetric_difference(after);
        let daemon = |process: &String| model.processes.get(process.as_str())?.0;
        match (&change.subject, self.moved) {
            (Some(subject), _) => {
                changed.eq([subject]) && after.contains(subject) == (change.reason == "join")
            }
            (None, Some((view, set))) => {
                changed.all(|it| daemon(it).is_none_or(|it| !set.contains(it)))
                    && after.iter().all(|it| daemon(it).is_none_or(|it| view.contains(it)))
            }
            (None, None) => true,
        }
    }
}
