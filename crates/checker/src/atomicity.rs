//! Rules of sets of deliveries: R5, R6, R10, R11 between changes, and the gaps of R7, R8 and R9.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use crate::model::{Act, End, Item, Model, Place, Stay};
use crate::order::before;
use crate::trace::{Event, Service};
use crate::{Findings, Rule};

/// Checks for missing deliveries (R5, R6, R10, R13).
///
/// Due to an incarnation are the items of a full tenure. After a join within a stay that ends as a
/// member, these are due: its own later messages, and messages of service `fifo` or stronger after
/// a delivered one of the same sender.
///
/// R5: a due item that another incarnation, staying together, delivers in the view. R6: own due
/// messages, and those of a sender that stays together. R10: a due safe message that any process
/// delivers in the regular view. R13: cuts excuse as many due items as they dropped. Excluded:
/// unreliable messages; other partial tenures, except in [`gaps`] and [`epochs`]; messages never
/// accepted, or refused; processes that crash, stop or are cut off.
pub(crate) fn missing(model: &Model<'_>, found: &mut Findings<'_>) {
    let mut addressed: HashMap<(Option<&str>, &str), Vec<usize>> = HashMap::new();
    for (index, item) in model.items.iter().enumerate() {
        let is_due = item.service >= Service::Reliable && !item.is_refused();
        for group in item.groups.iter().filter(|_| is_due) {
            addressed.entry((item.view, group)).or_default().push(index);
        }
    }
    for stay in &model.stays {
        let (life, view, mut due) = (stay.begin.life, stay.view, BTreeSet::new());
        let misses = |item: &Item<'_>| {
            item.deliveries.binary_search_by_key(&life, |act| act.place.life).is_err()
        };
        for (group, tenure) in &stay.tenures {
            let items = addressed.get(&(Some(view), group)).into_iter().flatten().copied();
            let items: Vec<usize> = items.filter(|it| misses(&model.items[*it])).collect();
            let is_judged = stay.cut == 0 && !items.is_empty();
            let fifo = is_judged.then(|| gaps(model, stay, (group, tenure), &items, found));
            let fifo = fifo.unwrap_or_default();
            let joined = tenure.start.checked_sub(1).map(|it| model.acts[life][it].place.line);
            let is_due = |index: &usize| {
                let item = &model.items[*index];
                let own = item.send.filter(|send| send.life == life);
                let is_own = own.is_some_and(|send| Some(send.line) > joined);
                let first = item.sender(Service::Fifo).and_then(|it| fifo.get(&it));
                let is_later = first.is_some_and(|(least, _)| *least < item.number);
                *tenure == stay.acts || tenure.end == stay.acts.end && (is_own || is_later)
            };
            due.extend(items.into_iter().filter(|it| stay.end != End::Open && is_due(it)));
        }
        let mut count = 0;
        for index in due {
            let item = &model.items[index];
            let (name, places) = (item.name, [stay.begin, item.origin()]);
            let is_with = |act: &Act| act.stay.is_some_and(|it| stay.is_with(&model.stays[it]));
            let sender = item.sender(Service::Reliable).unwrap_or(usize::MAX);
            let first = model.stays.partition_point(|it| it.begin.life < sender);
            let mut stays = model.stays[first..].iter().take_while(|it| it.begin.life == sender);
            let rule = match item.deliveries.iter().any(is_with) {
                _ if sender == life => Some(Rule::R6),
                true => Some(Rule::R5),
                false => stays.any(|it| it.is_with(stay)).then_some(Rule::R6),
            };
            count += u64::from(rule.is_some());
            if stay.cut > 0 {
                continue;
            }
            if let Some(rule) = rule {
                found.add(rule, &places, format!("does not deliver {name} in {view}"));
            }
            let is_safe = item.service == Service::Safe;
            if is_safe && item.deliveries.iter().any(|act| !act.transitional) {
                wrong!(found, R10, places, "leaves {view} without the safe message {name}");
            }
        }
        if count > stay.cut && stay.cut > 0 {
            let cut = stay.cut;
            wrong!(found, R13, [stay.begin], "misses {count} items in {view}, is cut by {cut}");
        }
    }
}

