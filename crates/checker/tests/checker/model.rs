//! Reference model: an ideal group communication system with a global order of each view.

mod views;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use serde_json::{Value, json};

/// Random numbers (SplitMix64).
#[derive(Default)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

const SERVICES: [&str; 6] = ["unreliable", "reliable", "fifo", "causal", "agreed", "safe"];
const FIFO: usize = 2;
const CAUSAL: usize = 3;
const AGREED: usize = 4;
const SAFE: usize = 5;

type Member = (usize, u64);
type Table = BTreeMap<String, BTreeSet<Member>>;

#[derive(Clone)]
enum Content {
    Message { id: String, groups: BTreeSet<String>, hash: String },
    Change { group: String, reason: &'static str, subject: Member },
}

struct Item {
    content: Content,
    service: usize,
    view: String,
    /// Items of the view that each daemon must process first.
    causes: HashSet<usize>,
}

#[derive(Default)]
struct Daemon {
    is_up: bool,
    part: usize,
    table: Table,
    received: HashSet<usize>,
    processed: HashSet<usize>,
    /// Length of the processed prefix of the log.
    done: usize,
    number: u64,
}

#[derive(Clone, Default)]
struct Part {
    view: String,
    members: Vec<usize>,
    /// Items of the view in the order of acceptance, which is also the order of the ordered items.
    log: Vec<usize>,
    tail: Table,
}

#[derive(Default)]
struct Client {
    name: String,
    daemon: usize,
    incarnation: u64,
    is_up: bool,
    is_slow: bool,
    virtual_synchrony: bool,
    lines: Vec<Value>,
    queue: VecDeque<Value>,
    n: u64,
    sent: u64,
    view: String,
    known: HashSet<usize>,
    last_fifo: Option<usize>,
}

#[derive(Default)]
pub(crate) struct World {
    rng: Rng,
    daemons: Vec<Daemon>,
    clients: Vec<Client>,
    parts: Vec<Part>,
    items: Vec<Item>,
    names: BTreeMap<String, usize>,
    groups: Vec<String>,
    can_fail: bool,
}

pub(crate) type Lines = Vec<(String, Vec<Value>)>;

#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) daemons: usize,
    pub(crate) clients: usize,
    pub(crate) steps: usize,
    pub(crate) can_fail: bool,
}

impl Plan {
    pub(crate) fn small(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0x5eed);
        let (daemons, clients) = (2 + rng.below(4), 1 + rng.below(3));
        Self { daemons, clients, steps: 400 + rng.below(1000), can_fail: !rng.chance(15) }
    }
}

pub(crate) fn generate(seed: u64, plan: Plan) -> Lines {
    let mut world = World::new(Rng(seed), plan);
    for _ in 0..plan.steps {
        world.step();
    }
    world.settle();
    world.clients.into_iter().map(|client| (client.name, client.lines)).collect()
}

fn hash(id: &str) -> String {
    format!("hash of {id}")
}

fn daemon_name(daemon: usize) -> String {
    format!("d{}", daemon + 1)
}

fn names(daemons: &[usize]) -> Vec<String> {
    daemons.iter().map(|it| daemon_name(*it)).collect()
}

impl World {
    fn new(rng: Rng, plan: Plan) -> Self {
        let daemon = |_| Daemon { is_up: true, ..Daemon::default() };
        let daemons = (0..plan.daemons).map(daemon).collect();
        let groups = (1..=3).map(|it| format!("g{it}")).collect();
        let mut world = Self { rng, daemons, groups, can_fail: plan.can_fail, ..Self::default() };
        let all: Vec<usize> = (0..plan.daemons).collect();
        world.split(vec![all.clone()]);
        for daemon in all {
            for index in 0..plan.clients {
                let name = format!("c{}@{}", index + 1, daemon_name(daemon));
                world.names.insert(name.clone(), world.clients.len());
                world.clients.push(Client { name, daemon, ..Client::default() });
                let client = world.clients.len() - 1;
                world.start(client);
                world.ask(client);
                world.ask(client);
            }
        }
        world
    }

    fn step(&mut self) {
        let client = self.rng.below(self.clients.len());
        let daemon = self.rng.below(self.daemons.len());
        match self.rng.below(1000) {
            0..220 => self.send(client),
            220..260 => self.ask(client),
            260..500 => self.receive(daemon),
            500..740 => {
                for _ in 0..1 + self.rng.below(8) {
                    self.process(daemon);
                }
            }
            740..980 => self.pop(client),
            _ if !self.can_fail => {}
            980..983 => self.end(client),
            983..988 => self.start(client),
            988..994 => self.clients[client].is_slow ^= true,
            994..998 => self.repartition(),
            _ if self.daemons[daemon].is_up => self.crash(daemon),
            _ => self.restart(daemon),
        }
    }

