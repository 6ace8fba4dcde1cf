//! Policy `worst-path` as a program.

use faircast_relay_sdk::WorstPath;

faircast_relay_sdk::program!(WorstPath, |_| WorstPath);
