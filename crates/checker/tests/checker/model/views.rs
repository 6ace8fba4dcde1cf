//! Partitions, crashes and views of the model.

use super::*;

impl World {
    pub(super) fn repartition(&mut self) {
        let mut live = self.live();
        self.rng.shuffle(&mut live);
        let count = 1 + self.rng.below(3);
        let mut parts = vec![Vec::new(); count];
        for daemon in live {
            parts[self.rng.below(count)].push(daemon);
        }
        parts.retain(|it| !it.is_empty());
        self.split(parts);
    }

    pub(super) fn crash(&mut self, daemon: usize) {
        if self.live().len() < 2 {
            return;
        }
        for client in 0..self.clients.len() {
            if self.clients[client].daemon == daemon && self.clients[client].is_up {
                self.write(client, json!({"event": "crash"}));
                self.clients[client].is_up = false;
                self.clients[client].queue.clear();
            }
        }
        self.daemons[daemon].is_up = false;
        let part = self.daemons[daemon].part;
        let parts = (0..self.parts.len()).filter(|it| *it != part);
        let mut parts: Vec<Vec<usize>> = parts.map(|it| self.parts[it].members.clone()).collect();
        parts.push(self.parts[part].members.iter().copied().filter(|it| *it != daemon).collect());
        parts.retain(|it| !it.is_empty());
        self.split(parts);
    }

    pub(super) fn restart(&mut self, daemon: usize) {
        let number = self.daemons.iter().map(|it| it.number).max().unwrap();
        self.daemons[daemon] =
            Daemon { is_up: true, number, part: usize::MAX, ..Daemon::default() };
        let mut parts: Vec<Vec<usize>> = self.parts.iter().map(|it| it.members.clone()).collect();
        parts.push(vec![daemon]);
        self.split(parts);
        for client in 0..self.clients.len() {
            if self.clients[client].daemon == daemon && self.rng.chance(80) {
                self.start(client);
            }
        }
    }

    /// Closes the view of one part for `moves`, the daemons that all move to the same part.
    pub(super) fn finish(&mut self, moves: &[usize]) {
        let old = self.parts[self.daemons[moves[0]].part].clone();
        let mut keep = HashSet::new();
        for index in &old.log {
            let known = moves.iter().any(|it| self.daemons[*it].received.contains(index));
            let causes = self.items[*index].causes.iter().all(|cause| keep.contains(cause));
            if known && causes {
                keep.insert(*index);
            }
        }
        for &daemon in moves {
            let before = self.daemons[daemon].received.clone();
            self.daemons[daemon].received = keep.clone();
            for _ in 0..self.rng.below(keep.len() + 1) {
                self.process(daemon);
            }
            // Stability of a safe message depends on the items that each daemon had received.
            self.daemons[daemon].received = before;
        }
        moves.iter().for_each(|it| self.daemons[*it].received = keep.clone());
        for &daemon in moves {
            let left = self.next(daemon, Some(&keep));
            if !left.is_empty() || self.rng.chance(50) {
                let event =
                    json!({"event": "transitional", "closes": old.view, "members": names(moves)});
                self.tell_all(daemon, &event);
            }
            let mut ready = left;
            while !ready.is_empty() {
                let index = ready[self.rng.below(ready.len())];
                self.deliver(daemon, index, true);
                ready = self.next(daemon, Some(&keep));
            }
            assert!(keep.is_subset(&self.daemons[daemon].processed), "the model has lost items");
        }
    }

    pub(super) fn tell_all(&mut self, daemon: usize, event: &Value) {
        for client in 0..self.clients.len() {
            if self.clients[client].daemon == daemon && self.clients[client].is_up {
                self.tell(client, event.clone());
            }
        }
    }

    /// Moves all daemons to new parts. A part with unchanged daemons keeps its view.
    pub(super) fn split(&mut self, parts: Vec<Vec<usize>>) {
        let mut next = Vec::new();
        for mut members in parts {
            members.sort_unstable();
            let old = self.daemons[members[0]].part;
            if self.parts.get(old).is_some_and(|it| it.members == members) {
                next.push(self.parts[old].clone());
                continue;
            }
            let mut origins: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for daemon in &members {
                origins.entry(self.daemons[*daemon].part).or_default().push(*daemon);
            }
            let mut table = Table::new();
            for (origin, moves) in &origins {
                if *origin < self.parts.len() {
                    self.finish(moves);
                }
                for (group, of) in &self.daemons[moves[0]].table {
                    let stays = of.iter().filter(|it| moves.contains(&self.clients[it.0].daemon));
                    table.entry(group.clone()).or_default().extend(stays);
                }
            }
            let number = members.iter().map(|it| self.daemons[*it].number).max().unwrap_or(0) + 1;
            let view = format!("{number}.{}", daemon_name(members[0]));
            for (origin, moves) in &origins {
                let previous = self.parts.get(*origin).map(|it| it.view.clone());
                for daemon in moves {
                    let event = json!({"event": "view", "id": view, "members": names(&members),
                        "transitional_set": names(moves), "previous": previous, "reason": "network"});
                    self.tell_all(*daemon, &event);
                    for (group, members) in &table {
                        let known = self.daemons[*daemon].table.get(group);
                        if known.unwrap_or(&BTreeSet::new()) == members {
                            continue;
                        }
                        let event = json!({"event": "group", "group": group,
                            "members": self.processes(members), "change": format!("net-{view}"),
                            "reason": "network", "subject": null, "view": view});
                        for client in self.local(*daemon, members.iter().copied()) {
                            self.tell(client, event.clone());
                        }
                    }
                    let table = table.clone();
                    self.daemons[*daemon] =
                        Daemon { is_up: true, table, number, ..Daemon::default() };
                }
            }
            next.push(Part { view, members, log: Vec::new(), tail: table });
        }
        for (part, it) in next.iter().enumerate() {
            it.members.iter().for_each(|daemon| self.daemons[*daemon].part = part);
        }
        self.parts = next;
    }

    pub(super) fn settle(&mut self) {
        for daemon in self.live() {
            let log = self.parts[self.daemons[daemon].part].log.clone();
            self.daemons[daemon].received.extend(log);
        }
        for daemon in self.live() {
            while !self.next(daemon, None).is_empty() {
                self.process(daemon);
            }
        }
        for client in 0..self.clients.len() {
            while self.pop_one(client, false) {}
            if !self.clients[client].is_up {
                continue;
            }
            let daemon = &self.daemons[self.clients[client].daemon];
            let part = &self.parts[daemon.part];
            let groups: BTreeMap<&String, BTreeSet<String>> =
                daemon.table.iter().map(|(group, it)| (group, self.processes(it))).collect();
            let event = json!({"event": "quiet", "view": part.view, "pending": 0, "queues": 0,
                "groups": groups, "connected": names(&part.members)});
            self.write(client, event);
        }
    }
}
