//! `faircast pub` and `faircast sub`: groups of the overlay for shells.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write};
use std::path::Path;
use std::time::Duration;

use faircast::groups::{
    Benefit, Client, ClientOptions, GroupError, GroupEvent, GroupMember, GroupMessage,
    MESSAGE_BYTES_MAX, Reason,
};
use faircast_base::escaped_lines;
use faircast_net::random;
use faircast_seal::{Exposure, open_private};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::args::{ConnectOptions, PubArgs, SubArgs};
use crate::error::{Failure, Result, note, print};
use crate::interrupt::{listen, until_interrupted};
use crate::live;
use crate::live::words::hex;

const READ_AHEAD_MAX: usize = 64;

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Usage(text) => Self::Usage(text),
            other => Self::Work(other.to_string()),
        }
    }
}

async fn connect(options: &ConnectOptions, verb: &str, benefit: Option<Benefit>) -> Result<Client> {
    let name = options.name.clone().unwrap_or_else(|| format!("{verb}-{:016x}", random()));
    let mut choices = ClientOptions::default();
    choices.benefit = benefit;
    choices.token = options.token_file.as_deref().map(token).transpose()?;
    choices.server_ca.clone_from(&options.ca);
    choices.certificate = options.certificate.clone().zip(options.certificate_key.clone());
    Ok(Client::connect_with(&options.connect, &name, choices).await?)
}

fn token(file: &Path) -> Result<String> {
    let opened = open_private(file, Exposure::Refuse);
    let opened = opened.map_err(Failure::usage)?;
    let wrong = |error: &dyn Display| Failure::Usage(format!("{}: {error}", file.display()));
    let text = io::read_to_string(opened).map_err(|error| wrong(&error))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let found = lines.find_map(|line| line.split_whitespace().last());
    found.map(String::from).ok_or_else(|| wrong(&"no token"))
}

pub(crate) fn publish(args: &PubArgs) -> Result {
    if args.receipts && !args.service.is_ordered() {
        let text = "--receipts: expected --service causal, agreed or safe".to_string();
        return Err(Failure::Usage(text));
    }
    listen();
    live::runtime()?.block_on(async {
        let client = connect(&args.to, "pub", args.benefit).await?;
        let receipts = watch::Sender::new(0);
        // Biased: events that arrive with the last answer are reported before the end.
        let done = tokio::select! {
            biased;
            failed = watch_events(args, &client, &receipts) => Err(failed),
            done = send_all(args, &client, &receipts) => done,
            () = until_interrupted() => {
                Err(Failure::work("interrupted: not all messages were sent"))
            }
        };
        client.close().await;
        done
    })
}

async fn send_all(args: &PubArgs, client: &Client, receipts: &watch::Sender<u64>) -> Result {
    let mut sent = 0;
    let mut messages = read_ahead(args.binary);
    let mut pace = args.rate.map(|rate| {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    });
    while let Some(message) = messages.recv().await {
        let message = message.map_err(|error| Failure::Work(format!("standard input: {error}")))?;
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        if args.receipts {
            client.send_for_receipt(args.service, &[&args.group], message).await?;
            sent += 1;
        } else {
            client.send(args.service, &[&args.group], message).await?;
        }
    }
    client.flush().await?;
    let _ = receipts.subscribe().wait_for(|count| *count >= sent).await;
    Ok(())
}

