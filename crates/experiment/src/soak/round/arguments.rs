//! Arguments of the programs of a round.

use std::fmt::Write as _;

use faircast_lab::Field;

use super::{KEY, PORT, RECEIVER_NAMES, RELAY_KEY, Round};
use crate::host::{text, words};
use crate::soak::Fault;
use crate::soak::plan::Who;

impl Round<'_> {
    pub(super) fn arguments(&self, who: Who) -> Vec<String> {
        let (mut arguments, key) = match who {
            Who::Sender => (self.send("first", who), KEY),
            Who::Second => (self.send("second", who), KEY),
            Who::Relay(_) => (relay(who), if self.plan.relay_key { RELAY_KEY } else { KEY }),
            _ => (self.recv(who), KEY),
        };
        if self.plan.sealed {
            arguments.extend(["--key".to_string(), text(&self.folder.join(key))]);
        }
        arguments
    }

    fn send(&self, content: &str, who: Who) -> Vec<String> {
        let to = match (self.plan.relays, self.plan.unicast) {
            (true, _) => via(who),
            (false, true) => {
                let to = (0..self.request.receivers).map(|index| {
                    let address = self.field.current_address(Who::Receiver(index).node());
                    format!("{address}:{PORT}")
                });
                format!("--to {}", to.collect::<Vec<_>>().join(","))
            }
            (false, false) => group(),
        };
        let (give_up, scheme) = (self.plan.give_up.as_secs(), &self.request.scheme);
        let mut options = format!("{to} --give-up {give_up}s --scheme {scheme}");
        if self.plan.faults.contains(&Fault::JoinEverySecond) {
            options += " --start-after 1s";
        }
        if let Some(heads) = self.plan.heads {
            let _ = write!(options, " --option members_max={heads}");
        }
        let [content, names] = [content, RECEIVER_NAMES].map(|name| text(&self.folder.join(name)));
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
        let into = text(&self.folder.join(&name));
        words(&["recv", "--json", "--into", &into], &format!("{from} --name {name}{head}"))
    }
}

fn relay(who: Who) -> Vec<String> {
    let above = relays_above(who);
    let parent = if above.is_empty() { "" } else { " --parent " };
    let options = format!("--listen 0.0.0.0:{PORT} --name {}{parent}{above}", who.name());
    words(&["relay", "--json"], &options)
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
