//! `faircast recv`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{ArgGroup, Args};
use faircast_base::{Bitrate, Duration};

use super::live::{KeyOptions, ViaOptions, WatchOptions, address, group, rate, silence, source};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).multiple(true).args(["group", "listen", "via"])))]
#[command(group(ArgGroup::new("target").required(true).args(["into", "to_device", "to_command", "to_stdout"])))]
#[command(override_usage = "\
faircast recv [OPTIONS] <--group GROUP:PORT|--listen ADDR:PORT|--via HOST:PORT>
                     <--into DIR|--to-device DEVICE|--to-command COMMAND>")]
#[command(after_help = "\
Examples:
  faircast recv --group 239.192.7.1:7500 --into in
  faircast recv --group 232.1.2.3:7500 --from 10.0.0.1 --into in --once
  faircast recv --listen 0.0.0.0:7500 --into in --key group.key     for send --to
  faircast recv --via 10.1.0.1:7600 --meeting images --into in       through a relay
  faircast recv --group 239.192.7.1:7500 --to-device /dev/sdb --object win11
  faircast recv --group 239.192.7.1:7500 --to-command 'zstd -d | partclone.restore -s - -o /dev/sda1' --object sda1

The program receives further sessions, several at once, unless --once is given. Content of an
unfinished object is kept and need not be sent again. Files appear under their names once they are
complete and match their digests. Ctrl-C ends the program and informs the senders; a second Ctrl-C
ends it at once.

