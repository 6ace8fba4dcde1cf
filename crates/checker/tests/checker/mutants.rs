//! Mutants of good traces: each breaks one rule at a place where the checker must see that.

use std::collections::{BTreeMap, BTreeSet};

use faircast_checker::Rule;
use serde_json::{Value, json};

use super::model::{Lines, Rng};

/// Stay of a process in a view: lines from its `view` event to before the next one.
struct Stay {
    process: usize,
    begin: usize,
    end: usize,
    view: String,
    /// Next view, or "quiet"; `None` if the stay is open.
    next: Option<String>,
    is_cut: bool,
    /// Groups of which the process is a member all the time, as far as no cut hides that.
    full: BTreeSet<String>,
}

/// Delivery of a message.
#[derive(Clone)]
struct Delivery {
    process: usize,
    line: usize,
    id: String,
    service: String,
    groups: BTreeSet<String>,
    /// Process and line of the send.
    send: (usize, usize),
    /// Sender with its incarnation.
    sender: String,
    stay: usize,
    transitional: bool,
}

/// Facts about a good trace.
pub(crate) struct Facts {
    stays: Vec<Stay>,
    deliveries: Vec<Delivery>,
    by_id: BTreeMap<String, Vec<usize>>,
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

fn is(line: &Value, event: &str) -> bool {
    text(line, "event") == event
}

fn list(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_string()).collect()
}

impl Facts {
    pub(crate) fn new(lines: &Lines) -> Self {
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
                        let (begin, full) = (line, members.clone());
                        open = Some(Stay {
                            process,
                            begin,
                            end: line,
                            view,
                            next: None,
                            is_cut: false,
                            full,
                        });
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
                        if let Some(stay) = &mut open {
                            stay.is_cut = true;
                        }
                    }
                    "group" => {
                        let group = text(it, "group").to_string();
                        let is_in = list(&it["members"]).contains(name);
                        let changes = !is_in || text(it, "subject") == name;
                        if let Some(stay) = open.as_mut().filter(|_| changes) {
                            stay.full.remove(&group);
                        }
                        if is_in {
                            members.insert(group)
                        } else {
                            members.remove(&group)
                        };
                    }
                    // A cut may hide the first view.
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

    fn stay(&self, delivery: &Delivery) -> &Stay {
        &self.stays[delivery.stay]
    }

    /// True for a delivery of a full member, in a stay without a cut.
    fn is_full(&self, it: &Delivery) -> bool {
        let stay = self.stay(it);
        !stay.is_cut && it.groups.iter().any(|group| stay.full.contains(group))
    }

    fn together(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.stays[one], &self.stays[other]);
        one.view == other.view && one.next.is_some() && one.next == other.next
    }

    /// Other deliveries of the message.
    fn others<'a>(&'a self, it: &'a Delivery) -> impl Iterator<Item = &'a Delivery> {
        let all = self.by_id[&it.id].iter().map(|index| &self.deliveries[*index]);
        all.filter(move |other| (other.process, other.line) != (it.process, it.line))
    }

    fn find(&self, id: &str, stay: usize) -> Option<&Delivery> {
        self.by_id.get(id)?.iter().map(|it| &self.deliveries[*it]).find(|it| it.stay == stay)
    }

    /// Pairs of deliveries in one stay, the earlier one first, with equal phases.
    fn pairs(&self) -> impl Iterator<Item = (&Delivery, &Delivery)> {
        self.deliveries.iter().enumerate().flat_map(move |(index, one)| {
            let rest = self.deliveries[index + 1..].iter().take(40);
            let rest = rest.take_while(|it| it.stay == one.stay);
            rest.filter(|it| it.transitional == one.transitional).map(move |other| (one, other))
        })
    }
}

fn is_ordered(it: &Delivery) -> bool {
    ["agreed", "safe"].contains(&it.service.as_str())
}

/// Numbers the deliveries of a process anew, after lines were added or taken away.
fn renumber(lines: &mut [Value]) {
    let mut next = 1;
    for line in lines {
        match text(line, "event") {
            "start" => next = 1,
            "cut" => {
                let length = line["to"].as_u64().unwrap() - line["from"].as_u64().unwrap();
                (line["from"], line["to"]) = (json!(next), json!(next + length));
                next += length + 1;
            }
            "resume" => line["next"] = json!(next),
            "deliver" | "group" | "view" | "transitional" => {
                line["n"] = json!(next);
                next += 1;
            }
            _ => {}
        }
    }
}

