//! Reports in a real browser: they are drawn, print no errors, and fit the screen.
//!
//! Without Chromium the tests are skipped with a warning; with `FAIRCAST_REQUIRE_BROWSER=1` they
//! fail instead. Pictures are stored under `target/screenshots`.

mod chrome;
mod runs;

use chrome::{Chrome, browser, picture};
use faircast_base::Time;
use faircast_report::{
    Acceptance, Expected, Figure, Matrix, MatrixCase, MatrixCell, MissCause, Plots, Row, RunPage,
    Source, Spread, Suite, Sweep, SweepAxis, Values, bench_page, matrix_page, plots as plots_of,
    run_page, svg, sweep_page, sweep_pictures,
};
use runs::{Run, run, run_with};
use serde_json::{Value, json};

#[test]
fn a_run_report_draws_stays_quiet_and_fits_every_screen() {
    let Some(mut chrome) = browser() else { return };
    let run = run("Does <pgmcc> share fairly with TCP Reno & friends?", 1, 3, 300, 300);
    let file = keep("run.html", &page(&run));
    on_every_screen(&mut chrome, &file, "run", |chrome, _, _| {
        assert_eq!(plots(chrome), 7, "sequence, throughput, mean, queue, window, rtt, acker");
    });
    let heading = chrome.evaluate("document.querySelector('h1').textContent");
    assert_eq!(heading, json!("Does <pgmcc> share fairly with TCP Reno & friends?"));
}

#[test]
fn plots_zoom_together_follow_the_cursor_and_hide_lines() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("moves.html", &page(&run("Does it move?", 2, 3, 120, 120)));
    chrome.open(&file, 1280, 900, false);
    let before = chrome.evaluate("checks.prints()");
    let area = chrome.evaluate(
        "(() => { const p = document.querySelector('[data-key=sequence] .u-over'); \
         p.scrollIntoView({block: 'center'}); const r = p.getBoundingClientRect(); \
         return [r.left, r.top, r.width, r.height]; })()",
    );
    let [left, top, width, height] = [0, 1, 2, 3].map(|i| number(&area, i));
    let at = |share: f64| (left + width * share, top + height / 2.0);

    let (x, y) = at(0.5);
    chrome.mouse("mouseMoved", x, y);
    chrome.settle();
    let values = chrome.evaluate(
        "checks.all('.plot').map(p => checks.all('.legend output', p).some(o => \
         o.textContent && !o.textContent.startsWith('×')))",
    );
    assert_eq!(values, json!(vec![true; 7]), "every plot shows its values at the cursor");
    let clock = chrome.evaluate("document.querySelector('.tools output').textContent");
    let seconds: f64 =
        clock.as_str().unwrap().trim_start_matches("t = ").trim_end_matches(" s").parse().unwrap();
    assert!((seconds - 60.0).abs() < 1.0, "{clock}");

    for (kind, share) in [("Pressed", 0.25), ("Moved", 0.3), ("Moved", 0.5), ("Released", 0.5)] {
        chrome.mouse(&format!("mouse{kind}"), at(share).0, y);
    }
    chrome.settle();
    let zoomed = chrome.evaluate("checks.prints()");
    for i in 0..before.as_array().unwrap().len() {
        assert_ne!(before[i], zoomed[i], "plot {i} did not zoom");
    }
    chrome.screenshot(&picture("run-zoomed.png"));
    let all = "document.querySelector('.tools button:last-child')";
    assert_eq!(chrome.evaluate(&format!("{all}.disabled")), json!(false));
    chrome.evaluate(&format!("{all}.click()"));
    chrome.settle();
    assert_eq!(chrome.evaluate("checks.prints()"), before, "all of the run is back");

    let legend = "document.querySelector('[data-key=throughput] .legend button')";
    chrome.evaluate(&format!("{legend}.click()"));
    chrome.settle();
    assert_eq!(chrome.evaluate(&format!("{legend}.ariaPressed")), json!("false"));
    assert!(has_changed(&mut chrome, &before, "throughput"), "the line is gone");

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
    let run = run("Do 10 000 receivers fit on a page?", 30, 10_000, 100, 3);
    on_every_screen(&mut chrome, &keep("many.html", &page(&run)), "many", |_, _, _| {});
    let note = chrome.evaluate("document.querySelector('.note').textContent");
    let note = note.as_str().unwrap();
    assert!(note.contains("stopped after 3") && note.contains(" s of 100 s"), "{note}");
    assert!(note.contains("All averages are over the part that ran"), "{note}");
    let flow = &run.summary.flows[0];
    assert!(flow.rates.throughput_bps > 0.0, "{:?}", flow.counts.sent_packets);
}

