//! Errors of the lab.

use std::io;

/// Reason why the lab cannot run. Each message names the missing thing and a remedy.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
#[non_exhaustive]
pub enum LabError {
    /// The machine or its kernel lacks something, or a permission.
    #[error("{0}")]
    Machine(String),
    #[error(
        "flow \"{flow}\": this kernel has no TCP congestion control \"{wanted}\", it has \
         {available}; try `modprobe tcp_{wanted}`"
    )]
    NoCongestionControl { flow: String, wanted: &'static str, available: String },
    /// The scenario requires something that the lab lacks.
    #[error("{0}")]
    Unsuited(String),
    #[error(transparent)]
    Data(#[from] faircast_sim::SimError),
    #[error("the lab cannot {doing}: {source}")]
    System { doing: String, source: io::Error },
}

impl LabError {
    pub(crate) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// True if the scenario is at fault, not the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unsuited(_) | Self::Data(_))
    }
}
