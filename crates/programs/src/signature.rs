//! Signatures of programs, and the keys that sign and verify them.

use std::fmt;

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use wasmparser::{Parser, Payload};

/// Name of the custom section with the signature, the last section of a program.
const SECTION: &str = "faircast.signature";
/// Prefix of the signed bytes, so that no other signature by the key is valid for a program.
const CONTEXT: &[u8] = b"faircast program 1\0";
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

/// Reason why a program is refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum ProgramError {
    #[error("this machine cannot run programs: {0}")]
    Host(String),
    /// The program is not valid WebAssembly, or uses features that are not allowed.
    #[error("not a program: {0}")]
    Malformed(String),
    #[error("the program has {found} {what}; it may have {max}")]
    Bound { what: &'static str, found: u64, max: u64 },
    #[error(
        "the program has memory.copy or memory.fill of a length that is no constant from 0 to {max}; \
         build it with RUSTFLAGS=\"-C target-feature=-bulk-memory\""
    )]
    Moves { max: i32 },
    #[error(
        "the program imports \"{0}\"; it may import what faircast_relay_sdk::program! does and nothing else"
    )]
    Import(String),
    #[error(
        "the program exports no function \"{0}\" of the right type: was it made with faircast_relay_sdk::program!?"
    )]
    Export(&'static str),
    #[error("the program fails when it is started: {0}")]
    Fails(String),
    #[error("the program is signed by {}; allowed signers: {allowed}", .signer.map_or("nobody".to_string(), |it| it.to_string()))]
    Signer { signer: Option<VerifyingKey>, allowed: String },
    #[error("the signature of the program is wrong: it was changed after it was signed")]
    Signature,
    #[error("not a key: {0}")]
    Key(&'static str),
}

impl ProgramError {
    pub(crate) fn host(error: wasmtime::Error) -> Self {
        Self::Host(format!("{error:#}"))
    }
}

/// Public key that verifies signatures; 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerifyingKey([u8; KEY_BYTES]);

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

impl std::str::FromStr for VerifyingKey {
    type Err = ProgramError;

    fn from_str(text: &str) -> Result<Self, ProgramError> {
        unhex(text).map(Self).ok_or(ProgramError::Key("expected 64 hexadecimal digits"))
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.trim().as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(bytes)
}

/// Private key that signs programs.
pub struct SigningKey {
    seed: [u8; KEY_BYTES],
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// Creates a random key; fails if the system provides no randomness.
    pub fn random() -> Result<Self, ProgramError> {
        let mut seed = [0; KEY_BYTES];
        ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut seed)
            .map_err(|_| ProgramError::Key("the system gives no randomness"))?;
        Self::from_seed(seed)
    }

    /// Parses the text of a signing key's file, as [`to_text`](Self::to_text) writes it, or fails.
    pub fn from_text(text: &str) -> Result<Self, ProgramError> {
        let seed = text.trim().strip_prefix(SIGNING_KEY).and_then(unhex);
        let wrong = ProgramError::Key("expected what `faircast program new-key` has written");
        Self::from_seed(seed.ok_or(wrong)?)
    }

    fn from_seed(seed: [u8; KEY_BYTES]) -> Result<Self, ProgramError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed);
        Ok(Self { seed, pair: pair.map_err(|_| ProgramError::Key("it is refused"))? })
    }

    /// Returns the text for a key file that only its owner may read.
    pub fn to_text(&self) -> String {
        format!("{SIGNING_KEY}{}\n", VerifyingKey(self.seed))
    }

    /// Returns the public key.
    pub fn verifying(&self) -> VerifyingKey {
        let key = self.pair.public_key().as_ref().try_into();
        VerifyingKey(key.expect("a key has 32 bytes"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying())
    }
}

const SIGNING_KEY: &str = "faircast-signing-key-1 ";

/// Signers whose programs may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signers {
    /// Any program runs, signed or not.
    #[default]
    Any,
    /// Only programs that one of these keys has signed.
    Only(Vec<VerifyingKey>),
}

impl Signers {
    pub(crate) fn allow(&self, code: &[u8]) -> Result<(), ProgramError> {
        let signer = signer(code)?;
        match self {
            Self::Only(keys) if !signer.is_some_and(|signer| keys.contains(&signer)) => {
                let all: Vec<String> = keys.iter().map(ToString::to_string).collect();
                Err(ProgramError::Signer { signer, allowed: all.join(", ") })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the program with a signature at its end, which replaces an earlier one; fails on others.
pub fn sign(code: &[u8], key: &SigningKey) -> Result<Vec<u8>, ProgramError> {
    let signed = signature(code)?.map_or(code, |found| found.signed);
    let (verifying, signature) = (key.verifying(), key.pair.sign(&[CONTEXT, signed].concat()));
    let name = [&[SECTION.len() as u8], SECTION.as_bytes()].concat();
    let len = name.len() + KEY_BYTES + SIGNATURE_BYTES;
    let head = [0, len as u8 & 0x7f | 0x80, (len >> 7) as u8];
    Ok([signed, &head, &name, &verifying.0, signature.as_ref()].concat())
}

/// Returns the signer's key, `None` without signature; fails on a wrong one and other files.
pub fn signer(code: &[u8]) -> Result<Option<VerifyingKey>, ProgramError> {
    let Some(Signature { signed, key, signature }) = signature(code)? else { return Ok(None) };
    let check = UnparsedPublicKey::new(&ED25519, key.0);
    let message = [CONTEXT, signed].concat();
    check.verify(&message, signature).map_err(|_| ProgramError::Signature)?;
    Ok(Some(key))
}

struct Signature<'a> {
    /// Bytes before the signature's section.
    signed: &'a [u8],
    key: VerifyingKey,
    signature: &'a [u8],
}

fn signature(code: &[u8]) -> Result<Option<Signature<'_>>, ProgramError> {
    let mut found = None;
    let mut section_start = 0;
    for payload in Parser::new(0).parse_all(code) {
        let payload = payload.map_err(|error| ProgramError::Malformed(error.to_string()))?;
        found = match &payload {
            Payload::CustomSection(section) if section.name() == SECTION => {
                let read = section.data().split_first_chunk::<KEY_BYTES>();
                read.filter(|(_, rest)| rest.len() == SIGNATURE_BYTES)
                    .map(|(key, rest)| (section_start, VerifyingKey(*key), rest))
            }
            Payload::End(_) => found,
            _ => None,
        };
        let range = match &payload {
            Payload::Version { range, .. } | Payload::CodeSectionStart { range, .. } => range,
            payload => match payload.as_section() {
                Some((_, range)) => &range.clone(),
                None => continue,
            },
        };
        section_start = range.end;
    }
    Ok(found.and_then(|(section_start, key, signature)| {
        Some(Signature { signed: code.get(..section_start)?, key, signature })
    }))
}