/// Many receivers: only heads have rows. Receivers that leave make others look for new heads.
#[test]
fn a_repair_tree_is_drawn_over_time_for_few_receivers_and_for_many() {
    let Some(mut chrome) = browser() else { return };
    for (receivers, name, leaves) in [(20, "tree", "mr{1..2}"), (1000, "forest", "mr{1..100}")] {
        let set = [
            "flow.mcc.protocol=tram",
            "flow.mcc.options.members_max=8",
            "link.0.rate=5 Mbit/s",
            &format!("flow.mcc.join=[{{node=\"{leaves}\",at=\"0 s\",leave=\"30 s\"}}]"),
        ];
        let run = run_with("Who repairs for whom?", 1, receivers, 60, 60, &set);
        let changes: u64 = run.series.flows.iter().map(|flow| flow.tree.moves.total).sum();
        assert!(changes > 0, "{name}: somebody got another head");
        let file = keep(&format!("{name}.html"), &page(&run));
        on_every_screen(&mut chrome, &file, name, |chrome, _, screen| {
            assert_eq!(plots(chrome), 8, "{screen}: a tree and a rate, and no representative");
            let rows = chrome.evaluate("checks.all('.tree .track').length");
            let rows = rows.as_u64().expect("a number");
            let want = if receivers == 20 { 20..=20 } else { 20..=60 };
            assert!(want.contains(&rows), "{name} {screen}: {rows} rows");
            let seen = chrome.evaluate(
                "checks.all('.tree .track').filter(row => checks.all('i', row).some(part => \
                 part.textContent && part.clientWidth > 20 && part.scrollWidth <= part.clientWidth)).length",
            );
            assert!(2 * seen.as_u64().expect("a number") > rows, "{name} {screen}: {seen}");
        });
    }
}

#[test]
fn of_many_flows_single_ones_come_when_they_are_asked_for() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("crowd.html", &page(&run("Is a crowd readable?", 10, 3, 120, 120)));
    on_every_screen(&mut chrome, &file, "crowd", |_, _, _| {});
    chrome.open(&file, 1280, 900, false);
    let shown = json!(["mcc", "tcp-reno: mean and range of 10 flows"]);
    assert_eq!(chrome.evaluate("checks.pressed('window')"), shown);
    let before = chrome.evaluate("checks.prints()");
    chrome.evaluate(
        "(() => { const list = document.querySelector('[data-key=window] .singles'); \
         list.open = true; list.querySelector('button').click(); })()",
    );
    chrome.settle();
    assert!(has_changed(&mut chrome, &before, "window"), "the single flow is drawn");
    let shown = json!(["mcc", "tcp-reno: mean and range of 10 flows", "tcp-1"]);
    assert_eq!(chrome.evaluate("checks.pressed('window')"), shown);
}

