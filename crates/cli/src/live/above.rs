//! State of the relay above, in the output.

use std::time::{Duration, Instant};

use faircast::{Down, RelayAbove, UplinkState};
use serde_json::json;

use super::Output;
use crate::error::Result;

pub(crate) struct Above {
    created: Instant,
    reported: Option<RelayAbove>,
}

impl Above {
    pub(crate) fn new() -> Self {
        Self { created: Instant::now(), reported: None }
    }

    pub(crate) fn update(&mut self, output: &Output, now: Option<&RelayAbove>) -> Result {
        let Some(now) = now else { return Ok(()) };
        let now = RelayAbove { connection: None, slow: None, ..now.clone() };
        let is_young = self.created.elapsed() < ANSWER_TIMEOUT;
        let was_asked = self.reported.as_ref().is_some_and(|reported| {
            matches!(reported.state, UplinkState::Asking(_))
                && reported.name_error == now.name_error
        });
        let is_begun = matches!(now.state, UplinkState::Asking(None));
        if self.reported.as_ref() == Some(&now) || is_begun && (is_young || was_asked) {
            return Ok(());
        }
        let RelayAbove { at, state, refused, multicast, name_error, .. } =
            self.reported.insert(now);
        let text = match (state, refused) {
            (UplinkState::Attached(_), true) => {
                format!("the relay {at}, or one above it, has no room for one more meeting")
            }
            (UplinkState::Attached(name), false) => {
                let how = if *multicast { ", and hears its multicast" } else { "" };
                let named = if name.is_empty() { String::new() } else { format!(" ({name})") };
                let json = json!({ "relay": at, "name": name, "multicast": multicast });
                let text = format!("attached to the relay {at}{named}{how}");
                return output.tell("relay", &text, json);
            }
            (UplinkState::Asking(Some(Down::Unauthenticated)), _) => {
                format!(
                    "the relay {at} has another key, or one of both has none: give the same --key"
                )
            }
            (UplinkState::Asking(None), _) if name_error.is_some() => {
                "no relay is known yet".to_string()
            }
            (UplinkState::Asking(None | Some(Down::Silent)), _) => format!(
                "the relay {at} does not answer: is `faircast relay` running there, and may UDP pass? \
                 This program asks the relay again and again"
            ),
            (UplinkState::Asking(Some(down)), _) => format!(
                "no connection to the relay {at}: {down}. This program asks the relay again and again"
            ),
            (UplinkState::Loop, _) => {
                format!("the relay {at} hangs below this one: a loop; give another --parent")
            }
            (UplinkState::Full, _) => {
                format!("the relay {at} has no room: see --neighbours-max and --at-host-max there")
            }
        };
        match name_error {
            None => output.warn(&text),
            Some(error) => output.warn(&format!("{text}; {error}; names are looked up every 6 s")),
        }
    }
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
