//! A proxy as companies have it: it takes `CONNECT`, and nothing else, and leads every host to one place of the loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy that runs until the test ends.
#[derive(Debug)]
pub struct ConnectProxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where every host is.
    to: u16,
    /// What a client has to show as `Proxy-Authorization`.
    credentials: Option<String>,
    /// The hosts that were asked for.
    asked: Mutex<Vec<String>>,
}

impl ConnectProxy {
    /// Starts one that leads to this port. With credentials (`Basic ...`) it wants to be shown them.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(to: u16, credentials: Option<&str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (credentials, asked) = (credentials.map(str::to_owned), Mutex::default());
        let shared = Arc::new(Shared { to, credentials, asked });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Self { port, shared }
    }

    /// Where it is, as `HTTPS_PROXY` has it, without who may use it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The hosts that were asked for, each once.
    ///
    /// # Panics
    ///
    /// When a thread of it has.
    pub fn asked(&self) -> Vec<String> {
        let mut asked = self.shared.asked.lock().expect("no thread panics with it").clone();
        asked.dedup();
        asked
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(client.try_clone()?).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut shown = None;
        for line in lines.by_ref() {
            let line = line?;
            match line.split_once(": ") {
                Some(("Proxy-Authorization", value)) => shown = Some(value.to_owned()),
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let words: Vec<_> = first.split(' ').collect();
        let ["CONNECT", host, "HTTP/1.1"] = words[..] else {
            return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
        };
        self.asked.lock().expect("no thread panics with it").push(host.to_owned());
        if self.credentials.is_some() && shown != self.credentials {
            return client.write_all(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 4\r\n\r\nwho?",
            );
        }
        let Ok(mut app) = TcpStream::connect(("127.0.0.1", self.to)) else {
            return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
        };
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        let (mut from_client, mut to_app) = (client.try_clone()?, app.try_clone()?);
        let there = thread::spawn(move || {
            drop(std::io::copy(&mut from_client, &mut to_app));
            drop(to_app.shutdown(Shutdown::Write));
        });
        drop(std::io::copy(&mut app, &mut client));
        drop(client.shutdown(Shutdown::Write));
        drop(there.join());
        Ok(())
    }
}