#[test]
fn marks_cover_no_line() {
    let Some(mut chrome) = browser() else { return };
    let page = page(&run("Is every line seen?", 2, 3, 300, 300));
    chrome.open(&keep("marks.html", &page), 1280, 900, false);
    // An additional lane shrinks the plot, so the line is compared relative to the plot's height.
    let before = chrome.evaluate("checks.firstLine()");
    let rows = chrome.evaluate(
        "(() => { const rows = checks.all('[data-key=sequence] .legend button') \
         .filter(b => b.textContent.includes('×') && !b.textContent.includes('representative')); \
         rows.filter(b => b.ariaPressed === 'false').forEach(b => b.click()); return rows.length; })()",
    );
    assert!(rows.as_u64() > Some(3), "{rows}");
    chrome.settle();
    let after = chrome.evaluate("checks.firstLine()");
    assert!(number(&after, 2) > number(&before, 2) + 20.0, "lanes were added: {before} {after}");
    assert!(number(&before, 0) > 0.0 && number(&after, 0) <= number(&before, 0) + 1.0, "{after}");
    assert!((number(&before, 1) - number(&after, 1)).abs() < 0.02, "{before} {after}");
    chrome.screenshot(&picture("marks.png"));
}

/// The window overshoots during the warm-up; the axis covers the counted time.
#[test]
fn axes_are_named_and_reach_what_counts_and_pictures_are_saved() {
    let Some(mut chrome) = browser() else { return };
    let mut run = run("Where does it end?", 1, 3, 120, 120);
    let counted = Time::from_secs_f64(run.header.warmup_s);
    let windows = run.series.flows.iter().flat_map(|flow| flow.curves.window.points());
    let top = windows.filter(|(at, _)| *at >= counted).map(|(_, value)| value).fold(0.0, f64::max);
    let mut window = faircast_report::Curve::default();
    window.push(Time::ZERO, 40.0 * top);
    let counted = &mut run.series.flows[0].curves.window;
    counted.points().iter().for_each(|(at, value)| window.push(*at, *value));
    *counted = window;
    chrome.open(&keep("axes.html", &page(&run)), 1280, 900, false);
    chrome.evaluate("checks.save('[data-key=window] .save button')");
    let text = chrome.evaluate("checks.saved[0].text()");
    let text = text.as_str().expect("a picture");
    assert!(text.contains(">Time, s<") && text.contains(">Window, packets<"), "{text}");
    let numbers = text.split("text-anchor=\"end\">").skip(1);
    let numbers = numbers.map(|rest| rest.split('<').next().expect("an end").parse::<f64>());
    let numbers = numbers.collect::<Result<Vec<_>, _>>().expect("numbers");
    let last = numbers.iter().copied().fold(0.0, f64::max);
    assert!(last > 0.4 * top && last < 1.1 * top, "{numbers:?} beside {top}");
    let lines = text.lines().filter(|line| line.contains("stroke-linejoin")).count();
    assert_eq!(lines, 2, "{text}");
    // 3.5 inches at 600 pixels per inch.
    let png = chrome.evaluate("checks.png(1)");
    assert_eq!((&png[0], &png[1]), (&json!("image/png"), &json!(2100)), "{png}");
}

#[test]
fn a_bench_report_shows_every_experiment() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("bench.html", &bench_page(&suite()));
    on_every_screen(&mut chrome, &file, "bench", |chrome, width, name| {
        assert_eq!(plots(chrome), 4);
        let shown = chrome.evaluate(
            "checks.all('.plot').map(p => [p.dataset.key, \
             p.querySelector('figcaption p').textContent.split(' ').slice(-2).join(' '), \
             checks.all('.legend button', p).some(b => b.textContent.includes('new representative'))])",
        );
        let sequence = json!(["sequence", "in all", true]);
        let (rate, mean) = (json!(["throughput", "2 s", true]), json!(["mean", "2 s", true]));
        assert_eq!(shown, json!([sequence, sequence, rate, mean]), "{name}");
        if width >= 1280 {
            let hidden = "checks.all('.overview .scroll').map(e => e.scrollWidth - e.clientWidth)";
            assert_eq!(chrome.evaluate(hidden), json!([0]), "{name}: the overview is cut off");
        }
    });
}

