//! Sends files from one end of this process to the other, over the loopback interface.
//!
//! ```sh
//! cargo run -p faircast --example send_files -- Cargo.toml
//! ```

use faircast::{Interface, Listen, Multicast, ReceiveOutcome, Receiver, Sender, Target};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        paths.push(std::env::current_exe()?.display().to_string());
    }
    let into = std::env::temp_dir().join(format!("faircast-example-{}", std::process::id()));
    let mut group = Multicast::new("239.192.7.1:7511".parse()?);
    group.interfaces = vec![Interface::Name("lo".to_string())];

    let listen = Listen::Multicast(group.clone());
    let mut receiver = Receiver::builder(listen, &into).name("example").once(true).receive()?;
    let mut sender = Sender::builder(Target::Multicast(group)).wait_for(1).send(&paths)?;

    let last = sender.finish().await?;
    for member in &last.members {
        println!("{} is {:?}", member.label(), member.state);
    }
    while let Some(received) = receiver.next().await {
        match received.outcome {
            ReceiveOutcome::Complete { files } => {
                for file in files {
                    println!("{} ({} bytes)", file.path.display(), file.bytes);
                }
            }
            other => println!("not received: {other:?}"),
        }
    }
    std::fs::remove_dir_all(&into)?;
    if last.succeeded() { Ok(()) } else { Err("not everybody has everything".into()) }
}
