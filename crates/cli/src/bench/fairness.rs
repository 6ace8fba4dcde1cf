//! The suite `fairness`: the experiments of Seada & Helmy 2002, and the cures that they propose.

use super::suite::Bundled;

macro_rules! bundled_file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../scenarios/fairness/", $name)))
    };
}

/// The suite's files.
pub(crate) static FILES: Bundled = Bundled {
    folder: "scenarios/fairness",
    suite: include_str!("../../../../scenarios/fairness/suite.toml"),
    files: &[
        bundled_file!("set1-one-bottleneck.toml"),
        bundled_file!("set2-independent-loss.toml"),
        bundled_file!("set2-two-bottlenecks.toml"),
        bundled_file!("set3-set4-far-receiver.toml"),
    ],
};
