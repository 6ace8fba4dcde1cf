//! Hints about what a receiver waits for, repeated at growing intervals.

use faircast::{Incoming, ReceiveStatus, StaysFor};
use faircast_base::Duration;
use serde_json::{Value, json};

use super::report::{incoming_json, source_text};
use crate::error::Result;
use crate::live::Output;
use crate::live::display::Hints;
use crate::live::words::time;

/// Silence of a sender before it is shown: 2 s. A live sender sends once a second.
const SILENT_AFTER: Duration = Duration::from_secs(2);

pub(super) struct WaitHints {
    once: bool,
    first_object: Hints,
    end: Hints,
    end_since: Option<Duration>,
}

impl WaitHints {
    pub(super) fn new(once: bool) -> Self {
        Self { once, first_object: Hints::default(), end: Hints::at_once(), end_since: None }
    }

    pub(super) fn update(&mut self, output: &Output, status: &ReceiveStatus) -> Result {
        if self.once && status.begun.is_none() && self.first_object.is_due(status.elapsed) {
            let text = match status.heard {
                None => {
                    "still waiting: no sender was heard; is `faircast send` running, with the same \
                     group, port and key, and does multicast get through?"
                }
                Some(_) => "still waiting: a sender is heard, and does not answer",
            };
            output.tell("waiting", text, json!({}))?;
        }
        let Some(reason) = status.stays_for else { return Ok(()) };
        let since = *self.end_since.get_or_insert(status.elapsed);
        let waited = status.elapsed.saturating_sub(since);
        let is_shown = reason != StaysFor::Note || waited >= SILENT_AFTER;
        if is_shown && self.end.is_due(waited) {
            let objects: Vec<Value> = status.incoming.iter().map(incoming_json).collect();
            let (word, text) = waits_for(status, reason);
            output.tell("waiting", &text, json!({ "objects": objects, "for": word }))?;
        }
        Ok(())
    }
}

fn waits_for(status: &ReceiveStatus, reason: StaysFor) -> (&'static str, String) {
    let silent = |incoming: &Incoming| {
        let silence = status.elapsed.saturating_sub(incoming.heard.unwrap_or(incoming.since));
        match silence < SILENT_AFTER {
            true => String::new(),
            false => format!(" (silent for {}, given up after 30 s)", time(silence)),
        }
    };
    let words = |incoming: &Incoming| {
        let name = incoming.name.clone().unwrap_or_else(|| "an object".to_string());
        let from = source_text(incoming);
        format!("{name} from {from}{}", silent(incoming))
    };
    let begun: Vec<String> = status.incoming.iter().map(words).collect();
    match reason {
        StaysFor::Objects => {
            ("objects", format!("still waiting for what had begun before: {}", begun.join(", ")))
        }
        StaysFor::Repairs => (
            "repairs",
            "still waiting: other receivers have this one for their repair head, and lack something"
                .to_string(),
        ),
        _ => (
            "note",
            "still waiting: the sender has not noted yet that this receiver is done; does it get packets from \
             here? Given up once it is silent for 5 s"
                .to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_says_for_whom_it_stays() {
        let status = ReceiveStatus::default();
        for (reason, word, text) in [
            (StaysFor::Objects, "objects", "what had begun before"),
            (StaysFor::Repairs, "repairs", "repair head"),
            (StaysFor::Note, "note", "the sender has not noted"),
        ] {
            let (found, said) = waits_for(&status, reason);
            assert_eq!(found, word);
            assert!(said.contains(text), "{said}");
        }
    }
}
