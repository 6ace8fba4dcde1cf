//! The relay above, as people are told of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use faircast::Attachment;
use serde_json::json;

use super::Output;
use crate::error::Failure;

/// Tells whether there is one, once each time that this changes.
pub(crate) struct Above {
    begun: Instant,
    told: Option<(SocketAddr, Attachment)>,
}

impl Above {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), told: None }
    }

    /// `now` is the relay that is above or asked.
    pub(crate) fn update(
        &mut self,
        output: &Output,
        now: Option<(SocketAddr, Attachment)>,
    ) -> Result<(), Failure> {
        let Some((relay, state)) = now.filter(|_| now != self.told) else { return Ok(()) };
        // At first it is asked, which takes a moment.
        if state == Attachment::Asking && self.begun.elapsed() < ANSWER_TIMEOUT {
            return Ok(());
        }
        self.told = now;
        let text = match state {
            Attachment::Attached | Attachment::Multicast => {
                let multicast = state == Attachment::Multicast;
                let json = json!({ "relay": relay.to_string(), "multicast": multicast });
                let how = if multicast { ", and hears it by multicast" } else { "" };
                return output.tell("relay", &format!("attached to the relay {relay}{how}"), json);
            }
            Attachment::Asking => format!(
                "the relay {relay} does not answer: is `faircast relay` running there, with the same \
                 key, and may UDP pass? It is asked again and again"
            ),
            Attachment::Loop => {
                format!("the relay {relay} hangs below this one: a loop; give another --parent")
            }
            Attachment::Full => format!(
                "the relay {relay} has no room: see --neighbours-max and --at-host-max there"
            ),
        };
        output.warn(&text)
    }
}

/// How long a relay may take to answer before that is told.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
