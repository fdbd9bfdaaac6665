use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::*;

/// A descriptor that counts for nothing.
fn vacancy() -> Vacancy {
    Vacancy(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap())
}

#[tokio::test]
async fn a_connection_that_was_closed_has_its_place_until_its_descriptor_is_closed() {
    let connections = Connections::new(1);
    let mut open = Vec::new();
    for pid in 0..=MAX_CLOSING as u32 {
        let (vacancy, (_, stream)) = (connections.vacancy().await, UnixStream::pair().unwrap());
        open.push(connections.admit(vacancy, stream, Some(pid), Activity::new(), Listeners::default()).unwrap());
    }
    assert_eq!((connections.count(), open.len()), (1, 1 + MAX_CLOSING));
    let next = connections.vacancy();
    tokio::pin!(next);
    assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut next).await.is_err(), "one descriptor too many");
    open.remove(0);
    next.await;
}

#[tokio::test]
async fn a_connection_that_is_not_read_ends_when_it_is_closed() {
    let (mut client, stream) = UnixStream::pair().unwrap();
    let connections = Connections::new(1);
    let (mut tracked, connection) =
        connections.admit(vacancy(), stream, None, Activity::new(), Listeners::default()).unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(connection);
    let _calls: Vec<Call> = (0..MAX_CALLS).map(|_| Call::of(&extensions).unwrap()).collect();
    client.write_all(b"one more").await.unwrap();
    let read = tokio::spawn(async move { tracked.read(&mut [0; 8]).await });
    tokio::task::yield_now().await;
    connections.close_all();
    assert_eq!(read.await.unwrap().unwrap(), 0, "its calls are still under way");
}

#[tokio::test]
async fn a_connection_with_too_many_calls_under_way_is_read_again_once_one_is_answered() {
    let (mut client, stream) = UnixStream::pair().unwrap();
    let (mut tracked, connection) =
        Connections::new(1).admit(vacancy(), stream, None, Activity::new(), Listeners::default()).unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(connection);
    let mut calls: Vec<Call> = (0..MAX_CALLS).map(|_| Call::of(&extensions).unwrap()).collect();
    client.write_all(b"one more").await.unwrap();
    let (sender, mut read) = oneshot::channel();
    tokio::spawn(async move {
        let mut bytes = [0; 8];
        tracked.read_exact(&mut bytes).await.unwrap();
        sender.send(bytes)
    });
    // The bytes are there, and the reader has had its chance to take them.
    tokio::task::yield_now().await;
    client.writable().await.unwrap();
    tokio::task::yield_now().await;
    assert!(read.try_recv().is_err(), "read although nothing was answered");
    calls.pop();
    assert_eq!(&read.await.unwrap(), b"one more");
}

#[tokio::test]
async fn a_connection_without_a_call_is_read_however_many_calls_others_have() {
    let (mut client, stream) = UnixStream::pair().unwrap();
    let connections = Connections::new(100);
    let (mut tracked, connection) =
        connections.admit(vacancy(), stream, None, Activity::new(), Listeners::default()).unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(connection);
    let call = Call::of(&extensions).unwrap();
    connections.inner.calls.fetch_add(MAX_CALLS_IN_ALL + 10, Ordering::AcqRel);
    client.write_all(b"one more").await.unwrap();
    let read = tokio::spawn(async move {
        let mut bytes = [0; 8];
        tracked.read_exact(&mut bytes).await.map(|_| bytes)
    });
    tokio::task::yield_now().await;
    assert!(!read.is_finished(), "read although there are too many calls");
    drop(call);
    assert_eq!(&read.await.unwrap().unwrap(), b"one more");
}

/// Connections of these processes, in this order, and what each is doing.
fn open(connections: &Connections, pids: &[u32], busy: bool) -> Vec<(TrackedStream, Option<Call>)> {
    let open = |pid: &u32| {
        let (_, stream) = UnixStream::pair().unwrap();
        let (tracked, connection) =
            connections.admit(vacancy(), stream, Some(*pid), Activity::new(), Listeners::default()).expect("room");
        let mut extensions = Extensions::new();
        extensions.insert(connection);
        (tracked, busy.then(|| Call::of(&extensions).unwrap()))
    };
    pids.iter().map(open).collect()
}

fn pids(connections: &Connections) -> Vec<u32> {
    let mut pids: Vec<u32> = connections.lock().values().filter_map(|connection| connection.pid).collect();
    pids.sort_unstable();
    pids
}

#[tokio::test]
async fn there_are_never_more_connections_than_the_limit_and_the_greediest_process_loses_first() {
    let connections = Connections::new(5);
    let _waits = open(&connections, &[1, 2, 2, 2], true);
    let _idle = open(&connections, &[3], false);
    let _newcomers = open(&connections, &[4, 5, 6], true);
    assert_eq!(pids(&connections), [1, 2, 4, 5, 6], "the unused one, then one after the other of process 2");
    let (_, stream) = UnixStream::pair().unwrap();
    assert!(connections.admit(vacancy(), stream, Some(7), Activity::new(), Listeners::default()).is_none());
    assert_eq!(pids(&connections), [1, 2, 4, 5, 6], "nobody's only wait is ended for a newcomer");
}

#[tokio::test]
async fn a_process_that_takes_all_connections_pays_with_its_own() {
    let connections = Connections::new(FAIR_SHARE + 10);
    let _waits = open(&connections, &[1, 2, 3], true);
    let _greedy = open(&connections, &[9; 2 * FAIR_SHARE], true);
    let _newcomers = open(&connections, &[4, 5], true);
    let others: Vec<u32> = pids(&connections).into_iter().filter(|pid| *pid != 9).collect();
    assert_eq!((others, connections.count()), (vec![1, 2, 3, 4, 5], FAIR_SHARE + 10));
}
