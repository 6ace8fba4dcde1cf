//! `faircast recv`: receives objects that are sent to a group.

mod report;
mod waits;
mod warnings;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration as WallDuration, Instant};

use faircast::{
    CommandOptions, DeviceOptions, GroupKey, Listen, Multicast, ReceiveStatus, Receiver,
    ReceiverBuilder, RepairTree, SocketSettings,
};
use faircast_base::Duration;
use faircast_net::interface_name;
use faircast_proto::options::OptionValue;
use serde_json::json;

use self::report::{Reporter, metrics};
use crate::args::RecvArgs;
use crate::error::{Failure, Result};
use crate::interrupt::{interrupted, listen};
use crate::live::{self, Output, with};

pub(crate) fn recv(args: &RecvArgs) -> Result {
    live::begin_log(&args.watch)?;
    listen();
    live::runtime()?.block_on(run(args))
}

async fn run(args: &RecvArgs) -> Result {
    let listener = live::metrics::listen(&args.watch).await?;
    let Some(mut receiver) = open(args).await? else { return Ok(()) };
    if let Some(listener) = listener {
        let status = receiver.status();
        let fill = move |registry: &mut _| metrics(registry, &status.borrow());
        live::metrics::serve(listener, fill, || None);
    }
    let output = Output::new(&args.watch);
    if let Some(group) =
        args.group.filter(|group| args.accept.from.is_none() && is_of_one_source(*group))
    {
        output.warn(&format!(
            "{}: routers forward such groups only to who names the sender; use --from, or another \
             group",
            group.ip()
        ))?;
    }
    let addresses = [args.group, args.listen].into_iter().flatten().map(|at| at.to_string());
    let addresses: Vec<_> = addresses.chain(args.via.meeting.clone()).collect();
    let addresses = addresses.join(" and ");
    let verb = if args.via.via.is_empty() { "listening on" } else { "meeting senders at" };
    output.tell(
        "listening",
        &format!("{verb} {addresses}, {}", target(args)),
        json!({
            "on": addresses, "into": args.into, "device": args.target.to_device, "command": args.target.to_command,
        }),
    )?;
    let mut reporter = Reporter::new(output, args);
    let status = receiver.status();
    let mut closing = false;
    loop {
        tokio::select! {
            biased;
            received = receiver.next() => match received {
                Some(received) => reporter.ended(&received)?,
                None => break,
            },
            () = tokio::time::sleep(STATUS_INTERVAL) => {
                let now = status.borrow().clone();
                reporter.update(&now)?;
                let given_up = given_up(args, &now);
                if !closing && (interrupted() || given_up.is_some()) {
                    closing = true;
                    match given_up {
                        Some(reason) => reporter.give_up(&reason)?,
                        None => reporter.output.warn(
                            "ending, and telling the senders; Ctrl-C again ends at once",
                        )?,
                    }
                    receiver.close();
                }
            }
        }
    }
    reporter.finish(args.once)
}

async fn open(args: &RecvArgs) -> Result<Option<Receiver>> {
    let begun = Instant::now();
    let mut is_reported = false;
    loop {
        let error = match builder(args)?.receive() {
            Ok(receiver) => return Ok(Some(receiver)),
            Err(error) => error,
        };
        let limit = args.accept.give_up.into_iter().chain(args.accept.wait_max).min();
        let limit = limit.map(|limit| WallDuration::from_nanos(limit.as_nanos()));
        let given_up = limit.is_some_and(|limit| begun.elapsed() > limit);
        if args.once || given_up || !live::is_away(&error) {
            return Err(live::failure(error, args.group.is_some()));
        }
        if !is_reported {
            is_reported = true;
            Output::new(&args.watch)
                .warn(&format!("{error}; waiting until the network is there"))?;
        }
        tokio::time::sleep(AWAY_PAUSE).await;
        if interrupted() {
            return Ok(None);
        }
    }
}

/// True if a group is for source-specific multicast: 232.0.0.0/8 and ff3x::/32 (RFC 4607 s1).
fn is_of_one_source(group: SocketAddr) -> bool {
    match group.ip() {
        IpAddr::V4(ip) => ip.octets()[0] == 232,
        IpAddr::V6(ip) => ip.segments()[0] & 0xfff0 == 0xff30 && ip.segments()[1] == 0,
    }
}

fn given_up(args: &RecvArgs, status: &ReceiveStatus) -> Option<String> {
    let silent = status.elapsed.saturating_sub(status.heard.unwrap_or(Duration::ZERO));
    if let Some(limit) = args.accept.give_up.filter(|limit| silent > *limit) {
        return Some(format!("no sender was heard for too long (--give-up {limit})"));
    }
    let limit =
        args.accept.wait_max.filter(|limit| status.begun.is_none() && status.elapsed > *limit)?;
    let heard = match status.heard {
        Some(_) => "what was heard is not for this receiver, or its sender does not answer",
        None => "no sender was heard",
    };
    Some(format!("nothing has begun to come within {limit}: {heard}"))
}

fn target(args: &RecvArgs) -> String {
    match (&args.target.to_device, &args.target.to_command, &args.into) {
        (Some(device), ..) => format!("to {}", device.display()),
        (_, Some(command), _) => format!("to the command `{command}`"),
        (.., into) => format!("into {}", into.as_deref().unwrap_or(Path::new(".")).display()),
    }
}

