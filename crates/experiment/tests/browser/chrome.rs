//! Headless Chromium, driven by the DevTools protocol over a websocket.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tungstenite::{Error, Message, WebSocket};

/// Longest wait for the browser; a loaded machine needs some seconds to start it.
const WAIT_MAX: Duration = Duration::from_secs(60);

const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
    --disable-background-networking --disable-component-update --disable-sync \
    --disable-dev-shm-usage --remote-debugging-port=0";

pub(crate) struct Chrome {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    calls: u64,
    pub(crate) complaints: Vec<String>,
    pub(crate) requests: Vec<String>,
    loads: u32,
    _profile: tempfile::TempDir,
}

impl Chrome {
    fn start() -> Option<Self> {
        let program = program()?;
        let profile = tempfile::tempdir().expect("a directory for the profile");
        let child = Command::new(program)
            .args(OPTIONS.split(' '))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let (port, path) = wait_for_port(profile.path());
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the browser listens");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout can be set");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).expect("the browser speaks websocket");
        let mut chrome = Self {
            child,
            socket,
            session: None,
            calls: 0,
            complaints: Vec::new(),
            requests: Vec::new(),
            loads: 0,
            _profile: profile,
        };
        let target = chrome.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = chrome.call("Target.attachToTarget", attach);
        chrome.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            chrome.call(&format!("{domain}.enable"), json!({}));
        }
        Some(chrome)
    }

    pub(crate) fn open(&mut self, url: &str, width: u32, height: u32, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.resize(width, height);
        self.requests.clear();
        let before = self.loads;
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{answer}");
        while self.loads == before {
            self.read();
        }
        self.evaluate(include_str!("checks.js"));
        self.settle();
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub(crate) fn settle(&mut self) {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => \
                      setTimeout(() => done(true), 50))))";
        assert_eq!(self.evaluate(frames), json!(true));
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let arguments =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", arguments);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let pressed = kind != "mouseMoved";
        let event = json!({
            "type": kind, "x": x, "y": y, "button": if pressed { "left" } else { "none" },
            "buttons": u8::from(kind == "mousePressed"), "clickCount": u8::from(pressed)
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    pub(crate) fn screenshot(&mut self, to: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::write(to, bytes).expect("the picture can be written");
    }

    fn call(&mut self, method: &str, arguments: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut request = json!({ "id": id, "method": method, "params": arguments });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(request.to_string())).expect("the browser listens");
        loop {
            let answer = self.read();
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn read(&mut self) -> Value {
        let message = loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => break text,
                Ok(_) => {}
                // A child process has ended.
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the browser does not answer in time: {error}"),
            }
        };
        let message: Value = serde_json::from_str(&message).expect("DevTools speaks JSON");
        let about = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loads += 1,
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.complaints.push(about.to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = about["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            _ => {}
        }
        message
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the browser. If none is installed, warns, or fails with `FAIRCAST_REQUIRE_BROWSER=1`.
pub(crate) fn browser() -> Option<Chrome> {
    let chrome = Chrome::start();
    if chrome.is_none() {
        let message = "no Chromium: the browser tests were NOT run \
                       (install the package chromium, or set FAIRCAST_CHROMIUM)";
        assert!(std::env::var_os("FAIRCAST_REQUIRE_BROWSER").is_none_or(|v| v != "1"), "{message}");
        eprintln!("\n*** SKIPPED: {message} ***\n");
    }
    chrome
}

pub(crate) fn picture(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    target.join("screenshots").join(name)
}

fn program() -> Option<String> {
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let named = std::env::var("FAIRCAST_CHROMIUM").map(|path| vec![path]);
    let places = named.unwrap_or_else(|_| usual.map(str::to_owned).to_vec());
    places.into_iter().find(|path| Path::new(path).exists())
}

fn wait_for_port(profile: &Path) -> (u16, String) {
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        // The browser may still be writing the file: only the whole file has a second line.
        if let Some((Ok(port), path)) = text.split_once('\n').map(|(p, path)| (p.parse(), path)) {
            return (port, path.trim().to_owned());
        }
        assert!(start.elapsed() < WAIT_MAX, "the browser does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
}
