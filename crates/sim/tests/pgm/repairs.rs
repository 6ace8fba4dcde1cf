//! Number of repairs and NAKs, over paths of any round-trip time.

use faircast_base::Duration;

use super::world::run;

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
    Path { name: "20 ms", rate: "10 Mbit/s", delay: "2 ms", queue: 15, duration: "30 s" },
    Path { name: "750 ms", rate: "500 kbit/s", delay: "50 ms", queue: 30, duration: "600 s" },
];

#[test]
fn each_lost_packet_is_repaired_about_once_on_short_and_long_paths() {
    for path in &PATHS {
        for receivers in [1, 3, 100] {
            for element in [false, true] {
                let case = format!("{}, {receivers} receivers, element {element}", path.name);
                let run = run(&bottleneck(path, receivers, element, ""), 1);
                run.assert_intact(&case);
                let tally = &run.tally;
                assert!(tally.missed.len() > 50, "{case}: it is about losses");
                // Some repairs are lost. An element's second repair serves longer back-offs. After
                // an early NAK one repair in 6 to 30 meets a full queue.
                let short = path.name == "20 ms";
                // For a large group behind an element on a long path, the NAK precedes the cut. A
                // repair may then meet the full queue, and a second one is needed.
                let early = element && !short && receivers == 100;
                let most = match (element && short && receivers > 1, early) {
                    (true, _) => 2.2,
                    (_, true) => 1.6,
                    _ if receivers > 1 => 1.25,
                    _ => 1.1,
                };
                let repairs = tally.repairs_per_loss();
                assert!((0.95..most).contains(&repairs), "{case}: {repairs} repairs a loss");
                // A large group sends as many NAKs as the source confirms in a round trip, on short
                // paths up to four times that. An element sends one NAK a repair.
                let most = match (element, receivers) {
                    (false, 3) => 4.0,
                    (false, 100) if short => 30.0,
                    (false, 100) => 15.0,
                    _ => repairs + 0.15,
                };
                let naks = tally.naks_per_loss();
                assert!(naks < most, "{case}: {naks} NAKs a loss");
                // Reordering delay, back-off and path: 20 + 50 + 20 ms; 50 ms for an element's
                // repair. Long path: a round trip, two for lost repairs, and a large group's
                // back-off.
                let mean = tally.recovery_mean();
                let most = match (short, element) {
                    (true, false) => 45,
                    (true, true) if receivers == 100 => 120,
                    (true, true) => 70,
                    (false, false) if receivers == 100 => 1400,
                    (false, true) if early => 1500,
                    (false, _) => 1000,
                };
                assert!(mean < Duration::from_millis(most), "{case}: {mean} on average");
            }
        }
    }
}

#[test]
fn a_thousand_receivers_behind_one_lossy_link_do_not_bury_the_source() {
    let path =
        Path { name: "60 ms", rate: "3 Mbit/s", delay: "20 ms", queue: 15, duration: "24 s" };
    let run = run(&bottleneck(&path, 1000, false, ""), 1);
    run.assert_intact(path.name);
    let tally = &run.tally;
    assert!(tally.missed.len() > 25, "{}", tally.missed.len());
    // Uniform back-offs would draw NAKs from nearly all; the first losses teach the group size.
    assert!(tally.naks_per_loss() < 100.0, "{}", tally.naks_per_loss());
    assert!(tally.repairs_per_loss() < 1.1, "{}", tally.repairs_per_loss());
}
