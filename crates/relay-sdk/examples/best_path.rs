//! Policy `best-path` as a program.

use faircast_relay_sdk::BestPath;

faircast_relay_sdk::program!(BestPath, |_| BestPath);