async fn watch_events(args: &PubArgs, client: &Client, receipts: &watch::Sender<u64>) -> Failure {
    loop {
        match client.next().await {
            Ok(GroupEvent::Receipt { members, .. }) => {
                receipts.send_modify(|count| *count += 1);
                if let Err(failed) = print(&format!("{members}\n")) {
                    return failed;
                }
            }
            Ok(GroupEvent::NoMembers { groups, .. }) => {
                let names: Vec<&str> = groups.iter().map(|name| &**name).collect();
                note(&format!("nobody gets the messages: no members in {}", names.join(", ")));
            }
            Ok(GroupEvent::Restarted { .. }) if args.receipts => {
                return Failure::work("the daemon has started again: receipts are lost");
            }
            Ok(GroupEvent::Refused { reason, .. }) => return Failure::work(reason),
            Ok(GroupEvent::Disconnected { reason }) => note(&disconnected(&reason)),
            Ok(GroupEvent::Restarted { unsure }) if unsure > 0 => {
                note(&format!("the daemon has started again: {unsure} messages may be lost"));
            }
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

fn disconnected(reason: &str) -> String {
    format!("the connection to the daemon is lost: {reason}; trying again until Ctrl-C")
}

fn read_ahead(binary: bool) -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, messages) = mpsc::channel(READ_AHEAD_MAX);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let message = if binary { read_frame(&mut input) } else { read_line(&mut input) };
            let Some(message) = message.transpose() else { return };
            let failed = message.is_err();
            if sender.blocking_send(message).is_err() || failed {
                return;
            }
        }
    });
    messages
}

fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(MESSAGE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a line has more than 16 MB"));
    }
    Ok((read > 0).then_some(line))
}

fn read_frame(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    if input.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::other(format!("a message of {len} bytes; allowed: 16 MB")));
    }
    let mut message = Vec::new();
    match input.take(len as u64).read_to_end(&mut message)? {
        read if read < len => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(Some(message)),
    }
}

pub(crate) fn subscribe(args: &SubArgs) -> Result {
    listen();
    live::runtime()?.block_on(async {
        let client = connect(&args.to, "sub", None).await?;
        for group in &args.groups {
            if args.hold_senders {
                client.join_and_hold_senders(group).await?;
            } else {
                client.join(group).await?;
            }
        }
        let done = tokio::select! {
            done = print_all(args, &client) => done,
            () = until_interrupted() => Ok(()),
        };
        client.close().await;
        done
    })
}

async fn print_all(args: &SubArgs, client: &Client) -> Result {
    let mut out = Printer { out: io::BufWriter::new(io::stdout()), args };
    let mut left = args.count;
    loop {
        let event = match tokio::time::timeout(Duration::ZERO, client.next()).await {
            Ok(event) => event?,
            Err(_) => {
                if out.write(|out| out.flush())? {
                    return Ok(());
                }
                client.next().await?
            }
        };
        let is_message = matches!(event, GroupEvent::Message(_));
        if out.print(event)? {
            return Ok(());
        }
        if let Some(left) = left.as_mut().filter(|_| is_message) {
            *left -= 1;
            if *left == 0 {
                return out.write(|out| out.flush()).map(|_| ());
            }
        }
    }
}

struct Printer<'a> {
    out: io::BufWriter<io::Stdout>,
    args: &'a SubArgs,
}

impl Printer<'_> {
    /// Writes; true if the reader of the standard output has gone.
    fn write(
        &mut self,
        write: impl FnOnce(&mut io::BufWriter<io::Stdout>) -> io::Result<()>,
    ) -> Result<bool> {
        match write(&mut self.out) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
            Err(error) => Err(Failure::Work(format!("standard output: {error}"))),
        }
    }

    /// Prints an event; true if the reader of the standard output has gone.
    fn print(&mut self, event: GroupEvent) -> Result<bool> {
        if self.args.json {
            let line = escaped_lines(&json_of(event).to_string()).into_owned();
            return self.write(|out| writeln!(out, "{line}"));
        }
        match event {
            GroupEvent::Message(GroupMessage { payload, .. }) => {
                let (is_binary, is_terminal) = (self.args.binary, io::stdout().is_terminal());
                return self.write(|out| {
                    if is_binary {
                        out.write_all(&(payload.len() as u32).to_be_bytes())?;
                        return out.write_all(&payload);
                    }
                    if is_terminal {
                        // Control characters must not move the terminal's cursor.
                        let text = String::from_utf8_lossy(&payload);
                        return writeln!(out, "{}", escaped_lines(&text));
                    }
                    out.write_all(&payload)?;
                    out.write_all(b"\n")
                });
            }
            GroupEvent::Refused { reason, .. } => return Err(Failure::work(reason)),
            GroupEvent::Cut { lost: (first, last) } => {
                note(&format!("this client was too slow: events {first} to {last} are lost"));
            }
            GroupEvent::Disconnected { reason } => note(&disconnected(&reason)),
            GroupEvent::Restarted { .. } => {
                note("the daemon has started again: messages may be lost");
            }
            _ => {}
        }
        Ok(false)
    }
}

