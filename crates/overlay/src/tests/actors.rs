//! Clients of the simulated world: requests and received events.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::Duration;

use super::trace::number_of;
use super::{CLIENTS, Client, Delivery, Host, World};
use crate::trace::{daemon, fields};
use crate::{ClientEvent, ClientId, Outgoing, SendError, Service};

impl World {
    pub(super) fn connect(&mut self, at: usize, client: usize) {
        self.next_client += 1;
        let id = ClientId(self.next_client);
        let run = self.hosts[at].clients[client].run + 1;
        self.hosts[at].clients[client] =
            Client { id, run, last: 0, reads: true, is_transitional: false };
        let me = daemon(&self.me(at));
        self.note(at, client, 0, &format!("\"start\",\"daemon\":{me}"));
        let name = format!("c{client}").into();
        self.call(at, |daemon, cx| daemon.connect(cx, id, name, run).unwrap());
    }

    pub(super) fn crash(&mut self, at: usize, client: usize) {
        self.hosts[at].clients[client].reads = false;
        self.note(at, client, 0, "\"crash\"");
    }

    /// Stops a client without a goodbye; its daemon notices the closed connection.
    pub(super) fn lose(&mut self, at: usize, client: usize) {
        let (id, now) = (self.hosts[at].clients[client].id, self.now);
        self.crash(at, client);
        self.call(at, |daemon, _| daemon.suspend(now, id));
    }

    pub(super) fn resume(&mut self, at: usize, client: usize) {
        self.next_client += 1;
        let id = ClientId(self.next_client);
        let it = &mut self.hosts[at].clients[client];
        (it.id, it.reads) = (id, true);
        let (run, next) = (it.run, it.last + 1);
        self.note(at, client, 0, &format!("\"resume\",\"next\":{next}"));
        let name = format!("c{client}").into();
        self.call(at, |daemon, _| {
            assert_eq!(daemon.resume(id, (&name, run), next), Ok(()));
        });
        self.read(at, client);
    }

    pub(super) fn read(&mut self, at: usize, client: usize) {
        while let Host { daemon: Some(daemon), clients, .. } = &mut self.hosts[at]
            && let it = &mut clients[client]
            && it.reads
            && let Some((n, event)) = daemon.poll_client(it.id)
        {
            let when = self.now;
            match &*event {
                ClientEvent::Transitional { .. } => it.is_transitional = true,
                ClientEvent::View { id, members, previous, .. } => {
                    it.is_transitional = false;
                    if client == 0 && previous.is_some() {
                        self.log.views.push((when, at, *id, members.clone()));
                    }
                }
                ClientEvent::Message { parts, .. } => {
                    let message = number_of(parts);
                    self.log.deliveries.push(Delivery { at, client, message, when });
                }
                ClientEvent::Cut { lost, closes } => {
                    it.reads = !closes;
                    self.log.lost.push((at, client, *lost));
                }
                ClientEvent::Receipt { request, members, .. } => {
                    self.log.receipts.push((*request as usize, *members as usize));
                }
                _ => {}
            }
            if n == 0 {
                continue;
            }
            it.last = n;
            let is_transitional = it.is_transitional;
            let name = || match &*event {
                ClientEvent::Message { parts, .. } => format!("m{}", number_of(parts)),
                _ => String::new(),
            };
            self.note(at, client, n, &fields(&event, is_transitional, name));
        }
    }

    fn ask(&mut self, at: usize, client: usize, kind: &str, group: &str) -> (ClientId, Bytes) {
        self.note(at, client, 0, &format!("\"{kind}\",\"group\":\"{group}\""));
        (self.hosts[at].clients[client].id, Bytes::copy_from_slice(group.as_bytes()))
    }

    pub(super) fn join(&mut self, at: usize, client: usize, group: &str) {
        let (id, group) = self.ask(at, client, "join", group);
        let asks = self.asks && self.rng.chance(0.5);
        self.call(at, |daemon, cx| daemon.join(cx, id, group, asks).unwrap());
    }

