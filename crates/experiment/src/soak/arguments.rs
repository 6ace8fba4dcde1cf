//! Arguments of the programs of a round.

use std::fmt::Write as _;
use std::path::Path;

use faircast_lab::Field;

use super::Fault;
use super::plan::{Plan, Who};
use super::round::{KEY, PORT, RECEIVER_NAMES, RELAY_KEY};
use crate::host::{text, words};

pub(super) struct Arguments<'a> {
    pub(super) plan: &'a Plan,
    pub(super) folder: &'a Path,
    pub(super) field: &'a Field,
    pub(super) scheme: &'a str,
    pub(super) receivers: u32,
}

impl Arguments<'_> {
    pub(super) fn of(&self, who: Who) -> Vec<String> {
        let (mut arguments, key) = match who {
            Who::Sender => (self.send("first", who), KEY),
            Who::Second => (self.send("second", who), KEY),
            Who::Relay(_) => (Self::relay(who), if self.plan.relay_key { RELAY_KEY } else { KEY }),
            _ => (self.recv(who), KEY),
        };
        if self.plan.sealed {
            arguments.extend(["--key".to_string(), self.path(key)]);
        }
        arguments
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.join(name))
    }

    fn relay(who: Who) -> Vec<String> {
        let above = relays_above(who);
        let parent = if above.is_empty() { "" } else { " --parent " };
        let options = format!("--listen 0.0.0.0:{PORT} --name {}{parent}{above}", who.name());
        words(&["relay", "--json"], &options)
    }

    fn send(&self, content: &str, who: Who) -> Vec<String> {
        let (Self { scheme, receivers, .. }, give_up) = (self, self.plan.give_up.as_secs());
        let to = match (self.plan.relays, self.plan.unicast) {
            (true, _) => via(who),
            (false, true) => {
                let address = |who: Who| self.field.current_address(who.node());
                let to = (0..*receivers).map(Who::Receiver);
                let to: Vec<_> = to.map(|who| format!("{}:{PORT}", address(who))).collect();
                format!("--to {}", to.join(","))
            }
            (false, false) => group(),
        };
        let mut options = format!("{to} --give-up {give_up}s --scheme {scheme}");
        if self.plan.faults.contains(&Fault::JoinEverySecond) {
            options += " --start-after 1s";
        }
        if let Some(heads) = self.plan.heads {
            let _ = write!(options, " --option members_max={heads}");
        }
        let (content, names) = (self.path(content), self.path(RECEIVER_NAMES));
        words(&["send", "--json", &content, "--receivers", &names], &options)
    }

    fn recv(&self, who: Who) -> Vec<String> {
        let from = match (self.plan.relays, self.plan.unicast) {
            (true, _) => via(who),
            (false, true) => format!("--listen 0.0.0.0:{PORT}"),
            (false, false) => group(),
        };
        let head = match (self.plan.heads, who) {
            (Some(heads), Who::Receiver(index)) if index < heads => " --head eager",
            (Some(_), _) => " --head never",
            (None, _) => "",
        };
        let name = who.name();
        let options = format!("{from} --name {name}{head}");
        words(&["recv", "--json", "--into", &self.path(&name)], &options)
    }
}

fn group() -> String {
    format!("--group {}:{PORT}", Field::group())
}

fn via(who: Who) -> String {
    format!("--via {} --meeting soak", relays_above(who))
}

fn relays_above(who: Who) -> String {
    let above = who.relays_above().into_iter();
    above.map(|who| format!("{}:{PORT}", who.name())).collect::<Vec<_>>().join(",")
}