/// Checks for gaps in a tenure (R7, R8, R9). Returns the first and last delivered number by sender.
///
/// R7: after a message that a member misses in this view, it delivers no later one of the sender to
/// the group. In a tenure that begins within the stay, none is missing between two delivered ones.
/// R8: no effect of a missed message. R9: no ordered item after a missed one, except items of
/// daemons outside the transitional set. Excluded: items of earlier views; items at the end (R5,
/// R6); stays with cuts; R8 and R9 for tenures that begin within the stay; network changes in
/// transitional views.
fn gaps(
    model: &Model<'_>,
    stay: &Stay<'_>,
    (group, tenure): (&str, &Range<usize>),
    items: &[usize],
    found: &mut Findings<'_>,
) -> HashMap<usize, (u32, u32)> {
    let mut fifo: HashMap<usize, (u32, u32)> = HashMap::new();
    let (mut known, mut last) = (vec![0; model.acts.len()], [None; 2]);
    let is_whole = tenure.start == stay.acts.start;
    let acts = &model.acts[stay.begin.life][tenure.clone()];
    for act in acts.iter().filter(|act| act.stay.is_some()) {
        let item = &model.items[act.item];
        let is_common = item.groups.contains(&group);
        if let Some(sender) = item.sender(Service::Fifo).filter(|_| is_common) {
            let (least, most) = fifo.entry(sender).or_insert((item.number, 0));
            (*least, *most) = (item.number.min(*least), item.number.max(*most));
        }
        for (known, number) in known.iter_mut().zip(model.clocks[act.item].iter().flatten()) {
            *known = (*known).max(*number);
        }
        if item.is_ordered() && is_whole {
            last[usize::from(act.transitional)] = Some(act.item);
        }
    }
    let before = last.map(|it| it.map(|it| before(model, it)).unwrap_or_default());
    for index in items {
        let item = &model.items[*index];
        let (name, number, places) = (item.name, item.number, [stay.begin, item.origin()]);
        if let Some(sender) = item.sender(Service::Fifo) {
            let (least, most) = fifo.get(&sender).copied().unwrap_or_default();
            if number < most && (is_whole || least < number) {
                wrong!(found, R7, places, "misses {name}, but delivers what was sent after it");
            }
            if is_whole && item.service >= Service::Causal && number <= known[sender] {
                wrong!(found, R8, places, "misses {name}, but delivers an effect of it");
            }
        }
        let moves = item.daemon.zip(stay.closing).is_some_and(|(it, set)| set.contains(it));
        if before[0].contains(index) || before[1].contains(index) && moves {
            wrong!(found, R9, places, "misses {name}, but delivers what is ordered after it");
        }
    }
    fifo
}

/// R11: incarnations that stay together and remain members after a change deliver the same ordered
/// messages to the group until the next change, which is the same for all, or absent in the view.
/// Excluded: weaker messages, which have no place among changes; stays with a cut.
pub(crate) fn epochs(model: &Model<'_>, found: &mut Findings<'_>) {
    // By view, end and change: items up to the next change, as first delivered.
    let mut epochs: BTreeMap<(&str, End<'_>, usize), (Vec<usize>, Place)> = BTreeMap::new();
    // By group: the last change, and the items since then.
    let mut open: BTreeMap<&str, (usize, Vec<usize>)> = BTreeMap::new();
    for stay in &model.stays {
        // The first stay of an incarnation has no view, and counts as cut.
        if stay.cut > 0 {
            open.clear();
        }
        let (life, mut ended) = (stay.begin.life, Vec::new());
        let acts = &model.acts[life][stay.acts.clone()];
        for act in acts.iter().filter(|_| stay.cut == 0) {
            let item = &model.items[act.item];
            if let Event::Group(change) = model.event(act.place) {
                let before = open.remove(change.group.as_str());
                ended.extend(before.map(|(before, items)| (before, items, Some(act.item))));
                if change.members.contains(&model.lives[life].process) {
                    open.insert(&change.group, (act.item, Vec::new()));
                }
            } else if item.is_ordered() && act.stay.is_some() {
                for group in &item.groups {
                    open.entry(group).and_modify(|(_, items)| items.push(act.item));
                }
            }
        }
        let rest = open.values_mut();
        ended.extend(rest.map(|(change, items)| (*change, std::mem::take(items), None)));
        for (change, mut items, next) in ended.into_iter().filter(|_| stay.end != End::Open) {
            items.sort_unstable();
            items.extend(next);
            let key = (stay.view, stay.end, change);
            let (others, at) = epochs.entry(key).or_insert_with(|| (items.clone(), stay.begin));
            if *others != items {
                let (places, change) = ([stay.begin, *at], model.items[change].name);
                wrong!(found, R11, places, "delivers others than its fellow after {change}");
            }
        }
    }
}
