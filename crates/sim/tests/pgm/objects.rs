//! Flows that carry objects: every receiver completes, whenever it joined.

use super::world::run;

fn scenario(data: &str, options: &str, joins: &str) -> String {
    format!(
        "title = \"Does everybody get the object?\"\nduration = \"300 s\"\n\
         [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"5 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 30 }}\n\
         [[link]]\nbetween = [\"r\", \"a\"]\nrate = \"10 Mbit/s\"\ndelay = \"2 ms\"\n\
         [[link]]\nbetween = [\"r\", \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nloss = 0.01\n\
         [[link]]\nbetween = [\"r\", \"e\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nloss = 0.01\n\
         [[link]]\nbetween = [\"e\", \"c\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
         [[node]]\nname = \"e\"\nprogram = \"pgm-element\"\n\
         [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"a\", \"b\", \"c\"]\n\
         packet = \"1400 B\"\ndata = {data}\n{joins}\n\
         options = {{ delivery = \"object\", {options} }}\n"
    )
}

#[test]
fn an_object_of_zeros_completes_everywhere_for_every_kind_of_parity() {
    for fec in ["auto", "off", "10%"] {
        let run = run(&scenario("\"10 MB\"", &format!("fec = \"{fec}\""), ""), 1);
        run.assert_complete(fec);
        let useful = 10_000_000_u64.div_ceil(1392);
        let sent = run.tally.data + run.tally.repairs;
        let most = if fec == "10%" { 1.18 } else { 1.1 };
        let overhead = sent as f64 / useful as f64;
        println!("{fec}: {overhead:.3}, {}", run.completed().unwrap());
        assert!((1.0..most).contains(&overhead), "{fec}: {overhead}");
        assert!(run.receivers().iter().all(|(delivery, _)| delivery.bytes == 10_000_000));
    }
}

#[test]
fn a_source_that_is_not_to_linger_ends_when_all_have_it() {
    let sent = ["0 s", "1 ms"].map(|linger| {
        let run = run(&scenario("\"1 MB\"", &format!("linger = \"{linger}\""), ""), 1);
        run.assert_complete(linger);
        run.tally.group_packets
    });
    // A source that stays sends one SPM per second: 300.
    assert!(sent[0].abs_diff(sent[1]) < 20, "{sent:?}");
}

/// Early answers are slow while the source waits for reports; later repairs must not be.
#[test]
fn repairs_that_are_lost_at_the_end_are_soon_asked_for_again() {
    let text = "title = \"How long is the end?\"\nduration = \"120 s\"\n\
                [[link]]\nstar = { center = \"s\", leaves = [\"r{1..4}\"] }\nrate = \"1 Gbit/s\"\n\
                delay = \"0.2 ms\"\n\
                [[link]]\nbetween = [\"s\", \"g\"]\nrate = \"50 Mbit/s\"\ndelay = \"0.3 ms\"\n\
                queue = { kind = \"droptail\", packets = 90 }\nloss = 0.1\n\
                [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"r{1..4}\", \"g\"]\n\
                packet = \"1400 B\"\ndata = \"1.5 MB\"\noptions = { delivery = \"object\" }\n";
    let mut took: Vec<f64> = (1..=21)
        .map(|seed| {
            let run = run(text, seed);
            run.assert_complete("a lossy link");
            run.completed().unwrap().as_secs_f64()
        })
        .collect();
    took.sort_by(f64::total_cmp);
    println!("{took:.1?}");
    // With the initial waits: 7.4 s and 48 s.
    assert!(took[10] < 4.0 && took[20] < 12.0, "{took:.1?}");
}

#[test]
fn the_bytes_of_a_file_arrive_as_they_are() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine.rs");
    let data = format!("{{ file = \"{}\" }}", file.display());
    let run = run(&scenario(&data, "", ""), 2);
    run.assert_complete("a file");
}

#[test]
fn late_joiners_complete_and_who_leaves_holds_up_nobody() {
    let joins = "join = [{ node = \"a\", at = \"15 s\" }, { node = \"b\", at = \"60 s\" }, \
                 { node = \"c\", at = \"1 s\", leave = \"8 s\" }]";
    let run = run(&scenario("\"10 MB\"", "", joins), 3);
    run.assert_intact("joins");
    let receivers = run.receivers();
    for (place, (delivery, _)) in receivers[..2].iter().enumerate() {
        assert!(delivery.completed.is_some(), "{place} got {}", delivery.bytes);
    }
    assert!(receivers[2].0.completed.is_none() && receivers[2].0.bytes > 0);
}

#[test]
fn data_without_end_goes_on_to_the_end_of_the_run() {
    let run = run(&scenario("\"unlimited\"", "", ""), 4);
    run.assert_intact("unlimited");
    for (delivery, _) in run.receivers() {
        assert!(delivery.bytes > 50_000_000, "{}", delivery.bytes);
    }
}

#[test]
fn a_rate_that_is_set_is_the_rate() {
    for delivery in ["stream", "object"] {
        let text = scenario("\"unlimited\"", "rate_max = \"1 Mbit/s\"", "");
        let text = text.replace("delivery = \"object\"", &format!("delivery = \"{delivery}\""));
        let run = run(&text, 5);
        let mean = run.receivers()[0].0.bytes as f64 * 8.0 / 300.0;
        assert!((900_000.0..1_000_001.0).contains(&mean), "{delivery}: {mean}");
    }
}

/// Set 1 of Seada and Helmy: three equal receivers and a TCP behind one bottleneck. Objects and
/// streams should get equal numbers of cuts, and keep their representative.
#[test]
fn receivers_alike_are_one_to_the_scheme_however_they_ask_for_what_they_lack() {
    for seed in 1..=3 {
        let [stream, object] = ["stream", "object"].map(|delivery| {
            let text = format!(
                "title = \"Are they one?\"\nduration = \"400 s\"\n\
                 [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"500 kbit/s\"\ndelay = \"50 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 30 }}\n\
                 [[link]]\nstar = {{ center = \"b\", leaves = [\"r1\", \"r2\", \"r3\", \"t\"] }}\n\
                 rate = \"10 Mbit/s\"\ndelay = \"1 ms\"\n\
                 [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"a\"\n\
                 to = [\"r1\", \"r2\", \"r3\"]\n\
                 options = {{ delivery = \"{delivery}\", spm_interval = \"30 s\" }}\n\
                 [[flow]]\nname = \"tcp\"\nprotocol = \"tcp-sack\"\nfrom = \"a\"\nto = [\"t\"]\n"
            );
            run(&text, seed).tally
        });
        for (name, tally) in [("stream", &stream), ("object", &object)] {
            let count = tally.representatives.len();
            assert!((1..=3).contains(&count), "{name}, seed {seed}: {count} representatives");
        }
        let (cuts, like) = (object.cuts as f64, stream.cuts as f64);
        println!("seed {seed}: {cuts} cuts with objects, {like} with streams");
        assert!(like > 30.0 && (0.85..1.15).contains(&(cuts / like)), "seed {seed}: {cuts} {like}");
    }
}
