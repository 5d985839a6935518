//! What the listener shows of itself over TLS: a certificate and its key, both or none.
//!
//! Here it is said what is wrong with them before anything listens. They are read again and shown by `front`.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::crypto::ring;

use super::options::Options;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::settings::BridgeSettings;
use super::values::absolute;
use crate::pem_files::certified_key;

/// How the certificate and the key are named, as an option and as a variable.
type TlsNames = [[&'static str; 2]; 2];

const NAMES: TlsNames = [["--tls-cert", "MCPO_TLS_CERT"], ["--tls-key", "MCPO_TLS_KEY"]];

/// The same on the command line of mcpo.
const NAMES_OF_MCPO: TlsNames =
    [["--ssl-certfile", "MCPO_TLS_CERT"], ["--ssl-keyfile", "MCPO_TLS_KEY"]];

impl BridgeSettings {
    /// The files of the certificate and of its key, if connections are to be TLS.
    pub fn tls(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }

    /// What an address of ours begins with.
    pub fn scheme(&self) -> &'static str {
        if self.tls().is_some() { "https" } else { "http" }
    }

    /// Takes over what the command line says, and keeps children from the key.
    pub(super) fn take_tls(&mut self, options: &Options) {
        self.tls_cert = options.tls_cert.clone().or_else(|| self.tls_cert.take());
        self.tls_key = options.tls_key.clone().or_else(|| self.tls_key.take());
        let Some(key) = &self.tls_key else { return };
        self.secret_files.extend(places_of(key));
    }
}

/// Where a key lies, and where the next one will: behind a link it has another name then, in the same folders.
fn places_of(key: &Path) -> Vec<PathBuf> {
    let key = absolute(key);
    let folder = key.parent().unwrap_or(Path::new("/")).to_owned();
    let name = key.file_name().unwrap_or_default();
    let usual = fs::canonicalize(&folder).map(|folder| folder.join(name)).ok();
    match fs::canonicalize(&key).ok().filter(|real| usual.as_ref() != Some(real)) {
        Some(real) => {
            let folders = [Some(folder.as_path()), real.parent()].into_iter().flatten();
            let folders = folders.filter(|folder| folder.parent().is_some()).map(Path::to_owned);
            folders.chain([key]).collect()
        }
        None => vec![key],
    }
}

/// Tells of one without the other, and of files that cannot be used.
pub(super) fn review_tls(options: &Options, settings: &BridgeSettings, remarks: &mut Remarks) {
    let mut tell = |[option, variable]: [&'static str; 2], is_option: bool, message: String| {
        let (place, key) = match is_option {
            true => (RemarkPlace::CommandLine, option),
            false => (RemarkPlace::Environment, variable),
        };
        remarks.add(Weight::Mistake, place, key, message);
    };
    let names = if options.mcpo.is_some() { NAMES_OF_MCPO } else { NAMES };
    let [certificate_names, key_names] = names;
    let by_option = [options.tls_cert.is_some(), options.tls_key.is_some()];
    let (certificate, key) = match (&settings.tls_cert, &settings.tls_key) {
        (None, None) => return,
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            let [option, variable] = key_names;
            let message = format!("the key is missing: set {variable} or {option}, too");
            return tell(certificate_names, by_option[0], message);
        }
        (None, Some(_)) => {
            let [option, variable] = certificate_names;
            let message = format!("the certificate is missing: set {variable} or {option}, too");
            return tell(key_names, by_option[1], message);
        }
    };
    // A bridge that runs goes on with the pair it has, whatever becomes of the files, and tells of them by itself.
    if options.is_running {
        return;
    }
    let Err(bad) = certified_key(certificate, key, &ring::default_provider()) else { return };
    let told = format!("`{}`: {}", bad.file.display(), bad.why);
    match bad.file == *certificate {
        true => {
            let advice =
                "name a file with the chain of certificates in PEM form, that of Pontoon first";
            tell(certificate_names, by_option[0], format!("{told}; {advice}"));
        }
        false => {
            let advice =
                "name a file with the key of that certificate in PEM form (PKCS#8, PKCS#1 or SEC1)";
            tell(key_names, by_option[1], format!("{told}; {advice}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::mcpo::McpoOptions;
    use super::super::variables;
    use super::*;
    use crate::pem_files::samples::{EC, RSA, write};

    /// Compares what is told with these options and variables. `DIR` is the folder of the files.
    #[track_caller]
    fn check(pair: [&str; 2], options: &Options, variables: &[(&str, &str)], told: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), pair);
        let place = folder.path().to_str().unwrap();
        let in_place = |path: &PathBuf| path.to_str().unwrap().replace("DIR", place).into();
        let options = Options {
            tls_cert: options.tls_cert.as_ref().map(in_place),
            tls_key: options.tls_key.as_ref().map(in_place),
            ..options.clone()
        };
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (*name, value.replace("DIR", place))).collect();
        let environment =
            Environment::new(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let mut remarks = Remarks::default();
        let settings = variables::settings(&options, &environment, &mut Remarks::default());
        review_tls(&options, &settings, &mut remarks);
        let lines: Vec<_> = remarks.lines().iter().map(|it| it.replace(place, "DIR")).collect();
        assert_eq!(lines, told);
        if told.is_empty() && settings.tls().is_some() {
            assert_eq!(settings.scheme(), "https");
            assert!(settings.secret_files.contains(settings.tls_key.as_ref().unwrap()));
        }
    }

    const BOTH: [(&str, &str); 2] = [CERT_SET, KEY_SET];
    const CERT_SET: (&str, &str) = ("MCPO_TLS_CERT", "DIR/tls.crt");
    const KEY_SET: (&str, &str) = ("MCPO_TLS_KEY", "DIR/tls.key");

    fn options(certificate: Option<&str>, key: Option<&str>) -> Options {
        Options {
            tls_cert: certificate.map(PathBuf::from),
            tls_key: key.map(PathBuf::from),
            ..Options::default()
        }
    }

    #[test]
    fn a_pair_that_fits_is_taken_from_variables_and_options() {
        check(EC, &Options::default(), &[], &[]);
        check(EC, &Options::default(), &BOTH, &[]);
        check(RSA, &options(Some("DIR/tls.crt"), Some("DIR/tls.key")), &[], &[]);
        let wrong = ("MCPO_TLS_CERT", "/gone-7");
        check(EC, &options(Some("DIR/tls.crt"), None), &[wrong, KEY_SET], &[]);
    }

    #[test]
    fn one_without_the_other_is_a_mistake() {
        let none = Options::default();
        let told = "Mistake: MCPO_TLS_CERT: the key is missing: set MCPO_TLS_KEY or --tls-key, too";
        check(EC, &none, &[CERT_SET], &[told]);
        let told = "Mistake: MCPO_TLS_KEY: the certificate is missing: set MCPO_TLS_CERT or --tls-cert, too";
        check(EC, &none, &[KEY_SET], &[told]);
        let told =
            "Mistake: --tls-key: the certificate is missing: set MCPO_TLS_CERT or --tls-cert, too";
        check(EC, &options(None, Some("DIR/tls.key")), &[], &[told]);
    }

    #[test]
    fn the_words_of_mcpo_are_those_of_its_command_line() {
        let told =
            "Mistake: --ssl-certfile: the key is missing: set MCPO_TLS_KEY or --ssl-keyfile, too";
        let options = options(Some("DIR/tls.crt"), None);
        check(EC, &Options { mcpo: Some(McpoOptions::default()), ..options }, &[], &[told]);
    }

    #[test]
    fn files_that_cannot_be_used_are_a_mistake_that_says_what_to_do() {
        let none = Options::default();
        let told = "Mistake: MCPO_TLS_KEY: `DIR/tls.key`: it is not the key of DIR/tls.crt; name a file with \
                    the key of that certificate in PEM form (PKCS#8, PKCS#1 or SEC1)";
        check([EC[0], RSA[1]], &none, &BOTH, &[told]);
        let told = "Mistake: --tls-cert: `/gone-7`: it cannot be read: No such file or directory (os error 2); \
                    name a file with the chain of certificates in PEM form, that of Pontoon first";
        check(EC, &options(Some("/gone-7"), None), &[KEY_SET], &[told]);
        // A bridge that runs looks after them by itself.
        let gone = [("MCPO_TLS_CERT", "/gone-7"), KEY_SET];
        check(EC, &Options { is_running: true, ..Options::default() }, &gone, &[]);
    }

    #[test]
    fn a_key_behind_a_link_is_kept_from_children_with_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (live, archive) = (root.join("live"), root.join("archive"));
        fs::create_dir(&live).unwrap();
        fs::create_dir(&archive).unwrap();
        fs::write(archive.join("key1.pem"), "").unwrap();
        std::os::unix::fs::symlink("../archive/key1.pem", live.join("key.pem")).unwrap();
        assert_eq!(
            places_of(&live.join("key.pem")),
            [live.clone(), archive.clone(), live.join("key.pem")]
        );
        assert_eq!(places_of(&archive.join("key1.pem")), [archive.join("key1.pem")]);
        assert_eq!(places_of(&archive.join("gone")), [archive.join("gone")]);
    }
}