fn remove(lines: &mut Lines, it: &Delivery) {
    lines[it.process].1.remove(it.line);
    renumber(&mut lines[it.process].1);
}

fn insert(lines: &mut Lines, process: usize, line: usize, mut event: Value) {
    let like = lines[process].1[line - 1].clone();
    (event["process"], event["incarnation"]) =
        (like["process"].clone(), like["incarnation"].clone());
    lines[process].1.insert(line, event);
    renumber(&mut lines[process].1);
}

fn swap(lines: &mut Lines, one: &Delivery, other: &Delivery) {
    lines[one.process].1.swap(one.line, other.line);
    renumber(&mut lines[one.process].1);
}

/// One of the candidates, if there is any.
fn pick<T>(rng: &mut Rng, candidates: impl Iterator<Item = T>) -> Option<T> {
    let mut candidates: Vec<T> = candidates.collect();
    let at = rng.below(candidates.len());
    (!candidates.is_empty()).then(|| candidates.swap_remove(at))
}

/// All lines of an event with process and line.
fn sites<'a>(lines: &'a Lines, event: &'a str) -> impl Iterator<Item = (usize, usize, &'a Value)> {
    let all = lines.iter().enumerate().flat_map(|(process, (_, of))| {
        of.iter().enumerate().map(move |(line, it)| (process, line, it))
    });
    all.filter(move |(_, _, it)| is(it, event))
}

/// Line of an event, chosen among those for which `counts` holds, to be changed.
fn change(
    lines: &mut Lines,
    rng: &mut Rng,
    event: &str,
    counts: impl Fn(&Value) -> bool,
    with: impl FnOnce(&mut Value),
) -> Option<()> {
    let (process, line, _) = pick(rng, sites(lines, event).filter(|it| counts(it.2)))?;
    with(&mut lines[process].1[line]);
    Some(())
}

fn add(set: &mut Value, name: &str) {
    set.as_array_mut().unwrap().push(name.into());
}

fn take(set: &mut Value, name: &str) {
    set.as_array_mut().unwrap().retain(|it| it != name);
}

/// Moves a delivery of a message whose view is known behind the next view.
fn delay(lines: &mut Lines, f: &Facts, it: &Delivery) -> Option<()> {
    text(&lines[it.send.0].1[it.send.1], "view").split_once('.')?;
    let stay = f.stay(it);
    let next = stay.next.clone().filter(|it| it != "quiet")?;
    let mut event = lines[it.process].1[it.line].clone();
    (event["view"], event["transitional"]) = (json!(next), json!(false));
    lines[it.process].1.insert(stay.end + 1, event);
    remove(lines, it);
    Some(())
}

/// True if the sender of a message has virtual synchrony.
fn is_synchronous(lines: &Lines, (process, line): (usize, usize)) -> bool {
    lines[process].1[..line].iter().rfind(|it| is(it, "start")).unwrap()["virtual_synchrony"]
        == true
}

/// Message that the deliverer of `one` knows when it sends `other`.
fn is_cause(f: &Facts, one: &Delivery, other: &Delivery) -> bool {
    let causal = ["causal", "agreed", "safe"];
    let (sender, line) = other.send;
    causal.contains(&one.service.as_str())
        && causal.contains(&other.service.as_str())
        && one.send.0 != sender
        && f.others(one)
            .any(|it| it.process == sender && it.line < line && f.stays[it.stay].end > line)
}

fn is_own_join(line: &Value, groups: &BTreeSet<String>) -> bool {
    line["reason"] == "join"
        && line["subject"] == line["process"]
        && groups.contains(text(line, "group"))
}

/// True for a delivery to a process that joined the only group of the message within the view,
/// sent it later if it is its own, and remains a member to the end of the view.
fn is_joiner(lines: &Lines, f: &Facts, it: &Delivery) -> bool {
    let (stay, of) = (f.stay(it), &lines[it.process].1);
    let joins = of[stay.begin..it.line].iter().rposition(|line| is_own_join(line, &it.groups));
    let leaves = of[stay.begin..stay.end]
        .iter()
        .any(|line| line["reason"] == "leave" && line["subject"] == line["process"]);
    let is_sent_later =
        it.send.0 != it.process || joins.is_some_and(|joins| it.send.1 > stay.begin + joins);
    it.groups.len() == 1
        && joins.is_some()
        && !leaves
        && is_sent_later
        && !stay.is_cut
        && stay.next.is_some()
}