/// Returns the group on the interface that the zone of `--from` names. Fails if the group or
/// `--listen` has another zone: a host on another link could have the sender's address.
fn group_on_zone(args: &RecvArgs) -> Result<Option<SocketAddr>> {
    let zone_of = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let zone = args.accept.from.map_or(0, zone_of);
    let known = args.group.or(args.listen).map_or(0, zone_of);
    let mut group = args.group;
    if zone == 0 || zone == known {
        return Ok(group);
    }
    match &mut group {
        Some(SocketAddr::V6(group)) if known == 0 => group.set_scope_id(zone),
        _ => {
            let option = if group.is_some() { "--group" } else { "--listen" };
            let name = interface_name(zone).unwrap_or_else(|| zone.to_string());
            return Err(Failure::Usage(format!(
                "--from: the zone %{name} is one interface, and {option} names another or none; give both the zone %{name}"
            )));
        }
    }
    Ok(group)
}

fn builder(args: &RecvArgs) -> Result<ReceiverBuilder> {
    let interfaces = vec![live::interface(args.interface.as_deref())];
    let from = args.accept.from.map(|from| from.ip());
    let group = group_on_zone(args)?;
    let group = group.map(|group| Multicast { group, source: from, interfaces });
    let listen = match (group, args.listen) {
        (Some(group), None) => Listen::Multicast(group),
        (Some(group), Some(address)) => Listen::Both(group, address),
        (None, Some(address)) => Listen::Unicast(address),
        (None, None) => Listen::Unicast(SocketAddr::from(([0, 0, 0, 0], 0))),
    };
    let is_dash = |path: &Option<PathBuf>| path.as_ref().is_some_and(|it| it.as_os_str() == "-");
    if args.target.to_stdout || is_dash(&args.into) || is_dash(&args.target.to_device) {
        // The reader of standard output could not tell a truncated object from a complete one.
        return Err(Failure::usage(
            "nothing is received to standard output; use --to-command 'COMMAND', which reads it, \
                    and is killed where it is cut off or damaged",
        ));
    }
    let object = args.accept.object.clone().unwrap_or_default();
    let builder = match (&args.target.to_device, &args.target.to_command, &args.into) {
        (Some(device), ..) => {
            let journal = args.target.journal.clone();
            let options = DeviceOptions { journal, ..DeviceOptions::new(device, object) };
            Receiver::to_device(listen, options)
        }
        (_, Some(command), _) => {
            Receiver::to_command(listen, CommandOptions { command: command.clone(), object })
        }
        (.., Some(into)) => Receiver::builder(listen, into),
        (None, None, None) => unreachable!("the parser asks for one"),
    };
    let mut builder = builder
        .sockets(SocketSettings { only_from: from, ..SocketSettings::default() })
        .overwrite(args.target.overwrite)
        .owner(args.target.owner)
        .xattrs(args.target.xattrs)
        .sync(!args.target.no_sync)
        .once(args.once)
        .via(live::relays(&args.via, args.group)?)
        .name(args.session.name.clone().unwrap_or_else(live::host_name));
    for (key, value) in live::options(&args.session.options)? {
        builder = builder.option(key, value);
    }
    if let Some(role) = &args.session.head {
        builder = builder.option("head", OptionValue::Text(role.clone()));
    }
    if let Some(path) = &args.session.tree {
        let tree = RepairTree::read(path).map_err(Failure::usage)?;
        builder = builder.tree(tree);
    }
    builder = with(builder, args.via.meeting.as_ref(), ReceiverBuilder::meeting);
    builder = with(builder, args.accept.rate_max, ReceiverBuilder::rate_max);
    builder = with(builder, args.accept.object.as_ref(), ReceiverBuilder::object);
    builder = with(builder, args.session.scheme.as_ref(), ReceiverBuilder::scheme);
    builder = with(builder, live::read_key(&args.key, GroupKey::read)?, ReceiverBuilder::key);
    Ok(with(builder, args.trace.as_ref(), ReceiverBuilder::trace))
}

const AWAY_PAUSE: WallDuration = WallDuration::from_millis(500);

const STATUS_INTERVAL: WallDuration = WallDuration::from_millis(200);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Verb};

    #[test]
    fn the_zone_of_a_sender_is_the_interface_to_hear_on() {
        let args = |words: &str| {
            let words = ["faircast", "recv", "--into", "d"].into_iter().chain(words.split(' '));
            match Args::try_parse_from(words).unwrap().verb {
                Verb::Recv(args) => args,
                _ => panic!("another verb"),
            }
        };
        let lo = "--from fe80::1%lo";
        for (words, zone) in [
            (format!("--group [ff12::7]:7500 {lo}"), 1),
            (format!("--group [ff12::7%lo]:7500 {lo}"), 1),
            ("--group [ff12::7]:7500 --from fe80::1".to_string(), 0),
        ] {
            let Ok(Some(SocketAddr::V6(group))) = group_on_zone(&args(&words)) else {
                panic!("{words}");
            };
            assert_eq!(group.scope_id(), zone, "{words}");
        }
        assert!(group_on_zone(&args(&format!("--listen [fe80::2%lo]:1 {lo}"))).is_ok());
        for words in ["--listen [::]:1", "--listen 0.0.0.0:1", "--group 239.1.2.3:1"] {
            let error = group_on_zone(&args(&format!("{words} {lo}"))).unwrap_err().to_string();
            assert!(error.contains("give both the zone %lo"), "{words}: {error}");
        }
    }
}
