//! Publishers and subscribers of the benchmark: clients of the library, each in a thread.

use std::io;
use std::time::{Duration, Instant};

use faircast::groups::{Client, GroupError, GroupEvent, Service};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const GROUP: &str = "bench";
const NAP: Duration = Duration::from_micros(30);
/// Messages between two reads of the clock, for a publisher without a rate.
const BURST: u64 = 64;
/// Silence after which missing messages count as lost, and the daemon as gone: 2 s.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) service: Service,
    pub(super) bytes: usize,
    /// Messages per second; `None` for as many as the daemon accepts.
    pub(super) rate: Option<f64>,
    /// Epoch of the nanoseconds in the last eight bytes of each message; `None` without stamps.
    pub(super) stamps: Option<Instant>,
    pub(super) time: Duration,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) messages: u64,
    pub(super) at: Option<Instant>,
    pub(super) latencies: Vec<u64>,
}

pub(super) async fn member(address: &str, name: &str, group: &str) -> Result<Client, GroupError> {
    let client = Client::connect(address, name).await?;
    client.join(group).await?;
    while !matches!(client.next().await?, GroupEvent::Group { .. }) {}
    Ok(client)
}

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

pub(super) struct BlockingClient {
    runtime: Runtime,
    client: Client,
}

impl BlockingClient {
    pub(super) fn publisher(address: &str, name: &str) -> io::Result<Self> {
        Self::new(Client::connect(address, name))
    }

    pub(super) fn subscriber(address: &str, name: &str) -> io::Result<Self> {
        Self::new(member(address, name, GROUP))
    }

    fn new(connected: impl Future<Output = Result<Client, GroupError>>) -> io::Result<Self> {
        let runtime = runtime()?;
        let client = within(&runtime, SILENCE, connected)?;
        Ok(Self { runtime, client })
    }

    pub(super) fn publish(&self, load: &Load) -> io::Result<u64> {
        within(&self.runtime, load.time + SILENCE, self.write(load))
    }

    async fn write(&self, load: &Load) -> Result<u64, GroupError> {
        let (began, mut sent) = (Instant::now(), 0);
        let mut payload = vec![b'x'; load.bytes];
        while began.elapsed() < load.time {
            let of_rate = |rate| (began.elapsed().as_secs_f64() * rate) as u64;
            let (before, due) = (sent, load.rate.map_or(sent + BURST, of_rate));
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
                if sent > before {
                    // Lets the connection write before the thread sleeps.
                    tokio::task::yield_now().await;
                }
                std::thread::sleep(NAP);
            }
        }
        self.client.flush().await?;
        Ok(sent)
    }

    pub(super) fn publish_one(&self, service: Service) -> io::Result<()> {
        within(&self.runtime, SILENCE, async {
            self.client.send(service, &[GROUP], "x").await?;
            self.client.flush().await
        })
    }

    /// Counts messages until `is_over` or silence; latencies are relative to `since`.
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
