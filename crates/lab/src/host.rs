//! Host: a network namespace with one interface.

use std::net::Ipv4Addr;
use std::path::Path;

use faircast_base::NodeId;
use netlink_packet_route::route::RouteMetric;
use nix::sched::{CloneFlags, unshare};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::address;
use crate::error::LabError;
use crate::netlink::Routing;
use crate::plan::TcpPlan;

/// Kernel queue for the emulator in packets: only the scenario's queues may drop any.
const BACKLOG_PACKETS: u32 = 20_000;
pub(crate) const INTERFACE: &str = "fc0";
const TUN: &str = "/dev/net/tun";
/// Bit of RTAX_RTO_MIN in the mask of metrics that the kernel must not change.
const LOCK_RTO_MIN: u32 = 1 << 13;

/// Moves the calling thread into a new namespace with an interface. Returns its TUN device, without
/// offloads: the kernel has split large segments and computed checksums, as on a wire.
pub(crate) fn make(node: NodeId, mtu: u16, tcp: Option<&TcpPlan>) -> Result<SyncDevice, LabError> {
    enter()?;
    set_up_kernel(tcp)?;
    if !Path::new(TUN).exists() {
        return Err(LabError::NoTun);
    }
    let device = DeviceBuilder::new()
        .name(INTERFACE)
        .layer(Layer::L3)
        .mtu(mtu)
        .with(|options| {
            options.tx_queue_len(BACKLOG_PACKETS);
        })
        .build_sync()
        .map_err(LabError::NoDevice)?;
    device.set_nonblocking(true).map_err(LabError::NoDevice)?;
    let configured = || {
        let index = device.if_index()?;
        let routing = Routing::new()?;
        routing.set(nix::net::if_::if_nametoindex("lo")?, true)?;
        routing.add_address(index, address::of_node(node))?;
        connect(&routing, index, address::of_node(node), tcp.map_or_else(Vec::new, metrics))
    };
    configured().map_err(LabError::doing("give a host its address"))?;
    Ok(device)
}

/// Takes a host's interface up, and restores the routes that the kernel drops with it.
pub(crate) fn connect(
    routing: &Routing,
    index: u32,
    address: Ipv4Addr,
    metrics: Vec<RouteMetric>,
) -> std::io::Result<()> {
    routing.set(index, true)?;
    routing.add_route(index, (Ipv4Addr::new(10, 0, 0, 0), 8), address, metrics)?;
    routing.add_route(index, (Ipv4Addr::new(224, 0, 0, 0), 4), address, Vec::new())
}

pub(crate) fn enter() -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| LabError::NoNamespace(error.into()))
}

fn set_up_kernel(tcp: Option<&TcpPlan>) -> Result<(), LabError> {
    let set = |name: &str, value: &str| {
        let path = format!("/proc/sys/net/{name}");
        match Path::new(&path).exists() {
            true => std::fs::write(&path, value).map_err(LabError::doing(format!("write {path}"))),
            false => Ok(()),
        }
    };
    // Only the flows' packets should be on the links.
    set("ipv6/conf/all/disable_ipv6", "1")?;
    set("ipv4/conf/all/rp_filter", "0")?;
    set("ipv4/conf/default/rp_filter", "0")?;
    let Some(tcp) = tcp else { return Ok(()) };
    set("ipv4/tcp_sack", if tcp.sack { "1" } else { "0" })?;
    set("ipv4/tcp_dsack", if tcp.sack { "1" } else { "0" })?;
    // Headers of 40 bytes, as in the simulator.
    set("ipv4/tcp_timestamps", "0")?;
    set("ipv4/tcp_ecn", "0")?;
    set("ipv4/tcp_no_metrics_save", "1")?;
    if tcp.threshold > 0 {
        set("ipv4/tcp_no_ssthresh_metrics_save", "0")?;
    }
    // Only congestion control limits the window, unless the scenario sets a limit.
    set("ipv4/tcp_rmem", "4096 8388608 67108864")?;
    set("ipv4/tcp_wmem", "4096 1048576 67108864")
}

fn metrics(tcp: &TcpPlan) -> Vec<RouteMetric> {
    let mut metrics = vec![
        RouteMetric::Lock(LOCK_RTO_MIN),
        RouteMetric::RtoMin(u32::try_from(tcp.min_rto.as_millis()).unwrap_or(u32::MAX)),
        RouteMetric::InitCwnd(tcp.initial_window),
    ];
    if let Some(bytes) = tcp.window_bytes() {
        metrics.push(RouteMetric::Window(bytes));
    }
    if tcp.threshold > 0 {
        metrics.push(RouteMetric::SsThresh(tcp.threshold));
    }
    if !tcp.delayed_ack {
        metrics.push(RouteMetric::QuickAck(1));
    }
    metrics
}
