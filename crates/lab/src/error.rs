//! Errors of the lab.

use std::io;

/// Why the lab cannot run something. Each message says what is missing and what helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A namespace cannot be made.
    #[error(
        "the lab may not make network namespaces (unshare: {0}); it needs CAP_SYS_ADMIN: run it \
         as root, or in a container with --privileged"
    )]
    NoNamespace(io::Error),
    /// There are no TUN devices.
    #[error(
        "the lab needs /dev/net/tun, which is not there; try `modprobe tun`, or give the container \
         --device /dev/net/tun"
    )]
    NoTun,
    /// A TUN device cannot be made.
    #[error("the lab cannot make a TUN device ({0}); it needs CAP_NET_ADMIN: run it as root")]
    NoDevice(io::Error),
    /// The kernel lacks a TCP.
    #[error(
        "flow \"{flow}\": this kernel has no TCP congestion control \"{wanted}\", it has \
         {available}; try `modprobe tcp_{wanted}`"
    )]
    NoCongestionControl {
        /// The flow.
        flow: String,
        /// What it needs.
        wanted: &'static str,
        /// What there is.
        available: String,
    },
    /// The scenario asks for what the lab has not.
    #[error("{0}")]
    Unsuited(String),
    /// A file that a flow is to send cannot be read.
    #[error(transparent)]
    Data(#[from] faircast_sim::SimError),
    /// Something that works everywhere else failed.
    #[error("the lab cannot {doing}: {source}")]
    System {
        /// What it was doing.
        doing: String,
        /// Why not.
        source: io::Error,
    },
}

impl LabError {
    /// Turns the failure of a step into an error that names it.
    pub(crate) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// Whether the scenario is at fault and not the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unsuited(_) | Self::Data(_))
    }
}
