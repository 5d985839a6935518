//! What the settings are worth a remark for once all of them are known.
//!
//! Each may be fine by itself; here is told what lets strangers in, what loses files, and what
//! cannot mean what its author thinks.

use std::net::SocketAddr;
use std::path::Path;

use super::reach::review_links;
use super::remarks::{Place, Remarks, Weight};
use super::secret::ApiKey;
use super::settings::Settings;
use super::{Options, absolute};

/// A key shorter than this can be guessed.
const SHORTEST_KEY: usize = 8;

/// The same for what signs users: HS256 stands and falls with it.
const SHORTEST_JWT_SECRET: usize = 16;

/// Looks the settings over, with what the command line adds to them.
pub(super) fn review(options: &Options, settings: &Settings, remarks: &mut Remarks) {
    review_listening(options, settings, remarks);
    review_keys(options, settings, remarks);
    review_proxies(settings, remarks);
    if !options.is_silent {
        review_links(settings, remarks);
    }
    review_folders(settings, remarks);
}

/// Refuses to let strangers in by accident.
fn review_listening(options: &Options, settings: &Settings, remarks: &mut Remarks) {
    if settings.has_key() || options.is_silent {
        return;
    }
    let (place, key) = match options.listen {
        Some(_) => (Place::CommandLine, "--listen"),
        None => (Place::Environment, "MCPO_LISTEN"),
    };
    let is_public = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    for address in settings.listen.iter().filter(is_public) {
        let (weight, message) = if options.insecure {
            let message = format!("whoever reaches {address} can use every server");
            (Weight::Warning, message)
        } else {
            let message = format!(
                "{address} can be reached from other machines, and there is no API key: set \
                 MCPO_API_KEY, or listen on 127.0.0.1, or add --insecure if something else keeps \
                 strangers out"
            );
            (Weight::Mistake, message)
        };
        remarks.add(weight, place.clone(), key, message);
    }
}

fn review_keys(options: &Options, settings: &Settings, remarks: &mut Remarks) {
    let unnamed = match options.api_key {
        Some(_) => (Place::CommandLine, "--api-key"),
        None => (Place::Environment, "MCPO_API_KEY"),
    };
    if options.api_key.is_some() {
        let message = "other users of this machine can read it here; set MCPO_API_KEY instead";
        remarks.add(Weight::Warning, unnamed.0.clone(), unnamed.1, message);
    }
    let keys = settings.keys();
    for (index, ApiKey { name, key }) in keys.iter().enumerate() {
        // The one without a name comes first.
        let is_unnamed = index == 0 && settings.api_key.is_some();
        let (place, variable) = match is_unnamed {
            true => unnamed.clone(),
            false => (Place::Environment, "MCPO_API_KEYS"),
        };
        let mut tell = |weight, message: String| {
            remarks.add(weight, place.clone(), variable, message);
        };
        if key.expose().len() < SHORTEST_KEY {
            let message = format!(
                "the key `{name}` is easily guessed; take at least {SHORTEST_KEY} characters"
            );
            tell(Weight::Warning, message);
        }
        let before = &keys[..index];
        if before.iter().any(|other| other.name.as_str() == name.as_str()) {
            tell(Weight::Mistake, format!("there are two keys of the name `{name}`"));
        }
        if let Some(other) = before.iter().find(|other| other.key == *key) {
            let message = format!("the keys of `{}` and `{name}` are the same", other.name);
            tell(Weight::Mistake, message);
        }
    }
    if (settings.strict_auth || options.strict_auth) && keys.is_empty() {
        let (place, key) = match options.strict_auth {
            true => (Place::CommandLine, "--strict-auth"),
            false => (Place::Environment, "MCPO_STRICT_AUTH"),
        };
        let message = "there is no key to ask for; set MCPO_API_KEY";
        remarks.add(Weight::Mistake, place, key, message);
    }
    if settings.owui_jwt_secret.as_ref().is_some_and(|it| it.expose().len() < SHORTEST_JWT_SECRET) {
        let message = format!(
            "is easily guessed; take at least {SHORTEST_JWT_SECRET} characters, here and there"
        );
        remarks.add(Weight::Warning, Place::Environment, "MCPO_OWUI_JWT_SECRET", message);
    }
}

