//! Live page of a daemon in a real browser, with real daemons and clients.

use std::io::Write as _;

use serde_json::json;

use super::chrome::{Chrome, browser, picture};
use super::overlay::Overlay;
use super::running::until;
use super::*;

/// Name of a client that acts as markup if the page does not escape it.
const EVIL: &str = "<img src=x onerror=document.title=1>";
const SCREENS: [(&str, u32, u32, bool); 4] = [
    ("desktop", 1280, 1500, false),
    ("desktop-dark", 1280, 1500, true),
    ("phone", 360, 800, false),
    ("phone-dark", 360, 800, true),
];
const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";
const DRAWN: &str = "checks.all('#map .name').map(it => it.textContent).sort()";

fn until_true(chrome: &mut Chrome, expression: &str) {
    until(expression, || chrome.evaluate(expression) == json!(true));
}

fn until_row(chrome: &mut Chrome, section: &str, begin: &[&str]) {
    let rows = format!(
        "checks.all('#{section} tbody tr').map(row => [...row.cells].map(cell => cell.textContent))"
    );
    let begin = json!(begin);
    let has = format!("{rows}.some(row => {begin}.every((text, i) => row[i] === text))");
    until_true(chrome, &has);
}

#[test]
fn the_live_page_shows_daemons_and_clients_and_says_when_its_daemon_is_gone() {
    let Some(mut chrome) = browser() else { return };
    let flow = "[flow_control]\nprofile = \"fast\"\n";
    let near = Overlay::new("north", &format!("listen = \"127.0.0.1:0\"\n{flow}"));
    let node = near.start();
    let reached = node.so_far();
    let address = reached.split("reach it at ").nth(1).unwrap().split(',').next().unwrap();
    let far = Overlay::new("south & <b>far</b>", &format!("peers = [\"{address}\"]\n{flow}"));
    let _south = far.start();
    let to = near.connect();
    let sub = Running::start(&format!("sub chat --json {to} --name '{EVIL}'"));
    sub.until("group", |_| true);

    let url = format!("http://127.0.0.1:{}/", near.status);
    chrome.open(&url, 1280, 900, false);
    until_true(&mut chrome, &format!("{DRAWN}.join() === 'north,south & <b>far</b>'"));
    until_row(&mut chrome, "client-list", &[EVIL]);
    until_row(&mut chrome, "group-list", &["chat", "1", "1", ""]);
    until_row(&mut chrome, "own", &["south & <b>far</b>"]);
    until_true(&mut chrome, "checks.all('#map .label').some(it => it.textContent === '$0.00')");
    assert_eq!(chrome.evaluate("checks.all('img, b').length"), json!(0), "names are text");
    assert_eq!(chrome.evaluate("document.title"), json!("north \u{2013} faircast node"));

    let start = |command: &str| {
        let mut command = program(command);
        command.stdin(Stdio::piped());
        Running::spawn(command)
    };
    let mut writer = start(&format!("pub chat {to} --name writer"));
    let mut input = writer.input();
    let _other = Running::start(&format!("sub chat {to} --name other"));
    until_row(&mut chrome, "client-list", &["other"]);
    until("a rate above zero", || {
        input.write_all(b"line\n").unwrap();
        chrome.evaluate("/^[1-9]/.test(document.getElementById('rate').textContent)") == json!(true)
    });
    until_row(&mut chrome, "group-list", &["chat", "2", "2", ""]);

    let mut backgrounds = Vec::new();
    for (name, width, height, is_dark) in SCREENS {
        chrome.open(&url, width, height, is_dark);
        until_row(&mut chrome, "client-list", &["other"]);
        until_true(&mut chrome, "document.getElementById('rate').textContent !== '\u{2013}'");
        let wide = chrome.evaluate("document.documentElement.scrollWidth");
        assert_eq!(wide, json!(width), "{name}");
        for what in ["faults", "contrast"] {
            assert_eq!(chrome.evaluate(&format!("checks.{what}()")), json!([]), "{name}: {what}");
        }
        backgrounds.push(chrome.evaluate(BACKGROUND));
        chrome.screenshot(&picture(&format!("node-{name}.png")));
    }
    assert_eq!([&backgrounds[0], &backgrounds[1]], [&backgrounds[2], &backgrounds[3]]);
    assert_ne!(backgrounds[0], backgrounds[1]);

    chrome.open(&url, 1280, 900, false);
    until_row(&mut chrome, "client-list", &["other"]);
    sorts_and_filters(&mut chrome);
    // The console also reports violations of the content security policy.
    assert_eq!(chrome.complaints, Vec::<String>::new(), "the console is not silent");
    assert!(chrome.requests.iter().all(|it| it.starts_with(&url) || it.starts_with("data:")));

    node.kill();
    let banner = "document.getElementById('banner')";
    until_true(&mut chrome, &format!("!{banner}.hidden"));
    let text = chrome.evaluate(&format!("{banner}.textContent"));
    assert!(text.as_str().unwrap().starts_with("No answer since "), "{text}");
    chrome.screenshot(&picture("node-gone.png"));
    let _node = near.start();
    until_true(&mut chrome, &format!("{banner}.hidden"));
    until_row(&mut chrome, "client-list", &[EVIL]);
}

fn sorts_and_filters(chrome: &mut Chrome) {
    let names = "checks.all('#client-list tbody th').map(it => it.textContent)";
    let head = "document.querySelector('#client-list thead th')";
    assert_eq!(chrome.evaluate(&format!("{head}.ariaSort")), json!("ascending"));
    let before = chrome.evaluate(names);
    let at = chrome.evaluate(&format!(
        "(() => {{ const button = {head}.querySelector('button'); button.scrollIntoView({{ block: 'center' }}); \
         const r = button.getBoundingClientRect(); return [r.left + 9, r.top + 9]; }})()"
    ));
    let [x, y] = [0, 1].map(|place| at[place].as_f64().unwrap());
    chrome.mouse("mousePressed", x, y);
    chrome.mouse("mouseReleased", x, y);
    chrome.resize(1280, 1200);
    assert_eq!(chrome.evaluate(&format!("{head}.ariaSort")), json!("descending"));
    let mut reversed = before.as_array().unwrap().clone();
    reversed.reverse();
    assert_eq!(chrome.evaluate(names), json!(reversed));
    chrome.evaluate(
        "(() => { const filter = document.querySelector('#client-list input'); filter.value = 'ONERROR'; \
         filter.dispatchEvent(new Event('input')); })()",
    );
    assert_eq!(chrome.evaluate(names), json!([EVIL]));
}
