//! Requests for SPMs by receivers that join late, near each other or far apart.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use faircast_base::{Cx, FlowId, NodeId, Time};
use faircast_proto::pgm::wire::{PacketType, peek};
use faircast_proto::relay::Relay;
use faircast_proto::transport::Role;
use faircast_proto::{Destination, FlowEvent, FlowMachine, Machine, Transmit, passes_on};
use faircast_scenario::{Flow, Overrides, Program, Scenario};
use faircast_sim::{Builtin, Protocols, Simulation, Unobserved, catalog};

struct Counted {
    machine: FlowMachine,
    requests: Rc<Cell<u32>>,
}

impl Machine for Counted {
    type Event = FlowEvent;

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let transmit = self.machine.poll_transmit(cx, buf)?;
        let asks = peek(buf).is_some_and(|(kind, _)| kind == PacketType::Spmr);
        if asks && matches!(transmit.to, Destination::Node(_)) {
            self.requests.set(self.requests.get() + 1);
        }
        Some(transmit)
    }
    passes_on!(machine: handle_datagram, handle_timeout, handle_close, poll_membership, poll_event, next_timeout);
}

struct Counting(Rc<Cell<u32>>);

impl Protocols for Counting {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let machine = Builtin.end(flow, id, node, role, start);
        Box::new(Counted { machine, requests: Rc::clone(&self.0) })
    }
    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        Builtin.relay(program, node)
    }
}

fn requests(links: &str, seed: u64) -> u32 {
    let text = format!(
        "title = \"Do neighbours ask twice for an SPM?\"\nduration = \"4 s\"\n{links}\
         [[flow]]\nname = \"mcc\"\nprotocol = \"pgmcc\"\nfrom = \"s\"\nto = [\"a\", \"b\"]\n\
         join = [{{ node = \"a\", at = \"2 s\" }}, {{ node = \"b\", at = \"2 s\" }}]\n\
         options = {{ spm_interval = \"3000 s\", heartbeat_min = \"3000 s\", heartbeat_max = \"3000 s\" }}\n"
    );
    let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
    let scenario = Scenario::parse(Path::new("test.toml"), &text, &overrides, &catalog()).unwrap();
    let (mut sink, requests) = ((), Rc::default());
    let protocols = Counting(Rc::clone(&requests));
    Simulation::new(&scenario, &protocols, &mut sink).unwrap().run(&mut Unobserved);
    requests.get()
}

#[test]
fn an_spm_request_that_a_neighbour_hears_keeps_it_from_asking_too() {
    // Requests take 80 ms to the source and back, 1 ms to a neighbour.
    let far = "rate = \"10 Mbit/s\"\ndelay = \"40 ms\"\n";
    let near = "rate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n";
    let link = |a: &str, b: &str, at: &str| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\n{at}");
    let neighbours = [link("s", "a", far), link("a", "b", near)].concat();
    let apart = [link("s", "r", far), link("r", "a", near), link("r", "b", near)].concat();
    let all = |links: &str| (1..=20).map(|seed| requests(links, seed)).sum::<u32>();
    let [neighbours, apart] = [&neighbours, &apart].map(|links| all(links));
    // The later back-off (up to 250 ms) far away sends a request too, unless the answer is faster.
    assert!(apart > 28, "{apart} requests");
    assert!(neighbours <= 22, "{neighbours} requests");
}
