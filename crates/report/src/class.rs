//! Classes of a suite's rows, and the number of rows in each.

use serde::Serialize;

use crate::Row;

/// Class of a row: its verdict, and the significance of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Judged; holds.
    Holds,
    /// Judged; misses. Another row of the same run, which holds, proves the mechanism.
    Explained,
    /// Judged; misses for an unknown cause.
    NotReproduced,
    /// Holds, but proves nothing: a setting was fitted to this figure.
    Fitted,
    /// Holds, and tests the network and its TCP, not the scheme.
    Baseline,
    /// Measured without an expected value.
    Measured,
}

impl Class {
    /// All classes, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Holds,
        Self::Explained,
        Self::NotReproduced,
        Self::Fitted,
        Self::Baseline,
        Self::Measured,
    ];

    /// Returns the class of a row with a verdict.
    pub fn of(row: &Row) -> Self {
        let Row { accepted, cause, .. } = row;
        match (accepted.holds, &cause.fitted) {
            _ if accepted.measured_only => Self::Measured,
            (false, _) if cause.proved_by.is_empty() => Self::NotReproduced,
            (false, _) => Self::Explained,
            (true, Some(_)) => Self::Fitted,
            (true, None) if cause.baseline => Self::Baseline,
            (true, None) => Self::Holds,
        }
    }

    /// Returns the word in tables (capitals mark an open miss), the meaning, and details of it.
    pub(crate) const fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Holds => ["holds", "judged, hold", "within their tolerance"],
            Self::Explained => [
                "explained",
                "judged, miss, mechanism proved",
                "another row of this run proves the mechanism",
            ],
            Self::NotReproduced => [
                "UNKNOWN",
                "not reproduced, cause unknown",
                "judged, and miss; a conjecture may stand beside the row",
            ],
            Self::Fitted => ["fitted", "fitted", "a setting was chosen by the figure"],
            Self::Baseline => {
                ["baseline", "baseline", "tests the network and its TCP, not the scheme"]
            }
            Self::Measured => ["measured", "measured only", "nothing is expected"],
        }
    }
}

/// Rows of each class, in the order of [`Class::ALL`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts([usize; 6]);

impl Counts {
    pub(crate) fn of(classes: impl Iterator<Item = Class>) -> Self {
        let mut counts = [0; 6];
        classes.for_each(|class| counts[class as usize] += 1);
        Self(counts)
    }

    pub(crate) fn get(self, class: Class) -> usize {
        self.0[class as usize]
    }

    pub(crate) fn total(self) -> usize {
        self.0.iter().sum()
    }

    pub(crate) fn sentence(self) -> String {
        let total = self.total();
        let rows = if total == 1 { "row" } else { "rows" };
        let parts = Class::ALL.into_iter().filter(|class| self.get(*class) > 0);
        let parts: Vec<String> =
            parts.map(|class| format!("{} {}", self.get(class), class.texts()[1])).collect();
        format!("{total} {rows}: {}.", parts.join("; "))
    }
}

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(Class::ALL.map(|class| (class, self.get(class))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Acceptance, MissCause};

    #[test]
    fn a_row_has_the_class_that_claims_least() {
        let row = |holds, measured_only, cause| Row {
            accepted: Acceptance { holds, measured_only, ..Acceptance::default() },
            cause,
            ..Row::default()
        };
        let holds = |cause| row(true, false, cause);
        let missed =
            |cause| row(false, false, MissCause { explained: Some("since".into()), ..cause });
        let cause = MissCause::default;
        let proved_by = vec!["other".to_string()];
        let fitted = Some("the delay".to_string());
        for (row, want) in [
            (holds(cause()), Class::Holds),
            (holds(MissCause { baseline: true, ..cause() }), Class::Baseline),
            (holds(MissCause { fitted: fitted.clone(), ..cause() }), Class::Fitted),
            (holds(MissCause { fitted: fitted.clone(), baseline: true, ..cause() }), Class::Fitted),
            // An explanation without proof does not count.
            (missed(cause()), Class::NotReproduced),
            (missed(MissCause { proved_by, ..cause() }), Class::Explained),
            (missed(MissCause { fitted, baseline: true, ..cause() }), Class::NotReproduced),
            (row(true, true, cause()), Class::Measured),
        ] {
            assert_eq!(Class::of(&row), want, "{row:?}");
        }
    }

    #[test]
    fn counts_are_told_apart_and_add_up() {
        let classes = [Class::Holds, Class::Holds, Class::Explained, Class::Measured];
        let counts = Counts::of(classes.into_iter());
        assert_eq!(
            counts.sentence(),
            "4 rows: 2 judged, hold; 1 judged, miss, mechanism proved; 1 measured only."
        );
        assert_eq!(counts.total(), 4);
        let json = serde_json::to_value(counts).unwrap();
        assert_eq!((&json["holds"], &json["not_reproduced"]), (&2.into(), &0.into()));
    }
}
