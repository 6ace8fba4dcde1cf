//! Policy `quantile` as a program.

use faircast_relay_sdk::Quantile;

faircast_relay_sdk::program!(Quantile, |percent| Quantile { percent: percent.clamp(1, 100) });
