//! Worth of a suite's verdicts. A row is refused before any run if it cannot fail, accepts the
//! opposite of its effect, or explains a miss without a proof.

use std::collections::BTreeMap;

use super::file::RowFile;
use super::measure::is_target;

/// Largest accepted ratio between two shares, for rows that test whether the shares are equal.
const EVEN_MAX: f64 = 1.5;
/// Largest relative distance of a figure from an even share that still counts as even.
const EVEN_FIGURE: f64 = 0.05;
/// Largest relative tolerance of a published figure.
const TOLERANCE_MAX: f64 = 0.5;

pub(super) fn check(
    id: &str,
    row: &RowFile,
    rows: &BTreeMap<&str, &RowFile>,
    against_sim: bool,
) -> Result<(), String> {
    refers(id, row, rows, against_sim)?;
    remarks(row)?;
    if row.is_measured_only() {
        return Ok(());
    }
    let (low, high) = row.range();
    let unbounded = low == f64::NEG_INFINITY && high == f64::INFINITY;
    let compared = row.tolerance.or(row.absolute).is_some() && against_sim;
    if unbounded && row.fairer_than.is_none() && !compared {
        return Err("no value could fail it; give paper with tolerance or absolute, or at_least, at_most or \
                    fairer_than, or nothing of all that to measure only"
            .into());
    }
    if row.reason.is_empty() {
        return Err("has no reason; say why it must lie there".into());
    }
    if low.is_nan() || high.is_nan() || low > high {
        return Err(format!("no value could hold; it must lie from {low} to {high}"));
    }
    tolerance(row)?;
    effect(row)
}

fn refers(
    id: &str,
    row: &RowFile,
    rows: &BTreeMap<&str, &RowFile>,
    against_sim: bool,
) -> Result<(), String> {
    if let Some(other) = row.fairer_than.as_deref().filter(|other| !rows.contains_key(other)) {
        return Err(format!("fairer_than = \"{other}\": there is no such row"));
    }
    for other in &row.proved_by {
        let problem = match rows.get(&**other) {
            None => "there is no such row",
            Some(_) if other == id => "a row is no proof of itself",
            Some(proof) if proof.is_measured_only() => {
                "that row is measured only and proves nothing"
            }
            Some(_) => continue,
        };
        return Err(format!("proved_by = \"{other}\": {problem}"));
    }
    if row.optimum.is_some() && (against_sim || row.measure.counts_sent().is_none()) {
        return Err("optimum: belongs to a sum or mean of client_sent_bps in the simulator".into());
    }
    let Some(targets) = row.measure.rows() else { return Ok(()) };
    if against_sim || row.fairness {
        return Err("a measure of rows is neither compared with the simulator nor a score".into());
    }
    for target in targets {
        let mut found = rows.iter().filter(|(id, _)| is_target(id, target)).peekable();
        if found.peek().is_none() {
            return Err(format!("measure: \"{target}\" is no row of the suite"));
        }
        let lacks =
            |(id, of): &(&&str, &&RowFile)| row.measure.takes_optimum(id) && of.optimum.is_none();
        if let Some((other, _)) = rows.iter().find(lacks) {
            return Err(format!("measure: \"{other}\" has no optimum"));
        }
        if let Some((other, _)) = found.find(|(_, other)| other.measure.rows().is_some()) {
            return Err(format!("measure: \"{target}\" has {other}, which is of rows itself"));
        }
    }
    Ok(())
}

fn remarks(row: &RowFile) -> Result<(), String> {
    if row.explained.is_some() && row.proved_by.is_empty() {
        return Err(
            "explained without proved_by; name the rows whose runs prove the mechanism, or write \
                    conjecture where none does"
                .into(),
        );
    }
    if row.explained.is_none() && !row.proved_by.is_empty() {
        return Err("proved_by without explained; say which mechanism these rows prove".into());
    }
    if row.explained.is_some() && row.conjecture.is_some() {
        return Err("explained beside conjecture; allowed: one of the two".into());
    }
    if row.is_measured_only() && (row.fitted.is_some() || row.baseline || row.no_effect.is_some()) {
        return Err("fitted, baseline and no_effect belong to rows that are judged; this one expects nothing".into());
    }
    if row.within_seeds && row.paper.is_none() {
        return Err("within_seeds without paper; it is about a published figure".into());
    }
    Ok(())
}

fn tolerance(row: &RowFile) -> Result<(), String> {
    let Some(paper) = row.paper.filter(|paper| *paper != 0.0) else { return Ok(()) };
    let share = row.tolerance.or(row.absolute.map(|distance| distance / paper.abs()));
    match share {
        Some(share) if share > TOLERANCE_MAX => Err(format!(
            "accepts {:.0} % around {paper}; at most {:.0} % say anything of a figure: narrow it, give bounds, or \
             measure only",
            100.0 * share,
            100.0 * TOLERANCE_MAX
        )),
        _ => Ok(()),
    }
}

