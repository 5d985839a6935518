//! Where jobs are and how long they are kept: all that a collection needs to know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::Environment;
use super::remarks::{Remarks, Weight};
use super::{Options, absolute, servers, settings, source};

/// What a mistake in may cost files.
const MATTERS: &[&str] = &["MCPO_JOBS_DIR", "MCPO_FILE_EXPIRY", "MCPO_LOG_DIR", "MCPO_STATE_DIR"];

/// Where jobs are and how long they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// The absolute folder for jobs and workspaces; may have to be made.
    pub jobs_dir: PathBuf,
    /// How long the files of a job are kept.
    pub file_expiry: Duration,
}

impl Storage {
    /// The same as a bridge with this configuration has, and what is worth a warning. Mistakes
    /// elsewhere are no more than that: files grow old whatever becomes of the servers.
    ///
    /// # Errors
    ///
    /// All remarks, when one of them is a mistake about the folders or the expiry.
    pub fn load(
        options: &Options,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Remarks), Remarks> {
        Self::load_with_defaults(options, &Environment::new(environment), &source::DEFAULT_FILES)
    }

    /// The same with the files to look for when none is named.
    fn load_with_defaults(
        options: &Options,
        environment: &Environment,
        files: &[impl AsRef<Path>],
    ) -> Result<(Self, Remarks), Remarks> {
        let mut remarks = Remarks::default();
        let settings = settings(options, environment, &mut remarks);
        let _ = servers(options, environment, &settings, files, &mut remarks);
        remarks.only_warn_except(MATTERS);
        if remarks.heaviest() == Some(Weight::Mistake) {
            return Err(remarks);
        }
        let jobs_dir = absolute(&settings.jobs_dir);
        Ok((Self { jobs_dir, file_expiry: settings.file_expiry }, remarks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(variables: &[(&str, &str)], file: &str) -> Result<(Storage, Remarks), Remarks> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp-servers.json");
        std::fs::write(&path, file).unwrap();
        let home = [("HOME", "/home/me")];
        let variables =
            variables.iter().chain(&home).map(|(name, value)| (name.into(), value.into()));
        let options = Options { is_silent: true, ..Options::default() };
        Storage::load_with_defaults(&options, &Environment::new(variables), &[path])
    }

    const GOOD: &str = r#"{"mcpServers": {"shell": {"command": "/bin/sh"}}}"#;
    const JOBS: (&str, &str) = ("MCPO_JOBS_DIR", "/j");

    #[test]
    fn mistakes_elsewhere_are_warnings() {
        let expected = Storage { jobs_dir: "/j".into(), file_expiry: Duration::from_secs(60) };
        for (variable, file, told) in [
            (("MCPO_LISTEN", "0.0.0.0:80"), GOOD, ""),
            (("MCPO_TIMEOUT", "soon"), GOOD, "MCPO_TIMEOUT"),
            (("MCPO_STRICT_AUTH", "true"), GOOD, "MCPO_STRICT_AUTH"),
            (("MCPO_CONFIG_FILE", "/no/such/file"), GOOD, "/no/such/file"),
            (("MCPO_LOG_LEVEL", "info"), "{", "mcp-servers.json"),
            (("MCPO_LOG_LEVEL", "info"), r#"{"mcpServers": {"a": {}}}"#, "no `command`"),
        ] {
            let (storage, remarks) = load(&[JOBS, ("MCPO_FILE_EXPIRY", "60"), variable], file)
                .unwrap_or_else(|remarks| panic!("{variable:?} {file}: {remarks}"));
            assert_eq!(storage, expected);
            let text = remarks.to_string();
            assert!(text.contains(told) && text.is_empty() == told.is_empty(), "{text}");
            assert!(remarks.iter().all(|remark| remark.weight == Weight::Warning), "{text}");
        }
    }

    #[test]
    fn mistakes_that_may_cost_files_are_mistakes() {
        for variable in [
            ("MCPO_JOBS_DIR", "/"),
            ("MCPO_FILE_EXPIRY", "soon"),
            ("MCPO_LOG_DIR", "/j/log"),
            ("MCPO_STATE_DIR", "/j/state"),
        ] {
            let remarks = load(&[JOBS, variable], GOOD).unwrap_err();
            assert!(remarks.to_string().contains(variable.0), "{remarks}");
        }
    }
}
