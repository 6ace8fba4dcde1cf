//! Thread of a session.

use std::sync::mpsc;
use std::thread;

use faircast_net::{
    AddressBook, App, Driver, DriverSettings, Ended, Live, NetError, PgmDemux, PgmSettings,
    Sockets, ViaSettings, Waker,
};
use faircast_proto::Machine;
use faircast_seal::NoRandomness;
use faircast_trace::Tee;

use crate::common::Common;
use crate::envelope::{Watched, Wrapper};
use crate::log::EventLog;
use crate::trace::LiveTrace;
use crate::{Error, GroupKey, Result};

pub(crate) trait Worker<M: Machine>: App<M> {
    fn ended(self, live: &mut Live<M>, ended: Result<Ended, NetError>);
}

pub(crate) struct SessionSetup {
    name: &'static str,
    sockets: Sockets,
    wrapper: Wrapper,
    pub(crate) settings: DriverSettings,
    pub(crate) pgm: PgmSettings,
    pub(crate) watched: Watched,
    pub(crate) trace: Option<LiveTrace>,
    via: Option<ViaSettings>,
}

impl SessionSetup {
    pub(crate) fn new(
        name: &'static str,
        sockets: Sockets,
        common: &Common,
        wrapper: fn(Option<GroupKey>, Watched) -> Result<Wrapper, NoRandomness>,
    ) -> Result<Self> {
        let watched = Watched::default();
        Ok(Self {
            name,
            sockets,
            settings: DriverSettings::default(),
            pgm: PgmSettings::default(),
            trace: common.trace.as_deref().map(LiveTrace::create).transpose()?,
            wrapper: wrapper(common.key.clone(), watched.clone())?,
            watched,
            via: None,
        })
    }

    pub(crate) fn set_via(&mut self, via: Option<ViaSettings>) {
        if let Some(via) = &via {
            self.settings.node = Some(via.node);
            self.pgm.relayed = true;
            self.wrapper.relayed = true;
        }
        self.via = via;
    }
}

pub(crate) fn start<M, W>(
    setup: SessionSetup,
    make: impl FnOnce(&mut Live<M>) -> Result<W> + Send + 'static,
) -> Result<Waker<M>>
where
    M: Machine + 'static,
    W: Worker<M>,
{
    let (opened_sender, opened) = mpsc::sync_channel(1);
    let SessionSetup { name, sockets, settings, pgm, wrapper, trace, via, .. } = setup;
    let work = move || {
        let open = || {
            let demux = PgmDemux::new(pgm);
            let mut driver =
                Driver::<M, _>::with_demux(sockets, AddressBook::native(), demux, settings)?;
            driver.set_envelope(Box::new(wrapper));
            if let Some(via) = &via {
                driver.set_via(via);
            }
            match (trace, EventLog::if_enabled()) {
                (Some(trace), Some(log)) => driver.set_trace(Box::new(Tee(trace, log))),
                (Some(trace), None) => driver.set_trace(Box::new(trace)),
                (None, Some(log)) => driver.set_trace(Box::new(log)),
                (None, None) => {}
            }
            let (node, sockets) = (driver.live().node(), driver.live().sockets());
            tracing::debug!(
                target: "faircast::session",
                node = node.0,
                local = %sockets.local_address(),
                to = ?sockets.targets().collect::<Vec<_>>(),
                receive_buffer_bytes = sockets.buffers().receive.count(),
                send_buffer_bytes = sockets.buffers().send.count(),
                "sockets are open"
            );
            let worker = make(driver.live())?;
            Ok::<_, Error>((driver, worker))
        };
        let (mut driver, mut worker) = match open() {
            Ok(opened) => opened,
            Err(error) => {
                let _ = opened_sender.send(Err(error));
                return;
            }
        };
        let _ = opened_sender.send(Ok(driver.waker()));
        let ended = driver.run(&mut worker);
        worker.ended(driver.live(), ended);
    };
    thread::Builder::new().name(name.to_string()).spawn(work).map_err(Error::Thread)?;
    opened.recv().unwrap_or(Err(Error::Closed))
}
