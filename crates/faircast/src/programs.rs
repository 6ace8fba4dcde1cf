//! Programs that sessions bring to relays: selection, check and signature.

use std::sync::Arc;

use faircast_proto::credit::ProgramHost;

use crate::{Error, Result};

/// True if this build runs programs: the feature `programs`.
pub const RUNS_PROGRAMS: bool = cfg!(feature = "programs");

/// Facts about a program, known without a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    /// Bytes of the file.
    pub bytes: usize,
    /// Name of the program in packets, in hexadecimal digits: the first bytes of its BLAKE3.
    pub name: String,
    /// Key that verifies the signature, in hexadecimal digits; `None` for an unsigned program.
    pub signer: Option<String>,
}

/// Creates a host that runs programs signed by one of `signers`, or with `None` all programs.
///
/// # Errors
/// A key is invalid, or this build runs no programs.
pub fn program_host(signers: Option<&[String]>) -> Result<Arc<dyn ProgramHost>, Error> {
    inner::host(signers)
}

/// Checks a program as relays do, and starts it once.
///
/// # Errors
/// Relays would refuse it, or this build runs no programs.
pub fn check_program(code: &[u8]) -> Result<ProgramFacts, Error> {
    inner::check(code)
}

/// Appends a signature to a program, by a key of [`new_signing_key`].
///
/// # Errors
/// The program or the key is invalid, or this build runs no programs.
pub fn sign_program(code: &[u8], key: &str) -> Result<Vec<u8>, Error> {
    inner::sign(code, key)
}

/// Creates a secret signing key, and returns it with the key that verifies its signatures.
///
/// # Errors
/// The system has no randomness, or this build runs no programs.
pub fn new_signing_key() -> Result<(String, String), Error> {
    inner::new_key()
}

#[cfg(feature = "programs")]
mod inner {
    use faircast_programs::{
        Limits, LiveHost, ProgramError, Signers, SigningKey, WasmHost, sign as signed,
    };

    use super::*;

    fn refused(error: ProgramError) -> Error {
        Error::Program(error.to_string())
    }

    pub(super) fn host(signers: Option<&[String]>) -> Result<Arc<dyn ProgramHost>> {
        let keys = signers.map(|all| all.iter().map(|key| key.parse()).collect::<Result<_, _>>());
        let signers = keys.transpose().map_err(refused)?.map_or(Signers::Any, Signers::Only);
        Ok(Arc::new(LiveHost::new(Limits::default(), signers).map_err(refused)?))
    }

    pub(super) fn check(code: &[u8]) -> Result<ProgramFacts> {
        let host = WasmHost::new(Limits::default(), Signers::Any).map_err(refused)?;
        let signer = host.check(code).map_err(refused)?.map(|key| key.to_string());
        let name = faircast_proto::credit::program_name(code);
        Ok(ProgramFacts { bytes: code.len(), name, signer })
    }

    pub(super) fn sign(code: &[u8], key: &str) -> Result<Vec<u8>> {
        signed(code, &SigningKey::from_text(key).map_err(refused)?).map_err(refused)
    }

    pub(super) fn new_key() -> Result<(String, String)> {
        let key = SigningKey::random().map_err(refused)?;
        Ok((key.to_text(), key.verifying().to_string()))
    }
}

#[cfg(not(feature = "programs"))]
mod inner {
    use super::*;

    fn none<T>() -> Result<T> {
        Err(Error::WithoutPrograms)
    }

    pub(super) fn host(_signers: Option<&[String]>) -> Result<Arc<dyn ProgramHost>> {
        none()
    }

    pub(super) fn check(_code: &[u8]) -> Result<ProgramFacts> {
        none()
    }

    pub(super) fn sign(_code: &[u8], _key: &str) -> Result<Vec<u8>> {
        none()
    }

    pub(super) fn new_key() -> Result<(String, String)> {
        none()
    }
}
