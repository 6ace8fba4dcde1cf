//! Sender of files.

mod restarts;
mod work;

use std::io::Read;
use std::path::Path;

use faircast_base::{Bytes, Duration};
use faircast_files::{
    FilesSupply, PIPE_NAME, PipeSupply, Scan, ScanOptions, ScanTotals, SupplyHandle, Warning,
};
use faircast_net::{Live, SessionOptions, Sockets, Target, ViaSettings, Waker};
use faircast_proto::object::{
    Fec, ObjectSourceInput, ObjectSourceSetup, ObjectStatus, SlowPolicy, Supply,
};
use faircast_proto::options::{OptionValue, Options};
use tokio::sync::watch;

use self::work::{Setup, Work};
use crate::common::{
    Common, PACED_GRAIN, common_settings, family, group_to, sender_settings, tree_without_heads,
};
use crate::ends::{Carrier, Hops, Sending, new_tsi};
use crate::envelope::Wrapper;
use crate::session::{self, SessionSetup};
use crate::status::SendStatus;
use crate::{Error, Result};

/// Builder of a [`Sender`]. Every setting has a default for a local network.
#[derive(Clone, Debug)]
#[must_use]
pub struct SenderBuilder {
    target: Target,
    common: Common,
    scan: ScanOptions,
    fec: Fec,
    slow: SlowPolicy,
    wait_for: u32,
    names: Vec<String>,
    start_after: Option<Duration>,
    wait_max: Option<Duration>,
    give_up: Duration,
    stall_max: Duration,
}

/// Handle of a sender that runs in a thread. A drop acts like [`close`](Self::close).
#[derive(Debug)]
pub struct Sender {
    waker: Waker<Sending>,
    status: watch::Receiver<SendStatus>,
    supply: SupplyHandle,
    warnings: Vec<Warning>,
    totals: ScanTotals,
    link_mtu: Option<Bytes>,
    port: (u16, Option<String>),
}

impl Sender {
    /// Returns a builder of a sender to this target.
    pub fn builder(target: Target) -> SenderBuilder {
        SenderBuilder {
            target,
            common: Common::default(),
            scan: ScanOptions::default(),
            fec: Fec::Auto,
            slow: SlowPolicy::Wait,
            wait_for: 1,
            names: Vec::new(),
            start_after: None,
            wait_max: None,
            give_up: Duration::from_secs(30),
            stall_max: Duration::from_secs(120),
        }
    }

    /// Returns the status, updated some times a second; the last has [`SendStatus::ended`].
    pub fn status(&self) -> watch::Receiver<SendStatus> {
        self.status.clone()
    }

    /// Returns the files to send.
    pub fn supply(&self) -> &SupplyHandle {
        &self.supply
    }

    /// Returns warnings about files left out, and about possible trouble at receivers.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the amounts of content to send and left out.
    pub const fn totals(&self) -> ScanTotals {
        self.totals
    }

    /// Returns the bytes of the largest IP packet that leaves this host whole; `None` if unknown.
    pub const fn link_mtu(&self) -> Option<Bytes> {
        self.link_mtu
    }

    /// Returns the port to which receivers answer, and the reason if it is not the target's.
    pub fn port(&self) -> (u16, Option<&str>) {
        (self.port.0, self.port.1.as_deref())
    }

    /// Starts the content now, without the receivers that are still missing.
    pub fn begin(&self) {
        self.waker.run(|live| live.for_each(|live, id| live.input(id, ObjectSourceInput::Begin)));
    }

    /// Ends the sender and notifies the receivers. Received data stays with them.
    pub fn close(&self) {
        self.waker.close();
    }

    /// Ends the sender without a message to the receivers.
    pub fn abort(&self) {
        self.waker.stop();
    }

    /// Waits until the sender has ended, and returns the last status.
    ///
    /// # Errors
    /// The content could not be read, or the network could not be used.
    pub async fn finish(&mut self) -> Result<SendStatus, Error> {
        let last = self.status.wait_for(|status| status.ended).await;
        last.map(|status| status.clone()).map_err(|_| Error::Closed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.waker.close();
    }
}

impl SenderBuilder {
    /// Sets the name of this host, for the operators of relays. Default: none.
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.common.name = name.into();
        self
    }

