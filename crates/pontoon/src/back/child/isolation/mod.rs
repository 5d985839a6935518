//! What a child is kept from: the wish of the configuration as orders to the spawner.
//!
//! Never silently less: what the system cannot give is an error, unless `best_effort` allows it, and
//! then it is told.

mod homes;
mod private;

use std::path::{Path, PathBuf};

use pontoon_supervise::{
    Cgroup, Command, Confinement, FileRules, Limits, Network, Restriction, Support, User,
};
use uuid::Uuid;

use crate::config::isolation::{Level, Network as Wanted};
use crate::config::{Environment, Isolation, Server, Start};

use homes::homes_of;
use private::OpenPaths;
pub use private::real;

/// Users that children run as: far above any that a system gives to people.
const FIRST_USER: u32 = 0x4000_0000;

/// What a server's children are kept from, but for what differs between them.
#[derive(Debug)]
pub struct Walls {
    wanted: Isolation,
    files: Option<ReachableFiles>,
    has_cgroup: bool,
}

/// The files that its children may reach.
#[derive(Debug)]
struct ReachableFiles {
    read: OpenPaths,
    write: OpenPaths,
}

/// A server that cannot be run as its configuration asks.
#[derive(Debug, thiserror::Error)]
#[error(
    "this system cannot {restriction} for the server `{server}`: {}; or allow less with \
     \"isolation\": {{\"best_effort\": true}}",
    .restriction.remedy()
)]
pub struct Impossible {
    server: String,
    restriction: Restriction,
}

impl Walls {
    /// The walls of a server on this system. `private` is what no child may reach but its own part
    /// of, wherever it lies.
    pub fn new(
        server: &Server,
        support: &Support,
        private: &[PathBuf],
        environment: &Environment,
    ) -> Self {
        let wanted = server.isolation.clone();
        let files = (wanted.level >= Level::Confined).then(|| {
            let FileRules { mut read, mut write, .. } = FileRules::system();
            read.extend(wanted.read.iter().cloned());
            read.extend(server.cwd.clone());
            if let Ok(program) = &server.program {
                read.extend(homes_of(program, environment));
                read.push(program.clone());
            }
            // A file that the operator named as an argument is part of the program. What a client
            // has a say in is not.
            let written = server.args.iter().filter(|arg| !arg.needs_person());
            let named = written.map(|arg| PathBuf::from(arg.fill(&Start::unknown())));
            read.extend(named.filter(|path| path.is_absolute() && path.is_file()));
            write.extend(wanted.write.iter().cloned());
            for folder in wanted.write.iter().filter(|path| private::holds(&real(path), private)) {
                let (server, folder) = (&server.name, folder.display());
                tracing::warn!(%server, %folder, "what is Pontoon's own stays shut, and nothing new can be made beside it");
            }
            ReachableFiles { read: OpenPaths::new(read, private), write: OpenPaths::new(write, private) }
        });
        // One that keeps only some of it would leave the rest to nobody.
        let has_cgroup = support.cgroup.as_ref().is_some_and(|cgroup| {
            let (memory, processes) = (wanted.memory_bytes.is_some(), wanted.processes.is_some());
            (memory || processes) && (cgroup.memory || !memory) && (cgroup.processes || !processes)
        });
        Self { wanted, files, has_cgroup }
    }

    /// Whether children run as users of their own.
    pub fn has_users(&self) -> bool {
        self.wanted.level == Level::User
    }

    /// The same command, kept within the walls. `home` is the child's workspace, `name` names it.
    pub fn around(&self, mut command: Command, home: &Path, name: &str) -> Command {
        let wanted = &self.wanted;
        command.limits = Limits {
            open_files: wanted.open_files,
            memory_bytes: wanted.memory_bytes,
            processes: wanted.processes,
            cpu_seconds: wanted.cpu.map(|cpu| cpu.as_secs().max(1)),
            file_size_bytes: wanted.file_size_bytes,
        };
        let files = self.files.as_ref().map(|files| {
            let ReachableFiles { read, write } = files;
            FileRules {
                read: read.named.clone(),
                write: write.named.iter().cloned().chain([home.to_owned()]).collect(),
                read_if_there: read.beside.clone(),
                write_if_there: write.beside.clone(),
            }
        });
        command.confinement = Confinement {
            deny_calls: files.is_some(),
            files,
            network: match wanted.network {
                Wanted::Open => Network::Open,
                Wanted::None => Network::None,
            },
            user: self.has_users().then(|| user_of(name)),
            cgroup: self.has_cgroup.then(Cgroup::default),
        };
        command
    }

    /// Whether this system can give what the server asks for. Where less will do, that is logged.
    ///
    /// # Errors
    ///
    /// [`Impossible`] names the first thing it cannot.
    pub fn check(&self, server: &Server, support: &Support) -> Result<(), Impossible> {
        let mut command = self.around(Command::default(), Path::new("/"), "");
        match support.missing(&command).first() {
            Some(restriction) if !self.wanted.best_effort => {
                Err(Impossible { server: server.name.to_string(), restriction: *restriction })
            }
            Some(_) => {
                let missing: Vec<_> =
                    support.soften(&mut command).iter().map(ToString::to_string).collect();
                let (server, reached) = (&server.name, self.reached(support));
                let missing = missing.join("; ");
                tracing::warn!(%server, reached, missing, "less isolation than asked for");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Takes out of a command what this system cannot give, where that is allowed.
    pub fn soften(&self, command: &mut Command, support: &Support) -> Vec<Restriction> {
        match self.wanted.best_effort {
            true => support.soften(command),
            false => Vec::new(),
        }
    }

    /// The level that is reached on this system, in a word.
    pub fn reached(&self, support: &Support) -> &'static str {
        let mut command = self.around(Command::default(), Path::new("/"), "");
        support.soften(&mut command);
        let confinement = &command.confinement;
        match (confinement.files.is_some() && confinement.deny_calls, confinement.user) {
            (true, Some(_)) => "user",
            (true, None) => "confined",
            (false, _) => "basic",
        }
    }
}

/// The user of a workspace: always the same for the same name, and hardly ever that of another.
pub(super) fn user_of(name: &str) -> User {
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).as_u128();
    let number = u32::try_from(hash & 0x3fff_ffff).unwrap_or_default();
    User { uid: FIRST_USER + number, gid: FIRST_USER + number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_always_has_the_same_user() {
        assert_eq!(user_of("a"), user_of("a"));
        assert_ne!(user_of("a"), user_of("b"));
        assert!(user_of("a").uid >= FIRST_USER && user_of("a").uid < 2 * FIRST_USER);
    }

    #[test]
    fn less_than_asked_for_is_refused_unless_it_will_do() {
        let mut server = Server::new("demo".parse().unwrap(), Ok("/bin/true".into()), Vec::new());
        server.isolation.level = Level::Confined;
        let nothing = Support::default();
        let walls = Walls::new(&server, &nothing, &[], &Environment::default());
        let told = walls.check(&server, &nothing).unwrap_err().to_string();
        assert!(told.contains("cannot keep it to its files for the server `demo`"), "{told}");
        assert_eq!(walls.reached(&nothing), "basic");
        server.isolation.best_effort = true;
        assert!(
            Walls::new(&server, &nothing, &[], &Environment::default())
                .check(&server, &nothing)
                .is_ok()
        );
    }
}
