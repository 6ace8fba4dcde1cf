//! Check of a relay: whether it answers with the same key, and the state of the connection.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use faircast_base::{Duration, Time};
use faircast_hop::{Down, UplinkState};
use faircast_net::{
    App, Driver, DriverSettings, Live, NetError, RelayAbove, SocketSettings, Sockets, ViaSettings,
    random,
};
use faircast_proto::FlowMachine;

use super::finding::{self as f, Finding};
use super::{Event, Settings};
use crate::GroupKey;
use crate::common::{node_of, relay_key};

/// Longest wait for an attachment: both attempts at two relays, and one look-up of names.
const ATTACH_WAIT: Duration = Duration::from_secs(9);
/// Time from the attachment to the findings, in which the connection discovers its MTU.
const MTU_DISCOVERY: Duration = Duration::from_secs(2);

const IPV4_UDP_BYTES: u16 = 28;
const IPV6_UDP_BYTES: u16 = 48;

/// App that ends [`MTU_DISCOVERY`] after a relay attached this host. After a refusal, as without an
/// answer, the app waits the full [`ATTACH_WAIT`], because another relay can still attach the host.
struct AttachWait<'a> {
    watch: &'a mut dyn FnMut(Event) -> ControlFlow<()>,
    ends_at: Time,
    is_attached: bool,
    is_stopped: bool,
    above: Option<RelayAbove>,
}

impl App<FlowMachine> for AttachWait<'_> {
    fn tick(&mut self, live: &mut Live<FlowMachine>) {
        let now = live.now();
        self.above = live.relay();
        let state = self.above.as_ref().map(|above| &above.state);
        if matches!(state, Some(UplinkState::Attached(_))) && !self.is_attached {
            (self.is_attached, self.ends_at) = (true, now + MTU_DISCOVERY);
        }
        self.is_stopped = (self.watch)(Event::Going).is_break();
        if self.is_stopped || self.ends_at <= now {
            live.stop();
        }
    }
}

/// Returns the findings about the relay above; `None` if `watch` ended the check.
pub(super) fn check_relay(
    settings: &Settings,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Option<Vec<Finding>>, NetError> {
    let is_source = false;
    let sockets = Sockets::via(is_source, SocketSettings::default())?;
    let via = ViaSettings {
        node: node_of(random()),
        name: "check".to_string(),
        relays: settings.via.clone(),
        group: random(),
        receivers: 0,
        key: relay_key(settings.key.as_ref().map(GroupKey::relay)),
    };
    let mut driver = Driver::<FlowMachine>::new(sockets, DriverSettings::default())?;
    driver.set_via(&via);
    let ends_at = driver.live().now() + ATTACH_WAIT;
    let mut wait =
        AttachWait { watch, ends_at, is_attached: false, is_stopped: false, above: None };
    driver.run(&mut wait)?;
    Ok((!wait.is_stopped).then(|| wait.above.iter().flat_map(judge).collect()))
}

fn judge(above: &RelayAbove) -> Vec<Finding> {
    let RelayAbove { at, state, name_error, connection, .. } = above;
    let (is_right, text) = match state {
        UplinkState::Attached(name) => (true, format!("{name} at {at} answers")),
        UplinkState::Asking(None | Some(Down::Silent)) => (false, format!("{at} does not answer")),
        UplinkState::Asking(Some(Down::Unauthenticated)) => {
            (false, format!("{at} has another key than this host"))
        }
        UplinkState::Asking(Some(down)) => (false, format!("no connection to {at}: {down}")),
        UplinkState::Full => (false, format!("{at} has no room")),
        UplinkState::Loop => (false, format!("{at} is below this host: a loop")),
    };
    let name_error = name_error.as_ref().map_or_else(String::new, |error| format!("; {error}"));
    let mut findings = vec![f::RELAY.found(is_right, text + &name_error)];
    if let Some(connection) = connection {
        let rtt_ms = connection.rtt.as_secs_f64() * 1e3;
        // A relay with a connection has an address here, not a name.
        let is_ipv6 = at.parse().is_ok_and(|at: SocketAddr| at.is_ipv6());
        let ip_bytes = connection.mtu_bytes + if is_ipv6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES };
        let text =
            format!("round trip {rtt_ms:.1} ms, packets of {ip_bytes} bytes and less arrive");
        findings.push(f::RELAY_WAY.found(true, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn above(state: UplinkState) -> RelayAbove {
        RelayAbove {
            at: "[2001:db8::1]:7500".to_string(),
            state,
            refused: false,
            multicast: false,
            name_error: None,
            connection: None,
            slow: None,
        }
    }

    #[test]
    fn each_state_has_a_finding_of_its_own() {
        let down = |down| UplinkState::Asking(Some(down));
        for (state, want) in [
            (UplinkState::Asking(None), "[2001:db8::1]:7500 does not answer"),
            (down(Down::Silent), "[2001:db8::1]:7500 does not answer"),
            (down(Down::Unauthenticated), "[2001:db8::1]:7500 has another key than this host"),
            (
                down(Down::Closed("going down".to_string())),
                "no connection to [2001:db8::1]:7500: closed by the peer: going down",
            ),
            (
                down(Down::Refused),
                "no connection to [2001:db8::1]:7500: the peer accepts no connection now",
            ),
            (
                down(Down::Restarted),
                "no connection to [2001:db8::1]:7500: the peer has started again",
            ),
            (
                down(Down::Failed("wrong version".to_string())),
                "no connection to [2001:db8::1]:7500: wrong version",
            ),
            (UplinkState::Full, "[2001:db8::1]:7500 has no room"),
            (UplinkState::Loop, "[2001:db8::1]:7500 is below this host: a loop"),
        ] {
            assert_eq!(judge(&above(state)), [f::RELAY.found(false, want)]);
        }
        let name_error = Some("no such name".to_string());
        let attached = UplinkState::Attached("r1".to_string());
        let found = judge(&RelayAbove { name_error, ..above(attached) });
        assert_eq!(found, [f::RELAY.found(true, "r1 at [2001:db8::1]:7500 answers; no such name")]);
    }
}