#[test]
fn a_matrix_shows_one_figure_at_a_time_and_leads_to_runs() {
    let Some(mut chrome) = browser() else { return };
    let file = keep("matrix.html", &matrix_page(&matrix()));
    let shown =
        "checks.all('.map').filter(map => map.checkVisibility()).map(m => m.dataset.figure)";
    on_every_screen(&mut chrome, &file, "matrix", |chrome, _, name| {
        assert_eq!(chrome.evaluate(shown), json!(["fairness"]), "{name}");
        for figure in Figure::ALL {
            chrome.evaluate(&format!("document.querySelector('[value={}]').click()", figure.id()));
            chrome.settle();
            assert_eq!(chrome.evaluate(shown), json!([figure.id()]), "{name}");
        }
        let stuck = chrome.evaluate("checks.stuck()");
        assert_eq!(stuck, json!([]), "{name}: columns that nobody can reach");
        let close = chrome.evaluate("checks.heatContrast()");
        assert_eq!(close, json!([]), "{name}: numbers are hard to read on their colours");
    });
    let cells = chrome.evaluate(
        "checks.all('.map[data-figure=fairness] td').map(cell => \
         [cell.textContent, cell.querySelector('a')?.getAttribute('href') ?? null])",
    );
    let first = json!(["0.90▲ 0.15", "runs/case-0-pgmcc-2.html"]);
    assert_eq!(cells[0], first, "the median, the worst beside it, and the worst run");
    assert_eq!(cells[2], json!(["\u{2013}", null]), "a figure that is not there leads nowhere");
    assert_eq!(cells[3], json!(["0.90", "runs/case-1-pgmcc-1.html"]), "one seed has one number");
    let colours = chrome.evaluate(
        "checks.all('.map[data-figure=fairness] [class*=much], .map[data-figure=fairness] [class*=little]') \
         .every(e => !e.textContent || e.textContent.startsWith(e.className.startsWith('much') ? '▲' : '▼'))",
    );
    assert_eq!(colours, json!(true), "a colour alone tells nothing to who does not see it");
    let intervals = chrome.evaluate("checks.all('.heat .ci').length");
    assert_eq!(intervals, json!(20), "7 and 6 and 7 figures of the case with six seeds");
}

fn matrix() -> Matrix {
    let schemes = ["pgmcc", "a-scheme-with-a-long-name", "ormcc"];
    let seeds = |case: usize| [3, 1, 6][case.min(2)];
    let cell = |case: usize, place: usize| {
        let spread = |figure| {
            let best = [0.9, 0.5, 0.1][place];
            let all = [best, 0.15, best + 0.05, best, best, 1.6];
            let per_seed = (1..=seeds(case)).map(|seed| (seed, all[seed as usize - 1]));
            Spread::of(figure, per_seed.collect())
        };
        let has = |figure: &Figure| place != 2 || *figure != Figure::Fairness;
        let figures = Figure::ALL.into_iter().filter(has).filter_map(spread).collect();
        let scheme = schemes[place];
        let page = |seed| format!("runs/case-{case}-{scheme}-{seed}.html");
        let runs = (1..=seeds(case)).map(|seed| RunPage { seed, page: page(seed) }).collect();
        MatrixCell { scheme: scheme.into(), figures, runs }
    };
    let case = |case: usize| MatrixCase {
        id: format!("case-{case}"),
        group: if case < 2 { "Beside TCP" } else { "Many & far <receivers>" }.into(),
        question: "Does a session leave a TCP connection its share on a slow link?".into(),
        scenario: "scenarios/x.toml".into(),
        set: vec!["link.0.loss=0.1".into()],
        seeds: seeds(case) as u32,
        note: (case == 2).then(|| "All receivers are alike.".into()),
        cells: (0..schemes.len()).map(|place| cell(case, place)).collect(),
    };
    Matrix {
        name: "matrix".into(),
        title: "How do the schemes compare?".into(),
        faircast: "0.1.0".into(),
        quick: true,
        schemes: schemes.map(String::from).to_vec(),
        cases: (0..3).map(case).collect(),
    }
}

