//! Opens reports in a real browser: they draw, they are quiet, they fit.
//!
//! Without Chromium the tests are skipped with a loud message; with `FAIRCAST_REQUIRE_BROWSER=1`
//! that is a failure. Pictures are kept under `target/screenshots`.

mod chrome;
mod synthetic;

use std::path::{Path, PathBuf};

use chrome::Chrome;
use faircast_report::{
    Figure, Matrix, MatrixCase, MatrixCell, Plots, Row, RunPage, Spread, Suite, bench_page,
    matrix_page, run_page,
};
use serde_json::json;
use synthetic::{header, run};

#[test]
fn a_run_report_draws_stays_quiet_and_fits_every_screen() {
    let Some(mut chrome) = browser() else { return };
    let run = run(header("Does <pgmcc> share fairly with TCP Reno & friends?", 1, 3, 300.0), 300.0);
    let page = run_page(&run.header, &run.summary, &run.series);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let file = keep("run.html", &page);
    for (name, width, height, dark) in SCREENS {
        chrome.open(&file, width, height, dark);
        check(&mut chrome, width, name);
        assert_eq!(plots(&mut chrome), 7, "sequence, throughput, mean, queue, window, rtt, acker");
        chrome.screenshot(&picture(&format!("run-{name}.png")));
    }
    let heading = chrome.evaluate("document.querySelector('h1').textContent");
    assert_eq!(heading, json!("Does <pgmcc> share fairly with TCP Reno & friends?"));
}

#[test]
fn plots_zoom_together_follow_the_cursor_and_hide_lines() {
    let Some(mut chrome) = browser() else { return };
    let run = run(header("Does it move?", 2, 3, 120.0), 120.0);
    let page = run_page(&run.header, &run.summary, &run.series);
    chrome.open(&keep("moves.html", &page), 1280, 900, false);
    // The pictures themselves are long; a hash of each tells them apart.
    let prints = "[...document.querySelectorAll('.plot canvas')].map(c => \
                  [...c.toDataURL()].reduce((h, x) => (Math.imul(h, 31) + x.charCodeAt(0)) | 0, 7))";
    let before = chrome.evaluate(prints);
    let area = chrome.evaluate(
        "(() => { const p = document.querySelector('[data-key=sequence] .u-over'); \
         p.scrollIntoView({block: 'center'}); const r = p.getBoundingClientRect(); \
         return [r.left, r.top, r.width, r.height]; })()",
    );
    let [left, top, width, height] = [0, 1, 2, 3].map(|i| area[i].as_f64().expect("a rectangle"));
    let at = |share: f64| (left + width * share, top + height / 2.0);

    let (x, y) = at(0.5);
    chrome.mouse("mouseMoved", x, y);
    chrome.settle();
    let values = chrome.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => [...p.querySelectorAll('.legend \
         output')].some(o => o.textContent && !o.textContent.startsWith('×')))",
    );
    assert_eq!(values, json!(vec![true; 7]), "every plot shows its values at the cursor");
    let clock = chrome.evaluate("document.querySelector('.tools output').textContent");
    let seconds: f64 =
        clock.as_str().unwrap().trim_start_matches("t = ").trim_end_matches(" s").parse().unwrap();
    assert!((seconds - 60.0).abs() < 1.0, "{clock}");

    chrome.mouse("mousePressed", at(0.25).0, y);
    chrome.mouse("mouseMoved", at(0.3).0, y);
    chrome.mouse("mouseMoved", at(0.5).0, y);
    chrome.mouse("mouseReleased", at(0.5).0, y);
    chrome.settle();
    let zoomed = chrome.evaluate(prints);
    for (i, (a, b)) in before.as_array().unwrap().iter().zip(zoomed.as_array().unwrap()).enumerate()
    {
        assert_ne!(a, b, "plot {i} did not zoom");
    }
    chrome.screenshot(&picture("run-zoomed.png"));
    let all = "document.querySelector('.tools button:last-child')";
    assert_eq!(chrome.evaluate(&format!("{all}.disabled")), json!(false));
    chrome.evaluate(&format!("{all}.click()"));
    chrome.settle();
    assert_eq!(chrome.evaluate(prints), before, "all of the run is back");

    let legend = "document.querySelector('[data-key=throughput] .legend button')";
    chrome.evaluate(&format!("{legend}.click()"));
    chrome.settle();
    assert_eq!(chrome.evaluate(&format!("{legend}.ariaPressed")), json!("false"));
    let place =
        "[...document.querySelectorAll('.plot')].findIndex(p => p.dataset.key === 'throughput')";
    let place = chrome.evaluate(place).as_u64().expect("a place") as usize;
    assert_ne!(chrome.evaluate(prints)[place], before[place], "the line is gone");

    let background = "getComputedStyle(document.body).backgroundColor";
    let light = chrome.evaluate(background);
    chrome.evaluate("document.getElementById('theme').click()");
    chrome.settle();
    assert_ne!(chrome.evaluate(background), light);
    assert_eq!(chrome.complaints, Vec::<String>::new());
}

