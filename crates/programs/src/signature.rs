//! Signatures of programs: one at the end of each, and the keys of those who may sign.

use std::fmt;

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use wasmparser::{Parser, Payload};

/// The custom section with the signature, which is the last of a program.
const SECTION: &str = "faircast.signature";
/// What is signed before the bytes of the program, so that no other signature of the key is one of a program.
const CONTEXT: &[u8] = b"faircast program 1\0";
/// Bytes of a key, and of a signature.
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

/// Why a program is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nothing can be run here.
    #[error("this machine cannot run programs: {0}")]
    Host(String),
    /// It has too many bytes.
    #[error("the program has {bytes} bytes; it may have {max}", max = faircast_proto::credit::PROGRAM_BYTES_MAX)]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// It is no WebAssembly, or asks for what no program is given.
    #[error("not a program: {0}")]
    Malformed(String),
    /// The program has more of a part than the compiler is given.
    #[error("the program has {found} {what}; it may have {max}")]
    Bound {
        /// Part of the program.
        what: &'static str,
        /// Number of these parts.
        found: u64,
        /// Most of these parts.
        max: u64,
    },
    /// The program moves memory in one instruction.
    #[error(
        "the program has memory.copy or memory.fill of a length that is no constant from 0 to {max}; \
         build it with RUSTFLAGS=\"-C target-feature=-bulk-memory\""
    )]
    Moves {
        /// Most bytes that one instruction may move.
        max: i32,
    },
    /// It imports something.
    #[error(
        "the program imports \"{0}\"; it may import what faircast_relay_sdk::program! does and nothing else"
    )]
    Import(String),
    /// It lacks a function.
    #[error(
        "the program exports no function \"{0}\" of the right type: was it made with faircast_relay_sdk::program!?"
    )]
    Export(&'static str),
    /// It has failed when it was started.
    #[error("the program fails when it is started: {0}")]
    Fails(String),
    /// Nobody has signed it who may.
    #[error("the program is signed by {}; allowed signers: {allowed}", .signer.map_or("nobody".to_string(), |it| it.to_string()))]
    Signer {
        /// Who has.
        signer: Option<VerifyingKey>,
        /// Who may.
        allowed: String,
    },
    /// Its signature is wrong.
    #[error("the signature of the program is wrong: it was changed after it was signed")]
    Signature,
    /// A key is none.
    #[error("not a key: {0}")]
    Key(&'static str),
}

impl ProgramError {
    pub(crate) fn host(error: wasmtime::Error) -> Self {
        Self::Host(format!("{error:#}"))
    }
}

/// By which a signature is checked; 64 hexadecimal digits.
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

/// The key that signs.
pub struct SigningKey {
    seed: [u8; KEY_BYTES],
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn random() -> Result<Self, ProgramError> {
        let mut seed = [0; KEY_BYTES];
        ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut seed)
            .map_err(|_| ProgramError::Key("the system gives no randomness"))?;
        Self::from_seed(seed)
    }

    /// That of a file that [`to_text`](Self::to_text) was written to.
    ///
    /// # Errors
    /// It is something else.
    pub fn from_text(text: &str) -> Result<Self, ProgramError> {
        let seed = text.trim().strip_prefix(SIGNING_KEY).and_then(unhex);
        Self::from_seed(
            seed.ok_or(ProgramError::Key("expected what `faircast program new-key` has written"))?,
        )
    }

    fn from_seed(seed: [u8; KEY_BYTES]) -> Result<Self, ProgramError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed);
        Ok(Self { seed, pair: pair.map_err(|_| ProgramError::Key("it is refused"))? })
    }

    /// What is kept in a file that nobody else may read.
    pub fn to_text(&self) -> String {
        format!("{SIGNING_KEY}{}\n", VerifyingKey(self.seed))
    }

    /// By which its signatures are checked.
    pub fn verifying(&self) -> VerifyingKey {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(self.pair.public_key().as_ref());
        VerifyingKey(key)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.verifying())
    }
}

const SIGNING_KEY: &str = "faircast-signing-key-1 ";

/// Whose programs are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signers {
    /// Everybody's.
    #[default]
    Any,
    /// Those that one of these has signed.
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

/// The program with a signature at its end; one that it had before is taken away.
///
/// # Errors
/// It is no WebAssembly.
pub fn sign(code: &[u8], key: &SigningKey) -> Result<Vec<u8>, ProgramError> {
    let signed = signature(code)?.map_or(code, |found| found.signed);
    let mut content = vec![SECTION.len() as u8];
    content.extend_from_slice(SECTION.as_bytes());
    content.extend_from_slice(&key.verifying().0);
    content.extend_from_slice(key.pair.sign(&message(signed)).as_ref());
    let mut out = signed.to_vec();
    // A custom section: 0, its length in LEB128, and what is in it.
    out.push(0);
    out.extend_from_slice(&[content.len() as u8 & 0x7f | 0x80, (content.len() >> 7) as u8]);
    out.extend_from_slice(&content);
    Ok(out)
}

/// Who has signed a program; `None` where nobody has.
///
/// # Errors
/// It is no WebAssembly, or its signature is wrong.
pub fn signer(code: &[u8]) -> Result<Option<VerifyingKey>, ProgramError> {
    let Some(Signature { signed, key, signature }) = signature(code)? else { return Ok(None) };
    let check = UnparsedPublicKey::new(&ED25519, key.0);
    check.verify(&message(signed), signature).map_err(|_| ProgramError::Signature)?;
    Ok(Some(key))
}

fn message(signed: &[u8]) -> Vec<u8> {
    [CONTEXT, signed].concat()
}

struct Signature<'a> {
    signed: &'a [u8],
    key: VerifyingKey,
    signature: &'a [u8],
}

/// The signature of a program, where its last section is one.
fn signature(code: &[u8]) -> Result<Option<Signature<'_>>, ProgramError> {
    let mut found = None;
    let mut begins = 0;
    for payload in Parser::new(0).parse_all(code) {
        let payload = payload.map_err(|error| ProgramError::Malformed(error.to_string()))?;
        found = match &payload {
            Payload::CustomSection(section) if section.name() == SECTION => {
                let read = section.data().split_first_chunk::<KEY_BYTES>();
                read.filter(|(_, rest)| rest.len() == SIGNATURE_BYTES)
                    .map(|(key, rest)| (begins, VerifyingKey(*key), rest))
            }
            Payload::End(_) => found,
            _ => None,
        };
        if let Some((_, range)) = payload.as_section() {
            begins = range.end;
        } else if let Payload::Version { range, .. } = &payload {
            begins = range.end;
        } else if let Payload::CodeSectionStart { range, .. } = &payload {
            begins = range.end;
        }
    }
    Ok(found.and_then(|(begins, key, signature)| {
        Some(Signature { signed: code.get(..begins)?, key, signature })
    }))
}
