//! Checks and their findings, with advice.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    /// Advice if the check fails; the same text as in that table.
    pub(super) advice: &'static str,
}

/// State of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "variants without a text are what their names and types say")]
pub enum State {
    Ok,
    Wrong,
    Untested,
}

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Finding {
    pub check: &'static str,
    /// Other host, if the check concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    pub state: State,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'static str>,
}

impl Check {
    pub(super) fn found(&self, is_right: bool, found: impl Into<String>) -> Finding {
        let state = if is_right { State::Ok } else { State::Wrong };
        let advice = (!is_right).then_some(self.advice);
        Finding { check: self.name, peer: None, state, found: found.into(), advice }
    }

    pub(super) fn untested(&self, why: impl Into<String>) -> Finding {
        let (state, advice) = (State::Untested, None);
        Finding { check: self.name, peer: None, state, found: why.into(), advice }
    }
}

impl Finding {
    pub(super) fn of(self, peer: &str) -> Self {
        Self { peer: Some(peer.into()), ..self }
    }
}

macro_rules! checks {
    ($($id:ident $name:literal $advice:literal)*) => {
        $(pub(super) const $id: Check = Check { name: $name, advice: $advice };)*
        #[cfg(test)]
        pub(super) const CHECKS: &[Check] = &[$($id),*];
    };
}

checks! {
    INTERFACE "interface" "bring it up (`ip link set IF up`) and give it an address, or name another with `--interface`"
    ROUTE "route" "name the network with `--interface`, or add a route: `ip route add 224.0.0.0/4 dev eth0`"
    ADDRESS "address" "take a group from 239.192.0.0/14 or ff15::/16, whose last three bytes are not 0.0.x, and a port above 1023"
    RECEIVE_BUFFER "receive buffer" "`sysctl -w net.core.rmem_max=33554432`, or run as root"
    SEND_BUFFER "send buffer" "`sysctl -w net.core.wmem_max=8388608`, or run as root"
    REVERSE_PATH "reverse-path filter" "`sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.IF.rp_filter=2`, or a route to the sender by this interface"
    LINK_MTU "MTU of the link" "`ip link set IF mtu 1500`, or `send --mtu` with what it takes"
    IGMP "IGMP version" "`sysctl -w net.ipv4.conf.all.force_igmp_version=0 net.ipv4.conf.IF.force_igmp_version=0`: `recv --from` needs version 3"
    KEY "key" "make one with `faircast key new FILE`, bring it to all hosts, and give it with `--key`; the same file on all, mode 600"
    RELAY "relay" "start `faircast relay` there, with the same `--key`; let UDP to its port through firewalls"
    RELAY_WAY "way to the relay" "nothing: these are measurements"
    RECEIVER "receiver" "start `faircast recv --listen` there, of this version or newer, with the same `--key`; let UDP to that port, and back to the same port of this host, through firewalls"
    RECEIVER_WAY "way to the receiver" "nothing: this is a measurement"
    OTHERS "other hosts" "run the same `faircast check` on another host at the same time; if one runs: same group and port, `--interface`, firewall (UDP and IGMP), switch with snooping and no querier, `--ttl` over routers"
    ARRIVES "arrives here" "on this host: firewall (the group's UDP port, IGMP), reverse-path filter, `--interface`; between: a switch with snooping and no querier"
    HEARD "is heard there" "the same on the other host: firewall, reverse-path filter, `--interface`; between: a switch with snooping and no querier"
    ANSWERS "answers come back" "let UDP from receivers to the sender's own address through the firewalls of both hosts"
    PATH_MTU "MTU of the way" "`send --mtu` with what arrives, or raise the MTU of the link that takes less"
    LOSS "loss" "look for a bad cable, a wireless link or a full one; losses without load slow every transfer down"
    SPEED "speed" "a slower link, small buffers, or a switch that limits multicast (storm control, often to 10 Mbit/s)"
    LASTS "memberships" "let somebody ask for memberships: a querier on the switch or router (`ip link set br0 type bridge mcast_querier 1`), or no snooping"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_every_check_with_the_same_advice() {
        let page = include_str!("../../../../docs/operate.md");
        let table = page.split("| check | where it is wrong |").nth(1).expect("the table is there");
        let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
        let rows: Vec<Vec<&str>> =
            rows.map(|row| row.trim_end_matches(" |").split(" | ").collect()).collect();
        let known: Vec<Vec<&str>> = CHECKS.iter().map(|c| vec![c.name, c.advice]).collect();
        assert_eq!(rows, known);
    }
}