const SCREENS: [(&str, u32, u32, bool); 4] = [
    ("desktop", 1280, 900, false),
    ("desktop-dark", 1280, 900, true),
    ("phone", 390, 844, false),
    ("phone-dark", 390, 844, true),
];

fn suite() -> Suite {
    let series = run("?", 1, 3, 300, 300).series;
    let row = |id: &str, paper: Option<f64>, ours: f64, holds, explained: Option<&str>| Row {
        id: id.into(),
        title: "pgmcc beside one TCP Reno flow, 3000 s".into(),
        unit: "ratio".into(),
        expected: Expected { paper, ..Expected::default() },
        values: Values { ours, low: ours * 0.9, high: ours * 1.06, seeds: 10, optimum: None },
        accepted: Acceptance {
            tolerance: 0.15,
            low: paper.map(|paper| paper * 0.85),
            high: paper.map(|paper| paper * 1.15),
            holds,
            reason: "Shares are read off a printed figure.".into(),
            ..Acceptance::default()
        },
        cause: MissCause { explained: explained.map(Into::into), ..MissCause::default() },
        source: Source {
            group: "Set 1: window and timeouts".into(),
            question: "Does a pgmcc session leave a TCP flow its share on a slow link with a \
                       long drop-tail queue?"
                .into(),
            paper_says: "Fig. 4: both flows go on at about the same slope; the session's \
                         throughput is 74 % of TCP's."
                .into(),
            scenario: Some(("fig-4.toml".into(), "title = \"<x>\"".into())),
            ..Source::default()
        },
        per_seed: (1..=10).map(|i| (i, ours * (0.9 + 0.016 * i as f64))).collect(),
        series: Some(series.clone()),
        ..Row::default()
    };
    let mut bound = Row { series: None, ..row("fig-4-bound", None, 0.6, true, None) };
    bound.accepted.low = Some(0.5);
    (bound.source.experiment, bound.source.scenario) = ("fig-4".into(), None);
    let mut cure = Row { series: None, ..row("improved-with-a-long-name", None, 0.9, true, None) };
    cure.source.group = "The cures that the paper proposes".into();
    cure.accepted.fairer_than = Some("fig-4-with-a-long-name".into());
    (cure.accepted.low, cure.accepted.high) = (Some(0.7), Some(1.4));
    Suite {
        name: "fairness".into(),
        about: "The figures of the paper on fairness & friends.".into(),
        rows: vec![
            row("fig-4", Some(0.74), 0.77, true, None),
            row("fig-5", Some(0.5), 0.61, false, Some("The paper leaves the queue's limit open.")),
            Row { plots: Plots::Rate, ..row("fig <6>", None, 1.2, true, None) },
            Row { plots: Plots::Mean, ..row("fig-7", None, 1.2, true, None) },
            bound,
            cure,
            Row { series: None, ..row("tab-1", Some(12_000.0), 3_000.0, false, None) },
        ],
    }
}

#[test]
fn the_page_saves_the_pictures_that_the_command_line_writes() {
    let Some(mut chrome) = browser() else { return };
    for (flows, title) in [(1, "Few flows?"), (10, "Many?")] {
        let run = run(title, flows, 3, 120, 120);
        chrome.open(&keep("saves.html", &page(&run)), 1280, 900, false);
        chrome.evaluate("checks.save('.save button:first-child')");
        let plots = plots_of(&run.series, run.series.ended);
        for (i, plot) in plots.iter().enumerate() {
            let written = json!(svg(plot, &run.series));
            let differs = chrome.evaluate(&format!("checks.differs({i}, {written})"));
            assert_eq!(differs, json!([]), "{} of {title}", plot.key);
        }
    }
}

