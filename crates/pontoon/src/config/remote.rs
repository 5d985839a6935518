//! A server that is reached and not started: the keys `url` and `socket`, and what goes with them.
//!
//! It is one application for everybody, as a process of `"mode": "shared"` is, and comes and goes as it likes.

use std::time::Duration;

use super::app_headers::AppHeaders;
use super::app_options::{AppOptions, CONNECT_WAIT, Silence, TlsFiles, TokenSource};
use super::app_place::AppPlace;
use super::complete::WrittenKeys;
use super::document::DocumentReader;
use super::draft::{Draft, WrittenKind, WrittenMode};
use super::endpoint::Endpoint;
use super::lifetime::{FileLinks, Mode};
use super::program::ProgramError;
use super::remarks::Weight;
use super::server::Server;

/// The keys that only such a server has, and those that it cannot have.
const OF_REACHED: [&str; 6] =
    ["headers", "ca_file", "client_cert", "client_key", "connect_wait", "busy_grace"];
const OF_STARTED: [&str; 13] = [
    "args",
    "env",
    "inherit_env",
    "cwd",
    "idle_timeout",
    "max_processes_per_ip",
    "max_processes_per_client",
    "session_key",
    "workspace",
    "warm",
    "files",
    "file_path_fields",
    "isolation",
];

impl Draft {
    /// Whether the server is reached, and not started.
    pub(super) fn is_reached(&self) -> bool {
        self.app.url.is_some() || self.app.socket.is_some()
    }

    /// Says what has no meaning for a server that is started.
    pub(super) fn refuse_keys_of_reached(
        &self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
    ) {
        // A wrong address has been told.
        if ["url", "socket"].iter().any(|name| written.key(name).is_some()) {
            return;
        }
        for key in OF_REACHED.iter().filter_map(|name| written.key(name)) {
            let message = "has a meaning only for a server at a `url` or `socket`";
            reader.about_name(Weight::Mistake, key, message);
        }
        if let (Some(WrittenKind::WebSocket), Some(key)) = (self.app.kind, written.key("type")) {
            reader.about_name(Weight::Mistake, key, "a server over \"ws\" is at a `url`");
        }
    }

