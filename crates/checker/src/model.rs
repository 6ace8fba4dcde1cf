//! Model of a run: messages and changes of groups with their deliveries, and stays in views.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::Findings;
use crate::trace::{Change, Event, Life, Quiet, SentMessage, Service, Set};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) life: usize,
    pub(crate) line: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Refusal {
    #[default]
    None,
    /// Possible refusal, hidden by the end of the incarnation or by a cut.
    Hidden,
    Known,
}

/// Message, or change of a group (an agreed item).
#[derive(Default)]
pub(crate) struct Item<'t> {
    pub(crate) name: &'t str,
    pub(crate) groups: Vec<&'t str>,
    pub(crate) service: Service,
    /// View of the send with virtual synchrony, of acceptance, or of the first delivery.
    pub(crate) view: Option<&'t str>,
    pub(crate) send: Option<Place>,
    pub(crate) number: u32,
    pub(crate) daemon: Option<&'t str>,
    pub(crate) refusal: Refusal,
    pub(crate) deliveries: Vec<Act>,
}

impl Item<'_> {
    pub(crate) fn is_ordered(&self) -> bool {
        self.service >= Service::Agreed
    }

    /// Returns the sender if the item is a message of at least this service.
    pub(crate) fn sender(&self, least: Service) -> Option<usize> {
        self.send.filter(|_| self.service >= least).map(|send| send.life)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refusal == Refusal::Known
            || self.refusal == Refusal::Hidden && self.deliveries.is_empty()
    }

    pub(crate) fn origin(&self) -> Place {
        self.send.or(self.deliveries.first().map(|act| act.place)).unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub(crate) place: Place,
    pub(crate) item: usize,
    /// Stay in which the item is delivered; `None` for a send.
    pub(crate) stay: Option<usize>,
    pub(crate) transitional: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End<'t> {
    Moved(&'t str),
    Quiet,
    /// Crash, stop, end of the trace, or a cut that hides the move. Rules excuse all of these.
    #[default]
    Open,
}

#[derive(Default)]
pub(crate) struct Stay<'t> {
    pub(crate) begin: Place,
    pub(crate) view: &'t str,
    pub(crate) end: End<'t>,
    pub(crate) acts: Range<usize>,
    pub(crate) closing: Option<&'t Set>,
    /// Number of deliveries that cuts dropped; the maximum if a cut hides the start.
    pub(crate) cut: u64,
    pub(crate) tenures: Vec<(&'t str, Range<usize>)>,
}

impl Stay<'_> {
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        self.view == other.view && self.end == other.end && self.end != End::Open
    }
}

#[derive(Default)]
pub(crate) struct Model<'t> {
    pub(crate) lives: &'t [Life],
    pub(crate) items: Vec<Item<'t>>,
    pub(crate) acts: Vec<Vec<Act>>,
    pub(crate) stays: Vec<Stay<'t>>,
    /// By process: the daemon if all incarnations have the same one, and the last incarnation.
    pub(crate) processes: HashMap<&'t str, (Option<&'t str>, usize)>,
    /// Changes as first received in the regular view, and with each transitional set.
    pub(crate) changes: BTreeMap<(usize, Option<&'t Set>), (&'t Change, Place)>,
    pub(crate) views: BTreeMap<&'t str, (&'t Set, Place)>,
    /// Previous view by view and daemon, and transitional set by view and previous view.
    pub(crate) origins: BTreeMap<(&'t str, &'t str), (&'t str, Place)>,
    pub(crate) moves: BTreeMap<(&'t str, &'t str), (&'t Set, Place)>,
    pub(crate) quiet: BTreeMap<&'t str, (&'t Quiet, Place)>,
    /// Messages that their quiet senders did not deliver, though members of the group.
    pub(crate) owed: Vec<(usize, &'t str, Place)>,
    pub(crate) clocks: Vec<Option<Box<[u32]>>>,
    pub(crate) order: Vec<Vec<(usize, Place)>>,
    pub(crate) names: HashMap<(&'t str, &'t str), usize>,
}

impl<'t> Model<'t> {
    /// Records sends and refusals; checks that send identifiers are unique (R1). With virtual
    /// synchrony refusals may be hidden: the last lost view has no line, and arrives just before
    /// the `cut`. Sends after the last numbered event, before or after the cut, have the view that
    /// they state.
    pub(crate) fn sends(&mut self, life: usize, found: &mut Findings<'_>) {
        let of = &self.lives[life];
        let known = self.processes.entry(&of.process).or_insert((Some(&of.daemon), life));
        *known = (known.0.filter(|daemon| *daemon == of.daemon), life);
        let (mut number, mut here) = (0, None);
        let mut requests: HashMap<u64, usize> = HashMap::new();
        let mut stated: Vec<(usize, Option<&str>)> = Vec::new();
        for (index, line) in of.lines.iter().enumerate() {
            let place = Place { life, line: index };
            match &line.event {
                Event::View { id, .. } if of.virtual_synchrony => here = Some(id.as_str()),
                Event::Cut { .. } if of.virtual_synchrony => {
                    here = None;
                    stated.iter().for_each(|(item, view)| self.items[*item].view = *view);
                    self.hide(requests.drain());
                }
                Event::Refused { request } => {
                    if let Some(item) = requests.remove(request) {
                        self.items[item].refusal = Refusal::Known;
                    }
                }
                Event::Send(SentMessage { view, id, service, groups, request, .. }) => {
                    number += 1;
                    let index = self.item("", id);
                    let item = &mut self.items[index];
                    if let Some(first) = item.send {
                        wrong!(found, R1, [place, first], "sends another message {id}");
                        continue;
                    }
                    requests.insert(*request, index);
                    item.groups = groups.iter().map(String::as_str).collect();
                    (item.service, item.number, item.send) = (*service, number, Some(place));
                    (item.view, item.daemon) = (here.or(view.as_deref()), Some(of.daemon.as_str()));
                    stated.push((index, view.as_deref()));
                }
                _ => {}
            }
            if line.n > 0 {
                stated.clear();
            }
        }
        if of.virtual_synchrony && !of.is_quiet() {
            self.hide(requests.drain());
        }
    }

    /// A daemon that accepts a message for a view has refused no earlier one for this view.
    pub(crate) fn settle_refusals(&mut self) {
        let mut taken: HashMap<(usize, &str), u32> = HashMap::new();
        for item in self.items.iter().filter(|it| !it.deliveries.is_empty()) {
            if let (Some(send), Some(view)) = (item.send, item.view) {
                let last = taken.entry((send.life, view)).or_default();
                *last = item.number.max(*last);
            }
        }
        for item in self.items.iter_mut().filter(|it| it.refusal == Refusal::Hidden) {
            if let (Some(send), Some(view)) = (item.send, item.view)
                && taken.get(&(send.life, view)).is_some_and(|last| item.number < *last)
            {
                item.refusal = Refusal::None;
            }
        }
    }

    fn hide(&mut self, requests: impl Iterator<Item = (u64, usize)>) {
        requests.for_each(|(_, item)| self.items[item].refusal = Refusal::Hidden);
    }

    pub(crate) fn item(&mut self, group: &'t str, name: &'t str) -> usize {
        let next = self.items.len();
        let index = *self.names.entry((group, name)).or_insert(next);
        if index == next {
            let service = if group.is_empty() { Service::Unreliable } else { Service::Agreed };
            self.items.push(Item { name, groups: vec![group], service, ..Item::default() });
        }
        index
    }

    pub(crate) fn event(&self, place: Place) -> &'t Event {
        &self.lives[place.life].lines[place.line].event
    }
}
