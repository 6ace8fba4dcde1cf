//! `faircast program`: checks and signs programs that sessions install on relays.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use faircast::PROGRAM_BYTES_MAX;

use crate::args::{ProgramArgs, ProgramVerb};
use crate::error::{Failure, Result, print};
use crate::live::read_small;

pub(crate) fn program(args: &ProgramArgs) -> Result {
    match &args.what {
        ProgramVerb::Check { file } => {
            let code = read(file)?;
            let facts = faircast::check_program(&code).map_err(refused)?;
            let name = facts.name;
            let signer = facts.signer.map_or("nobody".to_string(), |key| key);
            print(&format!(
                "{}: {} bytes\nin packets {name}\nsigned by {signer}\n",
                file.display(),
                facts.bytes
            ))
        }
        ProgramVerb::Sign { file, with, out } => {
            let key = String::from_utf8_lossy(&read(with)?).into_owned();
            let signed = faircast::sign_program(&read(file)?, &key).map_err(refused)?;
            let out = out.as_ref().unwrap_or(file);
            std::fs::write(out, signed).map_err(|error| wrong(out, &error))?;
            print(&format!("{}: signed\n", out.display()))
        }
        ProgramVerb::NewKey { file } => {
            let (secret, public) = faircast::new_signing_key().map_err(refused)?;
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
            new.and_then(|mut new| new.write_all(secret.as_bytes()))
                .map_err(|error| wrong(file, &error))?;
            print(&format!(
                "{public}\nGive this to relays as --signer; keep {} secret.\n",
                file.display()
            ))
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    read_small(file, PROGRAM_BYTES_MAX).map_err(|error| wrong(file, &error))
}

fn wrong(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", file.display()))
}

fn refused(error: faircast::Error) -> Failure {
    Failure::work(error)
}