fn json_of(event: GroupEvent) -> Value {
    let daemon = |id: u64| format!("{id:016x}");
    let member = |it: &GroupMember| json!({ "name": &*it.name, "daemon": daemon(it.daemon), "incarnation": it.incarnation });
    let daemons = |all: &[u64]| all.iter().copied().map(daemon).collect::<Vec<_>>();
    match event {
        GroupEvent::Message(message) => {
            let mut json = json!({
                "event": "message",
                "from": member(&message.from),
                "service": message.service.name(),
                "groups": message.groups.iter().map(|name| &**name).collect::<Vec<_>>(),
                "view": message.view.to_string(),
            });
            match std::str::from_utf8(&message.payload) {
                Ok(text) => json["text"] = text.into(),
                Err(_) => json["hex"] = hex(&message.payload).into(),
            }
            json
        }
        GroupEvent::Group { group, members, reason, subject, view } => json!({
            "event": "group",
            "group": &*group,
            "members": members.iter().map(member).collect::<Vec<_>>(),
            "reason": match reason {
                Reason::Join => "join",
                Reason::Leave => "leave",
                Reason::Disconnect => "disconnect",
                Reason::Network => "network",
            },
            "subject": subject.as_ref().map(member),
            "view": view.to_string(),
        }),
        GroupEvent::Transitional { closes, members } => {
            json!({ "event": "transitional", "closes": closes.to_string(), "members": daemons(&members) })
        }
        GroupEvent::View { id, members, together, previous } => {
            let member = |(id, name): (u64, String)| json!({ "daemon": daemon(id), "name": name });
            json!({
                "event": "view",
                "id": id.to_string(),
                "members": members.into_iter().map(member).collect::<Vec<_>>(),
                "together": daemons(&together),
                "previous": previous.map(|it| it.to_string()),
            })
        }
        GroupEvent::Cut { lost } => json!({ "event": "cut", "lost": lost }),
        GroupEvent::Disconnected { reason } => {
            json!({ "event": "disconnected", "reason": reason })
        }
        GroupEvent::Resumed => json!({ "event": "resumed" }),
        GroupEvent::Restarted { unsure } => json!({ "event": "restarted", "unsure": unsure }),
        GroupEvent::Refused { request, reason } => {
            json!({ "event": "refused", "request": request, "text": reason.to_string() })
        }
        GroupEvent::Receipt { request, members, view } => {
            json!({ "event": "receipt", "request": request, "members": members, "view": view.to_string() })
        }
        GroupEvent::NoMembers { request, groups } => json!({
            "event": "no-members",
            "request": request,
            "groups": groups.iter().map(|name| &**name).collect::<Vec<_>>(),
        }),
        _ => json!({ "event": "other" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_framed_messages_are_read_whole() {
        let mut input = &b"one\n\nthree"[..];
        let mut lines = std::iter::from_fn(|| read_line(&mut input).unwrap());
        assert_eq!(
            [lines.next(), lines.next(), lines.next()].map(|it| it.unwrap().len()),
            [3, 0, 5]
        );
        assert!(lines.next().is_none());
        let mut input = &b"\0\0\0\x03one\0\0\0\0\0\0\0\x09cut"[..];
        assert_eq!(read_frame(&mut input).unwrap(), Some(b"one".to_vec()));
        assert_eq!(read_frame(&mut input).unwrap(), Some(Vec::new()));
        assert_eq!(read_frame(&mut input).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read_frame(&mut &b"\xff\0\0\0"[..]).unwrap_err().to_string().contains("16 MB"));
        assert_eq!(read_frame(&mut &b""[..]).unwrap(), None);
    }
}
