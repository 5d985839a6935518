//! What the connections of an application stand on, and how they are ended from outside.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use rustls::{ServerConnection, StreamOwned};

/// A connection that can be ended from outside.
pub(super) trait Ending: Send + std::fmt::Debug {
    fn end(&self);

    /// Closes a WebSocket in order, with the code 1000.
    fn evict(&self) {
        self.end();
    }
}

impl Ending for TcpStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    fn evict(&self) {
        let mut stream = self;
        let _ = stream.write_all(&[0x88, 2, 0x03, 0xe8]);
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Ending for UnixStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// What a connection stands on.
pub(super) trait Duplex: Read + Write + Send + 'static {
    fn ending(&self) -> Box<dyn Ending>;
}

impl Duplex for TcpStream {
    fn ending(&self) -> Box<dyn Ending> {
        Box::new(self.try_clone().expect("a descriptor"))
    }
}

impl Duplex for StreamOwned<ServerConnection, TcpStream> {
    fn ending(&self) -> Box<dyn Ending> {
        self.sock.ending()
    }
}

impl Duplex for UnixStream {
    fn ending(&self) -> Box<dyn Ending> {
        Box::new(self.try_clone().expect("a descriptor"))
    }
}