    fn tell(&mut self, client: usize, mut event: Value) {
        let client = &mut self.clients[client];
        client.n += 1;
        event["n"] = client.n.into();
        client.queue.push_back(event);
        if client.is_slow && client.queue.len() > 8 {
            // A slow client loses deliveries behind those in transit to it.
            let begin = self.rng.below(3);
            let end = begin + 1 + self.rng.below(6);
            client.is_slow = self.rng.chance(50);
            let gone: Vec<Value> = client.queue.drain(begin..end).collect();
            let number = |it: &Value, field| it.get(field).unwrap_or(&it["n"]).as_u64().unwrap();
            let first = gone.iter().map(|it| number(it, "from")).min().unwrap();
            let last = gone.iter().map(|it| number(it, "to")).max().unwrap();
            let view = gone.iter().rev().find_map(|it| match it["event"].as_str() {
                Some("view") => it["id"].as_str(),
                _ => it["view_lost"].as_str(),
            });
            let cut = json!({"event": "cut", "from": first, "to": last, "reason": "slow",
                "n": last, "view_lost": view});
            client.queue.insert(begin, cut);
        }
    }

    fn write(&mut self, client: usize, mut event: Value) {
        let client = &mut self.clients[client];
        event["process"] = client.name.clone().into();
        event["incarnation"] = client.incarnation.into();
        client.lines.push(event);
    }

    fn part(&self, client: usize) -> usize {
        self.daemons[self.clients[client].daemon].part
    }

    fn send(&mut self, client: usize) {
        let it = &self.clients[client];
        if !it.is_up {
            return;
        }
        let is_late = it.virtual_synchrony && it.view != self.parts[self.part(client)].view;
        let count = 1 + self.rng.below(2);
        let pick = |_| self.groups[self.rng.below(self.groups.len())].clone();
        let groups: BTreeSet<String> = (0..count).map(pick).collect();
        let service = self.rng.below(SERVICES.len());
        if is_late {
            let view = json!(self.clients[client].view);
            self.message(client, service, &groups, view);
            let request = self.clients[client].sent;
            return self.tell(client, json!({"event": "refused", "request": request}));
        }
        let view = self.parts[self.part(client)].view.clone();
        let accepted = !(self.can_fail && self.rng.chance(1));
        let shown = if accepted { json!(view) } else { Value::Null };
        let id = self.message(client, service, &groups, shown);
        if accepted || self.rng.chance(50) {
            self.accept_message(client, service, groups, id, &view);
        }
        if !accepted {
            self.end(client);
        }
    }

    fn message(
        &mut self,
        client: usize,
        service: usize,
        groups: &BTreeSet<String>,
        view: Value,
    ) -> String {
        let it = &mut self.clients[client];
        it.sent += 1;
        let id = format!("{}/{}/{}", it.name, it.incarnation, it.sent);
        let hash = hash(&id);
        let event = json!({"event": "send", "view": view, "id": id, "service": SERVICES[service],
            "groups": groups, "hash": hash, "bytes": 100, "request": it.sent});
        self.write(client, event);
        id
    }

    fn accept_message(
        &mut self,
        client: usize,
        service: usize,
        groups: BTreeSet<String>,
        id: String,
        view: &str,
    ) {
        let it = &self.clients[client];
        let hash = hash(&id);
        let mut causes = HashSet::new();
        if service >= FIFO {
            let last = it.last_fifo.into_iter();
            causes.extend(last.flat_map(|it| self.items[it].causes.iter().copied().chain([it])));
        }
        if service >= CAUSAL {
            causes.extend(&it.known);
        }
        // Items that all daemons have processed precede any new item.
        let members = &self.parts[self.part(client)].members;
        causes.retain(|cause| {
            self.items[*cause].view == view
                && members.iter().any(|it| !self.daemons[*it].processed.contains(cause))
        });
        let known = causes.clone();
        let index = self.accept(it.daemon, Content::Message { id, groups, hash }, service, causes);
        let it = &mut self.clients[client];
        if service >= FIFO {
            it.last_fifo = Some(index);
        }
        if service >= CAUSAL {
            it.known = known;
            it.known.insert(index);
        }
    }