    common_settings!();
    sender_settings!();

    /// Sets up the scan. Default: all but links that lead out, named like the first path.
    pub fn scan(mut self, options: ScanOptions) -> Self {
        self.scan = options;
        self
    }

    /// Sets whether parity repairs losses. Default [`Fec::Auto`].
    pub fn fec(mut self, fec: Fec) -> Self {
        self.fec = fec;
        self
    }

    /// Sets the policy for slow receivers, at relays too. Default [`SlowPolicy::Wait`].
    pub fn slow(mut self, policy: SlowPolicy) -> Self {
        self.slow = policy;
        self.common.leaves_slow = policy != SlowPolicy::Wait;
        self
    }

    /// Sets the number of receivers to wait for before content. Default 1.
    pub fn wait_for(mut self, receivers: u32) -> Self {
        self.wait_for = receivers.max(1);
        self
    }

    /// Waits for receivers of these names, whose completion alone means success. Default: none.
    pub fn wait_for_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }

    /// Starts content after this time with the present receivers, at least one. Limited by
    /// [`wait_max`](Self::wait_max) or else [`give_up`](Self::give_up). Default: waits for all.
    pub fn start_after(mut self, time: Duration) -> Self {
        self.start_after = Some(time);
        self
    }

    /// Limits the wait for the start of content, after which the sender gives up. Default: no
    /// limit, unless [`start_after`](Self::start_after) is set.
    pub fn wait_max(mut self, time: Duration) -> Self {
        self.wait_max = Some(time);
        self
    }

    /// Sets the silence after which a receiver counts as lost. Default 30 s.
    pub fn give_up(mut self, silence: Duration) -> Self {
        self.give_up = silence;
        self
    }

    /// Scans `paths` and starts the sender. Each path arrives under its last component; a block
    /// device is sent alone, as an image.
    ///
    /// # Errors
    /// A path cannot be sent, a setting is wrong, or the network cannot be used.
    pub fn send<P: AsRef<Path>>(self, paths: &[P]) -> Result<Sender, Error> {
        let found = Scan::new(paths, &self.scan)?;
        let seen = (found.warnings().to_vec(), found.totals());
        let supply = FilesSupply::new(found)?;
        let handle = supply.handle();
        self.start(Box::new(supply), handle, seen, title(paths))
    }

    /// Sets the time without progress after which a live receiver has failed. Default 2 min.
    pub fn stall_max(mut self, limit: Duration) -> Self {
        self.stall_max = limit;
        self
    }

    /// Sends the output of `pipe` as an image of the configured name, or `pipe`. An unnamed file in
    /// the folder `spool` keeps all of it until the end. The pipe waits for the receivers.
    ///
    /// # Errors
    /// The folder cannot be used, a setting is wrong, or the network cannot be used.
    pub fn send_pipe(
        self,
        pipe: impl Read + Send + 'static,
        spool: impl AsRef<Path>,
    ) -> Result<Sender, Error> {
        let name = self.scan.name.as_deref().unwrap_or(PIPE_NAME);
        let title = format!("the pipe {name} to many receivers");
        let supply = PipeSupply::new(pipe, name, spool.as_ref())?;
        let handle = supply.handle();
        let seen = (Vec::new(), ScanTotals { files: 1, ..ScanTotals::default() });
        self.start(Box::new(supply), handle, seen, title)
    }

    fn carrier(&self) -> Result<(Carrier, Options)> {
        let text = |value: String| OptionValue::Text(value);
        let mut tram = vec![
            ("give_up", text(format!("{} ms", self.give_up.as_millis()))),
            ("pruning", text("off".into())),
        ];
        if let SlowPolicy::DropBelow(floor) = self.slow {
            tram.push(("pruning", text("centralised".into())));
            tram.push(("rate_min", text(format!("{} bit/s", floor.bits_per_s()))));
        }
        tram.extend(tree_without_heads(&self.target));
        let (common, _) = self.common.split_credits()?;
        let (carrier, options) =
            common.carrier(&[("reliable", OptionValue::Bool(false))], &tram)?;
        match (carrier, self.slow) {
            // Only TRAM's own control detects slow receivers.
            (Carrier::Tram(tree), SlowPolicy::DropBelow(_)) if tree.scheme.is_some() => {
                Err(Error::Setting(format!(
                    "{} serves nobody later for being slow; allowed: to wait, or other schemes",
                    tree.name()
                )))
            }
            _ => Ok((carrier, options)),
        }
    }

    fn session_setup(
        &self,
        sockets: Sockets,
        via: Option<ViaSettings>,
        is_paced: bool,
    ) -> Result<SessionSetup> {
        let mut setup = SessionSetup::new("faircast-send", sockets, &self.common, Wrapper::source)?;
        setup.settings.close_timeout = CLOSE_TIMEOUT;
        setup.set_via(via);
        if is_paced {
            (setup.settings.grain, setup.settings.gather) = (PACED_GRAIN, PACED_GRAIN);
        }
        Ok(setup)
    }

    fn start(
        self,
        supply: Box<dyn Supply>,
        handle: SupplyHandle,
        (warnings, totals): (Vec<Warning>, ScanTotals),
        title: String,
    ) -> Result<Sender> {
        let (address, group) = (family(&self.target), group_to(&self.target));
        let (carrier, options) = self.carrier()?;
        let symbol_bytes = self.common.symbol_bytes(address, carrier)?;
        let (_, credits) = self.common.split_credits()?;
        let headers = self.common.headers(address);
        let with_heads = matches!(carrier, Carrier::Tram(_));
        let (sockets, via) = self.common.source_sockets(&self.target, with_heads)?;
        let link_mtu = sockets.link_mtu();
        let port =
            (sockets.local_address().port(), sockets.port_refused().map(ToString::to_string));
        let bytes_total = Some(handle.counts().bytes);
        let (status_sender, status) = watch::channel(SendStatus {
            missing: self.names.clone(),
            object: ObjectStatus { bytes_total, ..ObjectStatus::default() },
            ..SendStatus::default()
        });
        let through_relays = via.is_some();
        let setup = self.session_setup(sockets, via, with_heads)?;
        let (watched, trace) = (setup.watched.clone(), setup.trace.clone());
        let files = handle.clone();
        let waker = session::start(setup, move |live: &mut Live<Sending>| {
            let tsi = new_tsi();
            let started_at = live.now();
            let source = ObjectSourceSetup {
                node: live.node(),
                group,
                tsi,
                data_port: address.port(),
                start: started_at,
                supply,
                symbol_bytes,
                fec: self.fec,
                wait_for: if self.names.is_empty() { self.wait_for } else { u32::MAX },
                give_up: self.give_up,
                slow: self.slow,
                names: self.names.iter().cloned().collect(),
                stall_max: Some(self.stall_max),
                headers,
                options: &options,
            };
            let names = source.names.clone();
            let wait_max = self.wait_max.or(self.start_after.map(|after| after + self.give_up));
            let hops = through_relays.then(|| Hops::new(live, tsi, &credits));
            let machine = carrier.source(source, hops.as_ref());
            let session = live.add(machine, SessionOptions { key: Some(tsi), subject: None });
            Ok(Work::new(Setup {
                session,
                files,
                started_at,
                names,
                start_after: self.start_after.map(|after| started_at + after),
                wait_for: self.wait_for,
                give_up: self.give_up,
                wait_max,
                status_sender,
                watched,
                trace,
                title,
                carrier,
                packet_bytes: symbol_bytes.into(),
            }))
        })?;
        Ok(Sender { waker, status, supply: handle, warnings, totals, link_mtu, port })
    }
}

fn title<P: AsRef<Path>>(paths: &[P]) -> String {
    match paths {
        [one] => format!("{} to many receivers", one.as_ref().display()),
        [first, others @ ..] => format!("{} and {} more", first.as_ref().display(), others.len()),
        [] => String::new(),
    }
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