type Mutate = fn(&mut Lines, &Facts, &mut Rng) -> Option<()>;

/// Mutants: name, rule, and the change, which returns `None` where the trace has no place for it.
pub(crate) const MUTANTS: &[(&str, Rule, Mutate)] = &[
    ("a delivery is duplicated", Rule::R1, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter())?;
        let event = lines[it.process].1[it.line].clone();
        insert(lines, it.process, it.line + 1, event);
        Some(())
    }),
    ("a message is delivered that nobody sent", Rule::R1, |lines, _, rng| {
        change(lines, rng, "deliver", |_| true, |it| it["id"] = json!("nobody/1"))
    }),
    ("a hash differs", Rule::R1, |lines, _, rng| {
        change(lines, rng, "deliver", |_| true, |it| it["hash"] = json!("other"))
    }),
    ("an identifier is sent twice", Rule::R1, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter())?;
        let event = lines[it.send.0].1[it.send.1].clone();
        insert(lines, it.process, it.line + 1, event);
        Some(())
    }),
    ("a process delivers its own message before the send", Rule::R1, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter().filter(|it| it.process == it.send.0))?;
        let send = lines[it.process].1.remove(it.send.1);
        lines[it.process].1.insert(it.line, send);
        Some(())
    }),
    ("a delivery comes before the send by way of another process", Rule::R1, |lines, f, rng| {
        // The sender delivers an answer before it sends what was answered.
        let lives = |it: &Delivery| {
            let line = &lines[it.process].1[it.line];
            format!("{}/{}", line["process"], line["incarnation"])
        };
        let answered = f.deliveries.iter().filter_map(|it| {
            let answer = f.deliveries.iter().find(|answer| {
                answer.process == it.send.0
                    && answer.send.0 == it.process
                    && it.process != it.send.0
                    && answer.send.1 > it.line
                    && answer.line > it.send.1
                    && answer.sender == lives(it)
                    && !lines[it.send.0].1[it.send.1..answer.line].iter().any(|it| is(it, "start"))
            })?;
            Some((it, answer))
        });
        let (it, answer) = pick(rng, answered)?;
        let send = lines[it.send.0].1.remove(it.send.1);
        lines[it.send.0].1.insert(answer.line, send);
        Some(())
    }),
    ("a delivery names another view", Rule::R2, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter().filter(|it| !f.stay(it).is_cut))?;
        lines[it.process].1[it.line]["view"] = json!("1000.d1");
        Some(())
    }),
    ("a delivery is said to be transitional", Rule::R2, |lines, f, rng| {
        let mut regular = f.deliveries.iter().filter(|it| !it.transitional && !f.stay(it).is_cut);
        let it = pick(rng, &mut regular)?;
        lines[it.process].1[it.line]["transitional"] = json!(true);
        Some(())
    }),
    ("a delivery comes in the next view", Rule::R2, |lines, f, rng| {
        let moves = |it: &&Delivery| f.stay(it).next.as_deref().is_some_and(|it| it != "quiet");
        let other = f.deliveries.iter().filter(|it| !is_synchronous(lines, it.send));
        let it = pick(rng, other.filter(moves))?;
        delay(lines, f, it)
    }),
    ("a view is without the own daemon", Rule::R3, |lines, _, rng| {
        change(
            lines,
            rng,
            "view",
            |_| true,
            |it| {
                let daemon = text(it, "process").split_once('@').unwrap().1.to_string();
                take(&mut it["members"], &daemon);
            },
        )
    }),
    ("one identifier has two lists of members", Rule::R3, |lines, f, rng| {
        let shared = f.stays.iter().filter(|it| {
            f.stays.iter().any(|other| other.process != it.process && other.view == it.view)
        });
        let it = pick(rng, shared)?;
        add(&mut lines[it.process].1[it.begin]["members"], "d9");
        Some(())
    }),
    ("identifiers of views decrease", Rule::R3, |lines, _, rng| {
        change(lines, rng, "view", |it| !it["previous"].is_null(), |it| it["id"] = json!("0.d1"))
    }),
    ("the previous view is another one", Rule::R3, |lines, f, rng| {
        let it = pick(rng, f.stays.iter().filter(|it| it.next.is_some() && !it.is_cut))?;
        let next = lines[it.process].1.get_mut(it.end).filter(|it| is(it, "view"))?;
        next["previous"] = json!("0.d1");
        Some(())
    }),
    ("an identifier has no number", Rule::R3, |lines, _, rng| {
        change(lines, rng, "view", |_| true, |it| it["id"] = json!("view"))
    }),
    ("a transitional set is not symmetric", Rule::R4, |lines, _, rng| {
        let views: Vec<Value> = sites(lines, "view").map(|it| it.2.clone()).collect();
        let daemon = |it: &Value| text(it, "process").split_once('@').unwrap().1.to_string();
        let fellow = |it: &Value| {
            let same = |other: &&Value| {
                other["id"] == it["id"]
                    && other["previous"] == it["previous"]
                    && daemon(other) != daemon(it)
            };
            views.iter().filter(|_| !it["previous"].is_null()).find(same).map(daemon)
        };
        change(
            lines,
            rng,
            "view",
            |it| fellow(it).is_some(),
            |it| {
                let gone = fellow(it).unwrap();
                take(&mut it["transitional_set"], &gone);
            },
        )
    }),
    ("a transitional set has a daemon from another view", Rule::R4, |lines, _, rng| {
        let views: Vec<Value> = sites(lines, "view").map(|it| it.2.clone()).collect();
        let daemon = |it: &Value| text(it, "process").split_once('@').unwrap().1.to_string();
        let other = |it: &Value| {
            let from = |other: &&Value| {
                other["id"] == it["id"]
                    && !other["previous"].is_null()
                    && other["previous"] != it["previous"]
            };
            views.iter().filter(|_| !it["previous"].is_null()).find(from).map(daemon)
        };
        change(
            lines,
            rng,
            "view",
            |it| other(it).is_some(),
            |it| {
                let more = other(it).unwrap();
                add(&mut it["transitional_set"], &more);
            },
        )
    }),
    ("a transitional set is without the own daemon", Rule::R4, |lines, _, rng| {
        change(lines, rng, "view", |_| true, |it| it["transitional_set"] = json!([]))
    }),
    ("a transitional view has other members than the move", Rule::R4, |lines, f, rng| {
        let it = pick(
            rng,
            f.stays.iter().filter(|it| {
                let mut of = lines[it.process].1[it.begin..it.end].iter();
                it.next.is_some()
                    && it.next.as_deref() != Some("quiet")
                    && !it.is_cut
                    && of.any(|it| is(it, "transitional"))
            }),
        )?;
        let mut of = lines[it.process].1[it.begin..it.end].iter_mut();
        add(&mut of.find(|it| is(it, "transitional"))?["members"], "d9");
        Some(())
    }),
    ("a process misses a message that its fellow delivers", Rule::R5, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                it.service == "reliable"
                    && f.is_full(it)
                    && it.send.0 != it.process
                    && f.others(it).any(|other| f.together(it.stay, other.stay))
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("a quiet process misses the last message", Rule::R5, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                it.service != "unreliable"
                    && f.is_full(it)
                    && it.send.0 != it.process
                    && f.stay(it).next.as_deref() == Some("quiet")
                    && f.others(it).any(|other| f.together(it.stay, other.stay))
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("a process misses its own message", Rule::R6, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                it.service != "unreliable"
                    && f.is_full(it)
                    && it.send.0 == it.process
                    && f.stay(it).next.is_some()
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("a process that joined within the view misses its own message", Rule::R6, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                it.service != "unreliable" && is_joiner(lines, f, it) && it.send.0 == it.process
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("a process that joined within the view misses the last message", Rule::R5, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                let ordered = ["fifo", "causal", "agreed", "safe"];
                let mut before = f.deliveries.iter().filter(|one| {
                    let own = &lines[it.process].1;
                    let joins = own[..it.line]
                        .iter()
                        .rposition(|one| is(one, "group") && is_own_join(one, &it.groups));
                    one.stay == it.stay
                        && one.line < it.line
                        && one.sender == it.sender
                        && Some(one.line) > joins
                        && one.groups == it.groups
                        && ordered.contains(&one.service.as_str())
                });
                is_joiner(lines, f, it)
                    && it.send.0 != it.process
                    && ordered.contains(&it.service.as_str())
                    && before.next().is_some()
                    && f.others(it).any(|other| f.together(it.stay, other.stay))
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("a message of a sender outside the group is lost", Rule::R6, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                let sender = f.stays.iter().position(|stay| {
                    stay.process == it.send.0
                        && stay.view == f.stay(it).view
                        && lines[stay.process].1[stay.begin]["incarnation"]
                            == lines[it.send.0].1[it.send.1]["incarnation"]
                });
                it.service != "unreliable"
                    && f.is_full(it)
                    && sender.is_some_and(|stay| f.together(stay, it.stay))
                    && f.by_id[&it.id].iter().all(|other| f.deliveries[*other].process != it.send.0)
            }),
        )?;
        let id = it.id.clone();
        for (_, of) in lines.iter_mut() {
            of.retain(|line| !is(line, "deliver") || text(line, "id") != id);
            renumber(of);
        }
        Some(())
    }),
    ("two messages of a sender are swapped", Rule::R7, |lines, f, rng| {
        let (one, other) = pick(
            rng,
            f.pairs().filter(|(one, other)| {
                one.service == "fifo" && other.service == "fifo" && one.sender == other.sender
            }),
        )?;
        swap(lines, one, other);
        Some(())
    }),
    ("a message overtakes a stronger one of its sender", Rule::R7, |lines, f, rng| {
        let (one, other) = pick(
            rng,
            f.pairs().filter(|(one, other)| {
                is_ordered(one) && other.service == "fifo" && one.sender == other.sender
            }),
        )?;
        swap(lines, one, other);
        Some(())
    }),
    ("a message is missing before a later one of its sender", Rule::R7, |lines, f, rng| {
        let (one, _) = pick(
            rng,
            f.pairs().filter(|(one, other)| {
                one.service == "fifo"
                    && other.service != "unreliable"
                    && other.service != "reliable"
                    && one.sender == other.sender
                    && one.groups == other.groups
                    && f.is_full(one)
            }),
        )?;
        remove(lines, one);
        Some(())
    }),
    ("a cause is delivered after its effect", Rule::R8, |lines, f, rng| {
        // A send in between could be a cause of the other message, which comes before it then.
        let is_free = |one: &Delivery, other: &Delivery| {
            !lines[one.process].1[one.line..other.line].iter().any(|it| is(it, "send"))
        };
        let causes =
            f.pairs().filter(|(one, other)| is_cause(f, one, other) && is_free(one, other));
        let (one, other) = pick(rng, causes)?;
        swap(lines, one, other);
        Some(())
    }),
    ("an effect is delivered without its cause", Rule::R8, |lines, f, rng| {
        let causes = f.pairs().filter(|(one, other)| is_cause(f, one, other) && f.is_full(one));
        let (one, _) = pick(rng, causes)?;
        remove(lines, one);
        Some(())
    }),
    ("two agreed messages are swapped at one process", Rule::R9, |lines, f, rng| {
        let (one, other) = pick(
            rng,
            f.pairs().filter(|(one, other)| {
                let has = |stay: usize| f.find(&other.id, stay).is_some();
                is_ordered(one) && is_ordered(other) && f.others(one).any(|it| has(it.stay))
            }),
        )?;
        swap(lines, one, other);
        Some(())
    }),
    ("three processes deliver three messages in a cycle", Rule::R9, |lines, f, rng| {
        let triples =
            f.pairs().filter(|(a, b)| is_ordered(a) && is_ordered(b)).filter_map(|(a, b)| {
                let c = f
                    .pairs()
                    .find(|(it, c)| it.line == b.line && it.process == b.process && is_ordered(c))?
                    .1;
                let has = |it: &&Delivery| {
                    f.find(&b.id, it.stay).is_some() && f.find(&c.id, it.stay).is_some()
                };
                let mut others =
                    f.others(a).filter(has).map(|it| it.process).filter(|it| *it != a.process);
                Some((a, b, c, others.next()?, others.next()?))
            });
        let (a, b, c, second, third) = pick(rng, triples)?;
        let first = a.process;
        swap(lines, a, c);
        for (process, (_, of)) in lines.iter_mut().enumerate() {
            // The first process keeps c and a, the second one a and b, the third one b and c.
            let gone: &[&str] = match process {
                it if it == first => &[&b.id],
                it if it == second => &[&c.id],
                it if it == third => &[&a.id],
                _ => &[&a.id, &b.id, &c.id],
            };
            of.retain(|line| !is(line, "deliver") || !gone.contains(&text(line, "id")));
            renumber(of);
        }
        Some(())
    }),
    ("an agreed message is missing in a regular view", Rule::R9, |lines, f, rng| {
        let (one, _) = pick(
            rng,
            f.pairs().filter(|(one, other)| {
                is_ordered(one)
                    && is_ordered(other)
                    && !one.transitional
                    && f.is_full(one)
                    && f.others(one).any(|it| f.find(&other.id, it.stay).is_some())
            }),
        )?;
        remove(lines, one);
        Some(())
    }),
    (
        "an agreed message of a fellow is missing in a transitional view",
        Rule::R9,
        |lines, f, rng| {
            let (one, _) = pick(
                rng,
                f.pairs().filter(|(one, other)| {
                    let stay = f.stay(one);
                    let sender = lines[one.send.0].0.split_once('@').unwrap().1;
                    let set = lines[one.process].1[stay.begin..one.line]
                        .iter()
                        .find(|it| is(it, "transitional"));
                    is_ordered(one)
                        && is_ordered(other)
                        && one.transitional
                        && f.is_full(one)
                        && set.is_some_and(|it| list(&it["members"]).contains(sender))
                        && f.others(one).any(|it| f.find(&other.id, it.stay).is_some())
                }),
            )?;
            remove(lines, one);
            Some(())
        },
    ),
    ("a member of the view misses a safe message", Rule::R10, |lines, f, rng| {
        let it = pick(
            rng,
            f.deliveries.iter().filter(|it| {
                it.service == "safe"
                    && f.is_full(it)
                    && f.stay(it).next.is_some()
                    && f.others(it).any(|other| !other.transitional)
            }),
        )?;
        remove(lines, it);
        Some(())
    }),
    ("members do not follow from those before", Rule::R11, |lines, f, rng| {
        let (process, line) = pick(
            rng,
            f.stays.iter().filter(|it| !it.is_cut).filter_map(|it| {
                let of = &lines[it.process].1[it.begin..it.end];
                let mut changes = of.iter().enumerate().filter(|(_, it)| is(it, "group"));
                let (_, first) = changes.next()?;
                let next = changes
                    .find(|(_, it)| it["group"] == first["group"] && !it["subject"].is_null())?;
                list(&first["members"])
                    .contains(&lines[it.process].0)
                    .then_some((it.process, it.begin + next.0))
            }),
        )?;
        add(&mut lines[process].1[line]["members"], "c9@d9");
        Some(())
    }),
    ("one process sees other members by a change", Rule::R11, |lines, f, rng| {
        let regular = |process: usize, line: usize| {
            let stay = f
                .stays
                .iter()
                .find(|it| it.process == process && (it.begin..it.end).contains(&line));
            stay.is_some_and(|it| {
                let mut of = lines[process].1[it.begin..line].iter();
                of.all(|it| !is(it, "transitional") && !is(it, "cut"))
            })
        };
        let changes: Vec<(usize, usize, &Value)> =
            sites(lines, "group").filter(|it| regular(it.0, it.1)).collect();
        let (process, line, _) = *pick(
            rng,
            changes.iter().filter(|it| {
                let same = |other: &&(usize, usize, &Value)| {
                    other.0 != it.0
                        && other.2["change"] == it.2["change"]
                        && other.2["group"] == it.2["group"]
                };
                changes.iter().any(|other| same(&other))
            }),
        )?;
        add(&mut lines[process].1[line]["members"], "c9@d9");
        Some(())
    }),
    ("a join is not ordered equally", Rule::R11, |lines, f, rng| {
        // A message to the group changes places with the change directly before it.
        let swapped = |it: &&Delivery| {
            let before = &lines[it.process].1[it.line - 1];
            let group = text(before, "group");
            let is_full = |it: &Delivery| !f.stay(it).is_cut && f.stay(it).full.contains(group);
            is_ordered(it)
                && it.groups.contains(group)
                && before["reason"] == "join"
                && is_full(it)
                && f.others(it).any(|other| f.together(it.stay, other.stay) && is_full(other))
        };
        let it = pick(rng, f.deliveries.iter().filter(swapped))?;
        lines[it.process].1.swap(it.line - 1, it.line);
        renumber(&mut lines[it.process].1);
        Some(())
    }),
    ("a process does not see a change", Rule::R11, |lines, f, rng| {
        let mut seen: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, stay) in
            f.stays.iter().enumerate().filter(|(_, it)| !it.is_cut && it.next.is_some())
        {
            for line in stay.begin..stay.end {
                let it = &lines[stay.process].1[line];
                let group = text(it, "group");
                // The change before is in the same stay, so that it is known what follows it.
                let mut earlier = lines[stay.process].1[stay.begin..line].iter();
                if is(it, "group")
                    && earlier.any(|it| is(it, "group") && text(it, "group") == group)
                    && stay.full.contains(group)
                {
                    seen.entry(format!("{group} {}", text(it, "change")))
                        .or_default()
                        .push((index, line));
                }
            }
        }
        let pairs = seen.values().filter_map(|of| {
            let (stay, line) = of[0];
            of[1..].iter().any(|other| f.together(stay, other.0)).then_some((stay, line))
        });
        let (stay, line) = pick(rng, pairs)?;
        let process = f.stays[stay].process;
        lines[process].1.remove(line);
        renumber(&mut lines[process].1);
        Some(())
    }),
    ("a message reaches a process outside the group", Rule::R11, |lines, f, rng| {
        let outside = f.deliveries.iter().filter_map(|it| {
            let stay = f.stays.iter().find(|stay| {
                let of = &lines[stay.process].1;
                let begin = of[..stay.begin].iter().rposition(|it| is(it, "start")).unwrap_or(0);
                stay.view == f.stay(it).view
                    && !of[begin..stay.end]
                        .iter()
                        .any(|it| is(it, "cut") || is(it, "group") || is(it, "transitional"))
            })?;
            Some((it, stay))
        });
        let (it, stay) = pick(rng, outside)?;
        let mut event = lines[it.process].1[it.line].clone();
        event["transitional"] = json!(false);
        insert(lines, stay.process, stay.end, event);
        Some(())
    }),
    ("a virtual synchrony client's message comes in the next view", Rule::R12, |lines, f, rng| {
        let moves = |it: &&Delivery| f.stay(it).next.as_deref().is_some_and(|it| it != "quiet");
        let other = f.deliveries.iter().filter(|it| is_synchronous(lines, it.send));
        let it = pick(rng, other.filter(moves))?;
        delay(lines, f, it)
    }),
    ("a cut is announced too small", Rule::R13, |lines, _, rng| {
        change(lines, rng, "cut", |_| true, |it| it["to"] = json!(it["to"].as_u64().unwrap() - 1))
    }),
    ("a cut is announced too large", Rule::R13, |lines, _, rng| {
        change(lines, rng, "cut", |_| true, |it| it["to"] = json!(it["to"].as_u64().unwrap() + 1))
    }),
    ("cuts drop more than the numbers say", Rule::R13, |lines, f, rng| {
        let stays = f.stays.iter().enumerate().filter(|(index, stay)| {
            let of = &lines[stay.process].1;
            let start = of[..stay.begin].iter().rposition(|it| is(it, "start")).unwrap();
            let cuts = (stay.begin..stay.end).filter(|line| is(&of[*line], "cut"));
            // Groups of which no cut can hide a join or leave.
            let is_sure = |group: &&String| {
                cuts.clone().all(|line| {
                    let own = of[start..line].iter().filter(|it| text(it, "group") == *group);
                    let asked = own.clone().filter(|it| is(it, "join") || is(it, "leave")).count();
                    let done = own.filter(|it| is(it, "group") && it["subject"] == it["process"]);
                    asked == done.count()
                })
            };
            let groups: BTreeSet<&String> = stay.full.iter().filter(is_sure).collect();
            // Of the messages that fellows deliver to these groups, more are cut out than cuts are.
            let missing = f.by_id.values().filter(|all| {
                let mut all = all.iter().map(|it| &f.deliveries[*it]);
                all.clone().all(|it| it.process != stay.process)
                    && all.any(|it| {
                        it.service != "unreliable"
                            && f.together(it.stay, *index)
                            && it.groups.iter().any(|group| groups.contains(group))
                    })
            });
            missing.count() > cuts.count()
        });
        let (_, stay) = pick(rng, stays.filter(|(_, stay)| stay.is_cut))?;
        for it in &mut lines[stay.process].1[stay.begin..stay.end] {
            if is(it, "cut") {
                it["to"] = it["from"].clone();
            }
        }
        renumber(&mut lines[stay.process].1);
        Some(())
    }),
    ("a resume repeats a delivery", Rule::R1, |lines, f, rng| {
        let (process, line, before) = pick(
            rng,
            sites(lines, "resume").filter_map(|(process, line, it)| {
                let mut before = f.deliveries.iter().filter(|before| {
                    before.process == process
                        && before.line < line
                        && lines[process].1[before.line]["incarnation"] == it["incarnation"]
                });
                Some((process, line, before.next_back()?))
            }),
        )?;
        let event = lines[process].1[before.line].clone();
        insert(lines, process, line + 1, event);
        Some(())
    }),
    ("a resume begins too late", Rule::R13, |lines, _, rng| {
        change(
            lines,
            rng,
            "resume",
            |_| true,
            |it| it["next"] = json!(it["next"].as_u64().unwrap() + 1),
        )
    }),
    ("a number is left out", Rule::R13, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter())?;
        for line in &mut lines[it.process].1[it.line..] {
            if is(line, "start") {
                break;
            }
            if !line["n"].is_null() {
                line["n"] = json!(line["n"].as_u64().unwrap() + 1);
            }
        }
        Some(())
    }),
    ("a quiet process has a pending message", Rule::R14, |lines, _, rng| {
        change(lines, rng, "quiet", |_| true, |it| it["pending"] = json!(1))
    }),
    ("a quiet process has bytes in its queues", Rule::R14, |lines, _, rng| {
        change(lines, rng, "quiet", |_| true, |it| it["queues"] = json!(100))
    }),
    ("a quiet process is in another view than its fellows", Rule::R14, |lines, _, rng| {
        let all: Vec<Value> = sites(lines, "quiet").map(|it| it.2.clone()).collect();
        let alone = |it: &Value| all.iter().filter(|other| other["view"] == it["view"]).count() < 2;
        change(lines, rng, "quiet", |it| !alone(it), |it| it["view"] = json!("0.d1"))
    }),
    ("a view lacks a connected daemon", Rule::R14, |lines, f, rng| {
        let it = pick(
            rng,
            f.stays.iter().filter(|it| it.next.as_deref() == Some("quiet") && !it.is_cut),
        )?;
        add(&mut lines[it.process].1[it.end]["connected"], "d9");
        Some(())
    }),
    ("a table of groups differs from that of others", Rule::R14, |lines, _, rng| {
        let all: Vec<Value> = sites(lines, "quiet").map(|it| it.2.clone()).collect();
        let alone = |it: &Value| all.iter().filter(|other| other["view"] == it["view"]).count() < 2;
        change(lines, rng, "quiet", |it| !alone(it), |it| it["groups"]["g1"] = json!(["c9@d9"]))
    }),
    ("a process that has ended is in all tables", Rule::R14, |lines, _, _| {
        let ended = lines
            .iter()
            .find(|(_, of)| of.last().is_some_and(|it| is(it, "crash") || is(it, "stop")));
        let ended = ended?.0.clone();
        let mut applied = None;
        for it in lines.iter_mut().filter_map(|(_, of)| of.last_mut()).filter(|it| is(it, "quiet"))
        {
            let mut members = list(&it["groups"]["g2"]);
            members.insert(ended.clone());
            it["groups"]["g2"] = json!(members);
            applied = Some(());
        }
        applied
    }),
    ("a join is never done", Rule::R14, |lines, _, rng| {
        let (process, line, _) = pick(rng, sites(lines, "quiet"))?;
        insert(lines, process, line, json!({"event": "join", "group": "g7"}));
        Some(())
    }),
];
