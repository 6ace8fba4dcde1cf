//! Policy `deadline` as a program.

use faircast_relay_sdk::Deadline;

faircast_relay_sdk::program!(Deadline, |ms| Deadline { ms: ms.max(1) });
