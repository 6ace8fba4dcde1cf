//! Matrix as a page of the documentation, for `--docs`.

use faircast_proto::catalog;
use faircast_report::{Figure, Matrix, MatrixCase, MatrixCell, Spread};

/// Text about the numbers, with placeholders: `{median CASES SCHEME FIGURE}`; of several medians
/// `least`, `most`, `mean` (geometric) and `below` (number below 1); `cases` is the number of
/// cases. Commas separate cases, `*` matches any text, and a final `%` shows percent.
const TEMPLATE: &str = include_str!("comparison.md.in");

/// Headings around the conclusions, which a person drew from the whole matrix only.
const CONCLUSIONS: [&str; 2] = ["## Which one to choose", "## The cases"];

pub(super) fn heading() -> &'static str {
    TEMPLATE.lines().next().expect("it has one")
}

pub(super) fn document(matrix: &Matrix, whole: bool) -> Result<String, String> {
    let mut cases = String::from("| case | question |\n| --- | --- |\n");
    for case in &matrix.cases {
        let note = case.note.as_ref().map_or_else(String::new, |note| format!(" {note}"));
        cases.push_str(&format!("| `{}` | {}{note} |\n", case.id, case.question));
    }
    let [from, to] = CONCLUSIONS.map(|heading| TEMPLATE.find(heading).expect("it has both"));
    let (head, conclusions, rest) = (&TEMPLATE[..from], &TEMPLATE[from..to], &TEMPLATE[to..]);
    let conclusions = if whole { filled(conclusions, matrix)? } else { String::new() };
    let page = [head, &conclusions, rest].concat();
    Ok(page
        .replace("{cases}", cases.trim_end())
        .replace("{seeds}", &matrix.seeds())
        .replace("{tables}", matrix.markdown().trim_end()))
}

pub(super) fn tables(page: &str) -> Result<Matrix, String> {
    let mut matrix = Matrix::default();
    for section in page.split("\n### ").skip(1) {
        let title = section.lines().next().unwrap_or_default();
        let figure = Figure::ALL.into_iter().find(|figure| figure.title() == title);
        let figure = figure.ok_or_else(|| format!("no figure is called \"{title}\""))?;
        let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| ---");
        for row in section.lines().filter(is_row) {
            let mut cells = row.trim_matches(['|', ' ']).split(" | ").map(str::to_string);
            let id = cells.next().unwrap_or_default().trim_matches('`').to_string();
            if id == "case" {
                matrix.schemes = cells.collect();
                continue;
            }
            let known = matrix.cases.iter().position(|case| case.id == id);
            let place = known.unwrap_or_else(|| {
                let cell = |scheme: &String| MatrixCell {
                    scheme: scheme.clone(),
                    ..MatrixCell::default()
                };
                let cells = matrix.schemes.iter().map(cell).collect();
                matrix.cases.push(MatrixCase { id: id.clone(), cells, ..MatrixCase::default() });
                matrix.cases.len() - 1
            });
            for (cell, text) in matrix.cases[place].cells.iter_mut().zip(cells) {
                cell.figures
                    .extend(printed(figure, &text).map_err(|text| format!("{id}: {text}"))?);
            }
        }
    }
    Ok(matrix)
}

fn printed(figure: Figure, text: &str) -> Result<Option<Spread>, String> {
    let value = |text: &str| match text {
        "never" | "∞" => Ok(f64::INFINITY),
        _ => text.parse().map_err(|_| format!("\"{text}\" is no number")),
    };
    let values = match text.trim_end_matches(')').split_once(" (") {
        _ if text == "–" => return Ok(None),
        Some((median, worst)) => vec![value(median)?, value(worst)?],
        None => vec![value(text)?],
    };
    let [median, worst] = [values[0], values[values.len() - 1]];
    let per_seed = (1..).zip(values).collect();
    Ok(Some(Spread { figure, median, worst, worst_seed: 0, per_seed }))
}

pub(super) fn with_others(matrix: &Matrix, others: &Matrix) -> Result<Matrix, String> {
    let mut all = matrix.clone();
    let is_new = |name: &String| matrix.schemes.contains(name);
    let is_kept = |name: &String| others.schemes.contains(name);
    let names = catalog::reliable_multicast().map(|stack| stack.name());
    all.schemes = names.filter(|name| is_new(name) || is_kept(name)).collect();
    for case in &mut all.cases {
        let same = others.cases.iter().find(|same| same.id == case.id);
        let same = same.ok_or_else(|| {
            let id = &case.id;
            format!("--docs: the page has no case {id}; without --scheme it is made anew")
        })?;
        let cells = || case.cells.iter().chain(&same.cells);
        let cell = |scheme: &String| cells().find(|cell| cell.scheme == *scheme).cloned();
        case.cells = all.schemes.iter().filter_map(cell).collect();
    }
    Ok(all)
}