#[test]
fn an_interrupted_run_with_ten_thousand_receivers_says_so_and_stays_readable() {
    let Some(mut chrome) = browser() else { return };
    let run = run(header("Do 10 000 receivers fit on a page?", 30, 10_000, 100.0), 12.0);
    let page = run_page(&run.header, &run.summary, &run.series);
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
    let file = keep("many.html", &page);
    for (name, width, height, dark) in SCREENS {
        chrome.open(&file, width, height, dark);
        check(&mut chrome, width, name);
        chrome.screenshot(&picture(&format!("many-{name}.png")));
    }
    let note = chrome.evaluate("document.querySelector('.note').textContent");
    assert!(note.as_str().unwrap().contains("stopped after 12 s of 100 s"), "{note}");
}

#[test]
fn a_bench_report_shows_every_experiment() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("bench.html", &bench_page(&suite()));
    for (name, width, height, dark) in SCREENS {
        chrome.open(&file, width, height, dark);
        // Experiments are drawn when they come near.
        let steps = chrome.evaluate("Math.ceil(document.documentElement.scrollHeight / 500)");
        for step in 0..steps.as_u64().unwrap() {
            chrome.evaluate(&format!("scrollTo(0, {})", step * 500));
            chrome.settle();
        }
        chrome.evaluate("scrollTo(0, 0)");
        check(&mut chrome, width, name);
        assert_eq!(plots(&mut chrome), 4);
        let shown = chrome.evaluate(
            "[...document.querySelectorAll('.plot')].map(p => [p.dataset.key, \
             p.querySelector('figcaption p').textContent.split(' ').slice(-2).join(' '), \
             [...p.querySelectorAll('.legend button')].some(b => \
             b.textContent.includes('new representative'))])",
        );
        let sequence = json!(["sequence", "in all", true]);
        let (rate, mean) = (json!(["throughput", "2 s", true]), json!(["mean", "2 s", true]));
        assert_eq!(shown, json!([sequence, sequence, rate, mean]), "{name}");
        if width >= 1280 {
            let hidden = "[...document.querySelectorAll('.overview .scroll')] \
                          .map(e => e.scrollWidth - e.clientWidth)";
            assert_eq!(chrome.evaluate(hidden), json!([0]), "{name}: the overview is cut off");
        }
        chrome.screenshot(&picture(&format!("bench-{name}.png")));
    }
    let links = "[...document.querySelectorAll('nav a')].every(a => \
                 document.querySelector(a.getAttribute('href')) !== null)";
    assert_eq!(chrome.evaluate(links), json!(true));
}

