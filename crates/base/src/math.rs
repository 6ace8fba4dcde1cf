//! Floating-point functions with one result on every platform.
//!
//! Square roots and `+ - * /` are exact by IEEE 754; all else comes from the pinned `libm`.

pub use libm::{exp, floor, log as ln, pow, round, sqrt};
