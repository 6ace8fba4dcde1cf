//! Configuration of a daemon: `node.toml`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use faircast_hop::RelayKey;
use faircast_overlay::{DaemonSettings, FlowControl, NAME_BYTES_MAX};
use faircast_proto::options::{OptionValue, Options};
use faircast_seal::{Exposure, RelaySecret};
use serde::Deserialize;

use crate::server::{ClientAddress, ServerSettings, ServerTls};

/// Error in a configuration: the file, the problem and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Checked configuration of a daemon.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Settings of the daemon and its sockets.
    pub server: ServerSettings,
    /// Address of the HTTP server for the daemon's status.
    pub status: Option<SocketAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    listen: Option<SocketAddr>,
    #[serde(default)]
    peers: Vec<String>,
    key: Option<PathBuf>,
    clients: Vec<String>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    tokens: Option<PathBuf>,
    status: Option<SocketAddr>,
    retention_bytes: Option<usize>,
    client_bytes: Option<usize>,
    history_bytes: Option<usize>,
    #[serde(default)]
    flow_control: toml::Table,
}

fn flow_control(table: toml::Table) -> Result<FlowControl, (String, String)> {
    let given = table.into_iter().map(|(key, value)| {
        let value = match value {
            toml::Value::String(text) => OptionValue::Text(text),
            toml::Value::Integer(number) => OptionValue::Integer(number),
            toml::Value::Float(number) => OptionValue::Float(number),
            toml::Value::Boolean(is) => OptionValue::Bool(is),
            _ => return Err((key, "is a list or a table; allowed: one value".into())),
        };
        Ok((key, value))
    });
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let options = Options::checked(given, FlowControl::OPTIONS)
        .map_err(|error| (error.key, error.message))?;
    let flow_control = FlowControl::from_options(&options);
    flow_control.check().map_err(|(option, text)| (option.into(), text))?;
    Ok(flow_control)
}

impl NodeConfig {
    /// Reads a configuration, whose relative file names start from its folder; fails on a file that
    /// cannot be read, or a value that is not allowed.
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
        let clients = client_addresses(&read.clients).map_err(|text| wrong("clients", text))?;
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
        let files = [read.certificate, read.certificate_key, read.client_ca, read.tokens];
        let files = files.map(|file| file.map(|file| folder.join(file)));
        let tls = server_tls(&files, &clients).map_err(|(key, text)| wrong(key, text))?;
        let listen = read.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        if !key.authenticates() && !listen.ip().is_loopback() {
            let text = format!(
                "{listen}: without a key any host could join the overlay; make one by `faircast \
                 key new`, and write key = \"FILE\""
            );
            return Err(wrong("listen", text));
        }
        let flow_control =
            flow_control(read.flow_control).map_err(|(key, text)| wrong(&key, text))?;
        let usual = DaemonSettings::default();
        let limits = DaemonSettings {
            retention_bytes: read.retention_bytes.unwrap_or(usual.retention_bytes),
            client_bytes: read.client_bytes.unwrap_or(usual.client_bytes),
            history_bytes: read.history_bytes.unwrap_or(usual.history_bytes),
            flow_control,
        };
        let (name, peers) = (read.name, read.peers);
        let server = ServerSettings { name, listen, peers, key, clients, tls, limits };
        Ok(Self { server, status: read.status })
    }

    /// Returns an example configuration of site number `site`, with a TLS address if `has_tls`.
    pub fn example(site: usize, hosts: &[String], has_tls: bool) -> String {
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
        let peers: Vec<String> =
            hosts.iter().take(site.min(2)).map(|host| format!("\"{host}:4804\"")).collect();
        let _ = write!(text, "{}]\n\n", peers.join(", "));
        text += "# Key of all daemons. Bring the file to each site by a way that you trust.\n\
                 key = \"overlay.key\"\n\n";
        let (others, place) = match has_tls {
            false => ("", ""),
            true => (", and by TLS for clients of other hosts", ", \"tls:0.0.0.0:4804\""),
        };
        let _ = write!(
            text,
            "# Addresses for clients of this host{others}.\n\
             clients = [\"unix:/run/faircast/node.sock\", \"tcp:127.0.0.1:4803\"{place}]\n\n"
        );
        if has_tls {
            let _ = write!(
                text,
                "# Certificate of this host, and tokens of clients of other hosts.\n\
                 certificate = \"{0}.pem\"\ncertificate_key = \"{0}-key.pem\"\n\
                 tokens = \"tokens.txt\"\n\n",
                name(site)
            );
        }
        text += "# Address of the live page in a browser, and of /status, /metrics and /healthz.\n\
                 status = \"127.0.0.1:9480\"\n";
        text
    }
}

