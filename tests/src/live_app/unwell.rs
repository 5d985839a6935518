//! What may be at the port of an application while that starts, ends or is ill: nothing there can be used.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::bind;

/// What becomes of those who come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Illness {
    /// Their connections are taken, and nothing more comes of it.
    Silent,
    /// They have their WebSocket, and no message is ever answered.
    Mute,
    /// Their connections are reset.
    Resets,
    /// Their requests for a WebSocket are answered with this status of HTTP.
    Refuses(u16),
}

/// Something that listens at the port of an application and is of no use.
#[derive(Debug)]
pub struct UnwellApp {
    port: u16,
    met: Arc<AtomicUsize>,
    is_closed: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl UnwellApp {
    /// Listens there.
    ///
    /// # Panics
    ///
    /// When it cannot.
    pub fn start(port: u16, illness: Illness) -> Self {
        let listener = bind(port);
        let (met, is_closed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, is_over) = (Arc::clone(&met), Arc::clone(&is_closed));
        let listening = thread::spawn(move || listen(&listener, illness, &counted, &is_over));
        Self { port, met, is_closed, listening: Some(listening) }
    }

    /// How many have come.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

impl Drop for UnwellApp {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // It waits for a connection, and this is the last one.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(listening) = self.listening.take() {
            listening.join().expect("it does not panic");
        }
    }
}

fn listen(listener: &TcpListener, illness: Illness, met: &AtomicUsize, is_closed: &AtomicBool) {
    // They end with this.
    let mut held = Vec::new();
    while let Ok((mut stream, _)) = listener.accept() {
        if is_closed.load(Ordering::SeqCst) {
            return;
        }
        met.fetch_add(1, Ordering::SeqCst);
        // One that says nothing must not keep others out.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        match illness {
            Illness::Silent => held.push(stream),
            Illness::Mute => {
                let opened = stream.try_clone().map(tungstenite::accept);
                if opened.is_ok_and(|opened| opened.is_ok()) {
                    held.push(stream);
                }
            }
            // It is closed with what they said unread.
            Illness::Resets => drop(stream.peek(&mut [0])),
            Illness::Refuses(status) => {
                let answer = format!(
                    "HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                // What is unread when it is closed would reset the connection before the answer is read.
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    }
}
