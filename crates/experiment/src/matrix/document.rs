//! `--docs`: the matrix as a page of the documentation.

use faircast_report::{Figure, Matrix};

/// What a person wrote about the numbers, with places for them.
///
/// `{median CASES SCHEME FIGURE}` is a median, `{least ...}` and `{most ...}` are the least and the
/// greatest median of several cases, whose names have commas between or a `*` that stands for
/// anything; `%` at the end shows percent.
const TEMPLATE: &str = include_str!("comparison.md.in");

/// Between these is what a person concluded, from the whole matrix and nothing else.
const CONCLUSIONS: [&str; 2] = ["## Which one to choose", "## The cases"];

/// The page: what the template says, the cases, and the tables. What a person concluded is there
/// where the matrix is `whole`.
///
/// # Errors
/// A place in the template for a number that the matrix does not have.
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

/// A text with its numbers in their places.
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
        _ => return None,
    };
    Some(if percent { format!("{:.0} %", 100.0 * value) } else { figure.shown(value) })
}

#[cfg(test)]
mod tests {
    use faircast_report::{MatrixCase, MatrixCell, Spread};

    use super::*;

    /// Cases `a-1` with 0.25 and `a-2` with 0.5, seen by one scheme.
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
    fn what_was_concluded_from_all_cases_is_not_said_of_others() {
        let page = document(&matrix(), false).unwrap();
        assert!(!page.contains(CONCLUSIONS[0]) && page.contains(CONCLUSIONS[1]), "{page}");
        assert!(page.contains("| `a-1` | 0.25 |"), "{page}");
        assert!(document(&matrix(), true).is_err(), "it lacks what is spoken of");
    }

    /// The matrix that the tables of a document show: medians as far as they are printed.
    fn tables(page: &str) -> Matrix {
        let mut matrix = Matrix { schemes: Vec::new(), cases: Vec::new(), ..matrix() };
        for section in page.split("\n### ").skip(1) {
            let title = section.lines().next().unwrap();
            let figure = Figure::ALL.into_iter().find(|figure| figure.title() == title).unwrap();
            for row in section.lines().filter(|line| line.starts_with("| ")) {
                let mut cells = row.trim_matches(['|', ' ']).split(" | ").map(str::to_string);
                let id = cells.next().unwrap().trim_matches('`').to_string();
                if id == "case" {
                    matrix.schemes = cells.collect();
                    continue;
                }
                if !matrix.cases.iter().any(|case| case.id == id) {
                    let cell = |scheme: &String| MatrixCell {
                        scheme: scheme.clone(),
                        figures: Vec::new(),
                        runs: Vec::new(),
                    };
                    let cells = matrix.schemes.iter().map(cell).collect();
                    let case = super::tests::matrix().cases[0].clone();
                    matrix.cases.push(MatrixCase { id: id.clone(), cells, ..case });
                }
                let case = matrix.cases.iter_mut().find(|case| case.id == id).unwrap();
                for (place, text) in cells.enumerate() {
                    let median = text.split(" (").next().unwrap();
                    let value = match median {
                        "never" | "∞" => f64::INFINITY,
                        _ => median.parse().unwrap_or(f64::NAN),
                    };
                    case.cells[place].figures.extend(Spread::of(figure, vec![(1, value)]));
                }
            }
        }
        matrix
    }

    #[test]
    fn the_page_in_the_documentation_says_what_its_tables_do() {
        let page = include_str!("../../../../docs/comparison.md");
        let [from, to] = CONCLUSIONS.map(|heading| TEMPLATE.find(heading).unwrap());
        let matrix = tables(page);
        assert!(matrix.cases.len() > 20 && matrix.schemes.len() >= 3);
        let said = filled(&TEMPLATE[from..to], &matrix).unwrap();
        assert!(page.contains(&said), "{said}");
    }

    /// What the words of the conclusions claim. Whoever makes the tables again and fails here writes
    /// other words.
    #[test]
    fn the_words_of_the_conclusions_hold_in_the_tables() {
        let matrix = tables(include_str!("../../../../docs/comparison.md"));
        let of = |case: &str, scheme: &str, figure: Figure| {
            let place = format!("median {case} {scheme} {}", figure.id());
            let shown = number(&place, &matrix).unwrap_or_else(|| panic!("{place}"));
            shown.parse::<f64>().unwrap_or(f64::INFINITY)
        };
        // How far from 1, as a factor.
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
        // 1 and 2
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
        // 3 and 4
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
        // 5
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
        // 6 and 7
        let used = all.map(|scheme| of("more-bandwidth-object", scheme, Figure::Utilisation));
        assert!(used[0] > used[1] && used[1] > used[2]);
        assert!(all.iter().all(|scheme| of("less-bandwidth-object", scheme, SettledS) <= 15.0));
        // 8
        for case in sets.into_iter().chain(["receivers-100-object"]) {
            for little in ["tfmcc", "ormcc"] {
                let (less, more) =
                    (of(case, little, FeedbackPerS), of(case, "pgmcc", FeedbackPerS));
                assert!(1.5 * less < more, "{case} {little}");
            }
        }
        // 9 and 10
        for scheme in all {
            assert!(off("ormcc-simple", scheme, Fairness) < 1.25);
            assert!(of("ormcc-linear", scheme, Fairness) > 2.0);
            let repairs = of("receivers-100", scheme, Repairs);
            assert!(of("receivers-10000", scheme, Repairs) > repairs);
            assert!(2.0 * of("receivers-100-object", scheme, Repairs) < repairs);
        }
    }
}
