//! The same application when it comes to a bridge by itself.

use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};

use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::HeaderName;

use super::{Deeds, Manner, Shared, serve_frames};

/// An application that has come to a bridge by itself.
#[derive(Debug)]
pub struct ComingApp {
    stream: TcpStream,
    serving: JoinHandle<Option<u16>>,
}

impl ComingApp {
    /// Comes to a bridge that waits at this address, with these headers.
    ///
    /// # Errors
    ///
    /// When the bridge does not let it in, or none is there.
    ///
    /// # Panics
    ///
    /// When a header is none.
    pub fn come(
        port: u16,
        headers: &[(&str, &str)],
        manner: Manner,
        deeds: &Deeds,
    ) -> tungstenite::Result<Self> {
        let mut request = format!("ws://127.0.0.1:{port}/").into_client_request()?;
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        let connection = TcpStream::connect(("127.0.0.1", port))?;
        let stream = connection.try_clone()?;
        let opened = tungstenite::client(request, connection);
        let (mut socket, _) = opened.map_err(|error| match error {
            HandshakeError::Failure(error) => error,
            HandshakeError::Interrupted(_) => unreachable!("the socket blocks"),
        })?;
        let shared = Shared::new(manner.clone(), deeds);
        let serving = thread::spawn(move || serve_frames(&shared, &mut socket, &manner));
        Ok(Self { stream, serving })
    }

    /// Goes away without a word.
    pub fn go(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let _ = self.serving.join();
    }

    /// Waits until it is sent away, and gives the code.
    ///
    /// # Panics
    ///
    /// When it panicked.
    pub fn sent_away(self) -> Option<u16> {
        self.serving.join().expect("it does not panic")
    }
}
