//! What is run for a person: the program with the values they bring, in its workspace and within its walls.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use pontoon_supervise::Command;

use super::isolation::Walls;
use super::launcher::{Launcher, StartError, secrets_of};
use super::machine::Machine;
use super::workspace::Workspace;
use crate::client::Person;
use crate::config::{Mode, SHORTEST_SECRET, Server, Start, certificates, proxy_secrets};
use crate::observe::redact::Redactor;

impl Launcher {
    /// What is run for this person, and where.
    pub(crate) fn command(
        &self,
        person: &Person,
        workspace: &Workspace,
        tmpdir: &Path,
    ) -> Result<Command, StartError> {
        let directory = workspace.directory();
        let name = workspace.name();
        let start = Start {
            workdir: &workspace.told_directory().unwrap_or(Path::new("")).to_string_lossy(),
            job_id: &name,
            tmpdir: &tmpdir.to_string_lossy(),
            base_url: &self.machine.base_url,
            user: &|fact| person.fact(fact).map(str::to_owned),
            header: &|header| person.header(header).map(str::to_owned),
        };
        let mut env = self.server.environment_for_child(&self.inherited, &start);
        self.tell_trace(person, &mut env);
        let command = Command {
            program: self.server.find_program()?,
            args: self.server.args.iter().map(|arg| arg.fill(&start).into()).collect(),
            env,
            directory: Some(self.server.cwd.clone().unwrap_or_else(|| directory.to_owned())),
            computed: self.metrics.children.ended.clone(),
            ..Command::default()
        };
        let mut command = self.walls_for(&command.program).around(command, directory, &name);
        if let Some(files) = &mut command.confinement.files {
            files.write.push(tmpdir.to_owned());
            let is_private =
                |path: &PathBuf| self.machine.private.iter().any(|it| path.starts_with(it));
            let mut certificates = certificates(&self.machine.environment);
            certificates.retain(|path| path.canonicalize().is_ok_and(|real| !is_private(&real)));
            files.read.extend(certificates);
        }
        let less = self.walls.soften(&mut command, self.machine.starter.support());
        if !less.is_empty() {
            tracing::debug!(server = %self.server.name, ?less, "less isolation than asked for");
        }
        Ok(command)
    }

    /// Tells a process that is started for one call which trace that is in.
    fn tell_trace(&self, person: &Person, env: &mut Vec<(OsString, OsString)>) {
        let is_of_one_call = matches!(self.server.mode, Mode::Stateless);
        let (Some(trace), Some(_), true) = (&person.trace, &self.machine.tracer, is_of_one_call)
        else {
            return;
        };
        if env.iter().all(|(name, _)| name != "TRACEPARENT") {
            env.push(("TRACEPARENT".into(), trace.header().into()));
            env.extend(trace.state.as_deref().map(|it| ("TRACESTATE".into(), it.into())));
        }
    }

    /// What a child that runs this program is kept from.
    fn walls_for(&self, program: &Path) -> Arc<Walls> {
        if self.server.program.as_deref() == Ok(program) {
            return Arc::clone(&self.walls);
        }
        let mut moved = self.moved_walls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, walls)) = &*moved
            && known == program
        {
            return Arc::clone(walls);
        }
        let server = Server { program: Ok(program.to_owned()), ..Server::clone(&self.server) };
        let Machine { starter, private, environment, .. } = &self.machine;
        let walls = Walls::new(&server, starter.support(), private, environment);
        let walls = Arc::new(walls);
        *moved = Some((program.to_owned(), Arc::clone(&walls)));
        walls
    }

    /// A hash of what the server's processes get from the person who calls; `None` if nothing.
    pub fn person_hash(&self, person: &Person) -> Option<[u8; 32]> {
        self.server.person_hash(&Start {
            user: &|fact| person.fact(fact).map(str::to_owned),
            header: &|header| person.header(header).map(str::to_owned),
            ..Start::unknown()
        })
    }

    /// What keeps secrets out of a child's last words: those of the server, and what this person
    /// brings in headers.
    pub(crate) fn redactor_for(&self, person: &Person) -> Arc<Redactor> {
        let brought = self.server.headers_for_child().filter_map(|name| person.header(name));
        let brought: Vec<_> = brought.filter(|it| it.len() >= SHORTEST_SECRET).collect();
        if brought.is_empty() {
            return Arc::clone(&self.redactor);
        }
        let proxies = proxy_secrets(&self.machine.environment);
        let known = secrets_of(&self.server).chain(proxies.iter().map(String::as_bytes));
        Arc::new(Redactor::new(known.chain(brought.into_iter().map(str::as_bytes))))
    }
}