Exit status: 0 done, or ended by Ctrl-C between objects; 1 an object failed, or the file system cannot
hold all of it; 2 the arguments are wrong.")]
pub(crate) struct RecvArgs {
    /// Multicast group and port, IPv4 or IPv6; a zone names the interface: '[ff12::7%eth0]:7500'
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub(crate) group: Option<SocketAddr>,
    /// Folder for received files; created if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// Address and port for senders that use `send --to`; may be used beside --group
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "via")]
    pub(crate) listen: Option<SocketAddr>,
    /// Interface for the group, by name or address [default: by the routes of the system]
    #[arg(long, value_name = "IF", requires = "group")]
    pub(crate) interface: Option<String>,
    /// End after one object, which is all content of one `faircast send`. Objects that have begun
    /// are completed, unless their sender is silent for 30 s. Implied by --to-device, --to-command
    #[arg(long, default_value_ifs([
        ("to_device", ArgPredicate::IsPresent, "true"),
        ("to_command", ArgPredicate::IsPresent, "true"),
    ]))]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) accept: AcceptOptions,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    #[command(flatten)]
    pub(crate) session: RecvSessionOptions,
    #[command(flatten)]
    pub(crate) via: ViaOptions,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
    /// Print the BLAKE3 hash of each file, however many there are; --json always has all hashes
    #[arg(long)]
    pub(crate) list: bool,
    /// File for a trace of all packets; `faircast report FILE` makes a page of the trace
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sender and rate")]
pub(crate) struct AcceptOptions {
    /// Address of the only sender to accept; groups in 232.0.0.0/8 and ff3x::/32 need it. A zone
    /// names the interface: 'fe80::1%eth0'
    #[arg(long, value_name = "SOURCE", value_parser = source, conflicts_with = "via")]
    pub(crate) from: Option<SocketAddr>,
    /// Name of the only object to accept: the --name of its sender, or the last name of its first
    /// PATH
    #[arg(long, value_name = "NAME")]
    pub(crate) object: Option<String>,
    /// Longest wait for the first packet before the program fails [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = silence)]
    pub(crate) wait_max: Option<Duration>,
    /// Longest time without a sender or a network before the program fails [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = silence)]
    pub(crate) give_up: Option<Duration>,
    /// Highest rate to request from the sender, such as 10Mbit/s. The sender obeys for all of its
    /// receivers, down to its --rate-min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate_max: Option<Bitrate>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Destination")]
pub(crate) struct TargetOptions {
    /// Write one file or image over this block device, or over a file in place, and compare it by
    /// reading back. Needs --object; refused while the device or a partition of it is in use
    #[arg(long, value_name = "DEVICE", requires = "object", conflicts_with_all = ["overwrite", "owner", "xattrs"])]
    pub(crate) to_device: Option<PathBuf>,
    /// File that records the progress on the device, so that a later run continues
    #[arg(long, value_name = "FILE", requires = "to_device")]
    pub(crate) journal: Option<PathBuf>,
    /// Pipe one file or image in order into this shell command. Needs --object; the exit status of
    /// the command decides. Its output goes to standard error
    #[arg(long, value_name = "COMMAND", requires = "object", conflicts_with_all = ["overwrite", "owner", "xattrs"])]
    pub(crate) to_command: Option<String>,
    /// Hidden, and refused with a hint to --to-command: users know the option from other programs.
    #[arg(long, hide = true)]
    pub(crate) to_stdout: bool,
    /// Replace existing files that differ
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Set the owners that a sender with --owner sends: by name, or else by number. Needs root
    #[arg(long)]
    pub(crate) owner: bool,
    /// Set the extended attributes and access control lists that a sender with --xattrs sends
    #[arg(long)]
    pub(crate) xattrs: bool,
    /// Report files as complete before the disk has written them: faster, but a crash of the system
    /// may lose such files
    #[arg(long)]
    pub(crate) no_sync: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct RecvSessionOptions {
    /// Name of this receiver for the sender [default: name of the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only scheme to accept; `faircast schemes` lists all [default: the sender's]
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// Setting of the scheme that replaces the sender's; may be repeated; `faircast schemes NAME`
    /// lists all settings
    #[arg(long = "option", alias = "options", value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,
    /// Readiness to be a repair head, for senders with the scheme tram: eager, reluctant (if there
    /// is no other) or never
    #[arg(long, value_name = "ROLE", value_parser = ["eager", "reluctant", "never"], hide_possible_values = true)]
    pub(crate) head: Option<String>,
    /// File with the repair heads of receivers, for senders with the scheme tram: lines `RECEIVER
    /// HEAD`, with names of receivers (--name) or `sender`
    #[arg(long, value_name = "FILE", requires = "group")]
    pub(crate) tree: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Args, Verb};

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (words, want) in [
            (&["--into", "d"][..], "--group"),
            (&["--group", "239.1.2.3:1"], "--into"),
            (&["--group", "239.1.2.3:1", "--to-device", "d"], "--object"),
            (&["--group", "239.1.2.3:1", "--to-command", "c"], "--object"),
            (&["--group", "239.1.2.3:1", "--into", "d", "--journal", "j"], "--to-device"),
            (&["--group", "239.1.2.3:1", "--into", "d", "--to-command", "c"], "cannot be used"),
            (&["--listen", "0.0.0.0:1", "--interface", "lo", "--into", "d"], "--group"),
            (&["--listen", "0.0.0.0:0", "--into", "d"], "an address and a port, such as"),
            (&["--listen", "0.0.0.0:1", "--into", "d", "--rate-max", "0 bit/s"], "above zero"),
            (&["--listen", "7500", "--into", "d"], "an address and a port, such as"),
            (&["--group", "10.0.0.1:1", "--into", "d"], "recv --listen"),
            (&["--group", "[ff12::7%nothing]:1", "--into", "d"], "no interface of this host"),
            (&["--listen", "[fe80::1%nothing]:1", "--into", "d"], "no interface of this host"),
            (&["--group", "239.1.2.3:1", "--from", "h", "--into", "d"], "--from"),
            (&["--group", "239.1.2.3:1", "--into", "d", "--give-up", "9ms"], "1 s or more"),
            (&["--group", "239.1.2.3:1", "--into", "d", "--give-up", "9"], "no unit"),
            (&["--group", "239.1.2.3:1", "--into", "d", "--give-up", "soon"], "--give-up"),
        ] {
            let error = Args::try_parse_from(["faircast", "recv"].iter().chain(words)).unwrap_err();
            assert!(error.to_string().contains(want), "{error} instead of {want}");
        }
    }

    #[test]
    fn a_device_and_a_command_take_one_object() {
        for (target, once) in [("--into", false), ("--to-device", true), ("--to-command", true)] {
            let words = ["faircast", "recv", "--listen", "0.0.0.0:1", "--object", "o", target, "x"];
            let Verb::Recv(args) = Args::try_parse_from(words).unwrap().verb else {
                panic!("another verb");
            };
            assert_eq!(args.once, once, "{target}");
        }
    }
}