fn review_proxies(settings: &Settings, remarks: &mut Remarks) {
    if settings.trusted_proxies.iter().any(|block| block.is_everything()) {
        let message = "everyone is trusted, so whoever reaches Pontoon can pretend to be anybody";
        remarks.add(Weight::Warning, Place::Environment, "MCPO_TRUSTED_PROXIES", message);
        return;
    }
    // Servers run here as well, and have no key.
    let is_proved = settings.owui_jwt_secret.is_some() || settings.has_key();
    if !is_proved && settings.trusted_proxies.iter().any(|block| block.has_loopback()) {
        let message = "this machine is trusted, so every server that may use the network can pretend \
                       to be any user; set MCPO_OWUI_JWT_SECRET or an API key, or give servers \
                       \"isolation\": {\"network\": \"none\"}";
        remarks.add(Weight::Warning, Place::Environment, "MCPO_TRUSTED_PROXIES", message);
    }
}

/// What is too old in the folder of jobs is removed, so nothing else may lie there.
fn review_folders(settings: &Settings, remarks: &mut Remarks) {
    let jobs = absolute(&settings.jobs_dir);
    if jobs.parent().is_none() {
        let message = "is the root of all files; name a folder of its own";
        remarks.add(Weight::Mistake, Place::Environment, "MCPO_JOBS_DIR", message);
        return;
    }
    let others = [
        ("MCPO_LOG_DIR", settings.log_dir.as_deref()),
        ("MCPO_STATE_DIR", settings.state_dir.as_deref()),
    ];
    let is_inside = |folder: &Path| absolute(folder).starts_with(&jobs);
    for (variable, _) in others.iter().filter(|(_, folder)| folder.is_some_and(is_inside)) {
        let message = format!("lies in `{}`, where all that is old is removed", jobs.display());
        remarks.add(Weight::Mistake, Place::Environment, *variable, message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::{self, Environment};
    use super::*;

    /// Compares what is told about these variables and options.
    fn check_with(options: &Options, variables: &[(&str, &str)], told: &[&str]) {
        let variables = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        let mut remarks = Remarks::default();
        let mut settings = environment::read(&Environment::new(variables), &mut remarks);
        if let Some(key) = &options.api_key {
            environment::take(&mut settings, "MCPO_API_KEY", key).unwrap();
        }
        review(options, &settings, &mut remarks);
        let lines: Vec<String> = remarks
            .iter()
            .map(|remark| format!("{:?}: {}: {}", remark.weight, remark.key, remark.message))
            .collect();
        assert_eq!(lines, told);
    }

    fn check(variables: &[(&str, &str)], told: &[&str]) {
        check_with(&Options::default(), variables, told);
    }

    #[test]
    fn keys_and_their_names_differ() {
        check(&[("MCPO_API_KEY", "12345678"), ("MCPO_API_KEYS", "a=abcdefgh,b=ABCDEFGH")], &[]);
        check(
            &[("MCPO_API_KEY", "12345678"), ("MCPO_API_KEYS", "a=12345678,default=abcdefgh")],
            &[
                "Mistake: MCPO_API_KEYS: the keys of `default` and `a` are the same",
                "Mistake: MCPO_API_KEYS: there are two keys of the name `default`",
            ],
        );
    }

    #[test]
    fn a_short_key_warns() {
        let told = "is easily guessed; take at least";
        check(
            &[("MCPO_API_KEY", "1234567"), ("MCPO_API_KEYS", "a=7")],
            &[
                &format!("Warning: MCPO_API_KEY: the key `default` {told} 8 characters"),
                &format!("Warning: MCPO_API_KEYS: the key `a` {told} 8 characters"),
            ],
        );
        check(
            &[("MCPO_OWUI_JWT_SECRET", "123")],
            &[&format!("Warning: MCPO_OWUI_JWT_SECRET: {told} 16 characters, here and there")],
        );
    }

    #[test]
    fn a_key_on_the_command_line_warns() {
        let options = Options { api_key: Some("12345678".to_owned()), ..Options::default() };
        let told = "Warning: --api-key: other users of this machine can read it here; set \
                    MCPO_API_KEY instead";
        check_with(&options, &[], &[told]);
    }

    #[test]
    fn strict_auth_needs_a_key() {
        let told = "there is no key to ask for; set MCPO_API_KEY";
        check(&[("MCPO_STRICT_AUTH", "true")], &[&format!("Mistake: MCPO_STRICT_AUTH: {told}")]);
        let options = Options { strict_auth: true, ..Options::default() };
        check_with(&options, &[], &[&format!("Mistake: --strict-auth: {told}")]);
        check_with(&options, &[("MCPO_API_KEYS", "a=12345678")], &[]);
    }

    #[test]
    fn listening_beyond_this_machine_needs_a_key() {
        let public = ("MCPO_LISTEN", "0.0.0.0:80");
        check(&[public, ("MCPO_API_KEY", "12345678")], &[]);
        check(&[public, ("MCPO_API_KEYS", "a=12345678")], &[]);
        let told = "Mistake: MCPO_LISTEN: 0.0.0.0:80 can be reached from other machines, and \
                    there is no API key: set MCPO_API_KEY, or listen on 127.0.0.1, or add \
                    --insecure if something else keeps strangers out";
        check(&[public], &[told]);
    }

    #[test]
    fn where_nothing_listens_any_address_will_do() {
        let options = Options { is_silent: true, ..Options::default() };
        check_with(&options, &[("MCPO_LISTEN", "0.0.0.0:80")], &[]);
    }

    #[test]
    fn trusting_everyone_warns() {
        let told = "Warning: MCPO_TRUSTED_PROXIES: everyone is trusted, so whoever reaches \
                    Pontoon can pretend to be anybody";
        check(&[("MCPO_TRUSTED_PROXIES", "10.0.0.0/8, ::/0")], &[told]);
        check(&[("MCPO_TRUSTED_PROXIES", "10.0.0.0/8")], &[]);
    }

    #[test]
    fn trusting_this_machine_warns_where_nothing_proves_who_asks() {
        let told = "Warning: MCPO_TRUSTED_PROXIES: this machine is trusted, so every server that may \
                    use the network can pretend to be any user; set MCPO_OWUI_JWT_SECRET or an API \
                    key, or give servers \"isolation\": {\"network\": \"none\"}";
        for trusted in ["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8, ::1", "127.1.2.3", "::/64"] {
            check(&[("MCPO_TRUSTED_PROXIES", trusted)], &[told]);
            let proof = ("MCPO_OWUI_JWT_SECRET", "0123456789abcdef");
            check(&[("MCPO_TRUSTED_PROXIES", trusted), proof], &[]);
            check(&[("MCPO_TRUSTED_PROXIES", trusted), ("MCPO_API_KEY", "12345678")], &[]);
        }
        check(&[("MCPO_TRUSTED_PROXIES", "192.0.2.1, fd00::/8")], &[]);
    }

    #[test]
    fn the_folder_of_jobs_is_its_own() {
        let told = "Mistake: MCPO_JOBS_DIR: is the root of all files; name a folder of its own";
        check(&[("MCPO_JOBS_DIR", "/")], &[told]);
        let told = "lies in `/j`, where all that is old is removed";
        check(
            &[("MCPO_JOBS_DIR", "/j"), ("MCPO_LOG_DIR", "/j/log"), ("MCPO_STATE_DIR", "/j")],
            &[
                &format!("Mistake: MCPO_LOG_DIR: {told}"),
                &format!("Mistake: MCPO_STATE_DIR: {told}"),
            ],
        );
        check(&[("MCPO_JOBS_DIR", "/j"), ("MCPO_LOG_DIR", "/jobs")], &[]);
    }
}
