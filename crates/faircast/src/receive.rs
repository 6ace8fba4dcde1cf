//! Receiving files.

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

/// Makes a [`Receiver`]. Every setting has a default that suits a local network.
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

/// Receives what is sent to a group, several objects at once where there are, in a thread of its
/// own: this is by what it is watched and ended. Dropped, it ends as after [`close`](Self::close).
#[derive(Debug)]
pub struct Receiver {
    waker: Waker<Receiving>,
    status: watch::Receiver<ReceiveStatus>,
    received: mpsc::Receiver<Received>,
}

impl Receiver {
    /// Begins to say how it is to be made; what comes goes into the folder `into`.
    pub fn builder(listen: Listen, into: impl AsRef<Path>) -> ReceiverBuilder {
        Self::builder_of(listen, Destination::Folder(StoreOptions::new(into)))
    }

    /// The same, of one that writes an object of one file or image to a block device, or to a file in
    /// place. It ends after that object.
    pub fn to_device(listen: Listen, options: DeviceOptions) -> ReceiverBuilder {
        Self::builder_of(listen, Destination::Device(options))
    }

    /// The same, of one that gives an object of one file or image to a command. It ends after that
    /// object.
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

    /// How it stands, a few times a second. The last one has [`ReceiveStatus::ended`] set.
    pub fn status(&self) -> watch::Receiver<ReceiveStatus> {
        self.status.clone()
    }

    /// Waits for the next object to end, well or not; `None` once the receiver has ended and all
    /// were given.
    pub async fn next(&mut self) -> Option<Received> {
        self.received.recv().await
    }

    /// Ends it and tells the senders. What was received stays.
    pub fn close(&self) {
        self.waker.close();
    }

    /// Ends it without a word.
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

    /// Whether files that are there and differ are replaced, in a folder. Default: no.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.overwrite = overwrite;
        }
        self
    }

    /// Whether files, directories and links get the owners that the sender tells of: that takes the
    /// rights of root, unless they are one's own. In a folder. Default: no.
    pub fn owner(mut self, owner: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.owner = owner;
        }
        self
    }

    /// Whether files and directories get the extended attributes that the sender tells of. Default:
    /// no.
    pub fn xattrs(mut self, xattrs: bool) -> Self {
        if let Destination::Folder(options) = &mut self.destination {
            options.xattrs = xattrs;
        }
        self
    }

    /// Whether an object counts as received only once it is on the disk. Default: yes.
    pub fn sync(mut self, sync: bool) -> Self {
        match &mut self.destination {
            Destination::Folder(options) => options.sync = sync,
            Destination::Device(options) => options.sync = sync,
            Destination::Command(_) => {}
        }
        self
    }

    /// The name that senders are told; at most 64 bytes of it. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self.common.name = self.name.clone();
        self
    }

    /// Takes nothing but what its sender calls so. Default: whatever comes.
    pub fn object(mut self, name: impl Into<String>) -> Self {
        self.object = Some(name.into());
        self
    }

    /// Ends after one object, received or failed, and after all others that had begun by then and have a live sender.
    /// Without any object the receiver waits for a sender that goes away or gives its object up. Default: no.
    pub fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    /// Asks senders for no more payload than this, for all receivers of their sessions. Senders have
    /// floors of their own, and those from before this was said do not know it. Default: none.
    pub fn rate_max(mut self, rate: Bitrate) -> Self {
        self.rate_max = Some(rate);
        self
    }

    /// Over TRAM: has the repair head that this tree gives the receiver of its [`name`](Self::name), and repairs for
    /// those whose head it is there. Where the tree does not name it, and where it does not get that head, it finds
    /// one itself. Default: none.
    pub fn tree(mut self, tree: RepairTree) -> Self {
        self.tree = Some(tree);
        self
    }

    /// Opens sockets and begins.
    ///
    /// # Errors
    /// A setting is wrong, the folder cannot be written to, or the network cannot be used.
    pub fn receive(mut self) -> Result<Receiver, Error> {
        if let Some(tree) = &self.tree {
            if multicast_of(&self.listen).is_none() {
                return Err(Error::TreeWithoutGroup);
            }
            tree.set_role(&self.name, &mut self.common.options)?;
        }
        let unrepaired = [("reliable", OptionValue::Bool(false))];
        let speaks = self.common.speaks(&unrepaired)?;
        self.destination.probe()?;
        let group = group_of(&self.listen);
        let (sockets, via) = self.common.receiver_sockets(&self.listen)?;
        let (tell, status) = watch::channel(ReceiveStatus::default());
        let (give, received) = mpsc::channel(RECEIVED_MAX);
        let mut setup =
            SessionSetup::new("faircast-recv", sockets, &self.common, Wrapper::receiver)?;
        (setup.settings.close_timeout, setup.settings.ends_when_idle) = (CLOSE_TIMEOUT, false);
        (setup.pgm.moves_after, setup.pgm.confirms) = (FOLLOW_AFTER, true);
        setup.set_via(via);
        let (watched, trace) = (setup.watched.clone(), setup.trace.clone());
        let waker = start(setup, move |live: &mut Live<Receiving>| {
            Ok(Work::new(
                live.now(),
                Setup { group, speaks, builder: self, tell, give, watched, trace },
            ))
        })?;
        Ok(Receiver { waker, status, received })
    }
}

/// Time without a new SPM after which a sender may be at another address: it sends one each second.
const FOLLOW_AFTER: Duration = Duration::from_secs(3);
/// Objects that have ended and wait to be noted by [`Receiver::next`]; more are not told.
const RECEIVED_MAX: usize = 1024;
/// How long a receiver that was closed waits for its last words to be said.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
