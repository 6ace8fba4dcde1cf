//! Receivers that were started again, and take the place of what they were before.

use std::collections::BTreeMap;
use std::net::IpAddr;

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::object::{MemberState, MemberStatus};

/// Members in whose place others have come: of the same name at the same host, after their last
/// word. Two that both speak both stay, and who has everything stays too.
pub(super) fn restarts(
    members: &[MemberStatus],
    now: Time,
    host: impl Fn(NodeId) -> Option<IpAddr>,
) -> Vec<(u64, u64)> {
    use MemberState::{Done, Failed, Left, Lost};
    // Each speaks once in 20 ms for each member, and at least once a second.
    let silence = (SILENCE_EACH * members.len() as u64).max(SILENCE_MIN);
    let gone = |member: &MemberStatus| matches!(member.state, Failed | Left | Lost);
    let mut newest: BTreeMap<(&str, IpAddr), &MemberStatus> = BTreeMap::new();
    // Where it joined: whoever repeats its words from elsewhere makes it nobody else.
    let key = |member: &MemberStatus| host(member.home).filter(|_| !member.name.is_empty());
    for member in members.iter().filter(|member| !gone(member)) {
        let Some(ip) = key(member) else { continue };
        let newest = newest.entry((&member.name, ip)).or_insert(member);
        if member.since > newest.since {
            *newest = member;
        }
    }
    let mut pairs = Vec::new();
    for old in members.iter().filter(|member| member.state != Done) {
        let Some(ip) = key(old) else { continue };
        let Some(new) = newest.get(&(&*old.name, ip)) else { continue };
        let replaced = gone(old) || now.since(new.since) >= silence;
        if new.id != old.id && new.since > old.home_heard && replaced {
            pairs.push((old.id, new.id));
        }
    }
    pairs
}

/// Time in which a member speaks several times: so much for each member, and at least.
const SILENCE_EACH: Duration = Duration::from_millis(60);
const SILENCE_MIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use faircast_proto::object::MemberLoad;

    use super::*;

    #[test]
    fn who_comes_back_takes_its_own_place_and_nobody_elses() {
        use MemberState::{Done, Left, Receiving};
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let member = |id: u64, name: &str, since: u64, heard: u64, state| MemberStatus {
            id,
            node: NodeId(id as u32),
            home: NodeId(id as u32),
            home_heard: at(heard),
            reporter: NodeId(id as u32),
            name: name.to_string(),
            state,
            bytes: 0,
            found: 0,
            loss: 0.0,
            since: at(since),
            heard: at(heard),
            done: None,
            reason: String::new(),
            load: MemberLoad::default(),
            limit: None,
            place: None,
            path: None,
        };
        let new = |name| member(2, name, 7, 10, Receiving);
        // Somebody repeats the last word of one that was killed.
        let repeated =
            MemberStatus { node: NodeId(9), heard: at(10), ..member(1, "a", 0, 5, Receiving) };
        for (case, old, new, want) in [
            ("repeated from elsewhere", repeated, new("a"), &[(1, 2)][..]),
            ("killed", member(1, "a", 0, 5, Receiving), new("a"), &[(1, 2)][..]),
            ("both alive", member(1, "a", 0, 9, Receiving), new("a"), &[]),
            ("another name", member(1, "b", 0, 5, Receiving), new("a"), &[]),
            ("no name", member(1, "", 0, 5, Receiving), new(""), &[]),
            ("another host", member(9, "a", 0, 5, Receiving), new("a"), &[]),
            ("done", member(1, "a", 0, 5, Done), new("a"), &[]),
            ("too early", member(1, "a", 0, 5, Receiving), member(2, "a", 8, 9, Done), &[]),
            ("left", member(1, "a", 0, 5, Left), member(2, "a", 8, 9, Done), &[(1, 2)]),
            ("gone again", member(1, "a", 0, 5, Receiving), member(2, "a", 7, 8, Left), &[]),
        ] {
            let host = |node: NodeId| Some(IpAddr::from([10, 0, 0, u8::from(node.0 > 5)]));
            assert_eq!(restarts(&[old, new], at(10), host), want, "{case}");
        }
    }
}