fn sweep() -> Sweep {
    let axis = |key: &str, values: &[&str], numbers: Option<Vec<f64>>| SweepAxis {
        key: key.into(),
        values: values.iter().map(|value| (*value).to_string()).collect(),
        numbers,
    };
    let rates = ["500 kbit/s", "1 Mbit/s", "20 Mbit/s"];
    let axes = vec![
        axis("link.0.rate", &rates, Some(vec![5e5, 1e6, 2e7])),
        axis("flow.mcc.protocol", &["pgmcc", "tfmcc"], None),
    ];
    let mut sweep = Sweep::new("s.toml", "Does <rate> matter to the scheme?", axes, 4);
    let summary = run("?", 3, 3, 60, 60).summary;
    for (choice, factor) in
        [([0, 0], 1.0), ([1, 0], 2.0), ([2, 0], 40.0), ([0, 1], 0.8), ([1, 1], 1.5)]
    {
        for seed in 0..4 {
            let mut summary = summary.clone();
            for flow in &mut summary.flows {
                flow.rates.active_throughput_bps *= factor * (1.0 + 0.1 * f64::from(seed));
            }
            sweep.add(&choice, &summary);
        }
    }
    sweep
}

#[test]
fn a_sweep_shows_its_plots_and_saves_them_as_the_command_line_does() {
    let Some(mut chrome) = browser() else { return };
    let sweep = sweep();
    let file = keep("sweep.html", &sweep_page(&sweep));
    on_every_screen(&mut chrome, &file, "sweep", |chrome, _, name| {
        let least = chrome.evaluate(
            "Math.min(...checks.all('.drawn svg').map(svg => 8 * svg.getBoundingClientRect().width / 252))",
        );
        assert!(least.as_f64().expect("a size") >= 9.0, "{name}: text of {least} pixels");
    });
    chrome.evaluate("checks.save('[data-key=active_throughput_bps-2] .save button:first-child')");
    let pictures = sweep_pictures(&sweep);
    let mut pictures = pictures.iter();
    let found = pictures.find(|(name, _)| name == "active_throughput_bps-2.svg");
    let (_, written) = found.expect("it is there");
    let differs = chrome.evaluate(&format!("checks.differs(0, {})", json!(written)));
    assert_eq!(differs, json!([]));
}

fn on_every_screen(
    chrome: &mut Chrome,
    url: &str,
    kind: &str,
    mut look: impl FnMut(&mut Chrome, u32, &str),
) {
    for (name, width, height, dark) in SCREENS {
        chrome.open(url, width, height, dark);
        chrome.evaluate("checks.drawAll()");
        chrome.settle();
        check(chrome, width, name);
        chrome.screenshot(&picture(&format!("{kind}-{name}.png")));
        look(chrome, width, name);
    }
}

fn check(chrome: &mut Chrome, width: u32, name: &str) {
    assert_eq!(chrome.complaints, Vec::<String>::new(), "{name}: the console is not silent");
    assert_eq!(chrome.requests.len(), 1, "{name}: {:?}", chrome.requests);
    let wide = chrome.evaluate("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(width.into()), "{name}: the page is {wide} wide");
    for (what, want) in [("blank", "plots"), ("faults", "markup"), ("contrast", "colours")] {
        let found = chrome.evaluate(&format!("checks.{what}()"));
        assert_eq!(found, json!([]), "{name}: {want}");
    }
}

fn has_changed(chrome: &mut Chrome, before: &Value, key: &str) -> bool {
    let place = chrome.evaluate(&format!("checks.place('{key}')")).as_u64().expect("a place");
    chrome.evaluate("checks.prints()")[place as usize] != before[place as usize]
}

fn number(list: &Value, place: usize) -> f64 {
    list[place].as_f64().expect("a number")
}

fn page(run: &Run) -> String {
    let page = run_page(&run.header, &run.summary, &run.series);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    page
}

fn plots(chrome: &mut Chrome) -> u64 {
    chrome.evaluate("checks.all('.plot canvas').length").as_u64().expect("a number")
}

fn keep(name: &str, page: &str) -> String {
    let file = picture(name);
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("target is writable");
    std::fs::write(&file, page).expect("target is writable");
    format!("file://{}", file.display())
}
