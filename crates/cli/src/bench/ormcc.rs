//! The suite `ormcc`: the experiments of Li & Kalyanaraman.

use super::suite::Bundled;

macro_rules! bundled_file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../scenarios/ormcc/", $name)))
    };
}

/// The suite's files.
pub(crate) static FILES: Bundled = Bundled {
    folder: "scenarios/ormcc",
    suite: include_str!("../../../../scenarios/ormcc/suite.toml"),
    files: &[
        bundled_file!("simple.toml"),
        bundled_file!("changing.toml"),
        bundled_file!("linear.toml"),
        bundled_file!("star.toml"),
        bundled_file!("star-tcp.toml"),
    ],
};
