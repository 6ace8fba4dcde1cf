//! Publishers and subscribers of the benchmark: clients of the library, each with a runtime that
//! only the thread of this client drives.

use std::io;
use std::time::{Duration, Instant};

use faircast::groups::{Client, GroupError, GroupEvent, Service};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Group of all messages.
const GROUP: &str = "bench";
/// Longest sleep of a publisher at a fixed rate.
const NAP: Duration = Duration::from_micros(30);
/// Messages between two looks at the clock of a publisher without a rate.
const BURST: u64 = 64;
/// Silence after which a subscriber has lost what is missing, and a publisher its daemon.
const SILENCE: Duration = Duration::from_secs(2);

/// Messages of a publisher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) service: Service,
    pub(super) bytes: usize,
    /// Messages of a second; `None` for as many as the daemon takes.
    pub(super) rate: Option<f64>,
    /// Moment from which the last eight bytes of each message count nanoseconds, if they do.
    pub(super) stamps: Option<Instant>,
    pub(super) time: Duration,
}

/// Counts of a subscriber.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) messages: u64,
    /// Moment at which the last message was there.
    pub(super) at: Option<Instant>,
    /// Nanoseconds between publishing and arrival of each message.
    pub(super) latencies: Vec<u64>,
}

/// Connects to a daemon, and joins a group. Returns once the client is a member.
pub(super) async fn member(address: &str, name: &str, group: &str) -> Result<Client, GroupError> {
    let client = Client::connect(address, name).await?;
    client.join(group).await?;
    while !matches!(client.next().await?, GroupEvent::Group { .. }) {}
    Ok(client)
}

/// Does the work of a client, for `time` at most.
pub(super) fn within<T>(
    runtime: &Runtime,
    time: Duration,
    work: impl Future<Output = Result<T, GroupError>>,
) -> io::Result<T> {
    let done = runtime.block_on(async { timeout(time, work).await });
    done.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(io::Error::other)
}

pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Client that only sends.
pub(super) struct Publisher {
    runtime: Runtime,
    client: Client,
}

impl Publisher {
    pub(super) fn connect(address: &str, name: &str) -> io::Result<Self> {
        let runtime = runtime()?;
        let client = within(&runtime, SILENCE, Client::connect(address, name))?;
        Ok(Self { runtime, client })
    }

    /// Publishes for a while. Returns the number of messages once the daemon has them.
    pub(super) fn publish(&self, load: &Load) -> io::Result<u64> {
        within(&self.runtime, load.time + SILENCE, self.write(load))
    }

    async fn write(&self, load: &Load) -> Result<u64, GroupError> {
        let (began, mut sent) = (Instant::now(), 0);
        let mut payload = vec![b'x'; load.bytes];
        while began.elapsed() < load.time {
            let of_rate = |rate| (began.elapsed().as_secs_f64() * rate) as u64;
            let due = load.rate.map_or(sent + BURST, of_rate);
            while sent < due {
                if let Some(since) = load.stamps {
                    let stamp = since.elapsed().as_nanos() as u64;
                    let at = payload.len() - 8;
                    payload[at..].copy_from_slice(&stamp.to_be_bytes());
                }
                self.client.send(load.service, &[GROUP], payload.clone()).await?;
                sent += 1;
            }
            if load.rate.is_some() {
                // The connection writes before the thread sleeps.
                tokio::task::yield_now().await;
                std::thread::sleep(NAP);
            }
        }
        self.client.flush().await?;
        Ok(sent)
    }

    /// Publishes a single message.
    pub(super) fn publish_one(&self, service: Service) -> io::Result<()> {
        within(&self.runtime, SILENCE, async {
            self.client.send(service, &[GROUP], "x").await?;
            self.client.flush().await
        })
    }
}

/// Member of the group of all messages.
pub(super) struct Subscriber {
    runtime: Runtime,
    client: Client,
}

impl Subscriber {
    pub(super) fn connect(address: &str, name: &str) -> io::Result<Self> {
        let runtime = runtime()?;
        let client = within(&runtime, SILENCE, member(address, name, GROUP))?;
        Ok(Self { runtime, client })
    }

    /// Takes messages until `is_over` says so of their number, or nothing comes any more. Latencies
    /// count from stamps since a moment, if it is given.
    pub(super) fn count(&self, since: Option<Instant>, is_over: impl Fn(u64) -> bool) -> Received {
        let mut received = Received::default();
        loop {
            let before = received.messages;
            let read = self.read(since, &is_over, &mut received);
            let is_done = within(&self.runtime, SILENCE, read).is_ok();
            if received.messages > before {
                received.at = Some(Instant::now());
            }
            if is_done || received.messages == before {
                return received;
            }
        }
    }

    async fn read(
        &self,
        since: Option<Instant>,
        is_over: &impl Fn(u64) -> bool,
        received: &mut Received,
    ) -> Result<(), GroupError> {
        while !is_over(received.messages) {
            let GroupEvent::Message(message) = self.client.next().await? else { continue };
            received.messages += 1;
            if let Some(since) = since
                && let Some(stamp) = message.payload.last_chunk()
            {
                let now = since.elapsed().as_nanos() as u64;
                received.latencies.push(now.saturating_sub(u64::from_be_bytes(*stamp)));
            }
        }
        Ok(())
    }
}
