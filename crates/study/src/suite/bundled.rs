//! Suites of TOML files that are part of the program.

use super::file::Bundled;

/// Default suites, in their order.
pub const BUNDLED: &[&str] = &["tcp", "fairness", "fec", "tfmcc", "ormcc", "tram", "credit"];

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

macro_rules! suite {
    ($name:literal, $folder:literal, $($file:literal)*) => {
        ($name, bundled!($folder, "suite.toml", $($file)*))
    };
}

static SUITES: &[(&str, Bundled)] = &[
    // Experiments of Seada & Helmy 2002, and their proposed cures.
    suite!("fairness", "fairness",
        "set1-one-bottleneck" "set2-independent-loss" "set2-two-bottlenecks"
        "set3-set4-far-receiver"),
    // Savings by parity if each receiver loses different packets.
    suite!("fec", "fec", "lossy-star"),
    // Behaviour of TFMCC that RFC 4654 lets one expect.
    suite!("tfmcc", "tfmcc",
        "alone" "beside-tcp" "distances" "lossy" "smooth" "thousand"),
    // Experiments of Li & Kalyanaraman 2002.
    suite!("ormcc", "ormcc", "simple" "changing" "linear" "star" "star-tcp"),
    // Experiments of Chiu et al. 2001.
    suite!("tram", "tram", "scaling" "limited" "fairness" "pruning"),
    // Large groups, lossy groups and branches, the purpose of repair heads.
    suite!("tram-scale", "tram-scale", "crowd" "independent" "branches" "ethernets"),
    // Experiments of Lee & Kim 2001, and their open questions.
    suite!("credit", "credit",
        "fairness" "two-levels" "levels" "prototype" "policies" "depth" "quic"),
    // Simulations of Amir et al. 2001.
    suite!("cost-benefit", "cost-benefit", 
        "tree" "shared" "competing" "competing-quic" "chain" "chain-tcp" "cairn-1" "cairn-2" "cairn-3" "cairn-4"),
    // The same overlays with replacements for prices, and with other constants.
    (
        "cost-benefit-compare",
        bundled!("cost-benefit", "compare-suite.toml",
        "tree" "tree-tcp" "tree-credit" "chain" "chain-tcp" "chain-credit"),
    ),
    ("cost-benefit-ablation", bundled!("cost-benefit", "ablation-suite.toml", "shared")),
    suite!("sim-vs-lab", "lab",
        "alone" "beside-sack" "changing-rate" "join-leave" "reordering" "tcp-alone" "transfer"
        "two-receivers"),
];

pub(super) fn find(name: &str) -> Option<&'static Bundled> {
    SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| suite)
}
