//! Chat in a group of the overlay: `chat NAME [ADDRESS]`, such as `chat alice tcp:127.0.0.1:4803`.

use faircast::groups::{Client, GroupError, GroupEvent, Service};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("expected a name")?;
    let address = args.next().unwrap_or("tcp:127.0.0.1:4803".into());
    let client = Client::connect(&address, &name).await?;
    client.join("chat").await?;
    // Concurrent: a client that sends must take its events, too.
    tokio::select! { done = send_all(&client) => done?, failed = print_all(&client) => failed? }
    client.close().await;
    Ok(())
}

async fn send_all(client: &Client) -> Result<(), GroupError> {
    let (typed, mut lines) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|it| typed.blocking_send(it))
    });
    while let Some(line) = lines.recv().await {
        client.send(Service::Agreed, &["chat"], line).await?;
    }
    client.flush().await
}

async fn print_all(client: &Client) -> Result<(), GroupError> {
    loop {
        match client.next().await? {
            GroupEvent::Message(it) => {
                println!("{}: {}", it.from, String::from_utf8_lossy(&it.payload))
            }
            GroupEvent::Group { members, .. } => println!("in the chat: {}", members.len()),
            GroupEvent::View { .. } => {}
            other => eprintln!("{other:?}"),
        }
    }
}
