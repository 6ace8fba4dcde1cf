//! Tree of two relays in series with three receivers, in which sessions bring programs.

use std::path::Path;
use std::sync::Arc;

use faircast_base::{FlowId, NodeId, Time};
use faircast_proto::FlowMachine;
use faircast_proto::catalog;
use faircast_proto::credit::ProgramHost;
use faircast_proto::relay::Relay;
use faircast_proto::transport::Role;
use faircast_scenario::{Catalog, Flow, Overrides, Program, Scenario};
use faircast_sim::{Builtin, Protocols, SimOutcome, Simulation, Unobserved};
use faircast_trace::{Record, Sink};

pub(crate) struct World<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) parameter: u32,
    pub(crate) layers: u32,
    pub(crate) data: &'static str,
    pub(crate) links: &'static str,
    pub(crate) more: &'static str,
    pub(crate) seconds: u32,
}

pub(crate) const BESIDE: &str = "[[flow]]\nname = \"beside\"\nprotocol = \"credit\"\nfrom = \"s\"\n\
    to = [\"m{1..3}\"]\npacket = \"512 B\"\ndata = \"1 MB\"\n";

impl<'a> World<'a> {
    pub(crate) fn with(code: &'a [u8]) -> Self {
        let (data, links, more) = ("300 kB", "", "");
        Self { code, parameter: 0, layers: 1, data, links, more, seconds: 120 }
    }

    fn text(&self, program: &Path) -> String {
        let mut text =
            format!("title = \"Who sets the pace?\"\nduration = \"{} s\"\n", self.seconds);
        for (from, to, rate, keys) in [
            ("s", "a", 10, self.links),
            ("a", "b", 10, self.links),
            ("a", "m1", 4, ""),
            ("b", "m2", 2, ""),
            ("b", "m3", 1, ""),
        ] {
            for (from, to) in [(from, to), (to, from)] {
                text += &format!(
                    "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} Mbit/s\"\n\
                     delay = \"5 ms\"\nqueue = {{ kind = \"droptail\", packets = 50 }}\n{keys}\n"
                );
            }
        }
        for relay in ["a", "b"] {
            text += &format!("[[node]]\nname = \"{relay}\"\nprogram = \"credit\"\n");
        }
        let Self { parameter, layers, data, .. } = self;
        text + &format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"credit\"\nfrom = \"s\"\nto = [\"m{{1..3}}\"]\n\
             packet = \"512 B\"\ndata = \"{data}\"\noptions = {{ credit_buffer = 10, program = \"{}\", \
             parameter = {parameter}, layers = {layers} }}\n{}",
            program.display(),
            self.more
        )
    }

    pub(crate) fn run(
        &self,
        host: Option<Arc<dyn ProgramHost>>,
        sink: &mut dyn Sink,
    ) -> SimOutcome {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program.wasm");
        std::fs::write(&program, self.code).unwrap();
        let text = self.text(&program);
        let catalog = Catalog { runs_sessions_programs: true, ..faircast_sim::catalog() };
        let file = Path::new("test.toml");
        let scenario = Scenario::parse(file, &text, &Overrides::default(), &catalog)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        Simulation::new(&scenario, &With(host), sink).unwrap().run(&mut Unobserved)
    }
}

struct With(Option<Arc<dyn ProgramHost>>);

impl Protocols for With {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        Builtin.end(flow, id, node, role, start)
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        (catalog::relay(&program.name).unwrap().relay)(node, &program.options, self.0.clone())
    }
}

#[derive(Default)]
struct All(Vec<String>);

impl Sink for All {
    fn record(&mut self, record: &Record) {
        self.0.push(format!("{record:?}"));
    }
}

pub(crate) fn traced(world: &World<'_>, host: Arc<dyn ProgramHost>) -> Vec<String> {
    let mut all = All::default();
    world.run(Some(host), &mut all);
    all.0
}
