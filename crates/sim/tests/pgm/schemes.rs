//! Streams and objects over every registered scheme, and ends with different schemes.

use faircast_proto::catalog::SCHEMES;

use super::world::run;

fn scenario(scheme: &str, delivery: &str, more: &str) -> String {
    format!(
        "title = \"Does everybody get it?\"\nduration = \"1500 s\"\n\
         [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"5 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 30 }}\n\
         [[link]]\nstar = {{ center = \"r\", leaves = [\"m{{1..4}}\"] }}\nrate = \"10 Mbit/s\"\n\
         delay = \"5 ms\"\nloss = 0.05\n\
         [[flow]]\nname = \"f\"\nprotocol = \"{scheme}\"\nfrom = \"s\"\nto = [\"m{{1..4}}\"]\n\
         packet = \"1400 B\"\ndata = \"1 MB\"\n\
         options = {{ delivery = \"{delivery}\", linger = \"5 s\" }}\n{more}\n"
    )
}

#[test]
fn every_scheme_carries_streams_and_objects_though_one_packet_in_20_is_lost() {
    for scheme in SCHEMES {
        for delivery in ["stream", "object"] {
            let run = run(&scenario(scheme.name, delivery, ""), 1);
            let case = format!("{}, {delivery}", scheme.name);
            run.assert_complete(&case);
            println!("{case}: {}", run.completed().unwrap());
            assert!(run.receivers().iter().all(|(delivery, _)| delivery.bytes == 1_000_000));
        }
    }
}

#[test]
fn a_receiver_of_another_scheme_gets_nothing_and_the_others_everything() {
    for scheme in SCHEMES {
        for other in SCHEMES.iter().filter(|other| other.name != scheme.name) {
            for delivery in ["stream", "object"] {
                let more =
                    format!("speaks = [ {{ node = \"m3\", protocol = \"{}\" }} ]", other.name);
                let run = run(&scenario(scheme.name, delivery, &more), 1);
                let case = format!("{} to {}, {delivery}", scheme.name, other.name);
                run.assert_intact(&case);
                for (place, (delivery, _)) in run.receivers().iter().enumerate() {
                    assert_eq!(delivery.completed.is_some(), place != 2, "{case}: {place}");
                    assert_eq!(delivery.bytes, if place == 2 { 0 } else { 1_000_000 }, "{case}");
                }
                // A receiver reports each packet until it accepts the other scheme: after twelve
                // that name it, or three in a second. A stream's source reports it once.
                let said = run.tally.bad_input.get("OtherScheme").copied();
                assert!(said.is_some_and(|said| (3..=20).contains(&said)), "{case}: {said:?}");
            }
        }
    }
}
