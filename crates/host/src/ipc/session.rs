//! A session: the socket on which a program offers its tools, and the schema file that tells of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::connection;
use super::place::{Place, write_file};
use crate::protocol::IpcError;
use crate::tools::{ToolValidationError, Tools, Toolset};

/// Why a session could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] ToolValidationError),
    /// The socket or the schema file could not be made.
    #[error(transparent)]
    Ipc(#[from] IpcError),
}

/// Tools offered to bridges of this user, as long as this is not dropped. Then its calls are given up, and its
/// socket, its schema file and their directory are gone.
#[derive(Debug)]
pub struct Session {
    place: Place,
    connections: TaskTracker,
    _stop: DropGuard,
}

impl Session {
    /// Offers these tools from now on. It has to be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// [`SessionError`] when two toolsets have a tool of the same name, or files cannot be made in the
    /// temporary directory.
    pub fn start(toolsets: &[Toolset]) -> Result<Self, SessionError> {
        Self::start_in(&usual_directories(), toolsets)
    }

    /// The same in one of these directories, the first in which the path of a socket is not too long.
    ///
    /// # Errors
    ///
    /// As [`Session::start`].
    pub fn start_in(directories: &[PathBuf], toolsets: &[Toolset]) -> Result<Self, SessionError> {
        let tools = Tools::new(toolsets)?;
        let place =
            Place::make(directories).map_err(failed("no directory for the socket can be made"))?;
        Ok(Self::start_with(place, tools)?)
    }

    /// The same in this very folder, which is made for it and goes with it: the socket is always at `tools.sock` there, so that
    /// the configuration of `pontoon serve` can name it (`"socket"`).
    ///
    /// # Errors
    ///
    /// As [`Session::start`]; also when another session has the folder, others can enter it, or something else lies in it.
    pub fn start_at(folder: &Path, toolsets: &[Toolset]) -> Result<Self, SessionError> {
        let tools = Tools::new(toolsets)?;
        let what = format!("the folder {} cannot be used for the socket", folder.display());
        let place = Place::make_at(folder).map_err(failed(&what))?;
        Ok(Self::start_with(place, tools)?)
    }

    /// The same at this place.
    pub(crate) fn start_with(place: Place, tools: Tools) -> Result<Self, IpcError> {
        // Counted before they are written, so that no change is missed.
        let changes = tools.changes();
        // Before the schema file: a folder that was chosen is known as a session's by its socket.
        let listener = UnixListener::bind(&place.socket)
            .and_then(|listener| place.close_socket().map(|()| listener))
            .map_err(failed("the socket cannot be made"))?;
        write_schema(&place.schema, &tools).map_err(failed("the schema file cannot be written"))?;
        let stop = CancellationToken::new();
        let connections = TaskTracker::new();
        let schema = place.schema.clone();
        let session = Self { place, connections, _stop: stop.clone().drop_guard() };
        let listening = Listening { tools, schema, stop, connections: session.connections.clone() };
        session.connections.spawn(listening.run(listener, changes));
        Ok(session)
    }

    /// The path of the socket.
    pub fn socket_path(&self) -> &Path {
        &self.place.socket
    }

    /// The path of the schema file.
    pub fn schema_path(&self) -> &Path {
        &self.place.schema
    }

    /// Where it has its files.
    #[cfg(feature = "model")]
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// How a client starts the bridge to these tools: an entry of `mcpServers`. `bridge` is the path of
    /// `pontoon`, or of a program that calls [`crate::bridge::dispatch`].
    pub fn mcp_server_config(&self, bridge: &Path) -> Value {
        json!({
            "type": "stdio",
            "command": bridge,
            "args": ["ipc", self.socket_path(), self.schema_path()],
        })
    }

    /// Gives the calls up, ends the connections and waits until they are gone. Dropping a session does the
    /// same without waiting.
    pub async fn stop(self) {
        let Self { place, connections, _stop } = self;
        drop((_stop, place));
        connections.close();
        connections.wait().await;
    }
}

/// The task of a session: takes connections in, and writes the schema file anew when the tools change.
struct Listening {
    tools: Tools,
    schema: PathBuf,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl Listening {
    async fn run(self, listener: UnixListener, mut changes: watch::Receiver<u64>) {
        // Bridges are told once the file says it.
        let (written, _) = watch::channel(0);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                Ok(()) = changes.changed() => match write_schema(&self.schema, &self.tools) {
                    Ok(()) => written.send_modify(|changes| *changes += 1),
                    Err(error) => tracing::warn!(%error, "bridges do not hear of a change of the tools"),
                },
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream, written.subscribe()),
                    // Out of descriptors, perhaps: others are given time to let some go.
                    Err(error) => {
                        tracing::warn!(%error, "a bridge could not connect");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    fn serve(&self, stream: UnixStream, changes: watch::Receiver<u64>) {
        let ours = rustix::process::geteuid().as_raw();
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == ours => {
                let (tools, stop) = (self.tools.clone(), self.stop.child_token());
                self.connections.spawn(connection::serve(stream, tools, changes, stop));
            }
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "another user tried to connect, and was refused")
            }
            Err(error) => tracing::warn!(%error, "it is not known who tried to connect"),
        }
    }
}

/// Where sessions are, the usual place first.
pub(crate) fn usual_directories() -> Vec<PathBuf> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [std::env::temp_dir()].into_iter().chain(runtime_dir).chain(["/tmp".into()]).collect()
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> IpcError {
    let what = what.to_owned();
    move |source| IpcError::Io { what, source }
}

fn write_schema(path: &Path, tools: &Tools) -> io::Result<()> {
    let text = serde_json::to_vec(&tools.entries()).expect("schemas are JSON");
    write_file(path, &text)
}
