//! Policy `weighted-utility` as a program.

use faircast_relay_sdk::WeightedUtility;

faircast_relay_sdk::program!(WeightedUtility, |_| WeightedUtility);
