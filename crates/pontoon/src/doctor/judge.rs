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

/// How bad a fault is for these clients. For one alone, what that one makes of it counts. For several it is an error only
/// where one that was run loses by it: what is read or reported of others is believed as far as a warning.
pub(super) fn severity(fault: Fault, clients: &[&Profile]) -> Severity {
    let below_error = fault.severity().min(Severity::Warning);
    if let [only] = clients {
        return match () {
            () if loses(only, fault) => Severity::Error,
            () if only.is_about(fault) => below_error,
            () => Severity::Information,
        };
    }
    let were_run = || clients.iter().filter(|it| it.is_measured);
    if were_run().any(|it| loses(it, fault)) {
        return Severity::Error;
    }
    // With such a fault the tool is there, and its answers are lost.
    let minding = were_run().filter(|it| it.is_about(fault)).count();
    if fault.severity() == Severity::Error && 2 * minding > were_run().count() {
        return Severity::Error;
    }
    match clients.iter().any(|it| loses(it, fault) && !takes_a_part(it)) {
        true => Severity::Warning,
        false => below_error,
    }
}

/// Whether this fault costs a client the tool, or all tools of the server.
pub(super) fn loses(client: &Profile, fault: Fault) -> bool {
    client.loses_tool.contains(&fault) || client.loses_server.contains(&fault)
}

/// Whether a client refuses whatever is not in its own part of JSON Schema: that is no fault of a tool.
fn takes_a_part(client: &Profile) -> bool {
    client.loses_server.contains(&Fault::Unsupported)
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
    use super::*;

    #[test]
    fn an_error_costs_a_client_that_was_run() {
        let clients: Vec<_> =
            Profile::all().iter().filter(|it| !["common", "none"].contains(&&*it.name)).collect();
        for fault in Fault::ALL {
            if severity(*fault, &clients) == Severity::Error {
                let minding = clients.iter().filter(|it| it.is_measured && it.is_about(*fault));
                assert!(minding.count() > 0, "{}", fault.id());
            }
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
