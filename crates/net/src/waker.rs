//! Handle by which other threads reach a driver.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;

use faircast_proto::Machine;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::demux::Demux;
use crate::pgm::PgmDemux;
use crate::{Live, NetError};

pub(crate) type Command<M, D> = Box<dyn FnOnce(&mut Live<M, D>) + Send>;

/// Handle of a driver for other threads; without effect once the driver has ended.
pub struct Waker<M, D: Demux = PgmDemux> {
    queue: mpsc::Sender<Command<M, D>>,
    wake_up: Arc<EventFd>,
}

impl<M, D: Demux> fmt::Debug for Waker<M, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl<M: Machine + 'static, D: Demux + 'static> Waker<M, D> {
    /// Closes all machines. The driver continues until they are done, or until its timeout.
    pub fn close(&self) {
        self.run(Live::close);
    }

    /// Ends the driver at once.
    pub fn stop(&self) {
        self.run(Live::stop);
    }

    /// Runs `f` in the driver's thread, soon. False if the driver has ended.
    pub fn run(&self, f: impl FnOnce(&mut Live<M, D>) + Send + 'static) -> bool {
        let taken = self.queue.send(Box::new(f)).is_ok();
        // A write fails only with 2^64 signals pending.
        let _ = self.wake_up.write(1);
        taken
    }
}

impl<M, D: Demux> Clone for Waker<M, D> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), wake_up: Arc::clone(&self.wake_up) }
    }
}

#[derive(Debug)]
pub(crate) struct Commands<M, D: Demux> {
    queue: mpsc::Receiver<Command<M, D>>,
    pub(crate) wake_up: Arc<EventFd>,
}

impl<M, D: Demux> Commands<M, D> {
    pub(crate) fn new() -> Result<(Waker<M, D>, Self), NetError> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake_up =
            EventFd::from_value_and_flags(0, flags).map_err(NetError::doing("make a waker"))?;
        let wake_up = Arc::new(wake_up);
        let (sender, receiver) = mpsc::channel();
        let waker = Waker { queue: sender, wake_up: Arc::clone(&wake_up) };
        Ok((waker, Self { queue: receiver, wake_up }))
    }

    pub(crate) fn next(&self) -> Option<Command<M, D>> {
        self.queue.try_recv().ok()
    }

    pub(crate) fn clear(&self) {
        let _ = self.wake_up.read();
    }
}
