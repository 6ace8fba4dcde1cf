//! The suites of TOML files that come with the program.

use super::file::Bundled;

/// Suites that run where none is named, in their order.
pub(crate) const BUNDLED: &[&str] = &["tcp", "fairness", "fec", "tfmcc", "ormcc", "tram", "credit"];

/// A file in a folder of `scenarios`, and scenarios that it names by their paths from there.
macro_rules! bundled {
    ($folder:literal, $suite:literal, $($file:literal)*) => {
        $crate::suite::Bundled {
            folder: concat!("scenarios/", $folder),
            suite: include_str!(concat!("../../../../scenarios/", $folder, "/", $suite)),
            files: &[$((
                concat!($file, ".toml"),
                include_str!(concat!("../../../../scenarios/", $folder, "/", $file, ".toml")),
            )),*],
        }
    };
}

pub(crate) use bundled;

/// The suite in a folder of `scenarios`, with the scenarios that it names.
macro_rules! suite {
    ($name:literal, $folder:literal, $($file:literal)*) => {
        ($name, bundled!($folder, "suite.toml", $($file)*))
    };
}

static SUITES: &[(&str, Bundled)] = &[
    // The experiments of Seada & Helmy 2002, and the cures that they propose.
    suite!("fairness", "fairness",
        "set1-one-bottleneck" "set2-independent-loss" "set2-two-bottlenecks"
        "set3-set4-far-receiver"),
    // What parity saves where each receiver loses other packets.
    suite!("fec", "fec", "lossy-star"),
    // Whether TFMCC does what RFC 4654 makes one expect.
    suite!("tfmcc", "tfmcc",
        "alone" "beside-tcp" "distances" "lossy" "smooth" "thousand"),
    // The experiments of Li & Kalyanaraman 2002.
    suite!("ormcc", "ormcc", "simple" "changing" "linear" "star" "star-tcp"),
    // The experiments of Chiu et al. 2001.
    suite!("tram", "tram", "scaling" "limited" "fairness" "pruning"),
    // Large groups, lossy ones, and branches: what repair heads are for.
    suite!("tram-scale", "tram-scale", "crowd" "independent" "branches" "ethernets"),
    // The experiments of Lee & Kim 2001, and their open questions.
    suite!("credit", "credit",
        "fairness" "two-levels" "levels" "prototype" "policies" "depth" "quic"),
    // The simulations of Amir et al. 2001.
    suite!("cost-benefit", "cost-benefit", 
        "tree" "shared" "competing" "competing-quic" "chain" "chain-tcp" "cairn-1" "cairn-2" "cairn-3" "cairn-4"),
    // The same overlays with something else in the place of prices, and with other constants.
    (
        "cost-benefit-compare",
        bundled!("cost-benefit", "compare-suite.toml",
        "tree" "tree-tcp" "tree-credit" "chain" "chain-tcp" "chain-credit"),
    ),
    ("cost-benefit-ablation", bundled!("cost-benefit", "ablation-suite.toml", "shared")),
    // The same scenarios in the simulator and in the lab.
    suite!("sim-vs-lab", "lab",
        "alone" "beside-sack" "changing-rate" "join-leave" "reordering" "tcp-alone" "transfer"
        "two-receivers"),
];

pub(super) fn find(name: &str) -> Option<&'static Bundled> {
    SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| suite)
}
