//! The program `faircast`.

use std::process::ExitCode;

fn main() -> ExitCode {
    faircast_cli::main()
}
