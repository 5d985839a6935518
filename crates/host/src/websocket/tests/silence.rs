//! Clients that do not read, or say nothing: with a clock that stands still, on a line that holds little.

use std::sync::Arc;

use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::super::FrameQueue;
use super::super::connection::{Service, serve};
use super::*;
use crate::tools::Tools;

/// A client with a line of this length, and the task that serves it.
async fn rig(tools: &Toolset, bytes: usize) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (near, far) = duplex(bytes);
    let far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    let tools = Tools::new(std::slice::from_ref(tools)).unwrap();
    let (stop, runtime) = (CancellationToken::new(), tokio::runtime::Handle::current());
    let service = Service { name: "tested".into(), tools, stop, runtime };
    let (_, changes) = watch::channel(0);
    (near, tokio::spawn(serve(far, service, changes)))
}

/// A call of `echo`, as a frame of a client whose mask is zero.
fn call(id: u32) -> Vec<u8> {
    let text = format!(
        r#"{{"id":{id},"method":"tools/call","params":{{"name":"long","arguments":{{}}}}}}"#
    );
    [&[0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0], text.as_bytes()].concat()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_let_go() {
    let long = Tool::new("long", |(), _| async { "x".repeat(1 << 20) });
    let (mut client, serving) = rig(&Toolset::new().with(long).unwrap(), 1024).await;
    client.write_all(&call(1)).await.unwrap();
    let before = tokio::time::Instant::now();
    serving.await.unwrap();
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(30) && took <= Duration::from_secs(61), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not() {
    let long = Tool::new("long", |(), _| async { "x".repeat(1 << 16) });
    let (mut client, serving) = rig(&Toolset::new().with(long).unwrap(), 64 * 1024).await;
    for id in 0..20 {
        client.write_all(&call(id)).await.unwrap();
    }
    let mut bytes = vec![0; 64 * 1024];
    let mut left: usize = 20 * (1 << 16);
    let slowly = Duration::from_secs(20);
    while left > 0 {
        tokio::time::advance(slowly).await;
        left = left.saturating_sub(client.read(&mut bytes).await.unwrap());
        assert!(!serving.is_finished());
    }
    drop(client);
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_asked_and_then_let_go() {
    let (mut client, serving) = rig(&echo(), 1024).await;
    let before = tokio::time::Instant::now();
    let mut ping = [0; 2];
    client.read_exact(&mut ping).await.unwrap();
    assert_eq!((ping, before.elapsed().as_secs()), ([0x89, 0], 30));
    // It answers once, and then no more, in the middle of a frame.
    client.write_all(b"\x8a\x80\0\0\0\0\x81").await.unwrap();
    serving.await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 180);
}

#[test]
fn only_so_much_waits_for_a_client() {
    let queue = Arc::new(FrameQueue::default());
    let long = Bytes::from(vec![b'x'; 32 << 20]);
    for _ in 0..8 {
        queue.push(long.clone());
        assert!(queue.is_full() && !queue.is_over());
    }
    queue.push_if_idle(long.clone());
    assert!(!queue.is_over());
    queue.push(long);
    assert!(queue.is_over() && queue.is_empty());
    queue.push(Bytes::from_static(b"{}"));
    assert!(queue.is_empty());
}
