//! Folder for the sent and received files, and the programs that run in it.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::running::until;
use super::*;

/// Folder, and the arguments of all programs in it: the group, over the loopback interface.
pub(super) struct Site {
    folder: tempfile::TempDir,
    common: Vec<String>,
}

impl Site {
    pub(super) fn new() -> Self {
        Self::with(&format!("--group {} --interface lo --json", group()))
    }

    pub(super) fn with_file(bytes: usize) -> Self {
        let site = Self::new();
        site.put("file", noise(bytes));
        site
    }

    pub(super) fn keyed(sealed: bool) -> Self {
        let mut site = Self::new();
        if sealed {
            let key = site.key("group.key");
            site.common.extend(["--key".to_string(), key]);
        }
        site
    }

    pub(super) fn with(common: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), common: words(common) }
    }

    pub(super) fn of(name: &str, text: &str) -> Self {
        let site = Self::with("");
        site.put(name, text);
        site
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn at(&self, name: &str) -> String {
        text_of(&self.path(name))
    }

    pub(super) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(super) fn key(&self, name: &str) -> String {
        succeed(&format!("key new '{}'", self.at(name)));
        self.at(name)
    }

    pub(super) fn arguments(&self, text: &str) -> Vec<String> {
        words(text).into_iter().chain(self.common.iter().cloned()).collect()
    }

    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = program(words);
        command.args(&self.common).current_dir(&self.folder);
        command
    }

    pub(super) fn start(&self, words: &str) -> Running {
        Running::spawn(self.command(words))
    }

    pub(super) fn succeed(&self, words: &str) -> String {
        self.start(words).succeed()
    }

    pub(super) fn json(&self, words: &str) -> Value {
        self.start(words).document()
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    #[track_caller]
    pub(super) fn assert_same(&self, arrived: &str, sent: &str) {
        assert_eq!(digest(&self.path(arrived)), digest(&self.path(sent)), "{arrived}");
    }

    #[track_caller]
    pub(super) fn assert_received(&self, name: &str, receiver: Running) -> Ended {
        let ended = receiver.end_with(0);
        self.assert_same(&format!("{name}/file"), "file");
        ended
    }

    /// Waits until the journal at this path, or at one below it, has content for a later run.
    pub(super) fn until_kept(&self, journal: &str) {
        // The first 36 bytes are the header.
        let keeps = |path: &Path| path.metadata().is_ok_and(|it| it.is_file() && it.len() > 36);
        until(&format!("content is in {journal}"), || {
            let below = std::fs::read_dir(self.path(journal)).into_iter().flatten().flatten();
            keeps(&self.path(journal))
                || below.into_iter().any(|it| keeps(&it.path().join("journal")))
        });
    }
}

/// Splits a text at spaces; parts in single quotes stay whole.
pub(super) fn words(text: &str) -> Vec<String> {
    let parts = text.split('\'').enumerate().flat_map(|(place, part)| match place % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    parts.map(str::to_string).collect()
}

pub(super) fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```\n").next().unwrap().into()).collect()
}

pub(super) fn group() -> String {
    format!("239.192.78.1:{}", free().port())
}

/// Returns an address of this host with a free port of UDP.
pub(super) fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(super) fn free_tcp() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(super) fn noise(len: usize) -> Vec<u8> {
    noise::noise(len, 1)
}

pub(super) fn digest(path: &Path) -> String {
    let said = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..64].to_string()
}
