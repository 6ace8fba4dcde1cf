//! Shell completions and man pages, from the definition of the command line.

use std::path::Path;

use clap::CommandFactory as _;

use crate::args::Args;
use crate::error::{Failure, Result, print};

pub(crate) fn completions(shell: clap_complete::Shell) -> Result {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "faircast", &mut out);
    print(&String::from_utf8_lossy(&out))
}

pub(crate) fn man(out: Option<&Path>) -> Result {
    let Some(out) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command())
            .render(&mut page)
            .map_err(|error| Failure::Work(format!("the man page: {error}")))?;
        return print(&String::from_utf8_lossy(&page));
    };
    faircast_study::files::make_folder(out)?;
    clap_mangen::generate_to(Args::command(), out).map_err(|error| Failure::write(out, &error))
}