fn client_addresses(texts: &[String]) -> Result<Vec<ClientAddress>, String> {
    let clients = texts.iter().map(|text| text.parse::<ClientAddress>());
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    for address in &clients {
        let expected = match address {
            ClientAddress::Tcp(address) if !address.ip().is_loopback() => {
                "TCP is not encrypted; expected tls:ADDR:PORT, a loopback address, such as \
                 tcp:127.0.0.1:4803, or unix:/PATH"
            }
            ClientAddress::Tls(address) if address.parse::<SocketAddr>().is_err() => {
                "expected an IP address of this host, such as tls:0.0.0.0:4804"
            }
            _ => continue,
        };
        return Err(format!("\"{address}\": {expected}"));
    }
    Ok(clients)
}

/// Reads the files of TLS: certificate, its key, CA of clients, tokens. An error names its key.
fn server_tls(
    files: &[Option<PathBuf>; 4],
    clients: &[ClientAddress],
) -> Result<Option<ServerTls>, (&'static str, String)> {
    let keys = ["certificate", "certificate_key", "client_ca", "tokens"];
    let given = keys.iter().zip(files).find(|(_, file)| file.is_some());
    if !clients.iter().any(|it| matches!(it, ClientAddress::Tls(_))) {
        return match given {
            Some((key, _)) => Err((key, "expected tls:ADDR:PORT in clients, too".to_string())),
            None => Ok(None),
        };
    }
    match files.each_ref().map(Option::as_deref) {
        [Some(certificate), Some(key), client_ca, tokens] => {
            ServerTls::read((certificate, key), client_ca, tokens).map(Some)
        }
        _ => {
            let needed = "certificate, certificate_key, and client_ca or tokens";
            Err(("clients", format!("tls:ADDR:PORT needs {needed}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use faircast_overlay::PriceProfile;

    use super::*;

    const GOOD: &str = "name = \"a\"\nlisten = \"127.0.0.1:0\"\npeers = [\"b.example:4804\"]\n\
                        clients = [\"tcp:127.0.0.1:0\"]\n";

    #[test]
    fn flow_control_has_a_table_of_options_and_errors_name_the_line() {
        let parse = |options: &str| {
            let text = format!("name = \"a\"\nclients = [\"unix:a\"]\n[flow_control]\n{options}");
            NodeConfig::parse(Path::new("n.toml"), &text)
        };
        let of =
            parse("profile = \"fast\"\nupdate = \"20 ms\"").unwrap().server.limits.flow_control;
        assert_eq!((of.kind, of.update.as_millis(), of.salary), (PriceProfile::Fast, 20, 10.0));
        for (options, want) in [
            ("profile = \"slow\"", "n.toml:4: profile: "),
            ("profile = \"fast\"\nsalary = -1.0", "n.toml:5: salary: "),
            ("price = 1", "n.toml:4: price: is unknown"),
            ("profile = \"fast\"\nfee = 30.0", "n.toml:5: fee: is 30; allowed: at most"),
            ("fee = [1]", "n.toml:4: fee: is a list"),
        ] {
            let error = parse(options).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn errors_name_the_file_the_line_the_key_and_what_is_allowed() {
        let parse = |text: &str| NodeConfig::parse(Path::new("n.toml"), text);
        let good = parse(GOOD).unwrap();
        assert_eq!(good.server.peers, ["b.example:4804"]);
        for (from, to, want) in [
            ("peers", "pears", "3: unknown field `pears`, expected one of `name`"),
            ("\"a\"", "\"\"", "1: name: \"\"; expected 1 to 64 bytes"),
            ("b.example:4804", "b.example", "3: peers: \"b.example\"; expected HOST:PORT"),
            (
                "tcp:127.0.0.1:0",
                "udp:1",
                "4: clients: \"udp:1\": expected unix:/PATH, tls:HOST:PORT or tcp",
            ),
            ("tcp:127.0.0.1:0", "tcp:10.0.0.1:9", "4: clients: \"tcp:10.0.0.1:9\": TCP is"),
            ("tcp:127.0.0.1:0", "tls:1", "4: clients: \"tls:1\": expected unix:/PATH"),
            ("tcp:127.0.0.1:0", "tls:a.b:1", "4: clients: \"tls:a.b:1\": expected an IP"),
            ("tcp:127.0.0.1:0", "tls:[::]:1", "4: clients: tls:ADDR:PORT needs certificate,"),
            ("name", "tokens = \"t\"\nname", "1: tokens: expected tls:ADDR:PORT"),
            ("\"127.0.0.1:0\"", "\"0.0.0.0:9\"", "2: listen: 0.0.0.0:9: without a key"),
            ("\"127.0.0.1:0\"", "7", "2: invalid type"),
            ("name", "key = \"none.key\"\nname", "1: key: none.key: "),
            ("name", "status = \"0.0.0.0:1\"\nname", "1: status: 0.0.0.0:1; expected a"),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("n.toml:{want}")), "{error}");
        }
    }

    fn put(file: &Path, text: &str) {
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn errors_of_certificates_and_tokens_name_their_file_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pair = || rcgen::generate_simple_self_signed(["a.example".to_string()]).unwrap();
        let (ours, other) = (pair(), pair());
        put(&at("a.pem"), &ours.cert.pem());
        put(&at("a-key.pem"), &ours.signing_key.serialize_pem());
        put(&at("other-key.pem"), &other.signing_key.serialize_pem());
        let tokens = "# names\n\n  alice\t0123456789abcdef\n* 0123456789abcdef9\n";
        put(&at("t.txt"), tokens);
        let good = GOOD.replace("tcp:", "tls:")
            + "certificate = \"a.pem\"\ncertificate_key = \"a-key.pem\"\n\
               client_ca = \"a.pem\"\ntokens = \"t.txt\"\n";
        let parse = |text: &str| NodeConfig::parse(&at("n.toml"), text);
        assert!(parse(&good).unwrap().server.tls.is_some());
        for unused in ["client_ca = \"a.pem\"\n", "tokens = \"t.txt\"\n"] {
            assert!(parse(&good.replace(unused, "")).is_ok(), "{unused}");
        }
        let wrong = |text: &str, want: &str| {
            let error = parse(text).unwrap_err().to_string();
            let error = error.replace(&format!("{}/", folder.path().display()), "");
            assert!(error.starts_with(&format!("n.toml:{want}")), "{error}");
        };
        for (from, to, want) in [
            ("a.pem\"\ncertificate_key", "b.pem\"\ncertificate_key", "5: certificate: b.pem: "),
            (
                "a.pem\"\ncertificate_key",
                "t.txt\"\ncertificate_key",
                "5: certificate: t.txt: no cert",
            ),
            ("a-key.pem", "a.pem", "6: certificate_key: a.pem: no private key; expected PEM"),
            ("a-key.pem", "other-key.pem", "6: certificate_key: other-key.pem: keys may not"),
            ("certificate_key = \"a-key.pem\"\n", "", "4: clients: tls:ADDR:PORT needs"),
            ("client_ca = \"a.pem\"\ntokens = \"t.txt\"\n", "", "5: certificate: no client could"),
            (
                "client_ca = \"a.pem\"",
                "client_ca = \"a-key.pem\"",
                "7: client_ca: a-key.pem: no cert",
            ),
            ("t.txt", "no.txt", "8: tokens: no.txt: "),
        ] {
            assert!(good.contains(from), "{from}");
            wrong(&good.replacen(from, to, 1), want);
        }
        for (text, want) in [
            ("", "no token; expected lines NAME TOKEN or * TOKEN"),
            ("# none\n", "no token; expected"),
            ("alice\n", "1: name of 5 bytes, token of 0; expected NAME TOKEN or * TOKEN"),
            ("* 0123456789abcdef 9\n", "1: name of 1 bytes, token of 18; expected"),
            ("#\n* 0123456789abcde\n", "2: name of 1 bytes, token of 15; expected"),
            (&format!("* {}\n", "x".repeat(129)), "1: name of 1 bytes, token of 129; expected"),
            (&format!("{} 0123456789abcdef\n", "x".repeat(57)), "1: name of 57 bytes, token of 16"),
        ] {
            put(&at("t.txt"), text);
            let place = if want.starts_with("no") { " " } else { "" };
            wrong(&good, &format!("8: tokens: t.txt:{place}{want}"));
        }
        put(&at("t.txt"), tokens);
        for (name, line) in [("t.txt", "8: tokens"), ("a-key.pem", "6: certificate_key")] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o640)).unwrap();
            let error = parse(&good).unwrap_err().to_string();
            assert!(
                error.contains(&format!("n.toml:{line}: ")) && error.contains("640"),
                "{error}"
            );
            put(&at(name), &std::fs::read_to_string(at(name)).unwrap());
        }
    }

    #[test]
    fn examples_are_accepted_beside_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = faircast_seal::GroupKey::create(&folder.path().join("group.key")).unwrap();
        key.relay().write(&folder.path().join("overlay.key")).unwrap();
        for site in 0..4 {
            let hosts = ["a.example", "b.example"].map(String::from);
            let text = NodeConfig::example(site, &hosts, false);
            let config = NodeConfig::parse(&folder.path().join("node.toml"), &text).unwrap();
            assert_eq!(config.server.name, format!("site{}", site + 1));
            assert_eq!(config.server.peers.len(), site.min(2));
            assert!(config.server.key.authenticates());
        }
    }
}
