//! Running programs: their output, waits for it, and their end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::*;

pub(super) struct Running {
    words: String,
    child: Option<Child>,
    out: Said,
    err: Said,
}

pub(super) struct Ended {
    words: String,
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Running {
    pub(super) fn start(words: &str) -> Self {
        Self::spawn(program(words))
    }

    pub(super) fn spawn(command: Command) -> Self {
        Self::spawn_by(command, |mut command| command.spawn())
    }

    pub(super) fn spawn_by(
        mut command: Command,
        spawn: impl FnOnce(Command) -> std::io::Result<Child>,
    ) -> Self {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command).unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { words, child: Some(child), out: Said::of(out), err: Said::of(err) }
    }

    pub(super) fn until_complained(&self, words: &str) {
        let is_there = self.err.until(|line| line.contains(words));
        assert!(is_there, "{words}: {}{}", self.out.so_far(), self.err.so_far());
    }

    pub(super) fn until_said(&self, words: &str) {
        let is_there = self.out.until(|line| line.contains(words));
        assert!(is_there, "{words}: {}{}", self.out.so_far(), self.err.so_far());
    }

    pub(super) fn logged(&self) -> Vec<Value> {
        let lines = self.err.so_far();
        let parsed = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.map(|mut line| line["fields"].take()).collect()
    }

