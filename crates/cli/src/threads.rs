//! Threads of parallel runs.

use crate::error::{Failure, Result};

pub(crate) fn with_jobs<T: Send>(jobs: Option<u16>, work: impl FnOnce() -> T + Send) -> Result<T> {
    // Zero threads select the pool's default.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.map_or(0, usize::from));
    let pool = pool.build().map_err(|error| Failure::Work(format!("--jobs: {error}")))?;
    Ok(pool.install(work))
}
