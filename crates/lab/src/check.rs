//! Whether this machine can run the lab, and how exact it is.