    pub(super) fn told(&self) -> Vec<Value> {
        self.out.so_far().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(super) fn so_far(&self) -> String {
        self.out.so_far()
    }

    pub(super) fn until(&self, name: &str, is_wanted: impl Fn(&Value) -> bool) {
        let is_there = self.out.until(|line| {
            let event = serde_json::from_str::<Value>(line).unwrap_or_default();
            event["event"] == name && is_wanted(&event)
        });
        assert!(is_there, "{name}: {}{}", self.out.so_far(), self.err.so_far());
    }

    pub(super) fn until_has(&self, bytes: u64) {
        self.until("progress", |event| event["objects"][0]["bytes_done"].as_u64() >= Some(bytes));
    }

    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(super) fn input(&mut self) -> std::process::ChildStdin {
        self.child.as_mut().unwrap().stdin.take().unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    #[track_caller]
    pub(super) fn interrupt(self) -> Ended {
        self.signal(Signal::SIGINT);
        self.end_with(0)
    }

    pub(super) fn kill(self) {
        self.signal(Signal::SIGKILL);
        self.end();
    }

    pub(super) fn runs(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    pub(super) fn end(self) -> Ended {
        self.end_within(LIMIT_S)
    }

    #[track_caller]
    pub(super) fn end_with(self, code: i32) -> Ended {
        self.end().with(code)
    }

    #[track_caller]
    pub(super) fn succeed(self) -> String {
        let ended = self.end_with(0);
        let is_progress = |line: &str| line.contains(" runs, ") && line.contains(" s gone, about ");
        let err: Vec<&str> = ended.err.lines().filter(|line| !is_progress(line)).collect();
        assert!(err.is_empty(), "{}: {}{}", ended.words, ended.out, ended.err);
        ended.out
    }

    #[track_caller]
    pub(super) fn document(self) -> Value {
        let out = self.succeed();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    #[track_caller]
    pub(super) fn refuse(self) -> String {
        let ended = self.end_within(HANG_S).with(2);
        assert_eq!(ended.out, "", "{}", ended.err);
        let line = ended.err.strip_suffix('\n').unwrap_or_default();
        assert!(line.starts_with("faircast: ") && !line.contains('\n'), "{line}");
        line.to_string()
    }

    #[track_caller]
    pub(super) fn refuse_with(self, words: &str) {
        let line = self.refuse();
        assert!(line.contains(words), "{line}");
    }

    #[track_caller]
    pub(super) fn complain(self, code: i32, words: &str) {
        let ended = self.end_with(code);
        assert!(ended.err.contains(words), "{}{}", ended.out, ended.err);
    }

    #[track_caller]
    pub(super) fn say(self, code: i32, words: &str) {
        let ended = self.end_with(code);
        assert!(ended.out.contains(words), "{}{}", ended.out, ended.err);
    }

    pub(super) fn end_within(mut self, limit_s: u64) -> Ended {
        let mut child = self.child.take().unwrap();
        let started = Instant::now();
        let code = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status.code()),
                None if started.elapsed() > Duration::from_secs(limit_s) => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let (out, err) = (self.out.all(), self.err.all());
        let words = std::mem::take(&mut self.words);
        let code = code.unwrap_or_else(|| panic!("{words}: runs after {limit_s} s: {out}{err}"));
        Ended { words, code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    #[track_caller]
    pub(super) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}: {}{}", self.words, self.out, self.err);
        self
    }

    pub(super) fn document(&self) -> Value {
        let document = serde_json::from_str(&self.out);
        document.unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Returns the events of `send` or `recv` by `--json`, whose fields docs/live.md must have.
    pub(super) fn events(&self) -> Vec<Value> {
        // Programs that start it elsewhere may precede the verb.
        let verb = self.words.split(' ').find(|word| ["send", "recv"].contains(word)).unwrap();
        let documented = documented(verb);
        let parsed = self.out.lines().map(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let name = event["event"].as_str().unwrap();
            let fields = documented.get(name);
            let fields = fields.unwrap_or_else(|| panic!("{verb}: {name} is nowhere"));
            let mut got = event.as_object().unwrap().keys();
            assert!(got.all(|field| field == "event" || fields.contains(field)), "{line}");
            event
        });
        parsed.collect()
    }

    pub(super) fn event(&self, name: &str) -> Value {
        let found = self.events().into_iter().find(|event| event["event"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {}", self.out))
    }

    pub(super) fn summary(&self) -> Value {
        self.event("summary")
    }
}

/// Returns the fields of the events of `verb`, by event name, as documented in docs/live.md.
fn documented(verb: &str) -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/live.md")).unwrap();
    let words = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(ToString::to_string).collect()
    };
    let own = |what: &str| {
        let start = page.find(&format!("{what} has `")).unwrap();
        words(page[start..].split("\n\n").next().unwrap())
    };
    let mut all = BTreeMap::new();
    let table = page.split(&format!("| from `{verb}`")).nth(1).unwrap();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        let mut fields: BTreeSet<String> = words(cells[3]).into_iter().collect();
        for (said, what) in [("of a receiver", "A receiver"), ("of an object", "An object")] {
            if cells[3].contains(said) {
                fields.extend(own(what));
            }
        }
        for name in words(cells[1]) {
            all.insert(name, fields.clone());
        }
    }
    assert!(all.len() > 5, "{all:?}");
    all
}

/// Output of a program, read continuously: a full pipe would block the program.
struct Said {
    text: Arc<(Mutex<Text>, Condvar)>,
}

#[derive(Default)]
struct Text {
    so_far: String,
    is_all: bool,
}

impl Said {
    fn of(from: impl Read + Send + 'static) -> Self {
        let text = Arc::<(Mutex<Text>, Condvar)>::default();
        let said = Self { text: text.clone() };
        std::thread::spawn(move || {
            let (text, more) = &*text;
            let (mut from, mut line) = (BufReader::new(from), Vec::new());
            while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                text.lock().unwrap().so_far += &String::from_utf8_lossy(&line);
                more.notify_all();
                line.clear();
            }
            text.lock().unwrap().is_all = true;
            more.notify_all();
        });
        said
    }

    fn until(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let (text, more) = &*self.text;
        let is_there = |text: &Text| text.so_far.lines().any(&is_wanted);
        let go_on = |text: &mut Text| !text.is_all && !is_there(text);
        let limit = Duration::from_secs(LIMIT_S);
        let waited = more.wait_timeout_while(text.lock().unwrap(), limit, go_on).unwrap();
        is_there(&waited.0)
    }

    fn so_far(&self) -> String {
        self.text.0.lock().unwrap().so_far.clone()
    }

    fn all(&self) -> String {
        let (text, more) = &*self.text;
        let mut text = more.wait_while(text.lock().unwrap(), |text| !text.is_all).unwrap();
        std::mem::take(&mut text.so_far)
    }
}

pub(super) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(LIMIT_S), "{what}: not within {LIMIT_S} s");
        std::thread::sleep(Duration::from_millis(5));
    }
}
