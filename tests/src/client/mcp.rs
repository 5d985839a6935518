//! The two eras of the protocol, spoken by clients that choose their own ids.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Connection, Exchange, Request, Response};

/// The newest revision of the legacy era.
pub const LEGACY: &str = "2025-11-25";
/// The newest revision of the modern era.
pub const MODERN: &str = "2026-07-28";

/// Where one server of a bridge is reached.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Host and port.
    pub address: SocketAddr,
    /// `/mcp/NAME`.
    pub path: String,
}

/// A client of one era. What the two have in common is here.
pub trait Speaker {
    /// The request as it goes out, with the headers of the era.
    fn request(&self, message: &Value) -> Request;

    /// The message of a request, with the members the era wants.
    fn message(&self, id: &Value, method: &str, params: Value) -> Value;

    /// Where it goes.
    fn endpoint(&self) -> &Endpoint;

    /// The connection that is kept between requests.
    fn kept(&mut self) -> &mut Option<Connection>;

    /// Posts a message on the kept connection and reads the whole answer.
    ///
    /// # Errors
    ///
    /// When no whole answer comes.
    fn post(&mut self, message: &Value) -> io::Result<Response> {
        let bytes = self.request(message).bytes();
        let address = self.endpoint().address;
        let mut connection = match self.kept().take() {
            Some(connection) => connection,
            None => Connection::open(address)?,
        };
        connection.send(&bytes)?;
        let (response, connection) = connection.begin()?.finish()?;
        *self.kept() = connection;
        Ok(response)
    }

    /// Asks and reads the whole answer.
    ///
    /// # Panics
    ///
    /// When no whole answer comes.
    fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Response {
        let message = self.message(&id.into(), method, params);
        self.post(&message).unwrap_or_else(|error| panic!("no answer to {message}: {error}"))
    }