#[test]
fn a_matrix_shows_one_figure_at_a_time_and_leads_to_runs() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("matrix.html", &matrix_page(&matrix()));
    let shown = "[...document.querySelectorAll('.map')].filter(map => map.checkVisibility()) \
                 .map(map => map.dataset.figure)";
    for (name, width, height, dark) in SCREENS {
        chrome.open(&file, width, height, dark);
        check(&mut chrome, width, name);
        assert_eq!(chrome.evaluate(shown), json!(["fairness"]), "{name}");
        chrome.screenshot(&picture(&format!("matrix-{name}.png")));
        for figure in Figure::ALL {
            chrome.evaluate(&format!("document.querySelector('[value={}]').click()", figure.id()));
            chrome.settle();
            assert_eq!(chrome.evaluate(shown), json!([figure.id()]), "{name}");
        }
        let contrast = chrome.evaluate(HEAT_CONTRAST);
        assert_eq!(contrast, json!([]), "{name}: numbers are hard to read on their colours");
    }
    let cells = chrome.evaluate(
        "[...document.querySelectorAll('.map[data-figure=fairness] td')].map(cell => \
         [cell.textContent, cell.querySelector('a')?.getAttribute('href') ?? null])",
    );
    let first = json!(["0.900.15", "runs/case-0-pgmcc-2.html"]);
    assert_eq!(cells[0], first, "the median, the worst beside it, and the worst run");
    assert_eq!(cells[2], json!(["\u{2013}", null]), "a figure that is not there leads nowhere");
    let links = "[...document.querySelectorAll('a[href^=\"#\"]')].every(a => \
                 document.querySelector(a.getAttribute('href')) !== null)";
    assert_eq!(chrome.evaluate(links), json!(true));
}

/// Numbers whose colour is too close to that of their cell.
const HEAT_CONTRAST: &str = "(() => { \
  const light = text => { const [r, g, b] = text.match(/\\d+/g).slice(0, 3) \
      .map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); \
    return .2126 * r + .7152 * g + .0722 * b; }; \
  return [...document.querySelectorAll('.heat td b, .heat td small')].filter(e => { \
    const style = getComputedStyle(e); \
    const [x, y] = [light(style.color), light(style.backgroundColor)]; \
    return (Math.max(x, y) + .05) / (Math.min(x, y) + .05) < 4.5; \
  }).map(e => e.outerHTML); })()";

fn matrix() -> Matrix {
    let schemes = ["pgmcc", "a-scheme-with-a-long-name", "ormcc"];
    let cell = |case: usize, place: usize| {
        let spread = |figure| {
            let best = [0.9, 0.5, 0.1][place];
            let per_seed = (1..=3).map(|seed| (seed, [best, 0.15, best + 0.05][seed as usize - 1]));
            Spread::of(figure, per_seed.collect())
        };
        let has = |figure: &Figure| place != 2 || *figure != Figure::Fairness;
        let figures = Figure::ALL.into_iter().filter(has).filter_map(spread).collect();
        let page = |seed| RunPage {
            seed,
            page: format!("runs/case-{case}-{}-{seed}.html", schemes[place]),
        };
        MatrixCell { scheme: schemes[place].into(), figures, runs: (1..=3).map(page).collect() }
    };
    let case = |case: usize| MatrixCase {
        id: format!("case-{case}"),
        group: if case < 4 { "Beside TCP" } else { "Many & far <receivers>" }.into(),
        question: "Does a session leave a TCP connection its share on a slow link?".into(),
        scenario: "scenarios/x.toml".into(),
        set: vec!["link.0.loss=0.1".into()],
        seeds: 3,
        note: (case == 5).then(|| "All receivers are alike.".into()),
        cells: (0..schemes.len()).map(|place| cell(case, place)).collect(),
    };
    Matrix {
        name: "matrix".into(),
        title: "How do the schemes compare?".into(),
        faircast: "0.1.0".into(),
        quick: true,
        schemes: schemes.map(String::from).to_vec(),
        cases: (0..8).map(case).collect(),
    }
}

