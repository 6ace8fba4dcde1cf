//! Reasons for the end of a connection.

use std::fmt;

use quinn_proto::ConnectionError;

use crate::transport::IDLE_MAX;

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// The peer closed the connection; contains the peer's reason.
    Closed(String),
    /// No packet arrived from the peer for 15 s.
    Silent,
    /// The peer has restarted.
    Restarted,
    /// One of the nodes does not have the other's key.
    Unauthenticated,
    /// The peer refuses connections at present.
    Refused,
    /// The peer violated the protocol.
    Failed(String),
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason) if reason.is_empty() => f.write_str("closed by the peer"),
            Self::Closed(reason) => write!(f, "closed by the peer: {reason}"),
            Self::Silent => write!(f, "silent for {IDLE_MAX}"),
            Self::Restarted => f.write_str("the peer has started again"),
            Self::Unauthenticated => f.write_str("the peer has another key"),
            Self::Refused => f.write_str("the peer accepts no connection now"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

pub(crate) fn down(error: ConnectionError) -> Option<Down> {
    Some(match error {
        ConnectionError::LocallyClosed => return None,
        ConnectionError::ApplicationClosed(close) => {
            Down::Closed(String::from_utf8_lossy(&close.reason).into_owned())
        }
        ConnectionError::TimedOut => Down::Silent,
        ConnectionError::Reset => Down::Restarted,
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            code if is_crypto(code) => Down::Unauthenticated,
            CONNECTION_REFUSED => Down::Refused,
            _ => Down::Failed(close.to_string()),
        },
        ConnectionError::TransportError(error) if is_crypto(error.code.into()) => {
            Down::Unauthenticated
        }
        error => Down::Failed(error.to_string()),
    })
}

/// CONNECTION_REFUSED (RFC 9000 s20.1).
const CONNECTION_REFUSED: u64 = 2;

const fn is_crypto(code: u64) -> bool {
    code >> 8 == 1
}
