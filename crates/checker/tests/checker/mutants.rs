//! Mutants of good traces: each breaks one rule at a place where the checker must detect it.

use std::collections::{BTreeMap, BTreeSet};

use faircast_checker::Rule;
use serde_json::{Value, json};

use super::edits::*;
use super::facts::{Delivery, Facts, Stay, is, list, text};
use super::model::{Lines, Rng};

type Mutate = fn(&mut Lines, &Facts, &mut Rng) -> Option<()>;

/// Mutants: name, rule, and the change, which returns `None` if the trace has no suitable place.
pub(crate) const MUTANTS: &[(&str, Rule, Mutate)] = &[
    ("a delivery is duplicated", Rule::R1, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter())?;
        let event = lines[it.process].1[it.line].clone();
        insert(lines, it.process, it.line + 1, event);
        Some(())
    }),
    ("a message is delivered that nobody sent", Rule::R1, |lines, _, rng| {
        change((lines, rng, "deliver"), |_| true, |it| it["id"] = json!("nobody/1"))
    }),
    ("a hash differs", Rule::R1, |lines, _, rng| {
        change((lines, rng, "deliver"), |_| true, |it| it["hash"] = json!("other"))
    }),
    ("a delivered message is refused", Rule::R1, |lines, f, rng| {
        let it = pick(rng, f.deliveries.iter().filter(|it| it.process == it.send.0))?;
        let of = &lines[it.process].1;
        let mut event = of[it.send.1].clone();
        let is_hidden = of[it.send.1..it.line].iter().any(|it| is(it, "cut"));
        let own = of[it.line]["incarnation"] == event["incarnation"] && !is_hidden;
        event["event"] = json!("refused");
        insert(lines, it.process, it.line + 1, event);
        own.then_some(())
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
        let lacks = |it: &mut Value| {
            let daemon = daemon(it);
            take(&mut it["members"], &daemon);
        };
        change((lines, rng, "view"), |_| true, lacks)
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
        change((lines, rng, "view"), |it| !it["previous"].is_null(), |it| it["id"] = json!("0.d1"))
    }),
    ("the previous view is another one", Rule::R3, |lines, f, rng| {
        let it = pick(rng, f.stays.iter().filter(|it| it.next.is_some() && !it.is_cut))?;
        let next = lines[it.process].1.get_mut(it.end).filter(|it| is(it, "view"))?;
        next["previous"] = json!("0.d1");
        Some(())
    }),
    ("an identifier has no number", Rule::R3, |lines, _, rng| {
        change((lines, rng, "view"), |_| true, |it| it["id"] = json!("view"))
    }),
    ("a transitional set is not symmetric", Rule::R4, |lines, _, rng| {
        let views: Vec<Value> = sites(lines, "view").map(|it| it.2.clone()).collect();
        let fellow = |it: &Value| {
            let same = |other: &&Value| {
                other["id"] == it["id"]
                    && other["previous"] == it["previous"]
                    && daemon(other) != daemon(it)
            };
            views.iter().filter(|_| !it["previous"].is_null()).find(same).map(daemon)
        };
        let lacks = |it: &mut Value| {
            let gone = fellow(it).unwrap();
            take(&mut it["transitional_set"], &gone);
        };
        change((lines, rng, "view"), |it| fellow(it).is_some(), lacks)
    }),
    ("a transitional set has a daemon from another view", Rule::R4, |lines, _, rng| {
        let views: Vec<Value> = sites(lines, "view").map(|it| it.2.clone()).collect();
        let other = |it: &Value| {
            let from = |other: &&Value| {
                other["id"] == it["id"]
                    && !other["previous"].is_null()
                    && other["previous"] != it["previous"]
            };
            views.iter().filter(|_| !it["previous"].is_null()).find(from).map(daemon)
        };
        let more = |it: &mut Value| {
            let more = other(it).unwrap();
            add(&mut it["transitional_set"], &more);
        };
        change((lines, rng, "view"), |it| other(it).is_some(), more)
    }),
    ("a transitional set is without the own daemon", Rule::R4, |lines, _, rng| {
        change((lines, rng, "view"), |_| true, |it| it["transitional_set"] = json!([]))
    }),
    ("a transitional view has other members than the move", Rule::R4, |lines, f, rng| {
        let moves = f.stays.iter().filter(|it| {
            let mut of = lines[it.process].1[it.begin..it.end].iter();
            let moves = it.next.as_deref().is_some_and(|it| it != "quiet");
            moves && !it.is_cut && of.any(|it| is(it, "transitional"))
        });
        let it = pick(rng, moves)?;
        let mut of = lines[it.process].1[it.begin..it.end].iter_mut();
        add(&mut of.find(|it| is(it, "transitional"))?["members"], "d9");
        Some(())
    }),
    ("a process misses a message that its fellow delivers", Rule::R5, |lines, f, rng| {
        remove_one((lines, f, rng), |_, it| {
            it.service == "reliable"
                && f.is_full(it)
                && it.send.0 != it.process
                && f.others(it).any(|other| f.together(it.stay, other.stay))
        })
    }),
    ("a quiet process misses the last message", Rule::R5, |lines, f, rng| {
        remove_one((lines, f, rng), |_, it| {
            it.service != "unreliable"
                && f.is_full(it)
                && it.send.0 != it.process
                && f.stay(it).next.as_deref() == Some("quiet")
                && f.others(it).any(|other| f.together(it.stay, other.stay))
        })
    }),
    ("a process misses its own message", Rule::R6, |lines, f, rng| {
        remove_one((lines, f, rng), |lines, it| {
            it.service != "unreliable"
                && f.is_full(it)
                && it.send.0 == it.process
                && f.stay(it).next.is_some()
                && is_surely_taken(lines, f, it)
        })
    }),
    ("a process that joined within the view misses its own message", Rule::R6, |lines, f, rng| {
        remove_one((lines, f, rng), |lines, it| {
            it.service != "unreliable"
                && is_joiner(lines, f, it)
                && it.send.0 == it.process
                && is_surely_taken(lines, f, it)
        })
    }),
    ("a process that joined within the view misses the last message", Rule::R5, |lines, f, rng| {
        remove_one((lines, f, rng), |lines, it| {
            let ordered = ["fifo", "causal", "agreed", "safe"];
            let mut before = f.deliveries.iter().filter(|one| {
                let own = &lines[it.process].1;
                let is_join = |one: &Value| is(one, "group") && is_own_join(one, &it.groups);
                let joins = own[..it.line].iter().rposition(is_join);
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
        })
    }),
    ("a message of a sender outside the group is lost", Rule::R6, |lines, f, rng| {
        let outside = f.deliveries.iter().filter(|it| {
            let run = &lines[it.send.0].1[it.send.1]["incarnation"];
            let sender = f.stays.iter().position(|stay| {
                stay.process == it.send.0
                    && stay.view == f.stay(it).view
                    && lines[stay.process].1[stay.begin]["incarnation"] == *run
            });
            it.service != "unreliable"
                && f.is_full(it)
                && !is_synchronous(lines, it.send)
                && sender.is_some_and(|stay| f.together(stay, it.stay))
                && f.by_id[&it.id].iter().all(|other| f.deliveries[*other].process != it.send.0)
        });
        let it = pick(rng, outside)?;
        remove_everywhere(lines, &it.id)
    }),
    ("a message of a quiet member is lost without its view", Rule::R6, |lines, f, rng| {
        let own = f.deliveries.iter().filter(|it| {
            let mut own = lines[it.process].1.iter();
            it.service != "unreliable"
                && it.send.0 == it.process
                && f.is_full(it)
                && f.stay(it).next.as_deref() == Some("quiet")
                && it.send.1 > f.stay(it).begin
                && !own.any(|line| is(line, "leave") || is(line, "cut"))
        });
        let it = pick(rng, own)?;
        lines[it.send.0].1[it.send.1]["view"] = json!(null);
        remove_everywhere(lines, &it.id)
    }),
    ("two messages of a sender are swapped", Rule::R7, |lines, f, rng| {
        edit_two((lines, f, rng), swap, |_, one, other| {
            one.service == "fifo" && other.service == "fifo" && one.sender == other.sender
        })
    }),
    ("a message overtakes a stronger one of its sender", Rule::R7, |lines, f, rng| {
        edit_two((lines, f, rng), swap, |_, one, other| {
            is_ordered(one) && other.service == "fifo" && one.sender == other.sender
        })
    }),
    ("a message is missing before a later one of its sender", Rule::R7, |lines, f, rng| {
        edit_two((lines, f, rng), remove_first, |_, one, other| {
            one.service == "fifo"
                && other.service != "unreliable"
                && other.service != "reliable"
                && one.sender == other.sender
                && one.groups == other.groups
                && f.is_full(one)
        })
    }),
    ("a cause is delivered after its effect", Rule::R8, |lines, f, rng| {
        // A send in between could be a cause of the other message, which then precedes it.
        edit_two((lines, f, rng), swap, |lines, one, other| {
            let mut between = lines[one.process].1[one.line..other.line].iter();
            is_cause(f, one, other) && !between.any(|it| is(it, "send"))
        })
    }),
    ("an effect is delivered without its cause", Rule::R8, |lines, f, rng| {
        edit_two((lines, f, rng), remove_first, |_, one, other| {
            is_cause(f, one, other) && f.is_full(one)
        })
    }),
    ("two agreed messages are swapped at one process", Rule::R9, |lines, f, rng| {
        edit_two((lines, f, rng), swap, |_, one, other| {
            let has = |stay: usize| f.find(&other.id, stay).is_some();
            is_ordered(one) && is_ordered(other) && f.others(one).any(|it| has(it.stay))
        })
    }),
    ("three processes deliver three messages in a cycle", Rule::R9, |lines, f, rng| {
        let ordered = || f.pairs().filter(|(one, other)| is_ordered(one) && is_ordered(other));
        let triple = |(a, b): (&Delivery, &Delivery)| {
            let follows = |it: &&Delivery| (it.process, it.line) == (b.process, b.line);
            let (_, c) = ordered().find(|(it, _)| follows(it))?;
            let has = |it: &&Delivery| {
                f.find(&b.id, it.stay).is_some() && f.find(&c.id, it.stay).is_some()
            };
            let others = f.others(a).filter(has).map(|it| it.process);
            let mut others = others.filter(|it| *it != a.process);
            Some((a.clone(), b.clone(), c.clone(), others.next()?, others.next()?))
        };
        let (a, b, c, second, third) = pick(rng, ordered().filter_map(triple))?;
        let first = a.process;
        swap(lines, &a, &c);
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
        edit_two((lines, f, rng), remove_first, |_, one, other| {
            is_ordered(one)
                && is_ordered(other)
                && !one.transitional
                && f.is_full(one)
                && f.others(one).any(|it| f.find(&other.id, it.stay).is_some())
        })
    }),
    ("a fellow's agreed message is missing in a transitional view", Rule::R9, |lines, f, rng| {
        edit_two((lines, f, rng), remove_first, |lines, one, other| {
            let sender = lines[one.send.0].0.split_once('@').unwrap().1;
            let mut before = lines[one.process].1[f.stay(one).begin..one.line].iter();
            is_ordered(one)
                && is_ordered(other)
                && one.transitional
                && f.is_full(one)
                && before
                    .find(|it| is(it, "transitional"))
                    .is_some_and(|it| list(&it["members"]).contains(sender))
                && f.others(one).any(|it| f.find(&other.id, it.stay).is_some())
        })
    }),
    ("a member of the view misses a safe message", Rule::R10, |lines, f, rng| {
        remove_one((lines, f, rng), |_, it| {
            it.service == "safe"
                && f.is_full(it)
                && f.stay(it).next.is_some()
                && f.others(it).any(|other| !other.transitional)
        })
    }),
    ("members do not follow from those before", Rule::R11, |lines, f, rng| {
        let changed = f.stays.iter().filter(|it| !it.is_cut).filter_map(|it| {
            let of = &lines[it.process].1[it.begin..it.end];
            let mut changes = of.iter().enumerate().filter(|(_, it)| is(it, "group"));
            let (_, first) = changes.next()?;
            let follows = |it: &Value| it["group"] == first["group"] && !it["subject"].is_null();
            let (next, _) = changes.find(|(_, it)| follows(it))?;
            let is_in = list(&first["members"]).contains(&lines[it.process].0);
            is_in.then_some((it.process, it.begin + next))
        });
        let (process, line) = pick(rng, changed)?;
        add(&mut lines[process].1[line]["members"], "c9@d9");
        Some(())
    }),
    ("one process sees other members by a change", Rule::R11, |lines, f, rng| {
        let regular = |process: usize, line: usize| {
            let has = |it: &&Stay| it.process == process && (it.begin..it.end).contains(&line);
            f.stays.iter().find(has).is_some_and(|it| {
                let mut of = lines[process].1[it.begin..line].iter();
                of.all(|it| !is(it, "transitional") && !is(it, "cut"))
            })
        };
        let changes: Vec<(usize, usize, &Value)> =
            sites(lines, "group").filter(|it| regular(it.0, it.1)).collect();
        let shared = changes.iter().filter(|it| {
            changes.iter().any(|other| {
                other.0 != it.0
                    && other.2["change"] == it.2["change"]
                    && other.2["group"] == it.2["group"]
            })
        });
        let (process, line, _) = *pick(rng, shared)?;
        add(&mut lines[process].1[line]["members"], "c9@d9");
        Some(())
    }),
    ("a join is not ordered equally", Rule::R11, |lines, f, rng| {
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
        let stays = f.stays.iter().enumerate().filter(|(_, it)| !it.is_cut && it.next.is_some());
        for (index, stay) in stays {
            for line in stay.begin..stay.end {
                let it = &lines[stay.process].1[line];
                let (group, change) = (text(it, "group"), text(it, "change"));
                let mut earlier = lines[stay.process].1[stay.begin..line].iter();
                if is(it, "group")
                    && earlier.any(|it| is(it, "group") && text(it, "group") == group)
                    && stay.full.contains(group)
                {
                    seen.entry(format!("{group} {change}")).or_default().push((index, line));
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
                let mut own = of[begin..stay.end].iter();
                stay.view == f.stay(it).view
                    && own.all(|it| !["cut", "group", "transitional"].contains(&text(it, "event")))
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
        change((lines, rng, "cut"), |_| true, |it| it["to"] = json!(it["to"].as_u64().unwrap() - 1))
    }),
    ("a cut is announced too large", Rule::R13, |lines, _, rng| {
        change((lines, rng, "cut"), |_| true, |it| it["to"] = json!(it["to"].as_u64().unwrap() + 1))
    }),
    ("cuts drop more than the numbers say", Rule::R13, |lines, f, rng| {
        let stays = f.stays.iter().enumerate().filter(|(index, stay)| {
            let of = &lines[stay.process].1;
            let start = of[..stay.begin].iter().rposition(|it| is(it, "start")).unwrap();
            let cuts = (stay.begin..stay.end).filter(|line| is(&of[*line], "cut"));
            let is_sure = |group: &&String| {
                cuts.clone().all(|line| {
                    let own = of[start..line].iter().filter(|it| text(it, "group") == *group);
                    let asked = own.clone().filter(|it| is(it, "join") || is(it, "leave")).count();
                    let done = own.filter(|it| is(it, "group") && it["subject"] == it["process"]);
                    asked == done.count()
                })
            };
            let groups: BTreeSet<&String> = stay.full.iter().filter(is_sure).collect();
            // More messages are removed than the cuts dropped, which others in the stay deliver.
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
        let resumed = sites(lines, "resume").filter_map(|(process, line, it)| {
            let mut before = f.deliveries.iter().filter(|before| {
                before.process == process
                    && before.line < line
                    && lines[process].1[before.line]["incarnation"] == it["incarnation"]
            });
            Some((process, line, before.next_back()?))
        });
        let (process, line, before) = pick(rng, resumed)?;
        let event = lines[process].1[before.line].clone();
        insert(lines, process, line + 1, event);
        Some(())
    }),
    ("a resume begins too late", Rule::R13, |lines, _, rng| {
        let late = |it: &mut Value| it["next"] = json!(it["next"].as_u64().unwrap() + 1);
        change((lines, rng, "resume"), |_| true, late)
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
        change((lines, rng, "quiet"), |_| true, |it| it["pending"] = json!(1))
    }),
    ("a quiet process has bytes in its queues", Rule::R14, |lines, _, rng| {
        change((lines, rng, "quiet"), |_| true, |it| it["queues"] = json!(100))
    }),
    ("a quiet process is in another view than its fellows", Rule::R14, |lines, _, rng| {
        let all: Vec<Value> = sites(lines, "quiet").map(|it| it.2.clone()).collect();
        let alone = |it: &Value| all.iter().filter(|other| other["view"] == it["view"]).count() < 2;
        change((lines, rng, "quiet"), |it| !alone(it), |it| it["view"] = json!("0.d1"))
    }),
    ("a view lacks a connected daemon", Rule::R14, |lines, f, rng| {
        let is_quiet = |it: &&Stay| it.next.as_deref() == Some("quiet") && !it.is_cut;
        let it = pick(rng, f.stays.iter().filter(is_quiet))?;
        add(&mut lines[it.process].1[it.end]["connected"], "d9");
        Some(())
    }),
    ("a table of groups differs from that of others", Rule::R14, |lines, _, rng| {
        let all: Vec<Value> = sites(lines, "quiet").map(|it| it.2.clone()).collect();
        let alone = |it: &Value| all.iter().filter(|other| other["view"] == it["view"]).count() < 2;
        change((lines, rng, "quiet"), |it| !alone(it), |it| it["groups"]["g1"] = json!(["c9@d9"]))
    }),
    ("a process that has ended is in all tables", Rule::R14, |lines, _, _| {
        let has_ended = |it: &Value| is(it, "crash") || is(it, "stop");
        let ended = lines.iter().find(|(_, of)| of.last().is_some_and(has_ended))?.0.clone();
        let mut applied = None;
        let last = lines.iter_mut().filter_map(|(_, of)| of.last_mut());
        for it in last.filter(|it| is(it, "quiet")) {
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
