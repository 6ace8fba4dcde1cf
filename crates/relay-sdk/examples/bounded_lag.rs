//! Policy `bounded-lag` as a program.

use faircast_relay_sdk::BoundedLag;

faircast_relay_sdk::program!(BoundedLag, |packets| BoundedLag { packets });
