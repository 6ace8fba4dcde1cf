//! Configuration of a daemon: `node.toml`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use faircast_hop::RelayKey;
use faircast_overlay::{DaemonSettings, NAME_BYTES_MAX};
use faircast_seal::{Exposure, RelaySecret};
use serde::Deserialize;

use crate::server::{ClientAddress, ServerSettings};

/// Error of a configuration, with the file and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Configuration of a daemon, checked.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Settings of the daemon and its sockets.
    pub server: ServerSettings,
    /// Address at which the daemon serves its status over HTTP.
    pub status: Option<SocketAddr>,
}

/// Text of a configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    listen: Option<SocketAddr>,
    #[serde(default)]
    peers: Vec<String>,
    key: Option<PathBuf>,
    clients: Vec<String>,
    status: Option<SocketAddr>,
    retention_bytes: Option<usize>,
    client_bytes: Option<usize>,
    history_bytes: Option<usize>,
}

impl NodeConfig {
    /// Reads a configuration. A key file is relative to the folder of the configuration.
    ///
    /// # Errors
    /// The file cannot be read, or a value is not allowed.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let advice = "`faircast node init DIR --sites 2` writes an example";
            ConfigError(format!("{shown}: {error}; {advice}"))
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let shown = path.display();
        let read: Text = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            ConfigError(format!("{shown}:{line}: {}", error.message().replace('\n', " ")))
        })?;
        let wrong = |key: &str, what: String| {
            let is_key = |line: &&str| {
                line.trim_start()
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.trim_start().starts_with('='))
            };
            let line = text.lines().position(|line| is_key(&line)).map_or(1, |at| at + 1);
            ConfigError(format!("{shown}:{line}: {key}: {what}"))
        };
        if !(1..=NAME_BYTES_MAX).contains(&read.name.len()) {
            let text = format!("\"{}\"; expected 1 to {NAME_BYTES_MAX} bytes", read.name);
            return Err(wrong("name", text));
        }
        for peer in &read.peers {
            let port = peer.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.and_then(|(_, port)| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
                let text = format!("\"{peer}\"; expected HOST:PORT, such as b.example:4804");
                return Err(wrong("peers", text));
            }
        }
        let clients = read.clients.iter().map(|text| text.parse::<ClientAddress>());
        let clients = clients.collect::<Result<Vec<_>, _>>().map_err(|it| wrong("clients", it))?;
        for address in &clients {
            if let ClientAddress::Tcp(address) = address
                && !address.ip().is_loopback()
            {
                let text = format!(
                    "\"tcp:{address}\": connections of clients are not encrypted; expected a \
                     loopback address, such as tcp:127.0.0.1:4803, or unix:/PATH"
                );
                return Err(wrong("clients", text));
            }
        }
        if let Some(status) = read.status.filter(|at| !at.ip().is_loopback()) {
            let text = format!("{status}; expected a loopback address, such as 127.0.0.1:9480");
            return Err(wrong("status", text));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let key = match read.key.map(|key| folder.join(key)) {
            None => RelayKey::none(),
            Some(file) => match RelaySecret::read(&file, Exposure::Refuse) {
                Ok(secret) => RelayKey::shared(secret.bytes()),
                Err(error) => return Err(wrong("key", error.to_string())),
            },
        };
        let listen = read.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        if !key.authenticates() && !listen.ip().is_loopback() {
            let text = format!(
                "{listen}: without a key any host could join the overlay; make one by `faircast \
                 key new`, and write key = \"FILE\""
            );
            return Err(wrong("listen", text));
        }
        let usual = DaemonSettings::default();
        let limits = DaemonSettings {
            retention_bytes: read.retention_bytes.unwrap_or(usual.retention_bytes),
            client_bytes: read.client_bytes.unwrap_or(usual.client_bytes),
            history_bytes: read.history_bytes.unwrap_or(usual.history_bytes),
        };
        let (name, peers) = (read.name, read.peers);
        let server = ServerSettings { name, listen, peers, key, clients, limits };
        Ok(Self { server, status: read.status })
    }

    /// Text of the configuration of one of several sites.
    pub fn example(site: usize) -> String {
        let name = |site: usize| format!("site{}", site + 1);
        let mut text = format!(
            "# A daemon of the overlay. Run by: faircast node --config {0}.toml\n\n\
             # Name, unique in the overlay.\n\
             name = \"{0}\"\n\n\
             # UDP address at which other daemons reach this one.\n\
             listen = \"0.0.0.0:4804\"\n\n\
             # Daemons to which this one opens a link: replace the hosts by your own.\n\
             peers = [",
            name(site)
        );
        let hosts: Vec<String> =
            (0..site.min(2)).map(|other| format!("\"{}.example:4804\"", name(other))).collect();
        let _ = write!(text, "{}]\n\n", hosts.join(", "));
        text += "# Key of all daemons. Bring the file to each site by a way that you trust.\n\
                 key = \"overlay.key\"\n\n\
                 # Addresses for clients of this host.\n\
                 clients = [\"unix:/run/faircast/node.sock\", \"tcp:127.0.0.1:4803\"]\n\n\
                 # Address of /status, /metrics and /healthz.\n\
                 status = \"127.0.0.1:9480\"\n";
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"a\"\nlisten = \"127.0.0.1:0\"\npeers = [\"b.example:4804\"]\n\
                        clients = [\"tcp:127.0.0.1:0\"]\n";

    #[test]
    fn errors_name_the_file_the_line_the_key_and_what_is_allowed() {
        let parse = |text: &str| NodeConfig::parse(Path::new("n.toml"), text);
        let good = parse(GOOD).unwrap();
        assert_eq!(good.server.peers, ["b.example:4804"]);
        for (from, to, want) in [
            ("peers", "pears", "n.toml:3: unknown field `pears`, expected one of `name`"),
            ("\"a\"", "\"\"", "n.toml:1: name: \"\"; expected 1 to 64 bytes"),
            ("b.example:4804", "b.example", "n.toml:3: peers: \"b.example\"; expected HOST:PORT"),
            (
                "tcp:127.0.0.1:0",
                "udp:1",
                "n.toml:4: clients: \"udp:1\": expected unix:/PATH or tcp",
            ),
            ("tcp:127.0.0.1:0", "tcp:10.0.0.1:9", "n.toml:4: clients: \"tcp:10.0.0.1:9\": conn"),
            ("\"127.0.0.1:0\"", "\"0.0.0.0:9\"", "n.toml:2: listen: 0.0.0.0:9: without a key"),
            ("\"127.0.0.1:0\"", "7", "n.toml:2: invalid type"),
            ("name", "key = \"none.key\"\nname", "n.toml:1: key: none.key: "),
            ("name", "status = \"0.0.0.0:1\"\nname", "n.toml:1: status: 0.0.0.0:1; expected a"),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn examples_are_accepted_beside_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = faircast_seal::GroupKey::create(&folder.path().join("group.key")).unwrap();
        key.relay().write(&folder.path().join("overlay.key")).unwrap();
        for site in 0..4 {
            let text = NodeConfig::example(site);
            let config = NodeConfig::parse(&folder.path().join("node.toml"), &text).unwrap();
            assert_eq!(config.server.name, format!("site{}", site + 1));
            assert_eq!(config.server.peers.len(), site.min(2));
            assert!(config.server.key.authenticates());
        }
    }
}
