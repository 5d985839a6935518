//! Keeps `docs/codes.md` true to the tables of faults, heals and signs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pontoon_schema::{Fault, Profile};
use pontoon_wire::heal::Heal;

use super::heal_words;
use super::sign::Sign;

const HEAD: &str = "\
<!-- Written by a test from the tables in crates/schema/src/fault.rs, crates/wire/src/heal and crates/pontoon/src/doctor.
     Renew it with UPDATE=1 cargo test -p pontoon doctor::docs -->

# Codes

Every fault that Pontoon knows, by its code: logs, metrics, `pontoon status`, `/health` and `pontoon doctor` name them so. For each:
what it is, how bad it is for a client without Pontoon, who minds, how to mend it at the source, and what Pontoon does about it.

- **error**: a client that was run loses the tool, all tools of its server, or answers.
- **warning**: some clients make less of it, or it will fail one day; or a client that was not run loses the tool, by what is read or reported of it.
- **information**: good to know, or refused only by a client that takes a part of JSON Schema (Gemini function declarations) and nothing beside it.

With `--profile` what costs this client a tool is an error, and what it does not mind is information.

`S` is the schema of a tool or the list of tools, `H` a message or the process, `D` what only an examination by
`pontoon doctor` shows.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "\n## Tools and their schemas\n";
    let mut code = "";
    for fault in Fault::ALL {
        if fault.code() != code {
            code = fault.code();
            let _ = write!(page, "\n### {code}\n");
        }
        let minds: Vec<_> = Profile::all()
            .iter()
            .filter(|it| it.is_about(*fault) && !matches!(it.name.as_str(), "common" | "none"))
            .map(|it| it.title.as_str())
            .collect();
        let minds =
            if minds.is_empty() { "no client that is known".to_owned() } else { minds.join(", ") };
        entry(
            &mut page,
            &Row {
                id: fault.id(),
                severity: fault.severity().as_str(),
                what: fault.meaning(),
                minds: &minds,
                fix: fault.fix(),
                here: fault.here(),
            },
        );
    }
    page += "\n## Clients\n\nThe profiles that `profile` of a server and `pontoon doctor --profile` name, and how each is known.\n\n";
    page += "| profile | client | known |\n|---|---|---|\n";
    for profile in Profile::all() {
        let Profile { name, title, version, date, source, is_measured, .. } = profile;
        let how = if *is_measured { format!("measured with {version}, ") } else { String::new() };
        let _ = writeln!(page, "| `{name}` | {title} | {how}{date}. {source} |");
    }
    page += "\n## Messages and processes\n";
    for heal in Heal::ALL {
        let _ = write!(page, "\n### {}\n", heal.code());
        let severity = match heal {
            Heal::H19 => "warning, of one that answers 2024-11-05 always information",
            heal => heal_words::of(*heal).1.as_str(),
        };
        let (what, fix, here) = (heal.meaning(), heal.fix(), heal.here());
        let here = match heal.is_always_dealt_with() {
            true => &format!("{here} `heal` only says whether it is counted."),
            false => here,
        };
        let minds = heal.minds().trim_end_matches('.');
        entry(&mut page, &Row { id: heal.code(), severity, what, minds, fix, here });
    }
    page += "\n## What an examination shows\n";
    for sign in Sign::ALL {
        let _ = write!(page, "\n### {}\n", sign.code());
        let severity = match sign {
            Sign::SlowStart => "warning, from 30 s on error",
            Sign::ListFails => "error, for prompts and resources warning",
            sign => sign.severity().as_str(),
        };
        let (what, fix, here) = (sign.meaning(), sign.fix(), sign.here());
        let minds = sign.minds().trim_end_matches('.');
        entry(&mut page, &Row { id: sign.code(), severity, what, minds, fix, here });
    }
    page
}

struct Row<'r> {
    id: &'r str,
    severity: &'r str,
    what: &'r str,
    minds: &'r str,
    fix: &'r str,
    here: &'r str,
}

fn entry(page: &mut String, row: &Row<'_>) {
    let _ = write!(page, "\n`{}` ({}): {}.\n\n", row.id, row.severity, row.what);
    let _ = writeln!(page, "- Minded by: {}.", row.minds);
    let _ = writeln!(page, "- Fix: {}", row.fix);
    let _ = writeln!(page, "- Pontoon: {}", row.here);
}

#[test]
fn the_page_says_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/codes.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/codes.md is stale; renew it with `UPDATE=1 cargo test -p pontoon doctor::docs`"
    );
}
