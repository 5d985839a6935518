//! How bad a fault of tools is: by the clients that lose by it, and by how that is known.

use pontoon_schema::{Fault, Profile, Severity};

use super::symptom::Symptom;

/// The fault with the clients that mind it, as bad as it is for these.
pub(super) fn symptom(fault: Fault, clients: &[&'static Profile]) -> Symptom {
    let titles = |is_meant: &dyn Fn(&Profile) -> bool| {
        let meant = clients.iter().filter(|it| is_meant(it));
        meant.map(|it| it.title.clone()).collect::<Vec<_>>()
    };
    let mut minds = titles(&|it| loses(it, fault));
    minds.extend(titles(&|it| it.is_about(fault) && !loses(it, fault)));
    Symptom { severity: severity(fault, clients), minds, ..Symptom::of_fault(fault, None) }
}

/// How bad a fault is for these clients: for one alone, what that one makes of it; for several, what the table of faults
/// says, which is true to all of them.
pub(super) fn severity(fault: Fault, clients: &[&Profile]) -> Severity {
    match clients {
        [only] if loses(only, fault) => Severity::Error,
        [only] if only.is_about(fault) => fault.severity().min(Severity::Warning),
        [_] => Severity::Information,
        _ => fault.severity(),
    }
}

/// Whether this fault costs a client the tool, or all tools of the server.
pub(super) fn loses(client: &Profile, fault: Fault) -> bool {
    client.loses_tool.contains(&fault) || client.loses_server.contains(&fault)
}

/// Whether a client reads what tools promise of their results. Services of models are sent the name, the description
/// and the arguments, and nothing else.
pub(super) fn reads_results(client: &Profile) -> bool {
    let of_results =
        [Fault::OldDialectOutput, Fault::OutputForm, Fault::OutputRoot, Fault::OutputUnkept];
    client.name == Profile::none().name || of_results.iter().any(|it| client.is_about(*it))
}

#[cfg(test)]
mod tests {
    use pontoon_schema::{Effect, Finding, Repair};
    use tracing::Level;

    use super::*;
    use crate::doctor::options::clients;
    use crate::observe::heals::HealLog;

    /// Whether a client refuses whatever is not in its own part of JSON Schema: that is no fault of a tool.
    fn takes_a_part(client: &Profile) -> bool {
        client.loses_server.contains(&Fault::Unsupported)
    }

    /// How bad a fault is by the profiles. It is an error only where a client that was run loses by it: what is read or
    /// reported of others is believed as far as a warning.
    fn by_profiles(fault: Fault) -> Severity {
        let clients = clients();
        let were_run = || clients.iter().filter(|it| it.is_measured);
        // With such a fault the tool is there, and its answers are lost.
        let minding = were_run().filter(|it| it.is_about(fault)).count();
        let costs_answers = fault.severity() == Severity::Error && 2 * minding > were_run().count();
        match () {
            () if costs_answers || were_run().any(|it| loses(it, fault)) => Severity::Error,
            () if clients.iter().any(|it| loses(it, fault) && !takes_a_part(it)) => {
                Severity::Warning
            }
            () => fault.severity().min(Severity::Warning),
        }
    }

    #[test]
    fn the_table_of_faults_is_true_to_the_profiles() {
        for fault in Fault::ALL {
            assert_eq!(fault.severity(), by_profiles(*fault), "{}", fault.id());
        }
    }

    #[test]
    fn the_doctor_and_the_log_of_the_bridge_go_by_the_table() {
        for fault in Fault::ALL {
            assert_eq!(severity(*fault, &clients()), fault.severity(), "{}", fault.id());
            let log = HealLog::new("demo");
            let place = "/inputSchema".to_owned();
            let repair = Repair { what: "put right".to_owned(), effect: Effect::Same };
            let level =
                log.note_schema("a", &Finding { fault: *fault, place, repair: Some(repair) });
            let expected = match fault.severity() {
                Severity::Information => Level::INFO,
                Severity::Warning | Severity::Error => Level::WARN,
            };
            assert_eq!(level, Some(expected), "{}", fault.id());
            assert_eq!(log.counts(), [(fault.code(), 1)]);
        }
    }

    #[test]
    fn results_are_for_clients_of_the_protocol() {
        let reading = Profile::all().iter().filter(|it| it.is_measured);
        assert!(reading.clone().count() > 5 && reading.clone().all(reads_results));
        for name in ["openai", "openai-strict", "gemini", "gemini-json-schema", "anthropic-api"] {
            assert!(Profile::named(name).is_some_and(|it| !reads_results(it)), "{name}");
        }
    }
}