/// Name, width, height, dark.
const SCREENS: [(&str, u32, u32, bool); 4] = [
    ("desktop", 1280, 900, false),
    ("desktop-dark", 1280, 900, true),
    ("phone", 390, 844, false),
    ("phone-dark", 390, 844, true),
];

fn suite() -> Suite {
    let row = |id: &str, paper: Option<f64>, ours: f64, holds, explained: Option<&str>| Row {
        id: id.into(),
        title: "pgmcc beside one TCP Reno flow, 3000 s".into(),
        unit: "ratio".into(),
        paper,
        ours,
        low: ours * 0.9,
        high: ours * 1.06,
        seeds: 10,
        tolerance: 0.15,
        accept_low: paper.map(|paper| paper * 0.85),
        accept_high: paper.map(|paper| paper * 1.15),
        holds,
        group: "Set 1: window and timeouts".into(),
        explained: explained.map(Into::into),
        question: "Does a pgmcc session leave a TCP flow its share on a slow link with a long \
                   drop-tail queue?"
            .into(),
        paper_says: "Fig. 4: both flows go on at about the same slope; the session's throughput \
                     is 74 % of TCP's."
            .into(),
        tolerance_reason: "Shares are read off a printed figure.".into(),
        per_seed: (1..=10).map(|i| (i, ours * (0.9 + 0.016 * i as f64))).collect(),
        scenario: Some(("fig-4.toml".into(), "title = \"<x>\"".into())),
        series: Some(run(header("", 1, 3, 300.0), 300.0).series),
        ..Row::default()
    };
    Suite {
        name: "fairness".into(),
        about: "The figures of the paper on fairness & friends.".into(),
        rows: vec![
            row("fig-4", Some(0.74), 0.77, true, None),
            row("fig-5", Some(0.5), 0.61, false, Some("The paper leaves the queue's limit open.")),
            Row { plots: Plots::Rate, ..row("fig <6>", None, 1.2, true, None) },
            Row { plots: Plots::Mean, ..row("fig-7", None, 1.2, true, None) },
            Row {
                accept_low: Some(0.5),
                experiment: "fig-4".into(),
                series: None,
                scenario: None,
                ..row("fig-4-bound", None, 0.6, true, None)
            },
            Row {
                group: "The cures that the paper proposes".into(),
                fairer_than: Some("fig-4-with-a-long-name".into()),
                accept_low: Some(0.7),
                accept_high: Some(1.4),
                series: None,
                ..row("improved-with-a-long-name", None, 0.9, true, None)
            },
            Row { series: None, ..row("tab-1", Some(12_000.0), 3_000.0, false, None) },
        ],
    }
}

