//! Errors of the lab.

use std::io;

/// Reason why the lab cannot run. Each message names the missing thing and a remedy.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
#[non_exhaustive]
pub enum LabError {
    /// A network namespace cannot be made.
    #[error(
        "the lab may not make network namespaces (unshare: {0}); it needs CAP_SYS_ADMIN: run it \
         as root, or in a container with --privileged"
    )]
    NoNamespace(io::Error),
    /// `/dev/net/tun` is missing.
    #[error(
        "the lab needs /dev/net/tun, which is not there; try `modprobe tun`, or give the container \
         --device /dev/net/tun"
    )]
    NoTun,
    /// A TUN device cannot be made.
    #[error("the lab cannot make a TUN device ({0}); it needs CAP_NET_ADMIN: run it as root")]
    NoDevice(io::Error),
    /// The kernel lacks a TCP congestion control.
    #[error(
        "flow \"{flow}\": this kernel has no TCP congestion control \"{wanted}\", it has \
         {available}; try `modprobe tcp_{wanted}`"
    )]
    NoCongestionControl { flow: String, wanted: &'static str, available: String },
    /// The scenario requires something that the lab lacks.
    #[error("{0}")]
    Unsuited(String),
    /// A file that a flow is to send cannot be read.
    #[error(transparent)]
    Data(#[from] faircast_sim::SimError),
    /// An operation of the system failed that normally succeeds.
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