    fn accept(
        &mut self,
        daemon: usize,
        content: Content,
        service: usize,
        causes: HashSet<usize>,
    ) -> usize {
        let index = self.items.len();
        let part = &mut self.parts[self.daemons[daemon].part];
        part.log.push(index);
        if let Content::Change { group, reason, subject } = &content {
            let members = part.tail.entry(group.clone()).or_default();
            _ = if *reason == "join" { members.insert(*subject) } else { members.remove(subject) };
        }
        let view = part.view.clone();
        self.items.push(Item { content, service, view, causes });
        self.daemons[daemon].received.insert(index);
        index
    }

    fn ask(&mut self, client: usize) {
        if !self.clients[client].is_up {
            return;
        }
        let group = self.groups[self.rng.below(self.groups.len())].clone();
        let subject = (client, self.clients[client].incarnation);
        let tail = &self.parts[self.part(client)].tail;
        let is_in = tail.get(&group).is_some_and(|it| it.contains(&subject));
        if is_in && self.rng.chance(70) {
            return;
        }
        let reason = if is_in { "leave" } else { "join" };
        self.write(client, json!({"event": reason, "group": group}));
        self.accept_change(client, group, reason);
    }

    fn accept_change(&mut self, client: usize, group: String, reason: &'static str) {
        let subject = (client, self.clients[client].incarnation);
        let log = &self.parts[self.part(client)].log;
        let last = log.iter().rev().find(|it| match &self.items[**it].content {
            Content::Change { group: other, subject, .. } => *other == group && subject.0 == client,
            Content::Message { .. } => false,
        });
        let causes = last.into_iter().flat_map(|it| self.items[*it].causes.iter().chain([it]));
        let causes = causes.copied().collect();
        let daemon = self.clients[client].daemon;
        self.accept(daemon, Content::Change { group, reason, subject }, AGREED, causes);
    }

    fn receive(&mut self, daemon: usize) {
        if !self.daemons[daemon].is_up {
            return;
        }
        let part = &self.parts[self.daemons[daemon].part];
        let received = &self.daemons[daemon].received;
        let missing = part.log.iter().filter(|it| !received.contains(it));
        let missing: Vec<usize> = missing.copied().collect();
        for _ in 0..missing.len().min(8) {
            let index = missing[self.rng.below(missing.len().min(8))];
            self.daemons[daemon].received.insert(index);
        }
    }

    fn is_stable(&self, part: &Part, index: usize) -> bool {
        let before = part.log.iter().take_while(|it| **it <= index);
        let ordered = before.filter(|it| self.items[**it].service >= AGREED);
        let mut needed = ordered.flat_map(|it| self.items[*it].causes.iter().chain([it]));
        needed
            .all(|it| part.members.iter().all(|member| self.daemons[*member].received.contains(it)))
    }

    /// `closing`: the remaining items of a view whose transitional view has begun.
    fn next(&self, daemon: usize, closing: Option<&HashSet<usize>>) -> Vec<usize> {
        let it = &self.daemons[daemon];
        let part = &self.parts[it.part];
        let mut is_blocked = false;
        let mut ready = Vec::new();
        let is_done = |index: &&usize| it.processed.contains(index);
        for index in part.log[it.done..].iter().filter(|index| !is_done(index)) {
            let item = &self.items[*index];
            if closing.is_some_and(|keep| !keep.contains(index)) {
                continue;
            }
            let is_ordered = item.service >= AGREED;
            if !(is_ordered && is_blocked)
                && (closing.is_some() || it.received.contains(index))
                && item.causes.iter().all(|cause| it.processed.contains(cause))
                && (item.service != SAFE || closing.is_some() || self.is_stable(part, *index))
            {
                ready.push(*index);
            }
            is_blocked |= is_ordered;
        }
        ready
    }

    fn process(&mut self, daemon: usize) {
        let ready = if self.daemons[daemon].is_up { self.next(daemon, None) } else { Vec::new() };
        if !ready.is_empty() {
            let index = ready[self.rng.below(ready.len())];
            self.deliver(daemon, index, false);
        }
    }

    fn local(&self, daemon: usize, members: impl Iterator<Item = Member>) -> BTreeSet<usize> {
        let is_here = |(client, incarnation): &Member| {
            let it = &self.clients[*client];
            it.daemon == daemon && it.is_up && it.incarnation == *incarnation
        };
        members.filter(is_here).map(|it| it.0).collect()
    }

