//! `faircast recv`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{ArgGroup, Args};
use faircast_base::{Bitrate, Duration};

use super::live::{KeyOptions, ViaOptions, WatchOptions, address, group, rate, silence, source};

/// Arguments of `faircast recv`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).multiple(true).args(["group", "listen", "via"])))]
#[command(group(ArgGroup::new("target").required(true).args(["into", "to_device", "to_command", "to_stdout"])))]
#[command(after_help = "\
Examples:
  faircast recv --group 239.192.7.1:7500 --into in
  faircast recv --group 232.1.2.3:7500 --from 10.0.0.1 --into in --once
  faircast recv --listen 0.0.0.0:7500 --into in --key group.key     for send --to
  faircast recv --via 10.1.0.1:7600 --meeting images --into in       through a relay
  faircast recv --group 239.192.7.1:7500 --to-device /dev/sdb --object win11
  faircast recv --group 239.192.7.1:7500 --to-command 'zstd -d | partclone.restore -s - -o /dev/sda1' --object sda1

It stays for further sessions, several at once, unless --once is given. What was received of an
object before a sender or this program went away is kept and need not be sent again. Files appear
under their names once they are whole and compared with their digests. Ctrl-C ends it and tells the
senders; a second Ctrl-C ends it at once.

Exit status: 0 done or ended by Ctrl-C between objects; 1 an object could not be received, or the file
system cannot hold all of it; 2 the arguments are wrong.")]
pub struct RecvArgs {
    /// The multicast group and port to receive, IPv4 or IPv6; a zone names the interface: '[ff12::7%eth0]:7500'
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub group: Option<SocketAddr>,
    /// The address and port to hear, for senders that send to each receiver; with --group both are heard
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "via")]
    pub listen: Option<SocketAddr>,
    /// The folder to put files into; made where it does not exist
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Write one file or image over this block device, or over a file in place, and compare it by
    /// reading back. Needs --object; refused while the device or a partition of it is in use
    #[arg(long, value_name = "DEVICE", requires = "object", conflicts_with_all = ["overwrite", "owner", "xattrs"])]
    pub to_device: Option<PathBuf>,
    /// Note here what is on the device, so that a later run goes on with the rest
    #[arg(long, value_name = "FILE", requires = "to_device")]
    pub journal: Option<PathBuf>,
    /// Give one file or image to this shell command, in order, on its standard input. Needs --object;
    /// its exit status decides. What it prints goes to standard error
    #[arg(long, value_name = "COMMAND", requires = "object", conflicts_with_all = ["overwrite", "owner", "xattrs"])]
    pub to_command: Option<String>,
    /// What other programs have, and is refused with what to do.
    #[arg(long, hide = true)]
    pub to_stdout: bool,
    /// The interface to hear on, by name or address; the system's routes choose where none is given
    #[arg(long, value_name = "IF", requires = "group")]
    pub interface: Option<String>,
    /// Hear this sender alone, by its address; groups in 232.0.0.0/8 and ff3x::/32 need it. A zone names the
    /// interface: 'fe80::1%eth0'
    #[arg(long, value_name = "SOURCE", value_parser = source, conflicts_with = "via")]
    pub from: Option<SocketAddr>,
    /// Take only what its sender calls so: the last name of what it sends, or its --name
    #[arg(long, value_name = "NAME")]
    pub object: Option<String>,
    /// End after one object, which is all that one `faircast send` sends. Objects that had begun by then are
    /// completed, unless their sender is silent for 30 s. Implied by --to-device and --to-command
    #[arg(long, default_value_ifs([
        ("to_device", ArgPredicate::IsPresent, "true"),
        ("to_command", ArgPredicate::IsPresent, "true"),
    ]))]
    pub once: bool,
    /// Fail where nothing has begun to come within so long
    #[arg(long, value_name = "TIME", value_parser = silence)]
    pub wait_max: Option<Duration>,
    /// Fail once no sender was heard, or no network was there, for so long
    #[arg(long, value_name = "TIME", value_parser = silence)]
    pub give_up: Option<Duration>,
    /// Ask the sender for no more than this, such as 10Mbit/s: it obeys for all of its receivers, though not
    /// below its --rate-min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate_max: Option<Bitrate>,
    /// Print the BLAKE3 of every file, however many there are; --json has them all
    #[arg(long)]
    pub list: bool,
    /// Replace files that are there and differ
    #[arg(long)]
    pub overwrite: bool,
    /// Give files, folders and links the owners that the sender tells of with --owner: who has the
    /// same name here, or else the same number. Takes root
    #[arg(long)]
    pub owner: bool,
    /// Give files and folders the extended attributes and access control lists that the sender sends
    /// with --xattrs
    #[arg(long)]
    pub xattrs: bool,
    /// Do not wait for the disk to have written each file: faster, and a crash of the system may
    /// lose files that were called done
    #[arg(long)]
    pub no_sync: bool,
    /// The name to tell the sender; the host's where none is given
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Insist on this scheme: take nothing from a sender that speaks another. Where none is given the
    /// sender is followed; `faircast schemes` lists them
    #[arg(long, value_name = "NAME")]
    pub scheme: Option<String>,
    /// A setting of the scheme, in place of the sender's; may be repeated; `faircast schemes NAME`
    /// lists them
    #[arg(long = "option", alias = "options", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// Whether this receiver repairs for others, where the sender speaks tram: always, where nobody else
    /// does, or never
    #[arg(long, value_name = "ROLE", value_parser = ["eager", "reluctant", "never"])]
    pub head: Option<String>,
    /// Whom this receiver and others have for their repair heads, where the sender speaks tram: a file
    /// with lines `RECEIVER HEAD`, names of receivers (--name) or `sender`
    #[arg(long, value_name = "FILE", requires = "group")]
    pub tree: Option<PathBuf>,
    /// The way to the group.
    #[command(flatten)]
    pub via: ViaOptions,
    /// The key of the group.
    #[command(flatten)]
    pub key: KeyOptions,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
    /// Write a trace of everything to this file; `faircast report FILE` makes a page of it
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
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
