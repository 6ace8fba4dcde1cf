//! Sends messages to two receivers of this process, over the loopback interface.
//!
//! ```sh
//! cargo run -p faircast --example messages
//! ```

use faircast::{GroupKey, Interface, Listen, MessageReceiver, MessageSender, Multicast, Target};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut group = Multicast::new("239.192.7.1:7512".parse()?);
    group.interfaces = vec![Interface::Name("lo".to_string())];
    let key = GroupKey::random()?;

    let listen = || Listen::Multicast(group.clone());
    let mut first = MessageReceiver::builder(listen()).key(key.clone()).start()?;
    let mut second = MessageReceiver::builder(listen()).key(key.clone()).start()?;
    let mut sender = MessageSender::builder(Target::Multicast(group.clone())).key(key).start()?;

    for number in 1..=3 {
        sender.send(format!("message {number}").as_bytes()).await?;
    }
    for (name, receiver) in [("first", &mut first), ("second", &mut second)] {
        for _ in 1..=3 {
            let message = receiver.next().await.ok_or("the sender ended too early")??;
            println!("{name}: {}", String::from_utf8_lossy(&message));
        }
    }
    let last = sender.finish().await?;
    println!("{} messages in {} bytes", last.packets, last.bytes);
    Ok(())
}