    fn deliver(&mut self, daemon: usize, index: usize, transitional: bool) {
        let view = self.items[index].view.clone();
        let it = &mut self.daemons[daemon];
        it.processed.insert(index);
        let log = &self.parts[it.part].log;
        while log.get(it.done).is_some_and(|next| it.processed.contains(next)) {
            it.done += 1;
        }
        match self.items[index].content.clone() {
            Content::Message { id, groups, hash } => {
                let table = &self.daemons[daemon].table;
                let members = groups.iter().filter_map(|it| table.get(it)).flatten().copied();
                for client in self.local(daemon, members) {
                    if self.items[index].service > 0 || self.rng.chance(80) {
                        let event = json!({"event": "deliver", "view": view, "id": id, "hash": hash,
                            "transitional": transitional, "position": [1, index]});
                        self.tell(client, event);
                    }
                }
            }
            Content::Change { group, reason, subject } => {
                let members = self.daemons[daemon].table.entry(group.clone()).or_default();
                let joins = reason == "join";
                _ = if joins { members.insert(subject) } else { members.remove(&subject) };
                let members = members.clone();
                let leaver = (reason == "leave").then_some(subject);
                let local = self.local(daemon, members.iter().copied().chain(leaver));
                let event = json!({"event": "group", "group": group, "members": self.processes(&members),
                    "change": format!("k{index}"), "reason": reason,
                    "subject": self.clients[subject.0].name, "view": view});
                local.into_iter().for_each(|client| self.tell(client, event.clone()));
            }
        }
    }

    fn processes(&self, members: &BTreeSet<Member>) -> BTreeSet<String> {
        members.iter().map(|it| self.clients[it.0].name.clone()).collect()
    }

    fn pop(&mut self, client: usize) {
        let most = if self.clients[client].is_slow { 1 } else { 10 };
        for _ in 0..self.rng.below(most + 1) {
            self.pop_one(client, true);
        }
    }

    /// Lets a client handle its first event. `sends` allows a message before the cut is known.
    fn pop_one(&mut self, client: usize, sends: bool) -> bool {
        let it = &mut self.clients[client];
        let Some(mut event) = it.queue.pop_front() else { return false };
        match event["event"].as_str().unwrap() {
            "view" => it.view = event["id"].as_str().unwrap().into(),
            "deliver" => {
                let index = event["position"][1].as_u64().unwrap() as usize;
                if self.items[index].service >= CAUSAL {
                    let causes = self.items[index].causes.clone();
                    it.known.extend(causes);
                    it.known.insert(index);
                }
            }
            "cut" => {
                let next = event["n"].as_u64().unwrap() + 1;
                let fields = event.as_object_mut().unwrap();
                fields.remove("n");
                if let Some(view) = fields.remove("view_lost").unwrap().as_str() {
                    // The client knows the last view, and may send before it receives the cut.
                    it.view = view.into();
                    if sends && self.rng.chance(50) {
                        self.send(client);
                    }
                    if !self.clients[client].is_up {
                        return false;
                    }
                }
                self.write(client, event);
                self.write(client, json!({"event": "resume", "next": next}));
                return true;
            }
            _ => {}
        }
        self.write(client, event);
        true
    }

    fn start(&mut self, client: usize) {
        let daemon = self.clients[client].daemon;
        if self.clients[client].is_up || !self.daemons[daemon].is_up {
            return;
        }
        let virtual_synchrony = self.rng.chance(25);
        let it = &mut self.clients[client];
        (it.is_up, it.is_slow, it.virtual_synchrony) = (true, false, virtual_synchrony);
        it.incarnation += 1;
        (it.n, it.sent, it.last_fifo) = (0, 0, None);
        it.view.clear();
        it.known.clear();
        let mut event = json!({"event": "start", "daemon": daemon_name(daemon)});
        if virtual_synchrony {
            event["virtual_synchrony"] = true.into();
        }
        self.write(client, event);
        let part = &self.parts[self.daemons[daemon].part];
        let event = json!({"event": "view", "id": part.view, "members": names(&part.members),
            "transitional_set": [daemon_name(daemon)], "previous": null, "reason": "start"});
        self.tell(client, event);
    }

    fn end(&mut self, client: usize) {
        if !self.clients[client].is_up {
            return;
        }
        let event = if self.rng.chance(50) { "crash" } else { "stop" };
        self.write(client, json!({"event": event}));
        self.clients[client].is_up = false;
        self.clients[client].queue.clear();
        let subject = (client, self.clients[client].incarnation);
        let tail = &self.parts[self.part(client)].tail;
        let of: Vec<String> =
            tail.iter().filter(|(_, it)| it.contains(&subject)).map(|it| it.0.clone()).collect();
        for group in of {
            self.accept_change(client, group, "disconnect");
        }
    }

    fn live(&self) -> Vec<usize> {
        (0..self.daemons.len()).filter(|it| self.daemons[*it].is_up).collect()
    }
}
