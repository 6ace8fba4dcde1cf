//! SPMs are sent only when needed: each takes the room of a large packet in a queue.

use super::world::{Run, run};

fn scenario(there: &str, flow: &str, duration: &str) -> Run {
    let text = format!(
        "title = \"Who speaks without need?\"\nduration = \"{duration}\"\n\
         [[link]]\nfrom = \"s\"\nto = \"m\"\nrate = \"500 kbit/s\"\ndelay = \"200 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 30 }}\n{there}\n\
         [[link]]\nfrom = \"m\"\nto = \"s\"\nrate = \"500 kbit/s\"\ndelay = \"200 ms\"\n\
         [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"m\"]\n\
         packet = \"1400 B\"\n{flow}\n"
    );
    run(&text, 1)
}

#[test]
fn a_busy_source_sends_hardly_a_packet_that_is_no_data() {
    let run = scenario("", "", "300 s");
    let t = &run.tally;
    assert!(t.data > 9_000, "{}", t.data);
    // A confirmation per NAK, an SPM every 30 s, and heartbeats until the round-trip time is known.
    let control = t.group_packets - t.data - t.repairs;
    assert!(control < t.naks + 10 + 15, "{control} for {} NAKs", t.naks);
}

#[test]
fn the_loss_of_the_last_packets_is_found_and_mended_soon() {
    // 50 packets; the last three are lost, so that only SPMs can reveal their loss.
    let drop_list = "drop_list = [ 48, 49, 50 ]";
    let run = scenario(drop_list, "data = \"70 kB\"", "60 s");
    run.assert_complete("tail");
    let clean = scenario("", "data = \"70 kB\"", "60 s");
    clean.assert_complete("no loss");
    assert_eq!(run.tally.repairs, 3);
    let later = run.completed().unwrap().since(clean.completed().unwrap());
    // The FIN arrives with the SPM right after the data; a NAK and the repair take a round trip.
    assert!(later.as_secs_f64() < 1.0, "{later}");
}

#[test]
fn the_last_packets_are_acknowledged_as_all_others() {
    // A complete receiver sets no timer, which would batch acknowledgements.
    let run = scenario("", "data = \"70 kB\"", "60 s");
    run.assert_complete("no loss");
    assert!(run.tally.stalls.is_empty() && run.tally.cuts == 0, "{:?}", run.tally.stalls);
}

#[test]
fn a_source_lingers_for_as_long_as_it_is_told() {
    // A packet with a delayed repair is lost near the end: without linger only that is waited for.
    let owes = "data = \"1000 kB\"\noptions = { linger = \"0 s\", repair_delay = \"70 ms\" }";
    assert!(scenario("drop_list = [ 620 ]", owes, "60 s").tally.data > 700);
    let long = "data = \"70 kB\"\noptions = { linger = \"400 s\", spm_interval = \"1 s\" }";
    let run = scenario("", long, "450 s");
    run.assert_complete("long");
    assert!(run.tally.group_packets > 440, "an SPM each second: {}", run.tally.group_packets);
}

#[test]
fn a_stalled_window_still_tells_of_what_was_lost() {
    // In an endless stream, all packets and acknowledgements of one second are lost in mid-window.
    let gap = "changes = [ { at = \"20 s\", loss = 1.0 }, { at = \"21 s\", loss = 0.0 } ]";
    let run = scenario(gap, "", "60 s");
    run.assert_intact("stall");
    assert!(run.tally.missed.len() > 10, "{}", run.tally.missed.len());
    // Up to 1.1 s to detect, and at most as much for each of a few dozen repairs.
    assert!(run.tally.recovery_max().as_secs_f64() < 15.0, "{}", run.tally.recovery_max());
    let (before, after) = (run.tally.sent_between(10, 20), run.tally.sent_between(40, 50));
    assert!(after as f64 > 0.8 * before as f64, "{before} then {after}");
}

#[test]
fn who_joins_late_has_the_way_for_its_naks_at_once() {
    // Ambient SPMs are 30 s apart, and a receiver cannot send NAKs before its first SPM.
    let run = scenario("loss = 0.02", "join = [ { node = \"m\", at = \"32 s\" } ]", "50 s");
    run.assert_intact("late");
    assert!(run.tally.missed.len() > 3, "{}", run.tally.missed.len());
    assert!(run.tally.recovery_max().as_secs_f64() < 5.0, "{}", run.tally.recovery_max());
}
