//! Where a server is examined: what opens connections to it, and a folder that goes when all is done.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pontoon_supervise::Ladder;
use tracing::Span;

use super::patient::Patient;
use super::visit::{Visit, VisitBody};
use crate::back::child::launcher::{Launcher, StartError};
use crate::back::child::process::{Process, Starter};
use crate::back::child::told::Hearers;
use crate::back::conversation::Conversation;
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::link::{Link, LinkOptions};
use crate::back::remote::dial::{DialError, Dialer};
use crate::back::remote::http::session::HttpManner;
use crate::back::remote::http::{self};
use crate::back::remote::targets::{NoTarget, targets};
use crate::back::remote::token::TokenReader;
use crate::back::{Surroundings, open_store};
use crate::client::Person;
use crate::clock::now;
use crate::config::{AppOptions, Config};
use crate::errors::chain;
use crate::ids::Ids;
use crate::jobs::StoreError;
use crate::lock::Lock;
use crate::scratch_folder::ScratchFolder;

/// How long what was started may take to leave its last words.
const LAST: Duration = Duration::from_secs(2);

/// A place to examine one server.
#[derive(Debug)]
pub struct ExamRoom {
    /// Who is examined.
    pub patient: Patient,
    around: Surroundings,
    pub(super) launcher: Launcher,
    /// Removed when all else of this is gone.
    _scratch: ScratchFolder,
    /// What it does over HTTP otherwise than it should.
    pub(super) manners: Arc<Lock<BTreeSet<HttpManner>>>,
}

/// Why there is no place to examine a server in.
#[derive(Debug, thiserror::Error)]
pub enum NoRoom {
    /// There is no folder.
    #[error("cannot make a folder for temporary files: {0}")]
    Scratch(io::Error),
    /// It cannot be used.
    #[error(transparent)]
    Folder(#[from] StoreError),
    /// There is no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoVisit {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Place(#[from] NoTarget),
    #[error("it comes by itself, and cannot be examined so")]
    Comes,
}

impl NoVisit {
    /// What the user can do about it.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::Start(StartError::Program(_)) => {
                "install the program, or write its whole path".to_owned()
            }
            Self::Start(_) => "start it by hand and look at what it says".to_owned(),
            Self::Dial(DialError::Denied { had_token: false, .. }) => {
                "show a token with --token-env NAME, --token-file FILE or --token-command COMMAND, or a header with --header 'NAME: VALUE'".to_owned()
            }
            Self::Dial(DialError::Denied { .. } | DialError::Token(_)) => {
                "correct the token, or what --header says".to_owned()
            }
            Self::Dial(DialError::Headers(_)) => "correct the file of headers".to_owned(),
            Self::Dial(DialError::Tls(error)) => error.advice().to_owned(),
            Self::Dial(DialError::Proxy(_)) => "correct the proxy, or leave it out with NO_PROXY".to_owned(),
            Self::Dial(DialError::Foreign(_)) => {
                "look whether the address is that of the server: http:// is MCP over HTTP, ws:// a WebSocket".to_owned()
            }
            Self::Dial(DialError::Unreachable(_) | DialError::Silent) => {
                "start the server, or correct the address".to_owned()
            }
            Self::Place(why) => why.advice().to_owned(),
            Self::Comes => "examine it at its own address".to_owned(),
        }
    }
}

impl ExamRoom {
    /// A place to examine this server in.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] when there is no folder or thread for it.
    pub fn new(config: &Config, patient: Patient, starter: Starter) -> Result<Self, NoRoom> {
        let scratch = ScratchFolder::new().map_err(NoRoom::Scratch)?;
        let store = open_store(config, scratch.path())?;
        ScratchFolder::sweep_others(&store);
        let ids = Ids::new(uuid::Uuid::new_v4().as_bytes(), "", SystemTime::now());
        let mut around = Surroundings::new(config, store, ids, starter, Arc::default())?;
        around.machine.hearers = Hearers::Operator;
        let launcher = Launcher::new(Arc::clone(&patient.server), around.machine.clone());
        Ok(Self { patient, around, launcher, _scratch: scratch, manners: Arc::default() })
    }

    /// Starts the server, or connects to it. Nothing is said to it yet.
    pub(super) async fn open(&self) -> Result<Visit, NoVisit> {
        let began = now();
        let body = match &self.patient.server.app {
            None => {
                let child = self.launcher.start_to_learn(&Person::local()).await?;
                child.process.iter().for_each(Process::count_left_behind);
                VisitBody::Child(Box::new(child))
            }
            Some(app) => VisitBody::Remote(Box::new(self.dial(app).await?)),
        };
        Ok(Visit::new(body, Arc::clone(&self.launcher.heals), began))
    }

    async fn dial(&self, app: &AppOptions) -> Result<Conversation, NoVisit> {
        let machine = &self.launcher.machine;
        let (starter, environment) = (machine.starter.clone(), machine.environment.clone());
        let tokens = TokenReader { starter, environment, secrets: machine.secrets.clone() };
        let mut dialer = Dialer::new(tokens);
        let mut failure = NoVisit::Comes;
        for target in targets(app)? {
            if self.patient.is_http {
                // Whether anything answers there at all is known before anything is said.
                drop(dialer.reach(&target).await?);
                let carrier = http::open(
                    target,
                    dialer,
                    machine.max_message,
                    Arc::clone(&self.manners),
                    Arc::clone(&self.launcher.heals),
                    &machine.endings,
                );
                return Ok(self.converse(carrier));
            }
            match dialer.dial(&target, machine.max_message).await {
                Ok(carrier) => return Ok(self.converse(carrier)),
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    fn converse(&self, carrier: Carrier) -> Conversation {
        let options = LinkOptions {
            heal: self.patient.server.heal.protocol(),
            writes_frames: false,
            max_message: self.launcher.machine.max_message,
            held: Arc::clone(&self.launcher.machine.held),
            one_client: true,
            heals: Arc::clone(&self.launcher.heals),
            messages: None,
            span: Span::none(),
        };
        Conversation::new(Link::start(carrier, &options), &self.launcher.changed)
    }

    /// What is told of a failure, with all that lies behind it.
    pub(super) fn told(error: &NoVisit) -> String {
        chain(error)
    }

    /// Stops what was started, and leaves nothing behind.
    pub async fn close(self) {
        self.end(&Ladder { after_close: LAST, after_terminate: LAST }).await;
    }

    /// The same at once.
    pub async fn abandon(self) {
        self.end(&Ladder { after_close: Duration::ZERO, after_terminate: Duration::ZERO }).await;
    }

    async fn end(self, ladder: &Ladder) {
        self.around.machine.starter.stop_all(ladder).await;
        let machine = &self.around.machine;
        machine.endings.close();
        drop(tokio::time::timeout(LAST, machine.endings.wait()).await);
        drop(tokio::time::timeout(LAST, machine.writer.flush()).await);
        drop(tokio::time::timeout(LAST, machine.endings.wait()).await);
    }
}
