//! Constant bit rate.
