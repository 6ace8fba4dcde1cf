//! Hosts around one router, with a scenario's links and with programs on the hosts.

use std::os::unix::process::CommandExt as _;

use faircast_base::NodeId;
use faircast_lab::Field;
use faircast_scenario::{Overrides, Scenario};

use super::site::Site;
use super::*;

pub(super) fn link(mbit_per_s: u32, delay_ms: u32, loss: f64, packets: u32) -> String {
    format!(
        "rate = \"{mbit_per_s} Mbit/s\"\ndelay = \"{delay_ms} ms\"\nloss = {loss:.2}\n\
         queue = {{ kind = \"droptail\", packets = {packets} }}"
    )
}

pub(super) struct Hosts {
    pub(super) field: Field,
    pub(super) site: Site,
    nodes: Vec<(String, NodeId)>,
}

impl Hosts {
    /// `link` returns the settings of the router's link to a host, or without a name to the router.
    pub(super) fn new(names: &[&str], link: impl Fn(Option<&str>) -> String) -> Self {
        let mut text = "title = \"Who gets what?\"\nduration = \"10 min\"\n".to_string();
        for name in names {
            let others: Vec<&&str> = names.iter().filter(|other| other != &name).collect();
            let (to, from) = (link(Some(name)), link(None));
            text += &format!(
                "[[link]]\nfrom = \"router\"\nto = \"{name}\"\n{to}\n\
                 [[link]]\nfrom = \"{name}\"\nto = \"router\"\n{from}\n\
                 [[flow]]\nname = \"{name}\"\nprotocol = \"cbr\"\nfrom = \"{name}\"\nto = {others:?}\n"
            );
        }
        let (path, catalog) = (Path::new("hosts.toml"), faircast_sim::catalog());
        let scenario = Scenario::parse(path, &text, &Overrides::default(), &catalog).unwrap();
        let nodes = scenario.flows.iter().map(|flow| (flow.name.clone(), flow.sender())).collect();
        let site = Site::with(&format!("--group {}:7500 --json", Field::group()));
        Self { field: Field::new(scenario).unwrap(), site, nodes }
    }

    fn node(&self, name: &str) -> NodeId {
        self.nodes.iter().find(|(known, _)| known == name).unwrap().1
    }

    /// Returns the node number of a host in the protocols, which is its address.
    pub(super) fn number(&self, name: &str) -> u64 {
        u32::from(self.address(name)).into()
    }

    pub(super) fn address(&self, name: &str) -> std::net::Ipv4Addr {
        self.field.current_address(self.node(name))
    }

    pub(super) fn start(&self, name: &str, words: &str) -> Running {
        self.run(name, self.site.command(words))
    }

    pub(super) fn relay(&self, name: &str, more: &str) -> Running {
        let mut command = program(&format!("relay --listen 0.0.0.0:7600 {more} --json"));
        command.current_dir(self.site.path(""));
        let relay = self.run(name, command);
        relay.until("listening", |_| true);
        relay
    }

    pub(super) fn python(&self, name: &str, text: &str, more: &[String]) -> Running {
        let mut command = Command::new("python3");
        command.args(["-c", text]).args(more);
        self.run(name, command)
    }

    pub(super) fn loopback_up(&self, name: &str) {
        let mut up = Command::new("ip");
        up.args(["link", "set", "lo", "up"]);
        self.run(name, up).end_with(0);
    }

    pub(super) fn run(&self, name: &str, mut command: Command) -> Running {
        let node = self.node(name);
        command.process_group(0);
        Running::spawn_by(command, |command| self.field.spawn(node, command))
    }
}