/// Returns the range widened by the spread of seeds, without the absence of the effect.
pub(super) fn without_no_effect(row: &RowFile, (low, high): (f64, f64)) -> (f64, f64) {
    let Some(paper) = row.paper else { return (low, high) };
    let even = row.measure.even();
    let is_even = |even: f64| (paper / even - 1.0).abs() <= EVEN_FIGURE + 1e-9;
    match (row.no_effect, even) {
        (None, Some(even)) if is_even(even) => {
            (low.max(even / EVEN_MAX), high.min(even * EVEN_MAX))
        }
        (Some(barrier), _) | (None, Some(barrier)) if barrier > paper => (low, high.min(barrier)),
        (Some(barrier), _) | (None, Some(barrier)) => (low.max(barrier), high),
        (None, None) => (low, high),
    }
}

/// Checks that a row accepts neither the absence of its effect nor uneven shares as even.
fn effect(row: &RowFile) -> Result<(), String> {
    let (low, high) = row.range();
    let accepts = |value: f64| low < value && value < high;
    if let Some(value) = row.no_effect {
        return match accepts(value) {
            true => Err(format!(
                "accepts {low:.4} to {high:.4}, and so no_effect = {value}; narrow it or measure only"
            )),
            false => Ok(()),
        };
    }
    let Some(even) = row.measure.even().filter(|even| accepts(*even)) else { return Ok(()) };
    if low == f64::NEG_INFINITY || high == f64::INFINITY {
        // A bound on one side is a claim of its own, such as: no flow gets less than half.
        return Ok(());
    }
    if let Some(paper) = row.paper.filter(|paper| (paper / even - 1.0).abs() > EVEN_FIGURE + 1e-9) {
        return Err(format!(
            "accepts {low:.4} to {high:.4} for {paper}, and so {even}, which is no effect at all; narrow it, name \
             another no_effect, or measure only"
        ));
    }
    // Ratio of one share to the mean of the others, from a share of 1/n.
    let over =
        |share: f64| if even < 1.0 { share / (1.0 - share) * (1.0 - even) / even } else { share };
    let slack = 1.0 + 1e-9;
    if over(low) < 1.0 / EVEN_MAX / slack || over(high) > EVEN_MAX * slack {
        return Err(format!(
            "accepts {low:.4} to {high:.4} around {even}, an even share; at most half as much again either way says \
             that shares are even: narrow it or measure only"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file::SuiteFile;

    /// Checks a suite with judged rows `a` (with these keys) and `b`, and an unjudged row `c`.
    fn suite(keys: &str) -> Result<(), String> {
        let ratio = "measure = 'throughput_bps x / throughput_bps y'\nunit = 'ratio'\n";
        let measure = if keys.contains("measure") { "unit = 'ratio'\n" } else { ratio };
        let text = format!(
            "name = 'x'\ntitle = 'x'\nseeds = 1\n[[experiment]]\nid = 'e'\nquestion = '?'\nscenario = 's'\n\
             [[experiment.row]]\nid = 'b'\ntitle = 't'\n{ratio}at_least = 2.0\nreason = 'r'\n\
             [[experiment.row]]\nid = 'c'\ntitle = 't'\n{ratio}\
             [[experiment.row]]\nid = 'a'\ntitle = 't'\n{measure}{keys}"
        );
        SuiteFile::parse("f", &text).map(|_| ())
    }

    fn refused(keys: &str, want: &str) {
        let error = suite(&format!("{keys}\nreason = 'r'\n")).expect_err(keys);
        assert!(error.starts_with("f: row \"a\": ") && error.contains(want), "{keys}: {error}");
    }

    fn accepted(keys: &str) {
        suite(&format!("{keys}\nreason = 'r'\n")).unwrap_or_else(|error| panic!("{keys}: {error}"));
    }

    #[test]
    fn a_row_that_accepts_no_effect_beside_its_effect_is_refused() {
        refused("paper = 0.9\ntolerance = 0.2", "and so 1, which is no effect");
        accepted("paper = 0.9\ntolerance = 0.05");
        refused("paper = 1.08\ntolerance = 0.15", "no effect");
        accepted("paper = 1.08\ntolerance = 0.15\nno_effect = 1.6");
        refused("paper = 1.5\ntolerance = 0.15\nno_effect = 1.6", "and so no_effect = 1.6");
        refused("at_most = 0.5\nno_effect = 0.4", "and so no_effect = 0.4");
        // Bounds on one side are claims of their own; unlike quantities have no even value.
        accepted("at_least = 0.5");
        accepted("measure = 'repairs x / packets x'\nat_least = 0.2\nat_most = 5.0");
    }

    #[test]
    fn a_row_that_calls_shares_even_which_are_not_is_refused() {
        for wide in [
            "at_least = 0.5\nat_most = 2.0",
            "at_least = 0.43\nat_most = 2.33",
            "at_least = 0.9\nat_most = 1.6",
        ] {
            refused(wide, "half as much again");
        }
        accepted("at_least = 0.67\nat_most = 1.5");
        accepted("paper = 0.96\ntolerance = 0.15");
        let share = "measure = 'throughput_bps x / sum throughput_bps x,y'\n";
        refused(&format!("{share}at_least = 0.33\nat_most = 0.67"), "around 0.5, an even share");
        accepted(&format!("{share}at_least = 0.4\nat_most = 0.6"));
        refused(
            "measure = 'geometric_mean rows b,c'\nat_least = 0.5\nat_most = 2.0",
            "half as much again",
        );
    }

    #[test]
    fn the_spread_of_seeds_widens_no_row_to_the_absence_of_its_effect() {
        let clipped = |keys: &str, range| {
            let text = format!(
                "name = 'x'\ntitle = 'x'\nseeds = 1\n[[experiment]]\nid = 'a'\nquestion = '?'\nscenario = 's'\n\
                 [[experiment.row]]\ntitle = 't'\nmeasure = 'throughput_bps x / throughput_bps y'\nunit = 'ratio'\n\
                 tolerance = 0.1\nreason = 'r'\n{keys}"
            );
            let suite = SuiteFile::parse("f", &text).unwrap();
            super::without_no_effect(&suite.experiments[0].rows[0], range)
        };
        assert_eq!(clipped("paper = 2.0", (0.5, 4.0)), (1.0, 4.0));
        assert_eq!(clipped("paper = 0.5", (0.1, 4.0)), (0.1, 1.0));
        assert_eq!(clipped("paper = 1.08\nno_effect = 1.6", (0.5, 4.0)), (0.5, 1.6));
        assert_eq!(clipped("paper = 0.97", (0.1, 1.4)), (1.0 / 1.5, 1.4));
    }

    #[test]
    fn a_tolerance_as_wide_as_the_figure_is_refused() {
        refused(
            "measure = 'repairs x / packets x'\npaper = 0.01\nabsolute = 0.01",
            "accepts 100 % around 0.01",
        );
        accepted("measure = 'repairs x / packets x'\npaper = 0.01\ntolerance = 0.3");
        accepted("measure = 'timeouts x'\npaper = 0.0\nabsolute = 1.0");
    }

    #[test]
    fn a_mechanism_needs_a_row_that_can_prove_it() {
        let bound = "at_least = 2.0\n";
        refused(&format!("{bound}explained = 'e'"), "explained without proved_by");
        refused(&format!("{bound}proved_by = ['b']"), "proved_by without explained");
        refused(
            &format!("{bound}explained = 'e'\nproved_by = ['z']"),
            "proved_by = \"z\": there is no such row",
        );
        refused(&format!("{bound}explained = 'e'\nproved_by = ['a']"), "no proof of itself");
        refused(
            &format!("{bound}explained = 'e'\nproved_by = ['c']"),
            "measured only and proves nothing",
        );
        refused(
            &format!("{bound}explained = 'e'\nproved_by = ['b']\nconjecture = 'c'"),
            "one of the two",
        );
        accepted(&format!("{bound}explained = 'e'\nproved_by = ['b']"));
        accepted(&format!("{bound}conjecture = 'c'\nfitted = 'f'\nbaseline = true"));
        for alone in ["fitted = 'f'", "baseline = true", "no_effect = 1.0"] {
            refused(alone, "this one expects nothing");
        }
        refused(&format!("{bound}within_seeds = true"), "within_seeds without paper");
    }

    #[test]
    fn a_measure_of_rows_names_rows_of_the_suite() {
        refused("measure = 'rows z'\nat_least = 2.0", "\"z\" is no row of the suite");
        refused("measure = 'rows z*'\nat_least = 2.0", "\"z*\" is no row of the suite");
        refused("measure = 'rows a'\nat_least = 2.0", "which is of rows itself");
        refused("measure = 'rows b'\nat_least = 2.0\nfairness = true", "nor a score");
        refused("measure = 'rows b / optimum b'\nat_least = 2.0", "\"b\" has no optimum");
        refused("at_least = 2.0\noptimum = 'fair'", "a sum or mean of client_sent_bps");
        accepted("measure = 'sum client_sent_bps x*'\nat_least = 2.0\noptimum = 'fair'");
        accepted("measure = 'rows b / rows c'\nat_least = 2.0");
    }
}