fn filled(text: &str, matrix: &Matrix) -> Result<String, String> {
    let mut pieces = text.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (place, rest) =
            piece.split_once('}').ok_or_else(|| format!("comparison.md.in: {{{piece}"))?;
        let number = number(place, matrix)
            .ok_or_else(|| format!("comparison.md.in: no number for {{{place}}}"))?;
        filled.push_str(&number);
        filled.push_str(rest);
    }
    Ok(filled)
}

fn number(place: &str, matrix: &Matrix) -> Option<String> {
    let words: Vec<&str> = place.split_whitespace().collect();
    let (words, percent) = match words.split_last()? {
        (&"%", words) => (words, true),
        _ => (&words[..], false),
    };
    let [fold, cases, scheme, figure] = words[..] else { return None };
    let figure = Figure::ALL.into_iter().find(|known| known.id() == figure)?;
    let mut medians = Vec::new();
    for pattern in cases.split(',') {
        let meant = |id: &str| match pattern.split_once('*') {
            Some((head, tail)) => id.strip_prefix(head).is_some_and(|rest| rest.ends_with(tail)),
            None => id == pattern,
        };
        let found = matrix.cases.iter().filter(|case| meant(&case.id)).filter_map(|case| {
            case.cells.iter().find(|cell| cell.scheme == scheme)?.figure(figure)
        });
        let before = medians.len();
        medians.extend(found.map(|spread| spread.median));
        if medians.len() == before {
            return None;
        }
    }
    let value = match (fold, &medians[..]) {
        ("median", [value]) => *value,
        ("least", _) => medians.iter().copied().reduce(f64::min)?,
        ("most", _) => medians.iter().copied().reduce(f64::max)?,
        ("mean", _) => {
            let logs = medians.iter().map(|median| faircast_base::math::ln(*median)).sum::<f64>();
            faircast_base::math::exp(logs / medians.len() as f64)
        }
        ("below", _) => {
            return Some(medians.iter().filter(|median| **median < 1.0).count().to_string());
        }
        ("cases", _) => return Some(medians.len().to_string()),
        _ => return None,
    };
    Some(if percent { format!("{:.0} %", 100.0 * value) } else { figure.shown(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let case = |id: &str, value: f64| MatrixCase {
            id: id.into(),
            group: String::new(),
            question: "?".into(),
            scenario: "s".into(),
            set: Vec::new(),
            seeds: 1,
            note: None,
            cells: vec![MatrixCell {
                scheme: "mine".into(),
                figures: Spread::of(Figure::Repairs, vec![(1, value)]).into_iter().collect(),
                runs: Vec::new(),
            }],
        };
        Matrix {
            name: "m".into(),
            title: "?".into(),
            faircast: "0".into(),
            quick: false,
            schemes: vec!["mine".into()],
            cases: vec![case("a-1", 0.25), case("a-2", 0.5)],
        }
    }

    #[test]
    fn numbers_stand_in_their_places_or_are_missed() {
        for (text, want) in [
            ("as {median a-1 mine repairs} is", Ok("as 0.25 is")),
            ("{least a-* mine repairs} to {most a-* mine repairs}", Ok("0.25 to 0.50")),
            ("{most a-1,a-2 mine repairs %}", Ok("50 %")),
            ("{mean a-* mine repairs}", Ok("0.35")),
            ("{below a-* mine repairs} of {cases a-* mine repairs}", Ok("2 of 2")),
            ("{median a-* mine repairs}", Err("no number for {median a-* mine repairs}")),
            ("{median a-3 mine repairs}", Err("no number")),
            ("{least a-1,b mine repairs}", Err("no number")),
            ("{median a-1 other repairs}", Err("no number")),
            ("{median a-1 mine fairness}", Err("no number")),
            ("{median a-1 mine", Err("{median a-1 mine")),
        ] {
            match (filled(text, &matrix()), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_scheme_that_is_measured_alone_takes_its_place_beside_what_a_page_shows_of_others() {
        let mut old = matrix();
        old.schemes = vec!["pgmcc".into(), "ormcc".into()];
        for (case, place) in old.cases.iter_mut().zip(1u32..) {
            let cell = |scheme: &str, values: &[f64]| MatrixCell {
                scheme: scheme.into(),
                figures: [Figure::Repairs, Figure::SettledS]
                    .into_iter()
                    .filter_map(|it| Spread::of(it, (1..).zip(values.iter().copied()).collect()))
                    .collect(),
                runs: Vec::new(),
            };
            let own = f64::from(place);
            case.cells = vec![cell("pgmcc", &[own, 0.5]), cell("ormcc", &[f64::INFINITY])];
        }
        let kept = tables(&document(&old, false).unwrap()).unwrap();
        let mut new = matrix();
        new.schemes = vec!["ormcc".into()];
        new.cases.iter_mut().for_each(|case| case.cells[0].scheme = "ormcc".into());
        let page = document(&with_others(&new, &kept).unwrap(), false).unwrap();
        for row in [
            "| case | pgmcc | ormcc |",
            "| `a-1` | 0.75 (1.00) | 0.25 |",
            "| `a-2` | 1.25 (2.00) | 0.50 |",
            "| `a-2` | 1 (2) | – |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        new.cases[0].id = "a-3".into();
        assert!(with_others(&new, &kept).unwrap_err().contains("no case a-3"));
    }

    #[test]
    fn what_was_concluded_from_all_cases_is_not_said_of_others() {
        let page = document(&matrix(), false).unwrap();
        assert!(!page.contains(CONCLUSIONS[0]) && page.contains(CONCLUSIONS[1]), "{page}");
        assert!(page.contains("| `a-1` | 0.25 |"), "{page}");
        assert!(document(&matrix(), true).is_err(), "it lacks what is spoken of");
    }

    #[test]
    fn the_page_in_the_documentation_says_what_its_tables_do() {
        let page = include_str!("../../../../docs/comparison.md");
        let [from, to] = CONCLUSIONS.map(|heading| TEMPLATE.find(heading).unwrap());
        let matrix = tables(page).unwrap();
        assert!(matrix.cases.len() > 20 && matrix.schemes.len() >= 3);
        let said = filled(&TEMPLATE[from..to], &matrix).unwrap();
        assert!(page.contains(&said), "{said}");
    }

    #[test]
    fn the_readme_says_what_tcp_keeps() {
        let matrix = tables(include_str!("../../../../docs/comparison.md")).unwrap();
        let readme = include_str!("../../../../README.md");
        let said = "TCP sends {mean set*-object pgmcc fairness} of what a session of the default scheme, pgmcc, sends";
        let said = filled(said, &matrix).unwrap();
        assert!(readme.replace('\n', " ").contains(&said), "README.md must say: {said}");
        let closest = "{mean set*-object tram-tfmcc fairness}";
        let said =
            filled(&format!("TFMCC over TRAM's tree comes closest, with {closest}"), &matrix)
                .unwrap();
        assert!(readme.replace('\n', " ").contains(&said), "README.md must say: {said}");
        let of = |scheme: &str| {
            number(&format!("mean set*-object {scheme} fairness"), &matrix)
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        let off = |scheme| of(scheme).max(1.0 / of(scheme));
        for scheme in matrix.schemes.iter().filter(|scheme| *scheme != "credit") {
            assert!(off("tram-tfmcc") <= off(scheme), "{scheme} comes closest");
        }
    }

    #[test]
    fn the_words_of_the_conclusions_hold_in_the_tables() {
        let matrix = tables(include_str!("../../../../docs/comparison.md")).unwrap();
        let of = |case: &str, scheme: &str, figure: Figure| {
            let place = format!("median {case} {scheme} {}", figure.id());
            let shown = number(&place, &matrix).unwrap_or_else(|| panic!("{place}"));
            shown.parse::<f64>().unwrap_or(f64::INFINITY)
        };
        let off = |case: &str, scheme: &str, figure: Figure| {
            let value = of(case, scheme, figure);
            value.max(1.0 / value)
        };
        let all = ["pgmcc", "tfmcc", "ormcc"];
        let sets = [
            "set1-reno-object",
            "set1-sack-object",
            "set2-low-loss-object",
            "set2-high-loss-object",
            "set2-bottlenecks-object",
            "set3-plain-object",
            "set3-suppressed-object",
            "set4-far-object",
        ];
        use Figure::{Fairness, FeedbackPerS, RateVariation, Repairs, SettledS, SlowestShare};
        let groups =
            ["receivers-10-object", "receivers-100-object", "receivers-1000", "receivers-10000"];
        for group in groups {
            for better in ["pgmcc", "ormcc"] {
                assert!(off(group, better, SlowestShare) < off(group, "tfmcc", SlowestShare));
            }
        }
        let of_lossy = |scheme, figure| of("loss-10-object", scheme, figure);
        assert!(of_lossy("tfmcc", SlowestShare) < 0.6 && of_lossy("tfmcc", Fairness) > 1.5);
        for scheme in ["pgmcc", "ormcc"] {
            assert!(of_lossy(scheme, SlowestShare) > 0.9 && of_lossy(scheme, Fairness) < 0.7);
        }
        for case in ["set1-reno-object", "set1-sack-object"] {
            for other in ["tfmcc", "ormcc"] {
                let (best, other) = (off(case, "pgmcc", Fairness), off(case, other, Fairness));
                assert!(best <= other + 0.02, "{case}: {best} {other}");
            }
        }
        for other in ["pgmcc", "ormcc"] {
            let most = of("set4-far-object", "tfmcc", Fairness);
            assert!(most > of("set4-far-object", other, Fairness), "{other}");
        }
        for case in ["set3-plain-object", "set3-suppressed-object"] {
            for scheme in ["pgmcc", "tfmcc"] {
                assert!(of(case, scheme, Fairness) > 0.32, "{case} {scheme}");
            }
        }
        assert!(of("rtt-spread-object", "ormcc", Fairness) < 0.33);
        for case in sets {
            for steady in ["tfmcc", "ormcc"] {
                let (less, more) =
                    (of(case, steady, RateVariation), of(case, "pgmcc", RateVariation));
                assert!(less <= more, "{case} {steady}");
            }
        }
        for case in ["more-bandwidth-object", "less-bandwidth-object"] {
            for other in ["tfmcc", "ormcc"] {
                assert!(of(case, "pgmcc", RateVariation) < of(case, other, RateVariation));
            }
        }
        let used = all.map(|scheme| of("more-bandwidth-object", scheme, Figure::Utilisation));
        assert!(used[0] > used[1] && used[1] > used[2]);
        assert!(all.iter().all(|scheme| of("less-bandwidth-object", scheme, SettledS) <= 15.0));
        for case in sets.into_iter().chain(["receivers-100-object"]) {
            for little in ["tfmcc", "ormcc"] {
                let (less, more) =
                    (of(case, little, FeedbackPerS), of(case, "pgmcc", FeedbackPerS));
                assert!(1.5 * less < more, "{case} {little}");
            }
        }
        for scheme in all {
            assert!(off("ormcc-simple", scheme, Fairness) < 1.25);
            assert!(of("ormcc-linear", scheme, Fairness) > 2.0);
            let repairs = of("receivers-100", scheme, Repairs);
            assert!(of("receivers-10000", scheme, Repairs) > repairs);
            assert!(2.0 * of("receivers-100-object", scheme, Repairs) < repairs);
        }
        let (least, feedback) = (of("receivers-10000", "tram", FeedbackPerS), FeedbackPerS);
        // From a hundred to ten thousand receivers; over PGM the feedback grows three to ten times.
        assert!(least <= 1.25 * of("receivers-100", "tram", feedback), "it hardly grows");
        assert!(of("loss-1", "tram", feedback) > 1.5 * least);
        let tree = all.map(|scheme| format!("tram-{scheme}"));
        for (scheme, over_tree) in all.into_iter().zip(&tree) {
            let over_pgm = of("receivers-10000", scheme, feedback);
            assert!(2.0 * least < over_pgm, "{scheme}");
            assert!(1.5 * of("receivers-10000", over_tree, feedback) < over_pgm, "{scheme}");
        }
        for case in sets {
            assert!(of(case, "tram", Fairness) < 0.7, "{case}");
            let [less, more] = ["tram", "pgmcc"].map(|it| of(case, it, Fairness));
            assert!(less <= more + 0.02, "{case}");
        }
        assert!(of("receivers-1-object", "tram", Fairness) < 0.5);
        assert!(of("receivers-100-object", "tram", Fairness) < 0.7);
        assert!(of("rtt-spread-object", "tram", Fairness) < 0.8);
        for case in ["loss-1-object", "loss-10-object"] {
            for scheme in ["pgmcc", "ormcc"] {
                let [less, more] = ["tram", scheme].map(|it| of(case, it, SlowestShare));
                assert!(less < 0.8 && less < more, "{case}");
            }
        }
        for case in sets {
            let [by_tree, by_pgm] = ["tram-pgmcc", "pgmcc"].map(|it| of(case, it, Fairness));
            assert!((by_tree / by_pgm - 1.0).abs() < 0.25, "{case}: {by_tree} {by_pgm}");
        }
        let [by_tree, by_pgm] =
            ["tram-pgmcc", "pgmcc"].map(|it| of("receivers-100-object", it, Repairs));
        assert!(by_tree > 3.0 * by_pgm);
        for (scheme, over_tree) in all.into_iter().zip(&tree) {
            let [by_tree, by_pgm] =
                [over_tree, scheme].map(|it| of("ormcc-star-tcp", it, Fairness));
            assert!(by_tree > 1.5 * by_pgm, "{scheme}");
        }
    }
}
