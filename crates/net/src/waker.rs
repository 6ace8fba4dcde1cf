//! How other threads reach a driver.

use std::sync::Arc;
use std::sync::mpsc;

use faircast_proto::Machine;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::demux::Demux;
use crate::pgm::PgmDemux;
use crate::{Live, NetError};

/// What a driver is to do in its own thread.
pub(crate) type Command<M, D> = Box<dyn FnOnce(&mut Live<M, D>) + Send>;

/// Reaches a driver from other threads and from signal handlers' threads. Clones reach the same.
/// Once the driver has ended it does nothing.
#[derive(Debug)]
pub struct Waker<M, D: Demux = PgmDemux> {
    queue: mpsc::Sender<Command<M, D>>,
    bell: Arc<EventFd>,
}

impl<M: Machine + 'static, D: Demux + 'static> Waker<M, D> {
    /// Closes all machines; the driver goes on until they have nothing left to do, or for its
    /// patience.
    pub fn close(&self) {
        self.run(Live::close);
    }

    /// Ends the driver at once.
    pub fn stop(&self) {
        self.run(Live::stop);
    }

    /// Runs `f` in the driver's thread, soon. Returns whether the driver still takes orders.
    pub fn run(&self, f: impl FnOnce(&mut Live<M, D>) + Send + 'static) -> bool {
        let taken = self.queue.send(Box::new(f)).is_ok();
        // It can fail only where 2^64 rings wait.
        let _ = self.bell.write(1);
        taken
    }
}

impl<M, D: Demux> Clone for Waker<M, D> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bell: Arc::clone(&self.bell) }
    }
}

/// The driver's end.
#[derive(Debug)]
pub(crate) struct Orders<M, D: Demux> {
    queue: mpsc::Receiver<Command<M, D>>,
    pub(crate) bell: Arc<EventFd>,
}

impl<M, D: Demux> Orders<M, D> {
    /// With what gives them.
    pub(crate) fn new() -> Result<(Waker<M, D>, Self), NetError> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let bell = EventFd::from_value_and_flags(0, flags)
            .map_err(|error| NetError::socket("make a waker", error))?;
        let bell = Arc::new(bell);
        let (sender, receiver) = mpsc::channel();
        let waker = Waker { queue: sender, bell: Arc::clone(&bell) };
        Ok((waker, Self { queue: receiver, bell }))
    }

    /// The next order, where one waits.
    pub(crate) fn next(&self) -> Option<Command<M, D>> {
        self.queue.try_recv().ok()
    }

    /// The bell was heard.
    pub(crate) fn hush(&self) {
        let _ = self.bell.read();
    }
}
