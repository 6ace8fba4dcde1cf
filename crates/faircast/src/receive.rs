//! Receiver of files.

mod transfer;
mod work;

use std::path::Path;

use faircast_base::{Bitrate, Duration};
use faircast_files::{CommandOptions, DeviceOptions, StoreOptions};
use faircast_net::{Listen, Live, Waker};
use faircast_proto::options::OptionValue;
use tokio::sync::{mpsc, watch};

use self::work::{Setup, Work};
use crate::common::{Common, common_settings, group_of, multicast_of};
use crate::destination::Destination;
use crate::ends::Receiving;
use crate::envelope::Wrapper;
use crate::session::{SessionSetup, start};
use crate::status::{ReceiveStatus, Received};
use crate::{Error, RepairTree};

/// Builder of a [`Receiver`]. Every setting has a default for a local network.
#[derive(Clone, Debug)]
#[must_use]
pub struct ReceiverBuilder {
    listen: Listen,
    common: Common,
    destination: Destination,
    name: String,
    object: Option<String>,
    once: bool,
    rate_max: Option<Bitrate>,
    tree: Option<RepairTree>,
}

/// Handle of a receiver that runs in a thread. A drop acts like [`close`](Self::close).
#[derive(Debug)]
pub struct Receiver {
    waker: Waker<Receiving>,
    status: watch::Receiver<ReceiveStatus>,
    received: mpsc::Receiver<Received>,
}

impl Receiver {
    /// Returns a builder of a receiver into the folder `into`.
    pub fn builder(listen: Listen, into: impl AsRef<Path>) -> ReceiverBuilder {
        Self::builder_of(listen, Destination::Folder(StoreOptions::new(into)))
    }

    /// Returns a builder of a receiver of one file or image to a block device or a file in place.
    pub fn to_device(listen: Listen, options: DeviceOptions) -> ReceiverBuilder {
        Self::builder_of(listen, Destination::Device(options))
    }

    /// Returns a builder of a receiver of one file or image to the input of a command.
    pub fn to_command(listen: Listen, options: CommandOptions) -> ReceiverBuilder {
        Self::builder_of(listen, Destination::Command(options))
    }

    fn builder_of(listen: Listen, destination: Destination) -> ReceiverBuilder {
        ReceiverBuilder {
            listen,
            common: Common::default(),
            name: String::new(),
            object: destination.only().map(ToString::to_string),
            once: destination.only().is_some(),
            rate_max: None,
            tree: None,
            destination,
        }
    }

    /// Returns the status, updated some times a second; the last has [`ReceiveStatus::ended`].
    pub fn status(&self) -> watch::Receiver<ReceiveStatus> {
        self.status.clone()
    }

    /// Waits for the next object to end, with success or not; `None` after the end of the receiver.
    pub async fn next(&mut self) -> Option<Received> {
        self.received.recv().await
    }

    /// Ends the receiver and notifies the senders. Received data stays.
    pub fn close(&self) {
        self.waker.close();
    }

    /// Ends the receiver without a message to the senders.
    pub fn abort(&self) {
        self.waker.stop();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.waker.close();
    }
}

impl ReceiverBuilder {
    common_settings!();

    /// Sets whether existing files that differ are replaced, in a folder. Default: no.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.overwrite = overwrite;
        }
        self
    }

    /// Sets whether entries of a folder get the sender's owners, which needs root. Default: no.
    pub fn owner(mut self, owner: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.owner = owner;
        }
        self
    }

    /// Sets whether files and directories get the sender's extended attributes. Default: no.
    pub fn xattrs(mut self, xattrs: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.xattrs = xattrs;
        }
        self
    }

    /// Sets whether an object counts as received only once it is on the disk. Default: yes.
    pub fn sync(mut self, sync: bool) -> Self {
        match &mut self.destination {
            Destination::Folder(options) => options.sync = sync,
            Destination::Device(options) => options.sync = sync,
            Destination::Command(_) => {}
        }
        self
    }

    /// Sets the name of this receiver at senders: its first 64 bytes. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self.common.name = self.name.clone();
        self
    }

    /// Accepts only objects of this name. Default: all objects.
    pub fn object(mut self, name: impl Into<String>) -> Self {
        self.object = Some(name.into());
        self
    }

    /// Sets whether to end after one object and others begun by then. Default: no.
    pub fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    /// Requests a highest rate of payload from senders, for all receivers. Default: none.
    pub fn rate_max(mut self, rate: Bitrate) -> Self {
        self.rate_max = Some(rate);
        self
    }

    /// Sets a static tree for TRAM, by this receiver's [`name`](Self::name). Default: none.
    pub fn tree(mut self, tree: RepairTree) -> Self {
        self.tree = Some(tree);
        self
    }

    /// Opens sockets and starts the receiver.
    ///
    /// # Errors
    /// A setting is wrong, the folder cannot be written to, or the network cannot be used.
    pub fn receive(mut self) -> Result<Receiver, Error> {
        if let Some(tree) = &self.tree {
            if multicast_of(&self.listen).is_none() {
                let text = "a tree needs a group: receivers that hear no multicast do not find their heads";
                return Err(Error::Setting(text.to_string()));
            }
            tree.set_role(&self.name, &mut self.common.options)?;
        }
        let unrepaired = [("reliable", OptionValue::Bool(false))];
        let speaks = self.common.speaks(&unrepaired)?;
        self.destination.probe()?;
        let group = group_of(&self.listen);
        let (sockets, via) = self.common.receiver_sockets(&self.listen)?;
        let (status_sender, status) = watch::channel(ReceiveStatus::default());
        let (outcome_sender, received) = mpsc::channel(RECEIVED_MAX);
        let mut setup =
            SessionSetup::new("faircast-recv", sockets, &self.common, Wrapper::receiver)?;
        (setup.settings.close_timeout, setup.settings.ends_when_idle) = (CLOSE_TIMEOUT, false);
        (setup.pgm.moves_after, setup.pgm.confirms) = (FOLLOW_AFTER, true);
        setup.set_via(via);
        let (watched, trace) = (setup.watched.clone(), setup.trace.clone());
        let waker = start(setup, move |live: &mut Live<Receiving>| {
            let builder = self;
            let setup =
                Setup { group, speaks, builder, status_sender, outcome_sender, watched, trace };
            Ok(Work::new(live.now(), setup))
        })?;
        Ok(Receiver { waker, status, received })
    }
}

/// Silence of SPMs after which a sender may have moved to another address; SPMs come each second.
const FOLLOW_AFTER: Duration = Duration::from_secs(3);
/// Most ended objects that wait for [`Receiver::next`]; further ones are not reported.
const RECEIVED_MAX: usize = 1024;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
