//! Object over a drop-tail bottleneck, with random loss for one receiver, by profile of pgmcc.

use super::world::run;

#[test]
fn an_object_crosses_a_bottleneck_intact_at_most_of_its_rate() {
    for (profile, loss, share) in
        [("improved", 0.0, 0.8), ("improved", 0.01, 0.5), ("draft", 0.0, 0.6), ("paper", 0.0, 0.6)]
    {
        let branch = |to: &str, loss: f64| {
            format!(
                "[[link]]\nbetween = [\"r\", \"{to}\"]\nrate = \"10 Mbit/s\"\ndelay = \"1 ms\"\n\
                 loss = {loss}\n"
            )
        };
        let branches = branch("m1", 0.0) + &branch("m2", 0.0) + &branch("m3", loss);
        // 2000 packets on a link of about 100 packets per second.
        let run = run(
            &format!(
                "title = \"Profiles\"\nduration = \"400 s\"\n\
                 [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"800 kbit/s\"\ndelay = \"25 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 15 }}\n\
                 {branches}\
                 [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"m{{1..3}}\"]\n\
                 packet = \"956 B\"\ndata = \"1912 kB\"\noptions = {{ profile = \"{profile}\" }}\n"
            ),
            1,
        );
        let case = format!("{profile} with loss {loss}");
        run.assert_complete(&case);
        let took = run.completed().unwrap().as_secs_f64();
        assert!(took > 20.0 && took < 20.0 / share, "{case}: {took} s");
        assert!(run.tally.overflows > 0, "{case}: the queue was never full");
        assert!(run.tally.cuts > 3, "{case}: {} cuts", run.tally.cuts);
        assert!(run.tally.bad_input.is_empty(), "{case}: {:?}", run.tally.bad_input);
    }
}
