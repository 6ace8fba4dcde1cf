//! Messages about mistakes: one line each, with the mistake, its place, and the allowed values.

use super::site::Site;
use super::*;

const GOOD: &str = r#"title = "Is a good file accepted?"
duration = "10 s"
[[link]]
between = ["a", "b"]
rate = "1 Mbit/s"
delay = "10 ms"
[[link]]
from = "a"
to = "c"
rate = "1 Mbit/s"
delay = "10 ms"
[[flow]]
name = "f"
protocol = "pgmcc"
from = "a"
to = ["b"]
data = "10 kB"
"#;

#[test]
fn a_mistake_in_the_file_is_named_with_file_line_key_value_and_what_is_allowed() {
    let site = Site::of("good.toml", GOOD);
    site.succeed("run good.toml");
    let data = "data = \"10 kB\"";
    for (from, to, want) in [
        ("delay = \"10 ms\"\n[[flow", "delay = \n[[flow", &[":11: not valid TOML"][..]),
        (
            "duration",
            "durration",
            &[":2: durration: ", "unknown key \"durration\"", "did you mean \"duration\"", "seed"],
        ),
        ("1 Mbit/s", "1000", &[":5: link.0.rate: \"1000\" has no unit", "kbit/s"]),
        ("1 Mbit/s", "-5 Mbit/s", &[":5: link.0.rate: ", "\"-5 Mbit/s\"", "expected"]),
        (
            data,
            "packet = \"0 B\"",
            &[":17: flow.0.packet: is \"0 B\"; expected a size from 1 B to"],
        ),
        (
            "[\"b\"]",
            "[\"c\"]",
            &[":16: flow.0.to.0: ", "no path of links leads back from \"c\" to \"a\"", "expected"],
        ),
        (
            "[[flow]]",
            "[[flow]]\nname = \"f\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\n[[flow]]",
            &[":18: flow.1.name: \"f\" is the name of an earlier flow", "allowed"],
        ),
        (
            "[[flow]]",
            "[[node]]\nname = [\"b\", \"b\"]\nprogram = \"pgm-element\"\n[[flow]]",
            &[":13: node.0.name.1: \"b\"", "allowed"],
        ),
        (
            data,
            "data = { file = \"none.bin\" }",
            &[":17: flow.0.data.file: is \"none.bin\", which cannot be read: No such file"],
        ),
        (
            "10 s",
            "8760000 h",
            &[":2: duration: is \"8760000 h\"; expected a duration from ", "864000 s"],
        ),
        (
            "pgmcc",
            "pgmc",
            &[":14: flow.0.protocol: unknown protocol \"pgmc\" (did you mean \"pgmcc\"?)", "cbr"],
        ),
        (data, "options = { aker_bias = 0.5 }", &[":17: flow.0.options.aker_bias: ", "acker_bias"]),
        (
            data,
            "options = { acker_bias = \"high\" }",
            &[":17: flow.0.options.acker_bias: ", "\"high\"", "number"],
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        site.put("bad.toml", GOOD.replacen(from, to, 1));
        let line = site.start("run bad.toml").refuse();
        for part in want.iter().chain(&["bad.toml"]) {
            assert!(line.contains(part), "{to}: wanted {part}: {line}");
        }
    }
}

#[test]
fn a_mistake_in_the_arguments_is_named_with_what_is_allowed() {
    let site = Site::of("good.toml", GOOD);
    site.put("a-file", "x");
    site.put("empty", "");
    for (words, want) in [
        ("run none.toml", "none.toml: cannot be read: No such file"),
        ("run good.toml --set 'flow.g.start=1 s'", "flow.g: is no entry of the list"),
        ("run good.toml --set 'link.0.rat=1 Mbit/s'", "unknown key \"rat\" (did you mean"),
        ("run good.toml --set link.0.rate", "expected KEY=VALUE"),
        ("run good.toml --set flow.f.options.acker_bias=7", "flow.f.options.acker_bias"),
        (
            "run good.toml --set flow.f.options.bias=1",
            "(did you mean \"acker_bias\"?); \"faircast schemes pgmcc\" lists all ",
        ),
        ("run good.toml --set 'link.0.rate=500 Kbps'", "(did you mean \"500 kbit/s\"?)"),
        ("run good.toml --seed -1", "--seed"),
        ("run good.toml --seed one", "expected a whole number from 0 to"),
        ("run good.toml --on mars", "possible values: sim, lab"),
        ("run good.toml --out a-file/out", "a-file/out: the folder cannot be made"),
        ("run", "<FILE>"),
        ("send a-file --via 127.0.0.1:7600", "--meeting NAME"),
        ("send a-file --group 239.1.2.3:7500 --via a", "--via a: "),
        ("send a-file --meeting images --via 239.1.2.3:7500", "is a multicast group"),
        (
            "send a-file --group 239.1.2.3:7500 --via 127.0.0.1:1 --to 127.0.0.1:2",
            "cannot be used with",
        ),
        (
            "recv --group 239.1.2.3:7500 --via 127.0.0.1:1 --interface lo --into in",
            "cannot be used with",
        ),
        ("relay", "--listen <ADDR:PORT>"),
        ("relay --listen 127.0.0.1:7600 --parent 239.1.2.3:7600", "is a multicast group"),
        ("relay --listen 127.0.0.1:7600 --parent [::1]:7600", "not of the same address family"),
        ("relay --listen 127.0.0.1:7600 --option sessions=3", "sessions_max"),
        ("relay --listen 127.0.0.1:7600 --rate-max 1k", "16 kbit/s"),
        ("check --to 10.0.0.1:0", "expected the port that `recv --listen`"),
        ("sweep good.toml", "--out <DIR>"),
        ("sweep good.toml --out o --set 'duration=1 s,1 parsec'", "\"1 parsec\" has an"),
        ("sweep good.toml --out o --set 'duration=1 s,,'", "has an empty value"),
        ("sweep good.toml --out o --set seed=1,2", "seeds are given by --seeds"),
        ("sweep good.toml --out o --seeds 0", "0 is not in 1..=100000"),
        ("sweep good.toml --out a-file/out", "cannot be made"),
        (
            "bench nosuch",
            "no suite is called \"nosuch\"; there are tcp, fairness, fec, tfmcc, ormcc, tram, credit, tram-scale, speed",
        ),
        ("bench none.toml", "none.toml: cannot be read"),
        // Reported at once, not minutes later after the first suite.
        ("bench tcp nosuch", "no suite is called \"nosuch\""),
        ("bench tcp --only nosuch", "--only nosuch: no experiment has that"),
        ("bench tcp --only droplist --out a-file/out", "cannot be made"),
        ("bench tcp --scheme pgmcc", "\"tcp\" has no session"),
        ("bench fec --on lab", "--on lab: no experiment of fec has lab = SEEDS"),
        ("bench matrix --on lab", "--on lab: matrix has no experiment for the lab"),
        ("bench wire --only nosuch", "wire has no such row; there are faircast, "),
        ("bench speed --scheme pgmcc", "\"speed\" has no session"),
        ("bench attack --only nosuch", "attack has no such row; there are nothing, "),
        ("bench attack --scheme pgmc", "no such scheme; there are pgmcc"),
        ("bench wire --program x", "--program: belongs to the suite attack alone"),
        ("bench wire --scheme pgmc", "no such scheme; there are pgmcc"),
        ("soak --scheme pgmc", "there are pgmcc"),
        ("bench wire --size '1 TB'", "expected 1MB to 1000GB"),
        ("bench --seeds 0", "0 is not in 1..=100000"),
        ("bench --option a=1", "--scheme"),
        ("demo --file none.bin", "none.bin: No such file"),
        ("demo --file empty", "is empty"),
        ("demo --out a-file/out", "cannot be made"),
        ("report none", "none: there is no such file; expected a trace"),
        ("report good.toml", "good.toml:1"),
        ("schemes nosuch", "no protocol or router program is called \"nosuch\"; there are"),
        ("completions cobol", "possible values: bash"),
        ("man --out a-file/out", "cannot be made"),
        ("dance", "unrecognized subcommand 'dance'"),
    ] {
        site.start(words).refuse_with(want);
    }
    assert!(!site.path("none.toml").exists());
}

#[test]
fn a_static_tree_that_is_none_is_named_with_file_and_line() {
    let site = Site::with("");
    site.put("cycle", "# heads\na b\nb c\nc a\n");
    site.put("head", "a sender\nb a\n");
    let recv = format!("recv --group {} --interface lo --into in --name a", site::group());
    for (words, want) in [
        ("--tree none", "none: cannot be read: No such file"),
        ("--tree cycle", "cycle:4: `c` is its own head, through others: c -> a -> b -> c"),
        ("--tree head --head never", "the tree has `a` for the head of `b`"),
    ] {
        site.start(&format!("{recv} {words}")).refuse_with(want);
    }
    site.start("recv --listen 0.0.0.0:1 --into in --tree head").refuse_with("--group");
}

#[test]
fn no_argument_at_all_gets_the_help_and_status_2() {
    let ended = run_within(HANG_S, "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("faircast demo"), "{}", ended.err);
}
