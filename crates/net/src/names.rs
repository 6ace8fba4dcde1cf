//! Host names and their addresses.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;

use faircast_base::{Duration, Time};

const LOOKUP_INTERVAL: Duration = Duration::from_secs(6);

/// Hosts by name and port, such as `hq.example:7600`, looked up in a thread of their own.
#[derive(Debug)]
pub(crate) struct Names {
    texts: Vec<String>,
    pending: Option<mpsc::Receiver<Lookup>>,
    next_at: Time,
    pub(crate) error: Option<String>,
    /// True once addresses among the texts were returned, which need no lookup.
    has_returned: bool,
}

#[derive(Debug, Default)]
struct Lookup {
    addresses: Vec<SocketAddr>,
    error: Option<String>,
}

impl Names {
    pub(crate) const fn new(texts: Vec<String>) -> Self {
        Self { texts, pending: None, next_at: Time::ZERO, error: None, has_returned: false }
    }

    /// Returns all addresses after a lookup. Lookups repeat every 6 s while `wanted` is true.
    pub(crate) fn poll(&mut self, now: Time, wanted: bool) -> Option<Vec<SocketAddr>> {
        if let Some(pending) = &self.pending {
            let lookup = match pending.try_recv() {
                Ok(lookup) => lookup,
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(mpsc::TryRecvError::Disconnected) => Lookup::default(),
            };
            (self.pending, self.next_at, self.error) = (None, now + LOOKUP_INTERVAL, lookup.error);
            return Some(lookup.addresses).filter(|all| !all.is_empty());
        }
        if self.texts.is_empty() || !wanted || now < self.next_at {
            return None;
        }
        let addresses: Vec<SocketAddr> =
            self.texts.iter().filter_map(|text| text.parse().ok()).collect();
        let first = !std::mem::replace(&mut self.has_returned, true);
        if addresses.len() == self.texts.len() {
            self.next_at = Time::MAX;
            return Some(addresses);
        }
        let (sender, pending) = mpsc::channel();
        let texts = self.texts.clone();
        let look_up = move || _ = sender.send(look_up(&texts));
        let named = thread::Builder::new().name("faircast-names".to_string());
        match named.spawn(look_up) {
            Ok(_) => self.pending = Some(pending),
            Err(error) => {
                (self.next_at, self.error) = (now + LOOKUP_INTERVAL, Some(error.to_string()));
            }
        }
        Some(addresses).filter(|all| first && !all.is_empty())
    }
}

fn look_up(texts: &[String]) -> Lookup {
    let mut all = Lookup::default();
    for text in texts {
        match text.to_socket_addrs() {
            Ok(found) => all.addresses.extend(found),
            Err(error) => _ = all.error.get_or_insert_with(|| format!("{text}: {error}")),
        }
    }
    let mut seen = BTreeSet::new();
    all.addresses.retain(|at| seen.insert(*at));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(names: &mut Names, now: Time) -> Option<Vec<SocketAddr>> {
        loop {
            let found = names.poll(now, true);
            if names.pending.is_none() {
                return found;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn addresses_need_no_lookup_and_names_have_one_every_6_s() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let texts = ["10.0.0.1:1", "[fd00::1]:2"];
        let mut names = Names::new(texts.map(String::from).to_vec());
        assert_eq!(names.poll(Time::ZERO, true), Some(texts.map(at).to_vec()));
        assert_eq!(
            names.poll(Time::ZERO + LOOKUP_INTERVAL, true),
            None,
            "addresses stay as they are"
        );
        let texts = ["no such name:1", "localhost:2"].map(String::from);
        let mut names = Names::new(texts.to_vec());
        assert_eq!(names.poll(Time::ZERO, false), None, "nobody wants them");
        let mixed = ["no such name:1", "10.0.0.1:2"].map(String::from);
        let first = Names::new(mixed.to_vec()).poll(Time::ZERO, true);
        assert_eq!(first, Some(vec![at("10.0.0.1:2")]), "at once");
        for round in 0..2 {
            let now = Time::ZERO + LOOKUP_INTERVAL * round;
            let found = poll(&mut names, now).expect("localhost has an address");
            assert!(found.iter().all(|at| at.ip().is_loopback() && at.port() == 2), "{found:?}");
            assert!(
                names.error.as_ref().is_some_and(|error| error.starts_with("no such name:1: "))
            );
            assert_eq!(names.poll(now, true), None, "not at once again");
        }
    }
}
