//! Scheme of another crate, added to the catalog at run time: over PGM, the tree and credits.

use faircast_base::{Bitrate, Cx, Duration, NodeId, Seq, Time};
use faircast_proto::congestion::{
    Arrival, Audience, Carrier, Gauges, Guarantees, Pace, Permit, ReceiverFeedback, Scheme,
    SchemeEntry, SenderControl, Wire, boxed_control, pgmcc::Pgmcc,
};
use faircast_proto::options::{OptionKind, OptionSpec, Options};
use faircast_study::{Draft, ListEntry, Study};

/// Rate of 10 packets of 1000 bytes a second, without reports.
struct Metronome;

struct Beat(Pace);

struct Mute;

struct Empty<const OPTION: u8>;

impl<const OPTION: u8> Wire for Empty<OPTION> {
    const OPTION: u8 = OPTION;

    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(Self)
    }
}

impl Scheme for Metronome {
    const NAME: &'static str = "metronome";
    const ABOUT: &'static str = "a constant rate";
    const OPTIONS: &'static [OptionSpec] = &[OptionSpec {
        name: "kbit_per_s",
        kind: OptionKind::Integer { min: 1, max: 1000 },
        default: "80",
        doc: "Rate",
    }];
    const GUARANTEES: Guarantees = Guarantees::SILENT;
    type Control = Beat;
    type Feedback = Mute;

    fn control(options: &Options) -> Beat {
        let kbit_per_s = options.integer("kbit_per_s").unwrap_or(80) as f64;
        Beat(Pace::new(kbit_per_s * 1e3, Duration::from_millis(1)))
    }

    fn feedback(_: &Options, _: NodeId) -> Mute {
        Mute
    }
}

impl SenderControl for Beat {
    type Announce = Empty<0x70>;
    type Report = Empty<0x71>;

    fn permit(&mut self, cx: &mut Cx<'_>, _: u32, _: bool) -> Permit {
        self.0.permit(cx.now)
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, _: Seq, len: u32) -> Empty<0x70> {
        self.0.spend(cx.now, len);
        Empty
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, _: &Empty<0x71>) {}

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges { rate_bits_per_s: Some(self.0.bits_per_s()), ..Gauges::default() }
    }
}

impl ReceiverFeedback for Mute {
    type Announce = Empty<0x70>;
    type Report = Empty<0x71>;

    fn on_data(&mut self, _: &mut Cx<'_>, _: &Arrival, _: Option<&Empty<0x70>>) {}

    fn on_missing(&mut self, _: &mut Cx<'_>, _: Seq, _: Seq) {}

    fn poll_report(&mut self, _: &mut Cx<'_>) -> Option<(Audience, Empty<0x71>)> {
        None
    }

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

fn draft(protocol: &str) -> Draft {
    let (rate, delay) = (Bitrate::from_bits_per_s(1_000_000), Duration::from_millis(10));
    let flow = ListEntry::flow("own", protocol, "s", ["a", "b"]).set("options.kbit_per_s", 160);
    Draft::new("own")
        .set("duration", Duration::from_secs(20))
        .set("warmup", Duration::from_secs(10))
        .add("link", ListEntry::link("s", "r", rate, delay))
        .add("link", ListEntry::link("r", "a", rate, delay).set("loss", 0.01))
        .add("link", ListEntry::link("r", "b", rate, delay))
        .add("flow", flow)
}

#[test]
fn a_scheme_that_is_added_at_run_time_runs_over_everything_that_a_scheme_can_steer() {
    let mut study = Study::default();
    let error = draft("metronome").check(&study.catalog).unwrap_err().to_string();
    assert!(error.starts_with("own: flow.0.protocol: unknown protocol \"metronome\""), "{error}");
    study.catalog.add_scheme(SchemeEntry::of::<Metronome>()).unwrap();
    for protocol in ["metronome", "tram-metronome", "credit-metronome"] {
        let scenario = draft(protocol).check(&study.catalog).unwrap();
        let run = study.run(&scenario, &mut faircast_sim::Unobserved, &mut ()).unwrap();
        let flow = &run.summary.flows[0];
        assert_eq!(flow.protocol, protocol);
        let rates = flow.receivers.iter().map(|receiver| receiver.goodput_bps);
        for rate in rates {
            assert!((120e3..180e3).contains(&rate), "{protocol}: {rate} bit/s");
        }
    }
}

#[test]
fn the_halves_of_a_scheme_may_carry_values_of_the_program() {
    let mut study = Study::default();
    let (rate, delay) = (80e3, Duration::from_millis(1));
    let control = move |_: &Options, _: u32| boxed_control(Beat(Pace::new(rate, delay)));
    let control = Box::leak(Box::new(control));
    let entry = SchemeEntry { name: "given", control, ..SchemeEntry::of::<Metronome>() };
    study.catalog.add_scheme(entry).unwrap();
    let scenario = draft("given").check(&study.catalog).unwrap();
    let run = study.run(&scenario, &mut faircast_sim::Unobserved, &mut ()).unwrap();
    let rate = run.summary.flows[0].throughput_bps;
    assert!((60e3..90e3).contains(&rate), "{rate} bit/s");
}

#[test]
fn a_name_or_a_number_that_is_taken_is_refused() {
    let mut study = Study::default();
    let entry = SchemeEntry::of::<Metronome>();
    study.catalog.add_scheme(entry).unwrap();
    let error = study.catalog.add_scheme(entry).unwrap_err();
    assert!(error.contains("a protocol of this name"), "{error}");
    let again = SchemeEntry { name: "again", ..SchemeEntry::of::<Pgmcc>() };
    let error = study.catalog.add_scheme(again).unwrap_err();
    assert!(error.contains("again: pgmcc has an option number 0x12 or 0x13"), "{error}");
}
