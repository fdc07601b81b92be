use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{OutboxBounds, OutboxFull, outbox};

#[test]
fn queue_is_bounded_in_messages() {
    let (outbox, mut waiting) = outbox(OutboxBounds { messages: 2, bytes: 100 }, room(100));
    assert_eq!(
        [outbox.offer(b"a"), outbox.offer(b""), outbox.offer(b"c")],
        [Ok(()), Ok(()), Err(OutboxFull)]
    );
    assert_eq!(waiting.try_recv().unwrap().bytes, "a");
    assert_eq!(outbox.offer(b"d"), Ok(()));
}

#[test]
fn queue_is_bounded_in_bytes_and_a_dropped_envelope_frees_its_room() {
    let (outbox, mut waiting) = outbox(OutboxBounds { messages: 9, bytes: 10 }, room(100));
    assert_eq!(outbox.offer(&[0; 7]), Ok(()));
    assert_eq!(outbox.offer(&[0; 4]), Err(OutboxFull));
    let parcel = waiting.try_recv().unwrap();
    assert_eq!(outbox.offer(&[0; 4]), Err(OutboxFull), "it is still being written");
    drop(parcel);
    assert_eq!(outbox.offer(&[0; 10]), Ok(()));
}

#[test]
fn all_queues_together_are_bounded_in_bytes() {
    let shared = room(10);
    let capacity = OutboxBounds { messages: 9, bytes: 10 };
    let (one, one_waiting) = outbox(capacity, Arc::clone(&shared));
    let (other, _other_waiting) = outbox(capacity, Arc::clone(&shared));
    assert_eq!(one.offer(&[0; 6]), Ok(()));
    assert_eq!(other.offer(&[0; 6]), Err(OutboxFull));
    drop(one_waiting);
    assert_eq!(other.offer(&[0; 6]), Ok(()), "a dropped queue holds nothing");
    assert_eq!(one.offer(b"x"), Err(OutboxFull), "its receiver is gone");
    assert_eq!(shared.available_permits(), 4);
}

fn room(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes))
}
