//! `faircast program`: checks and signs programs that sessions install on relays.

use std::path::Path;

use faircast::{PROGRAM_BYTES_MAX, ProgramFacts};

use crate::args::{ProgramArgs, ProgramVerb};
use crate::error::{Failure, Result, print};
use crate::live::{read_small, write_new};

pub(crate) fn program(args: &ProgramArgs) -> Result {
    match &args.what {
        ProgramVerb::Check { file } => {
            let code = read(file)?;
            let facts = faircast::check_program(&code).map_err(Failure::work)?;
            let ProgramFacts { bytes, name, signer } = facts;
            let signer = signer.unwrap_or_else(|| "nobody".to_string());
            let file = file.display();
            print(&format!("{file}: {bytes} bytes\nin packets {name}\nsigned by {signer}\n"))
        }
        ProgramVerb::Sign { file, with, out } => {
            let key = String::from_utf8_lossy(&read(with)?).into_owned();
            let signed = faircast::sign_program(&read(file)?, &key).map_err(Failure::work)?;
            let out = out.as_ref().unwrap_or(file);
            std::fs::write(out, signed).map_err(|error| wrong(out, &error))?;
            print(&format!("{}: signed\n", out.display()))
        }
        ProgramVerb::NewKey { file } => {
            let (secret, public) = faircast::new_signing_key().map_err(Failure::work)?;
            write_new(file, 0o600, &secret).map_err(|error| wrong(file, &error))?;
            let file = file.display();
            print(&format!("{public}\nGive this to relays as --signer; keep {file} secret.\n"))
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    read_small(file, PROGRAM_BYTES_MAX).map_err(|error| wrong(file, &error))
}

fn wrong(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", file.display()))
}
