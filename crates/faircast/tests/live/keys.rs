//! Sessions with keys.

use faircast::GroupKey;

use super::*;

fn key(number: u8) -> GroupKey {
    GroupKey::from_bytes([number; 32])
}

#[tokio::test]
async fn with_one_key_files_arrive_and_nothing_can_be_read_on_the_way() {
    let secret = b"the secret that must not be seen on the way ";
    let content = secret.repeat(1000);
    for with_key in [false, true] {
        let (from, into, group) = (tempdir().unwrap(), tempdir().unwrap(), group(11));
        let listener = hearing(&group);
        let file = put(from.path(), "file", &content);
        let mut receiver = Receiver::builder(at(&group), into.path()).once(true);
        let mut sender = Sender::builder(to(&group));
        if with_key {
            (receiver, sender) = (receiver.key(key(1)), sender.key(key(1)));
        }
        let mut receiver = receiver.receive().unwrap();
        let mut sender = sender.send(&[&file]).unwrap();
        let last = succeeds(&mut sender).await;
        assert_eq!(last.refusals.total(), 0, "{last:?}");
        whole(&mut receiver).await;
        assert_eq!(std::fs::read(into.path().join("file")).unwrap(), content);
        let (mut heard, mut seen, mut buffer) = (0, 0, [0; 2048]);
        while let Ok(len) = listener.recv(&mut buffer) {
            heard += 1;
            seen += u32::from(buffer[..len].windows(secret.len()).any(|run| run == secret));
        }
        assert!(heard > 0 && (seen > 0) != with_key, "{seen} of {heard}");
    }
}

#[tokio::test]
async fn ends_with_different_keys_are_both_told() {
    for (number, (ours, theirs)) in
        [(Some(1), Some(2)), (Some(1), None), (None, Some(2))].into_iter().enumerate()
    {
        let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
        let group = group(12 + number as u8);
        let file = put(from.path(), "file", b"x");
        let mut builder = Receiver::builder(at(&group), into.path());
        if let Some(theirs) = theirs {
            builder = builder.key(key(theirs));
        }
        let receiver = builder.receive().unwrap();
        let mut builder = Sender::builder(to(&group));
        if let Some(ours) = ours {
            builder = builder.key(key(ours));
        }
        let sender = builder.send(&[&file]).unwrap();
        let mut status = receiver.status();
        let at_receiver = soon(status.wait_for(|status| status.mismatch.is_some())).await;
        let at_receiver = at_receiver.unwrap().mismatch.unwrap();
        let mut status = sender.status();
        let at_sender = soon(status.wait_for(|status| status.mismatch.is_some())).await;
        let at_sender = at_sender.unwrap().mismatch.unwrap();
        assert_eq!(at_receiver.ours, at_sender.theirs);
        assert_eq!(at_receiver.theirs, at_sender.ours);
        sender.abort();
    }
}
