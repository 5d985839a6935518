//! A client of either era, with headers of its own: for tests that hold for everybody.

use serde_json::Value;

use super::mcp::{Endpoint, Legacy, Modern, Speaker};
use super::{Connection, Request, Response};

/// The two eras of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With sessions.
    Legacy,
    /// Without.
    Modern,
}

/// Both of them.
pub const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

/// A client of one era that a test need not know.
#[derive(Debug)]
pub struct Client {
    spoken: Spoken,
    headers: Vec<(String, String)>,
}

#[derive(Debug)]
enum Spoken {
    Legacy(Legacy),
    Modern(Modern),
}

impl Client {
    /// A client of this era.
    ///
    /// # Panics
    ///
    /// When its handshake fails.
    pub fn new(era: Era, endpoint: &Endpoint) -> Self {
        let spoken = match era {
            Era::Legacy => Spoken::Legacy(Legacy::open(endpoint)),
            Era::Modern => Spoken::Modern(Modern::new(endpoint)),
        };
        Self { spoken, headers: Vec::new() }
    }

    /// The same with one more header on each request but those that open and end its session.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its era.
    pub fn era(&self) -> Era {
        match self.spoken {
            Spoken::Legacy(_) => Era::Legacy,
            Spoken::Modern(_) => Era::Modern,
        }
    }

    /// Gives up a call: a legacy client says so, a modern one hangs up.
    ///
    /// # Panics
    ///
    /// When a legacy client cannot say so.
    pub fn give_up(&mut self, id: u64, connection: Connection) {
        if let Spoken::Legacy(legacy) = &mut self.spoken {
            let params = serde_json::json!({"requestId": id});
            let accepted = legacy.notify("notifications/cancelled", &params);
            assert_eq!(accepted.status(), 202, "cancelled: {}", accepted.text());
        }
        drop(connection);
    }

    /// Leaves, and ends its session if it has one.
    ///
    /// # Panics
    ///
    /// When the bridge does not let it end.
    pub fn end(self) {
        if let Spoken::Legacy(legacy) = self.spoken {
            legacy.end();
        }
    }
}

impl Speaker for Client {
    fn request(&self, message: &Value) -> Request {
        let request = match &self.spoken {
            Spoken::Legacy(legacy) => legacy.request(message),
            Spoken::Modern(modern) => modern.request(message),
        };
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    fn message(&self, id: &Value, method: &str, params: Value) -> Value {
        match &self.spoken {
            Spoken::Legacy(legacy) => legacy.message(id, method, params),
            Spoken::Modern(modern) => modern.message(id, method, params),
        }
    }

    fn endpoint(&self) -> &Endpoint {
        match &self.spoken {
            Spoken::Legacy(legacy) => legacy.endpoint(),
            Spoken::Modern(modern) => modern.endpoint(),
        }
    }

    fn kept(&mut self) -> &mut Option<Connection> {
        match &mut self.spoken {
            Spoken::Legacy(legacy) => legacy.kept(),
            Spoken::Modern(modern) => modern.kept(),
        }
    }
}

impl Response {
    /// The status that a client is told: by HTTP, or by the error of a legacy answer.
    pub fn told_status(&self) -> u64 {
        let told = self.answer().pointer("/error/data/httpStatus").and_then(Value::as_u64);
        told.unwrap_or_else(|| u64::from(self.status()))
    }
}