    /// The server this makes, which is reached. What does not go together is told.
    pub(super) fn finish_reached(
        self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<Server> {
        let mut refuse = |name: &str, message: &str| {
            if let Some(key) = written.key(name) {
                reader.about_name(Weight::Mistake, key, message);
            }
        };
        let one = "a server has one of `command`, `url` and `socket`: leave the others out";
        refuse("command", one);
        let place = match (self.app.url, self.app.socket) {
            (Some(_), Some(_)) => {
                refuse("socket", one);
                return None;
            }
            (Some(url), None) => url,
            (None, socket) => AppPlace::At(Endpoint::Unix(socket?)),
        };
        for name in OF_STARTED {
            refuse(name, "has a meaning only for a server that is started by `command`");
        }
        if matches!(self.mode, WrittenMode::Stateful | WrittenMode::Stateless) {
            let message = "all clients share the connection to a server that is not started from here: leave it out, or \
                           write \"shared\"";
            refuse("mode", message);
        }
        if self.app.kind == Some(WrittenKind::Stdio) {
            refuse("type", "\"stdio\" is for a server that is started by `command`: leave it out");
        }
        if !place.takes_token() {
            refuse("headers", "only WebSockets have headers: `ws`, `wss` or `ws+unix`");
        }
        if !place.is_secure() {
            for name in ["ca_file", "client_cert", "client_key"] {
                refuse(name, "only a `wss` URL has a use for certificates");
            }
        }
        for (name, own, other) in [
            ("client_cert", &self.app.certificate, &self.app.key),
            ("client_key", &self.app.key, &self.app.certificate),
        ] {
            if own.is_some() && other.is_none() {
                refuse(
                    name,
                    "a certificate and its key are used together: `client_cert` and `client_key`",
                );
            }
        }
        let token = self.app.token.map(TokenSource::Value);
        let tls = TlsFiles {
            authorities: self.app.authorities,
            own: self.app.certificate.zip(self.app.key),
        };
        let usual = Silence::USUAL;
        let busy_grace = self.app.busy_grace.unwrap_or(usual.busy_grace);
        let app = AppOptions {
            place,
            token,
            headers: AppHeaders { typed: self.app.headers, file: None },
            tls,
            connect_wait: self.app.connect_wait.unwrap_or(CONNECT_WAIT),
            silence: Silence { busy_grace, ..usual },
            close_codes: Vec::new(),
            over_http: false,
        };
        Some(Server {
            fingerprint: Server::fingerprint_of_app(&app),
            app: Some(app),
            program: Err(ProgramError::Application),
            mode: Mode::Shared { idle: Duration::MAX },
            files: FileLinks::Off,
            ..self.server
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::secret::Secret;
    use super::super::tests::servers;
    use super::*;

    /// Reads a server with these keys, and compares what is told of them.
    fn check(keys: &str, told: &[(&str, &str)]) -> Option<Arc<Server>> {
        let (servers, remarks) = servers(&format!(r#"{{"mcpServers": {{"a": {{{keys}}}}}}}"#));
        let found: Vec<_> = remarks
            .iter()
            .map(|it| (it.key.trim_start_matches("mcpServers.a."), &*it.message))
            .collect();
        assert_eq!(found, told, "{keys}");
        servers.first().cloned()
    }

    fn app(keys: &str) -> AppOptions {
        check(keys, &[]).unwrap().app.clone().unwrap()
    }

    #[test]
    fn a_server_that_runs_already_is_one_for_everybody() {
        let server = check(r#""url": "ws://localhost:7400/mcp", "type": "ws""#, &[]).unwrap();
        assert_eq!(server.mode, Mode::Shared { idle: Duration::MAX });
        assert_eq!((server.files, server.max_in_flight), (FileLinks::Off, 64));
        assert!(!server.has_sessions() && server.program.is_err());
        let options = server.app.clone().unwrap();
        assert_eq!(options.place.to_string(), "ws://localhost:7400/mcp");
        assert_eq!((options.connect_wait, options.silence), (CONNECT_WAIT, Silence::USUAL));
        let other = check(r#""url": "ws://localhost:7401/mcp", "mode": "shared""#, &[]).unwrap();
        assert_ne!(server.fingerprint, other.fingerprint);
        let patient =
            app(r#""url": "tcp://a:1", "connect_wait": "1m", "busy_grace": 5, "timeout": 9"#);
        assert_eq!(patient.connect_wait, Duration::from_secs(60));
        assert_eq!(patient.silence.busy_grace, Duration::from_secs(5));
    }

    #[test]
    fn a_socket_is_found_from_the_folder_of_the_file() {
        let place = app(r#""socket": "run/tools.sock""#).place;
        let AppPlace::At(Endpoint::Unix(path)) = place else { panic!("{place:?}") };
        assert!(path.is_absolute() && path.ends_with("run/tools.sock"), "{path:?}");
    }

    #[test]
    fn the_token_comes_from_a_variable_and_is_everybody_s() {
        let url = r#""url": "ws://localhost:1""#;
        let token = |value: &str| format!(r#"{url}, "headers": {{"authorization": "{value}"}}"#);
        let shown = app(&token("Bearer ${env:TOKEN}")).token;
        assert_eq!(shown, Some(TokenSource::Value(Secret::new("secret"))));
        let form = "expected \"Bearer TOKEN\", such as \"Bearer ${env:NAME}\"";
        for wrong in ["Basic x", "Bearer ", "${env:TOKEN}"] {
            check(&token(wrong), &[("headers.authorization", form)]);
        }
        let headers =
            format!(r#"{url}, "headers": {{"X-Project": "demo", "X-Key": "${{env:TOKEN}}"}}"#);
        let typed = app(&headers).headers.typed;
        let typed: Vec<_> = typed.iter().map(|it| (&*it.name, it.value.expose())).collect();
        assert_eq!(typed, [("X-Project", &b"demo"[..]), ("X-Key", b"secret")]);
        let own =
            "the header Host belongs to the opening of a WebSocket, which the bridge makes itself";
        check(&format!(r#"{url}, "headers": {{"Host": "a"}}"#), &[("headers.Host", own)]);
        let form = "is no header: a name without spaces, and a value of ASCII text";
        check(&format!(r#"{url}, "headers": {{"a b": "c"}}"#), &[("headers.\"a b\"", form)]);
        let one = "all clients share one connection, so there is nothing for ${user:..}, ${header:..}, \
                   ${MCPO_WORKDIR} and ${MCPO_JOB_ID}";
        check(&token("Bearer ${user:id}"), &[("headers.authorization", one)]);
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        let one = "a server has one of `command`, `url` and `socket`: leave the others out";
        let url = r#""url": "ws://localhost:1""#;
        check(&format!(r#""command": "sh", {url}"#), &[("command", one)]);
        check(&format!(r#"{url}, "socket": "/s""#), &[("socket", one)]);
        for name in OF_STARTED {
            let value = match name {
                "args" | "inherit_env" | "file_path_fields" => "[]",
                "env" => "{}",
                "cwd" => "\".\"",
                "session_key" => "\"auto\"",
                "workspace" => "\"job\"",
                "files" => "\"off\"",
                "isolation" => "\"basic\"",
                _ => "1",
            };
            let told = "has a meaning only for a server that is started by `command`";
            check(&format!(r#"{url}, "{name}": {value}"#), &[(name, told)]);
        }
        let shared = "all clients share the connection to a server that is not started from here: leave it \
                      out, or write \"shared\"";
        for mode in ["stateful", "stateless"] {
            check(&format!(r#"{url}, "mode": "{mode}""#), &[("mode", shared)]);
        }
        let stdio = "\"stdio\" is for a server that is started by `command`: leave it out";
        check(&format!(r#"{url}, "type": "stdio""#), &[("type", stdio)]);
        let only = "has a meaning only for a server at a `url` or `socket`";
        check(r#""command": "sh", "connect_wait": 1"#, &[("connect_wait", only)]);
        let at = "a server over \"ws\" is at a `url`";
        check(r#""command": "sh", "type": "ws""#, &[("type", at)]);
        let headers = "only WebSockets have headers: `ws`, `wss` or `ws+unix`";
        let token = r#""headers": {"Authorization": "Bearer x"}"#;
        check(&format!(r#""socket": "/s", {token}"#), &[("headers", headers)]);
    }

    #[test]
    fn a_wrong_address_and_missing_files_say_what_to_write() {
        let (_, remarks) = servers(r#"{"mcpServers": {"a": {"url": "https://example.org"}}}"#);
        let told = remarks.to_string();
        assert!(told.contains("https:// is not supported by this version: write wss://"), "{told}");
        let (_, remarks) = servers(r#"{"mcpServers": {"a": {"url": "ws://me:x@localhost:1"}}}"#);
        assert!(remarks.to_string().contains("Bearer ${env:NAME}"), "{remarks}");
        let certificates = "only a `wss` URL has a use for certificates";
        let cargo = r#""ca_file": "/etc/passwd""#;
        check(&format!(r#""url": "ws://localhost:1", {cargo}"#), &[("ca_file", certificates)]);
        let missing = r#""url": "wss://localhost:1", "ca_file": "/gone-7""#;
        check(missing, &[("ca_file", "there is no file `/gone-7`")]);
        let both = "a certificate and its key are used together: `client_cert` and `client_key`";
        let one = r#""url": "wss://localhost:1", "client_key": "/etc/passwd""#;
        check(one, &[("client_key", both)]);
    }
}
