//! Hosts around one router, with the links of a scenario between them and programs on them.

use std::os::unix::process::CommandExt as _;

use faircast_base::NodeId;
use faircast_lab::Field;
use faircast_scenario::{Overrides, Scenario};

use super::site::Site;
use super::*;

/// Hosts, and what they send and receive.
pub(super) struct Hosts {
    pub(super) field: Field,
    pub(super) site: Site,
    nodes: Vec<(String, NodeId)>,
}

impl Hosts {
    /// Hosts of these names; `link` gives the settings of the link from the router to each, and without
    /// a name of all links to the router.
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

    /// The number by which protocols know a host: that of its address.
    pub(super) fn number(&self, name: &str) -> u64 {
        u32::from(self.address(name)).into()
    }

    pub(super) fn address(&self, name: &str) -> std::net::Ipv4Addr {
        Field::address(self.node(name))
    }

    /// Starts the program on a host.
    pub(super) fn start(&self, name: &str, words: &str) -> Running {
        self.run(name, self.site.command(words))
    }

    /// Starts a program of the site on a host.
    pub(super) fn run(&self, name: &str, mut command: Command) -> Running {
        let node = self.node(name);
        command.process_group(0);
        Running::spawn_by(command, |command| self.field.spawn(node, command))
    }
}
