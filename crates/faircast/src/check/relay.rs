//! Check of a relay: whether it answers with the same key, and the state of the connection.

use std::ops::ControlFlow;

use faircast_base::{Duration, Time};
use faircast_hop::{Down, UplinkState};
use faircast_net::{
    App, Driver, DriverSettings, Live, NetError, RelayAbove, SocketSettings, Sockets, ViaSettings,
};
use faircast_proto::FlowMachine;

use super::finding::{self as f, Finding};
use super::{Event, Settings};
use crate::GroupKey;
use crate::common::{node_of, relay_key};
use crate::ids::random;

/// Longest wait for an answer: both attempts at two relays, and one look-up of names.
const ANSWER: Duration = Duration::from_secs(9);
/// Time from the answer to the findings, in which the connection discovers its MTU.
const MEASURES: Duration = Duration::from_secs(2);

/// App that waits until a relay has answered.
struct AnswerWait<'a> {
    watch: &'a mut dyn FnMut(Event) -> ControlFlow<()>,
    ends_at: Time,
    is_attached: bool,
    is_stopped: bool,
    above: Option<RelayAbove>,
}

impl App<FlowMachine> for AnswerWait<'_> {
    fn tick(&mut self, live: &mut Live<FlowMachine>) {
        let now = live.now();
        self.above = live.relay();
        let above = self.above.as_ref();
        let is_attached = above.is_some_and(|it| matches!(it.state, UplinkState::Attached(_)));
        if is_attached && !self.is_attached {
            (self.is_attached, self.ends_at) = (true, now + MEASURES);
        }
        self.is_stopped = (self.watch)(Event::Going).is_break();
        if self.is_stopped || self.ends_at <= now {
            live.stop();
        }
    }
}

pub(super) fn findings(
    settings: &Settings,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Option<Vec<Finding>>, NetError> {
    let sockets = Sockets::via(false, SocketSettings::default())?;
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
    let ends_at = driver.live().now() + ANSWER;
    let mut look =
        AnswerWait { watch, ends_at, is_attached: false, is_stopped: false, above: None };
    driver.run(&mut look)?;
    Ok((!look.is_stopped).then(|| look.above.iter().flat_map(judge).collect()))
}

fn judge(above: &RelayAbove) -> Vec<Finding> {
    let RelayAbove { at, state, name_error, connection, .. } = above;
    let names = name_error.as_ref().map_or_else(String::new, |error| format!("; {error}"));
    let found = match state {
        UplinkState::Attached(name) => {
            f::RELAY.found(true, format!("{name} at {at} answers{names}"))
        }
        UplinkState::Asking(Some(Down::Unauthenticated)) => {
            f::RELAY.found(false, format!("{at} has another key than this host{names}"))
        }
        UplinkState::Asking(_) => f::RELAY.found(false, format!("{at} does not answer{names}")),
        UplinkState::Full => f::RELAY.found(false, format!("{at} has no room{names}")),
        UplinkState::Loop => f::RELAY.found(false, format!("{at} refuses this host{names}")),
    };
    let Some(connection) = connection else { return vec![found] };
    let rtt_ms = connection.rtt.as_secs_f64() * 1e3;
    let ip_bytes = connection.mtu_bytes + if at.starts_with('[') { 48 } else { 28 };
    let way = format!("round trip {rtt_ms:.1} ms, packets of {ip_bytes} bytes and less arrive");
    vec![found, f::RELAY_WAY.found(true, way)]
}
