//! `faircast lab check`: reports which features of the lab this machine supports.

use faircast_base::Duration;

use crate::args::LabCheckArgs;
use crate::error::{Failure, Result, print};
use crate::interrupt::{interrupted, listen};
use crate::progress::Watch;

const ABOUT: Duration = Duration::from_secs(13);

pub(crate) fn check(args: &LabCheckArgs) -> Result {
    listen();
    let mut watch = Watch::new(ABOUT, false);
    let check = faircast_lab::check(&mut watch);
    if interrupted() {
        return Err(Failure::work("interrupted; a check that is not finished says nothing"));
    }
    if args.json {
        print(&(check.to_json() + "\n"))?;
    } else if check.ready {
        print(&check.text())?;
    }
    check.problem.map_or(Ok(()), |problem| Err(Failure::Work(problem)))
}