    pub(super) fn leave(&mut self, at: usize, client: usize, group: &str) {
        let (id, group) = self.ask(at, client, "leave", group);
        self.call(at, |daemon, cx| daemon.part(cx, id, group).unwrap());
    }

    pub(super) fn join_all(&mut self, group: &str) {
        for at in 0..self.hosts.len() {
            if self.hosts[at].runs().is_some() {
                (0..CLIENTS).for_each(|client| self.join(at, client, group));
            }
        }
    }

    pub(super) fn send(
        &mut self,
        at: usize,
        client: usize,
        service: Service,
        groups: &[&str],
        bytes: usize,
    ) -> Result<(), SendError> {
        let Some(view) = self.hosts[at].runs().map(|it| it.view().0) else { return Ok(()) };
        let id = format!("m{}", self.log.sent.len());
        let text = id.clone() + &".".repeat(bytes.saturating_sub(id.len()));
        let names: Vec<&[u8]> = groups.iter().map(|it| it.as_bytes()).collect();
        let sender = self.hosts[at].clients[client].id;
        // Deliveries to the sender itself must follow the line of the send.
        let place = self.log.lines.len();
        self.log.sent.push(self.now);
        let (mut result, number) = (Ok(()), self.log.sent.len() as u64 - 1);
        self.call(at, |daemon, cx| {
            let wants_receipt = service.is_ordered();
            let message = Outgoing::new(service, &names, text.as_bytes());
            let message = Outgoing { request: number, wants_receipt, ..message };
            result = daemon.send(cx, sender, &message);
        });
        if result.is_err() {
            self.log.sent.pop();
            return result;
        }
        let service = format!("{service:?}").to_lowercase();
        let fields = format!(
            "\"send\",\"view\":\"{view}\",\"id\":\"{id}\",\"service\":\"{service}\",\
             \"groups\":{groups:?},\"hash\":\"{}\"",
            text.len()
        );
        self.note(at, client, 0, &fields);
        let line = self.log.lines.pop().expect("it was written");
        self.log.lines.insert(place, line);
        result
    }

    pub(super) fn act(&mut self) {
        let at = self.rng.below(self.hosts.len() as u64) as usize;
        let client = self.rng.below(CLIENTS as u64) as usize;
        let group = format!("g{}", self.rng.below(3));
        let action = self.rng.below(12);
        let service = Service::ALL[1 + self.rng.below(5) as usize];
        let bytes = if self.rng.chance(0.1) { 40_000 } else { 0 };
        if self.hosts[at].runs().is_none() {
            return;
        }
        if self.rng.chance(0.02) {
            let ends = self.rng.chance(0.5);
            self.note(at, client, 0, if ends { "\"stop\"" } else { "\"crash\"" });
            let old = self.hosts[at].clients[client].id;
            self.hosts[at].clients[client].reads = false;
            if ends {
                self.call(at, |daemon, cx| daemon.disconnect(cx, old));
            }
            return self.connect(at, client);
        }
        match action {
            0 => self.join(at, client, &group),
            1 => self.leave(at, client, &group),
            _ => match self.send(at, client, service, &[&group], bytes) {
                Ok(()) | Err(SendError::Changing | SendError::Retention | SendError::Held) => {}
                Err(error) => panic!("{error}"),
            },
        }
    }

    /// Takes up to `most` actions, with pauses of up to `most_us`.
    pub(super) fn act_often(&mut self, most: u64, most_us: u64) {
        for _ in 0..self.rng.below(most) {
            self.act();
            let pause = Duration::from_micros(self.rng.below(most_us));
            self.run(pause);
        }
    }

    pub(super) fn act_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.act();
            let pause = Duration::from_micros(self.rng.below(20_000));
            self.run(pause);
        }
    }
}