    /// Calls a tool and reads the whole answer.
    ///
    /// # Panics
    ///
    /// When no whole answer comes.
    fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) -> Response {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Asks on a connection of its own and does not wait for the answer, not even for its head.
    ///
    /// # Panics
    ///
    /// When the bridge does not take the request.
    fn send(&self, id: impl Into<Value>, method: &str, params: Value) -> Connection {
        let message = self.message(&id.into(), method, params);
        let mut connection = Connection::open(self.endpoint().address).expect("the bridge listens");
        connection.send(&self.request(&message).bytes()).expect("the bridge reads");
        connection
    }

    /// Calls a tool on a connection of its own and does not wait for the answer.
    fn send_call(&self, id: impl Into<Value>, tool: &str, arguments: Value) -> Connection {
        self.send(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }
}

/// A client of the legacy era, with its session.
#[derive(Debug)]
pub struct Legacy {
    endpoint: Endpoint,
    /// The session id, as the bridge gave it.
    pub session: String,
    /// The revision that was agreed on.
    pub version: String,
    /// The whole result of `initialize`.
    pub initialized: Value,
    headers: Headers,
    connection: Option<Connection>,
}

/// Headers that go with every request of a client: who it is, or says it is.
type Headers = Vec<(String, String)>;

fn owned(headers: &[(&str, &str)]) -> Headers {
    headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn add(request: Request, headers: &Headers) -> Request {
    headers.iter().fold(request, |request, (name, value)| match name.eq_ignore_ascii_case("host") {
        // There must be one and no more.
        true => request.with(name, value),
        false => request.header(name, value),
    })
}

impl Legacy {
    /// A session of a client that can be asked everything.
    ///
    /// # Panics
    ///
    /// When the handshake fails.
    pub fn open(endpoint: &Endpoint) -> Self {
        let capabilities = json!({"roots": {}, "sampling": {}, "elicitation": {}});
        Self::open_as(endpoint, LEGACY, &capabilities)
    }

    /// A session opened with this version and these capabilities.
    ///
    /// # Panics
    ///
    /// When the handshake fails.
    pub fn open_as(endpoint: &Endpoint, version: &str, capabilities: &Value) -> Self {
        let response = Self::initialize(endpoint, version, capabilities);
        Self::opened(endpoint, &response, Headers::new())
    }

    /// A session whose every request has these headers too.
    ///
    /// # Panics
    ///
    /// When the handshake fails.
    pub fn open_with(endpoint: &Endpoint, headers: &[(&str, &str)]) -> Self {
        Self::open_able_with(endpoint, &json!({}), headers)
    }

    /// The same with these capabilities.
    ///
    /// # Panics
    ///
    /// When the handshake fails.
    pub fn open_able_with(
        endpoint: &Endpoint,
        capabilities: &Value,
        headers: &[(&str, &str)],
    ) -> Self {
        let headers = owned(headers);
        let request = add(Self::first_request(endpoint, LEGACY, capabilities), &headers);
        let response = request.send(endpoint.address);
        let response = response.unwrap_or_else(|error| panic!("initialize: {error}"));
        Self::opened(endpoint, &response, headers)
    }

    fn opened(endpoint: &Endpoint, response: &Response, headers: Headers) -> Self {
        assert_eq!(response.status(), 200, "initialize: {}", response.text());
        let session = response.head.header("mcp-session-id").expect("a session id").to_owned();
        let answer = response.answer();
        let initialized = answer.get("result").unwrap_or_else(|| panic!("no result: {answer}"));
        let version = initialized["protocolVersion"].as_str().expect("a version").to_owned();
        let initialized = initialized.clone();
        let (endpoint, connection) = (endpoint.clone(), None);
        let mut legacy = Self { endpoint, session, version, initialized, headers, connection };
        let accepted = legacy.notify("notifications/initialized", &json!({}));
        assert_eq!(accepted.status(), 202, "initialized: {}", accepted.text());
        legacy
    }

    /// A session that was opened by other means.
    pub fn resume(endpoint: &Endpoint, session: &str, version: &str) -> Self {
        Self {
            endpoint: endpoint.clone(),
            session: session.to_owned(),
            version: version.to_owned(),
            initialized: Value::Null,
            headers: Headers::new(),
            connection: None,
        }
    }

    /// Only the first request of a session, as it is answered.
    ///
    /// # Panics
    ///
    /// When no whole answer comes.
    pub fn initialize(endpoint: &Endpoint, version: &str, capabilities: &Value) -> Response {
        let request = Self::first_request(endpoint, version, capabilities);
        request.send(endpoint.address).unwrap_or_else(|error| panic!("initialize: {error}"))
    }

    fn first_request(endpoint: &Endpoint, version: &str, capabilities: &Value) -> Request {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "kit", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        Request::post(&endpoint.path, message.to_string())
    }

    /// Posts a notification.
    ///
    /// # Panics
    ///
    /// When no whole answer comes.
    pub fn notify(&mut self, method: &str, params: &Value) -> Response {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.post(&message).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// A request without a body in this session: `GET` or `DELETE`.
    pub fn bare(&self, method: &str) -> Request {
        let request = Request::new(method, &self.endpoint.path)
            .header("Accept", "text/event-stream")
            .header("Mcp-Session-Id", &self.session)
            .header("MCP-Protocol-Version", &self.version);
        add(request, &self.headers)
    }

    /// Opens the stream of the session, or a broken one again after the event of this id.
    ///
    /// # Panics
    ///
    /// When no head comes.
    pub fn listen(&self, last_event_id: Option<&str>) -> Exchange {
        let mut request = self.bare("GET");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        request.begin(self.endpoint.address).expect("the bridge answers a GET")
    }

    /// Ends the session.
    ///
    /// # Panics
    ///
    /// When the bridge does not let it end.
    pub fn end(self) {
        let response = self.bare("DELETE").send(self.endpoint.address).expect("DELETE is answered");
        assert!((200..300).contains(&response.status()), "DELETE: {}", response.status());
    }
}

impl Speaker for Legacy {
    fn request(&self, message: &Value) -> Request {
        let request = Request::post(&self.endpoint.path, message.to_string())
            .header("Mcp-Session-Id", &self.session)
            .header("MCP-Protocol-Version", &self.version);
        add(request, &self.headers)
    }

    fn message(&self, id: &Value, method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn kept(&mut self) -> &mut Option<Connection> {
        &mut self.connection
    }
}

/// A client of the modern era. It has no session; each request says everything.
#[derive(Debug)]
pub struct Modern {
    endpoint: Endpoint,
    /// What it says it can be asked.
    pub capabilities: Value,
    headers: Headers,
    connection: Option<Connection>,
}

impl Modern {
    /// A client that can be asked everything.
    pub fn new(endpoint: &Endpoint) -> Self {
        let capabilities = json!({"roots": {}, "sampling": {}, "elicitation": {}});
        let (endpoint, headers) = (endpoint.clone(), Headers::new());
        Self { endpoint, capabilities, headers, connection: None }
    }

    /// The same with these headers in every request.
    pub fn with(endpoint: &Endpoint, headers: &[(&str, &str)]) -> Self {
        Self { headers: owned(headers), ..Self::new(endpoint) }
    }
}

impl Speaker for Modern {
    fn request(&self, message: &Value) -> Request {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let mut request = Request::post(&self.endpoint.path, message.to_string())
            .header("MCP-Protocol-Version", MODERN)
            .header("Mcp-Method", text("/method").unwrap_or_default());
        if let Some(name) = text("/params/name").or_else(|| text("/params/uri")) {
            request = request.header("Mcp-Name", name);
        }
        add(request, &self.headers)
    }

    fn message(&self, id: &Value, method: &str, mut params: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "kit", "version": "1"},
        });
        let own = params["_meta"].take();
        params["_meta"] = meta;
        for (key, value) in own.as_object().into_iter().flatten() {
            params["_meta"][key] = value.clone();
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn kept(&mut self) -> &mut Option<Connection> {
        &mut self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_request_says_everything_twice() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = Modern::new(&Endpoint { address, path: String::from("/mcp/x") });
        let params = json!({"name": "echo", "_meta": {"progressToken": 7}});
        let message = client.message(&json!("a"), "tools/call", params);
        assert_eq!(message["params"]["_meta"]["progressToken"], 7);
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], MODERN);
        let head = String::from_utf8(client.request(&message).bytes()).unwrap();
        assert!(head.contains("\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"), "{head}");
    }
}
