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
        let message = "the lab needs /dev/net/tun, which is not there; try `modprobe tun`, or give \
                       the container --device /dev/net/tun";
        return Err(LabError::Machine(message.into()));
    }
    let no_device = |error: std::io::Error| {
        let message = "the lab cannot make a TUN device";
        let remedy = "it needs CAP_NET_ADMIN: run it as root";
        LabError::Machine(format!("{message} ({error}); {remedy}"))
    };
    let device = DeviceBuilder::new()
        .name(INTERFACE)
        .layer(Layer::L3)
        .mtu(mtu)
        .with(|options| {
            options.tx_queue_len(BACKLOG_PACKETS);
        })
        .build_sync()
        .map_err(no_device)?;
    device.set_nonblocking(true).map_err(no_device)?;
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
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        LabError::Machine(format!(
            "the lab may not make network namespaces (unshare: {}); it needs CAP_SYS_ADMIN: run it \
             as root, or in a container with --privileged",
            std::io::Error::from(error)
        ))
    })
}

fn set_up_kernel(tcp: Option<&TcpPlan>) -> Result<(), LabError> {
    // Only the flows' packets should be on the links.
    let mut settings = vec![
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
    ];
    if let Some(tcp) = tcp {
        let sack = if tcp.sack { "1" } else { "0" };
        settings.extend([
            ("ipv4/tcp_sack", sack),
            ("ipv4/tcp_dsack", sack),
            // Headers of 40 bytes, as in the simulator.
            ("ipv4/tcp_timestamps", "0"),
            ("ipv4/tcp_ecn", "0"),
            ("ipv4/tcp_no_metrics_save", "1"),
            // Only congestion control limits the window, unless the scenario sets a limit.
            ("ipv4/tcp_rmem", "4096 8388608 67108864"),
            ("ipv4/tcp_wmem", "4096 1048576 67108864"),
        ]);
        settings.extend((tcp.threshold > 0).then_some(("ipv4/tcp_no_ssthresh_metrics_save", "0")));
    }
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        if Path::new(&path).exists() {
            std::fs::write(&path, value).map_err(LabError::doing(format!("write {path}")))?;
        }
    }
    Ok(())
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
