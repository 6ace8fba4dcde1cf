//! `faircast key`: keys for groups.

use faircast_seal::{Exposure, GroupKey};

use crate::args::{KeyArgs, KeyVerb};
use crate::error::{Failure, Result, print};

pub(crate) fn key(args: &KeyArgs) -> Result {
    match &args.what {
        KeyVerb::New { file } => {
            let key = GroupKey::create(file).map_err(Failure::usage)?;
            print(&format!(
                "{}: a new key with the id {}\nBring the file to all members of the group by a way \
                 that you trust; whoever has it can read and send.\n",
                file.display(),
                key.id()
            ))
        }
        KeyVerb::Relay { group, file, key_exposed } => {
            let key =
                GroupKey::read(group, exposure(*key_exposed)).map_err(Failure::usage)?.relay();
            key.write(file).map_err(Failure::usage)?;
            print(&format!(
                "{}: the key with the id {} for relays of this group\nA relay with this key alone \
                 passes packets on and reads no content.\n",
                file.display(),
                key.id()
            ))
        }
        KeyVerb::Show { file, key_exposed } => {
            let key = GroupKey::read(file, exposure(*key_exposed)).map_err(Failure::usage)?;
            print(&format!("{}\n", key.id()))
        }
    }
}

pub(crate) fn exposure(allowed: bool) -> Exposure {
    if allowed { Exposure::Allow } else { Exposure::Refuse }
}