/// What every page owes its reader.
fn check(chrome: &mut Chrome, width: u32, name: &str) {
    assert_eq!(chrome.complaints, Vec::<String>::new(), "{name}: the console is not silent");
    assert_eq!(chrome.requests.len(), 1, "{name}: {:?}", chrome.requests);
    let wide = chrome.evaluate("document.documentElement.scrollWidth");
    assert!(
        wide.as_u64().expect("a number") <= u64::from(width),
        "{name}: the page is {wide} wide"
    );
    // A drawn plot has the colours of its lines in most columns of pixels: axes and texts have
    // other colours, and marks alone leave gaps. A representative may be chosen late.
    let blank = chrome.evaluate(
        "(() => { const style = getComputedStyle(document.documentElement); \
         const rgb = name => { const h = style.getPropertyValue(name).trim(); \
           return [1, 3, 5].map(i => parseInt(h.slice(i, i + 2), 16)); }; \
         const lines = [...Array(8).keys()].map(i => rgb('--c' + i)); \
         return [...document.querySelectorAll('.plot')].filter(plot => { \
           const { width, height } = plot.querySelector('canvas'); \
           const { data } = plot.querySelector('canvas').getContext('2d') \
             .getImageData(0, 0, width, height); \
           const columns = new Set(); \
           for (let i = 0; i < data.length; i += 4) \
             if (data[i + 3] > 200 && lines.some(c => Math.abs(c[0] - data[i]) + \
               Math.abs(c[1] - data[i + 1]) + Math.abs(c[2] - data[i + 2]) < 40)) \
               columns.add(i / 4 % width); \
           return columns.size < width * (plot.dataset.key === 'representative' ? .35 : .55); \
         }).map(plot => plot.dataset.key); })()",
    );
    assert_eq!(blank, json!([]), "{name}: blank plots");
    let faults = chrome.evaluate(
        "(() => { const faults = []; \
         if (document.querySelectorAll('h1').length !== 1) faults.push('one h1'); \
         if (!document.documentElement.lang) faults.push('lang'); \
         for (const t of document.querySelectorAll('table')) \
           if (!t.caption || !t.querySelector('th[scope=col]') || \
               (t.tBodies[0].rows.length && !t.querySelector('th[scope=row]'))) \
             faults.push('table without caption or headings'); \
         for (const e of document.querySelectorAll('button, a[href], [role=img]')) \
           if (!(e.textContent.trim() || e.getAttribute('aria-label'))) \
             faults.push('unlabelled ' + e.outerHTML); \
         const ids = [...document.querySelectorAll('[id]')].map(e => e.id); \
         if (new Set(ids).size !== ids.length) faults.push('ids repeat'); \
         let level = 1; \
         for (const h of document.querySelectorAll('h1, h2, h3, h4')) { \
           const next = Number(h.tagName[1]); \
           if (next > level + 1) faults.push('heading skips to ' + h.textContent); level = next; } \
         return faults; })()",
    );
    assert_eq!(faults, json!([]), "{name}");
    let contrast = chrome.evaluate(CONTRAST);
    assert_eq!(contrast, json!([]), "{name}: too little contrast (WCAG AA wants 4.5, lines 3)");
}

/// Texts and lines whose colours are too close to what is behind them.
const CONTRAST: &str = "(() => { \
  const style = getComputedStyle(document.documentElement); \
  const light = name => { const h = style.getPropertyValue(name).trim(); \
    const [r, g, b] = [1, 3, 5].map(i => parseInt(h.slice(i, i + 2), 16) / 255) \
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); \
    return .2126 * r + .7152 * g + .0722 * b; }; \
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)]; \
    return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); }; \
  const wanted = [...['--ink', '--soft', '--accent', '--good', '--bad'].flatMap(c => \
      [[c, '--bg', 4.5], [c, '--card', 4.5]]), \
    ['--good', '--good-bg', 4.5], ['--bad', '--bad-bg', 4.5], ['--warn', '--warn-bg', 4.5], \
    ...[...Array(8).keys()].map(i => ['--c' + i, '--card', 3])]; \
  return wanted.filter(([a, b, least]) => ratio(a, b) < least) \
    .map(([a, b]) => `${a} on ${b}: ${ratio(a, b).toFixed(2)}`); })()";

fn plots(chrome: &mut Chrome) -> u64 {
    chrome.evaluate("document.querySelectorAll('.plot canvas').length").as_u64().expect("a number")
}

fn browser() -> Option<Chrome> {
    let chrome = Chrome::start();
    if chrome.is_none() {
        let message = "no Chromium: the browser tests of the report were NOT run \
                       (install the package chromium, or set FAIRCAST_CHROMIUM)";
        assert!(std::env::var_os("FAIRCAST_REQUIRE_BROWSER").is_none_or(|v| v != "1"), "{message}");
        eprintln!("\n*** SKIPPED: {message} ***\n");
    }
    chrome
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent").to_owned()
}

fn keep(name: &str, page: &str) -> PathBuf {
    let file = target().join("screenshots").join(name);
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("target is writable");
    std::fs::write(&file, page).expect("target is writable");
    file
}

fn picture(name: &str) -> PathBuf {
    target().join("screenshots").join(name)
}
