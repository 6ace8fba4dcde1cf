//! Floating-point functions with one result on every platform.
//!
//! `+ - * /` and square roots are exact by IEEE 754; everything else comes from the pinned `libm`,
//! because the standard library's versions may differ between platforms and runs.

pub use libm::{exp, floor, log as ln, pow, round, sqrt};
