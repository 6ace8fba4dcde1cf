//! Chats of docs/overlay.md: the page shows the files, and the programs talk to each other.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use faircast_node::{NodeConfig, Server};

const LIMIT: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_has_the_chats() {
    let page = std::fs::read_to_string(root().join("docs/overlay.md")).unwrap();
    for (language, file) in
        [("rust", "crates/faircast/examples/chat.rs"), ("python", "clients/python/chat.py")]
    {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.lines().count() <= 40, "{file} has more than 40 lines");
        let shown = page.contains(&format!("```{language}\n{text}```\n"));
        assert!(shown, "docs/overlay.md: the block of {language} is not {file}");
    }
}

struct Chat {
    child: Child,
    lines: Receiver<String>,
}

impl Chat {
    fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `cargo build --examples` makes it")
        });
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    fn until(&self, wanted: &str) {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|line| line != wanted) {
            let line = self.lines.recv_timeout(LIMIT);
            seen.push(line.unwrap_or_else(|_| panic!("no \"{wanted}\" after {seen:?}")));
        }
    }

    fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        while self.lines.recv_timeout(LIMIT).is_ok() {}
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_chat_in_rust_and_one_in_python_talk_to_each_other() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("node.toml");
    std::fs::write(&config, "name = \"north\"\nclients = [\"tcp:127.0.0.1:0\"]\n").unwrap();
    let server = Server::start(NodeConfig::read(&config).unwrap().server).await.unwrap();
    let address = server.addresses()[0].to_string();
    let talk = move || {
        let test = std::env::current_exe().unwrap();
        let built = test.parent().unwrap().with_file_name("examples").join("chat");
        let mut command = Command::new(built);
        command.args(["alice", &address]);
        let mut alice = Chat::start(command);
        alice.until("in the chat: 1");
        let mut command = Command::new("python3");
        command.arg("-B").arg(root().join("clients/python/chat.py")).args(["bob", &address]);
        let mut bob = Chat::start(command);
        bob.until("in the chat: 2");
        alice.until("in the chat: 2");
        alice.say("hello bob\n");
        bob.until("alice: hello bob");
        bob.say("hello alice\nbye\n");
        alice.until("bob: hello alice");
        alice.until("bob: bye");
        bob.end();
        alice.until("in the chat: 1");
        alice.say("alone");
        alice.end();
    };
    tokio::task::spawn_blocking(talk).await.unwrap();
    let gone = async {
        loop {
            let report = server.inquiry().report().await.unwrap();
            if report.clients.is_empty() {
                break report.counters.messages;
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, gone).await.unwrap(), 4);
    server.close().await;
}
