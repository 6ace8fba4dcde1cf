//! What repairs cost, over paths of any round trip.

use super::world::run;

/// One bottleneck, then a star of receivers.
fn bottleneck(path: &Path<'_>, receivers: u32, element: bool, options: &str) -> String {
    let Path { rate, delay, queue, duration, .. } = path;
    let program = if element { "[[node]]\nname = \"r2\"\nprogram = \"pgm-element\"\n" } else { "" };
    format!(
        "title = \"What do repairs cost?\"\nduration = \"{duration}\"\n\
         [[link]]\nbetween = [\"s\", \"r1\"]\nrate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n\
         [[link]]\nbetween = [\"r1\", \"r2\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\n\
         queue = {{ kind = \"droptail\", packets = {queue} }}\n\
         [[link]]\nstar = {{ center = \"r2\", leaves = [\"m{{1..{receivers}}}\"] }}\n\
         rate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n{program}\
         [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\n\
         to = [\"m{{1..{receivers}}}\"]\npacket = \"1400 B\"\noptions = {{ {options} }}\n"
    )
}

struct Path<'a> {
    name: &'a str,
    rate: &'a str,
    delay: &'a str,
    queue: u32,
    duration: &'a str,
}

const PATHS: [Path<'static>; 2] = [
    Path { name: "20 ms", rate: "10 Mbit/s", delay: "2 ms", queue: 15, duration: "60 s" },
    Path { name: "750 ms", rate: "500 kbit/s", delay: "50 ms", queue: 30, duration: "600 s" },
];

#[test]
fn each_lost_packet_is_repaired_about_once_on_short_and_long_paths() {
    for path in &PATHS {
        for receivers in [1, 3, 100] {
            for element in [false, true] {
                let options = std::env::var("PGM_OPTIONS").unwrap_or_default();
                let run = run(&bottleneck(path, receivers, element, &options), 1);
                let tally = &run.tally;
                println!(
                    "{:<7} x{receivers:<4} el {element:<5} data {:<6} missed {:<4} rep/loss {:.2} nak/loss {:.2} el-naks {} rec mean {} max {} cuts {} bad {:?}",
                    path.name,
                    tally.data,
                    tally.missed.len(),
                    tally.repairs_per_loss(),
                    tally.naks_per_loss(),
                    tally.element_naks,
                    tally.recovery_mean(),
                    tally.recovery_max(),
                    tally.cuts,
                    tally.bad_input
                );
                //run.assert_intact(path.name);
            }
        }
    }
}
