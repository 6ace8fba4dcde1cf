//! Small HTTP server for metrics (Prometheus) and a relay's status, and the status's client.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use faircast::{Counters, Refusals};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn as client;
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::args::WatchOptions;
use crate::error::{Failure, Result};

pub(crate) async fn listen(watch: &WatchOptions) -> Result<Option<TcpListener>> {
    let Some(address) = watch.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let text = format!(
            "--metrics {address}: {error}; expected an address of this host and a free port"
        );
        match error.kind() {
            ErrorKind::AddrNotAvailable => Failure::Usage(text),
            _ => Failure::Work(text),
        }
    })?;
    Ok(Some(listener))
}

pub(crate) fn serve(
    listener: TcpListener,
    fill: impl Fn(&mut Registry) + Send + Sync + 'static,
    status: impl Fn() -> Option<String> + Send + Sync + 'static,
) {
    serve_pages(listener, move |path| {
        std::future::ready(match path.as_str() {
            "/metrics" => Some((StatusCode::OK, OPEN_METRICS, text(&fill))),
            "/status" => status().map(|text| (StatusCode::OK, JSON, text)),
            _ => None,
        })
    });
}

pub(crate) type Page = (StatusCode, &'static str, String);

pub(crate) fn serve_pages<F: Future<Output = Option<Page>> + Send + 'static>(
    listener: TcpListener,
    page: impl Fn(String) -> F + Send + Sync + 'static,
) {
    let page = Arc::new(page);
    let is_loopback = listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
    tokio::spawn(async move {
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            // A client sends its request at once, so the oldest connection was silent longest.
            if open.len() >= CONNECTIONS_MAX
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let page = page.clone();
            let connection = tokio::spawn(async move {
                let answer = service_fn(move |request: Request<Incoming>| {
                    let is_foreign = is_loopback && !names_this_host(&request);
                    let page = page(request.uri().path().to_string());
                    async move {
                        let foreign = "expected an address or localhost as the host\n";
                        let page = match is_foreign {
                            true => Some((StatusCode::MISDIRECTED_REQUEST, PLAIN, foreign.into())),
                            false => page.await,
                        };
                        Ok::<_, Infallible>(answer(request.method(), page))
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .keep_alive(false)
                    .max_buf_size(REQUEST_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), answer);
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            });
            open.push_back(connection.abort_handle());
        }
    });
}

/// True if a request's `Host` is an address or `localhost`: another site's name could point here
/// (DNS rebinding), and its page would read the answers.
fn names_this_host(request: &Request<Incoming>) -> bool {
    let host = request.headers().get(header::HOST).and_then(|it| it.to_str().ok());
    let host = host.and_then(|it| it.parse::<Authority>().ok());
    host.is_some_and(|it| {
        let name = it.host().trim_matches(['[', ']']);
        name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    })
}

fn answer(method: &Method, page: Option<Page>) -> Response<Full<Bytes>> {
    let (status, kind, text) = match page {
        Some(page) if *method == Method::GET => page,
        Some(_) => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET alone\n".to_string()),
        None => (StatusCode::NOT_FOUND, PLAIN, "metrics are at /metrics\n".to_string()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Fetches the status document of a relay or daemon; a failure ends with `advice`.
pub(crate) async fn status(address: SocketAddr, advice: &str) -> Result<Value> {
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = client::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get("/status").header(header::HOST, address.to_string());
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        if answer.status() != StatusCode::OK {
            let text = "this is no address of a relay's --metrics or of a daemon's status";
            return Err(text.into());
        }
        Ok(Limited::new(answer.into_body(), STATUS_BYTES_MAX).collect().await?.to_bytes())
    };
    let answer: Result<_, Box<dyn Error + Send + Sync>> =
        tokio::time::timeout(REQUEST_TIMEOUT, asked)
            .await
            .unwrap_or_else(|_| Err("it does not answer".into()));
    let body = answer.map_err(|error| Failure::Work(format!("{address}: {error}{advice}")))?;
    serde_json::from_slice(&body).map_err(|_| other_answer(address))
}

pub(crate) fn other_answer(address: SocketAddr) -> Failure {
    Failure::Work(format!("{address}: it answers with something else"))
}

pub(crate) fn text(fill: &dyn Fn(&mut Registry)) -> String {
    let mut registry = Registry::with_prefix("faircast");
    fill(&mut registry);
    let mut text = String::new();
    let _ = encode(&mut text, &registry);
    text
}

pub(crate) type Metric<T> = (&'static str, &'static str, T);

pub(crate) fn counters(registry: &mut Registry, all: impl IntoIterator<Item = Metric<u64>>) {
    for (name, help, value) in all {
        registry.register(name, help, ConstCounter::new(value));
    }
}

pub(crate) fn gauges(registry: &mut Registry, all: impl IntoIterator<Item = Metric<f64>>) {
    for (name, help, value) in all {
        registry.register(name, help, ConstGauge::new(value));
    }
}

pub(crate) type Labels = Vec<(&'static str, String)>;

pub(crate) type Figure<T> = Metric<fn(&T) -> f64>;

pub(crate) fn labelled_gauges<T>(
    registry: &mut Registry,
    prefix: &str,
    all: &[(Labels, T)],
    figures: &[Figure<T>],
) {
    for (name, help, value) in figures {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, entry) in all {
            family.get_or_create(labels).set(value(entry));
        }
        registry.register(format!("{prefix}_{name}"), *help, family);
    }
}

pub(crate) fn traffic(registry: &mut Registry, traffic: &Counters, refusals: &Refusals) {
    let Counters { received, sent, refused, timers, .. } = traffic;
    let (refused, overflowed) = (refused.total() - refused.sealed, received.overflowed);
    let all = [
        ("received_packets", "Datagrams that came and were of use", received.packets),
        ("received_bytes", "Bytes of those, without UDP and IP headers", received.bytes),
        ("receive_overflows", "Datagrams that the kernel dropped for want of room", overflowed),
        ("sent_packets", "Datagrams that were sent, one to a group counted once", sent.packets),
        ("sent_datagrams", "Datagrams that were given to the kernel", sent.datagrams),
        ("sent_bytes", "Bytes of those, without UDP and IP headers", sent.bytes),
        ("unsent_packets", "Datagrams that could not be sent", sent.unsent),
        ("refused_packets", "Datagrams that were not for this program or not right", refused),
        ("unsealed_packets", "Datagrams that the group's key does not open", refusals.total()),
        ("late_timers", "Timers that were more than a millisecond late", timers.late_over_1ms),
    ];
    counters(registry, all);
}

/// Content security policy of all pages: files of this server alone, and no scripts inside a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
/// Largest status document that is read, in bytes: enough for a relay's most neighbours.
const STATUS_BYTES_MAX: usize = 64 << 20;
const CONNECTIONS_MAX: usize = 128;
const REQUEST_BYTES_MAX: usize = 8 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time for a request and its answer, which may be a health check of 2 s: 3 s.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    /// Sends a request beside three times the allowed connections, each with half a request.
    fn ask_beside_silent_ones(address: SocketAddr) -> String {
        let connect = || {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(REQUEST_TIMEOUT / 2)).expect("a limit");
            stream
        };
        let mut silent = Vec::new();
        for _ in 0..3 * CONNECTIONS_MAX {
            let mut half = connect();
            let _ = half.write_all(b"GET /metr");
            silent.push(half);
        }
        let mut honest = connect();
        honest.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("room");
        let mut answer = String::new();
        honest.read_to_string(&mut answer).expect("an answer at once");
        answer
    }

    #[test]
    fn who_says_nothing_keeps_nobody_out() {
        let runtime = crate::live::runtime().unwrap_or_else(|error| panic!("{error}"));
        let answer = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("an address");
            serve(listener, |registry| gauges(registry, [("one", "A number", 1.0)]), || None);
            tokio::task::spawn_blocking(move || ask_beside_silent_ones(address)).await
        });
        let answer = answer.expect("it ends");
        assert!(answer.contains("faircast_one 1"), "{answer}");
    }
}
