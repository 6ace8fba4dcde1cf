//! Tests of the scheme as a whole: sender and receiver together.
