//! Changes of a scenario by the command line: `--set KEY=VALUE` and `--seed N`.

use std::collections::BTreeMap;

use faircast_proto::options::did_you_mean;

use crate::error::{Place, Problem};
use crate::value::{Kind, SettingValue};

/// Changes of a scenario by the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `KEY=VALUE` settings, applied in order. `KEY` is a path of keys separated by dots, with
    /// entries of lists by position from 0 or by `name`: `link.0.rate="1 Mbit/s"`,
    /// `flow.mcc.options.acker_bias=0.5`. `VALUE` is TOML, or plain text as shells remove quotes.
    pub set: Vec<String>,
    /// Seed, which overrides `set`.
    pub seed: Option<u64>,
}

impl Overrides {
    pub(crate) fn apply(&self, root: &mut SettingValue) -> Result<(), Problem> {
        for (index, text) in self.set.iter().enumerate() {
            let place = Place::Set(u32::try_from(index).unwrap_or(u32::MAX));
            let Some((path, value)) = text.split_once('=') else {
                let message = "has no \"=\"; expected KEY=VALUE such as link.0.rate=\"1 Mbit/s\"";
                return Err(Problem::at(place, message));
            };
            let value = SettingValue::from_set(value.trim(), place);
            let keys: Vec<&str> = path.trim().split('.').collect();
            set(root, &keys, value)?;
        }
        Ok(())
    }

    /// Appends the changes to a file's text as comments, so that lines keep their numbers.
    pub(crate) fn noted(&self, text: &str) -> String {
        let mut noted = text.to_string();
        let set = self.set.iter().map(|change| format!("--set {change}"));
        let seed = self.seed.iter().map(|seed| format!("--seed {seed}"));
        for (i, change) in set.chain(seed).enumerate() {
            if !noted.is_empty() && !noted.ends_with('\n') {
                noted.push('\n');
            }
            if i == 0 {
                noted.push_str("\n# Changed on the command line:\n");
            }
            noted.push_str(&format!("# {}\n", change.replace(faircast_base::is_format, " ")));
        }
        noted
    }
}

pub(crate) fn set(
    at: &mut SettingValue,
    keys: &[&str],
    value: SettingValue,
) -> Result<(), Problem> {
    let Some((key, rest)) = keys.split_first() else {
        *at = value;
        return Ok(());
    };
    let place = value.place;
    let inner = match &mut at.kind {
        _ if key.is_empty() => {
            let message = "is an empty key; expected a path such as link.0.rate";
            return Err(Problem::at(place, message));
        }
        Kind::Table(map) => map
            .entry(key.to_string())
            .or_insert_with(|| SettingValue { kind: Kind::Table(BTreeMap::new()), place }),
        Kind::List(items) => {
            let found = position(items, key);
            let found = found.map_err(|message| Problem::at(place, message).within(key))?;
            &mut items[found]
        }
        _ => {
            let message = format!("is within {}, which has no keys", at.shown());
            return Err(
                Problem::at(place, format!("{message}; expected a key of a table")).within(key)
            );
        }
    };
    set(inner, rest, value).map_err(|problem| problem.within(key))
}

fn position(items: &[SettingValue], key: &str) -> Result<usize, String> {
    let name = |item: &SettingValue| match &item.kind {
        Kind::Table(map) => match &map.get("name")?.kind {
            Kind::Text(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    let by_name = items.iter().position(|item| name(item).as_deref() == Some(key));
    let by_index = key.parse().ok().filter(|i| *i < items.len());
    by_name.or(by_index).ok_or_else(|| {
        let names: Vec<String> = items.iter().filter_map(name).collect();
        let hint = did_you_mean(key, names.iter().map(String::as_str));
        let allowed = match items.len() {
            0 => "the list is empty".to_string(),
            count => format!("allowed: a position from 0 to {}, or a name", count - 1),
        };
        format!("is no entry of the list{hint}; {allowed}")
    })
}
