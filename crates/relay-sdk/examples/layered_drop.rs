//! Policy `layered-drop` as a program.

use faircast_relay_sdk::LayeredDrop;

faircast_relay_sdk::program!(LayeredDrop, |_| LayeredDrop);
