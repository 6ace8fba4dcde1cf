//! Copies over TCP, which multicast replaces: one for each receiver, all at the same time.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(super) sender: Ipv4Addr,
    pub(super) port: u16,
    /// What to send, or where to write it.
    pub(super) file: PathBuf,
    pub(super) receivers: u32,
}

/// How long a receiver tries to reach the sender.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Sends the file to all receivers at once, when all have come.
pub(super) fn send(end: &End) -> Result<(), Error> {
    let listener = TcpListener::bind((end.sender, end.port)).map_err(failed)?;
    let all: io::Result<Vec<TcpStream>> =
        (0..end.receivers).map(|_| listener.accept().map(|(stream, _)| stream)).collect();
    let all = all.map_err(failed)?;
    std::thread::scope(|scope| {
        let copies: Vec<_> =
            all.into_iter().map(|stream| scope.spawn(|| copy(&end.file, stream))).collect();
        let ended = copies.into_iter().map(|copy| copy.join().expect("copying does not panic"));
        ended.collect::<io::Result<()>>()
    })
    .map_err(failed)
}

fn copy(file: &Path, mut stream: TcpStream) -> io::Result<()> {
    io::copy(&mut File::open(file)?, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    // The other side closes when it has written everything.
    io::copy(&mut stream, &mut io::sink()).map(|_| ())
}

pub(super) fn receive(end: &End) -> Result<(), Error> {
    let deadline = Instant::now() + WAIT_MAX;
    let mut stream = loop {
        match TcpStream::connect((end.sender, end.port)) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => return Err(failed(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut file = File::create(&end.file).map_err(failed)?;
    io::copy(&mut stream, &mut file).and_then(|_| file.flush()).map_err(failed)
}

fn failed(error: io::Error) -> Error {
    Error::doing("the copies over TCP", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_receiver_gets_its_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let content: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
        std::fs::write(&file, &content).unwrap();
        let sender = Ipv4Addr::LOCALHOST;
        let port = TcpListener::bind((sender, 0)).unwrap().local_addr().unwrap().port();
        let end = End { sender, port, file, receivers: 3 };
        let copies: Vec<PathBuf> = (0..3).map(|i| folder.path().join(format!("{i}"))).collect();
        std::thread::scope(|scope| {
            for copy in &copies {
                let end = End { file: copy.clone(), ..end.clone() };
                scope.spawn(move || assert!(receive(&end).is_ok()));
            }
            assert!(send(&end).is_ok());
        });
        for copy in copies {
            assert!(std::fs::read(copy).unwrap() == content);
        }
    }
}
