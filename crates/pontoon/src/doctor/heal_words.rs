//! What each heal is about, and how bad it is for clients without the bridge. What it means and how it is put right is
//! in the table of heals itself.

use pontoon_schema::Severity;
use pontoon_wire::heal::Heal;

use super::aspect::Aspect;

/// What a heal is about, and how bad it is.
pub fn of(heal: Heal) -> (Aspect, Severity) {
    use Aspect::{Ending, Framing, Handshake, Requests};
    use Severity::{Error, Information, Warning};
    match heal {
        Heal::H01 | Heal::H04 | Heal::H07 | Heal::H26 => (Framing, Warning),
        Heal::H02 | Heal::H03 | Heal::H05 | Heal::H06 => (Framing, Error),
        Heal::H13 | Heal::H16 | Heal::H30 => (Framing, Error),
        Heal::H15 => (Framing, Warning),
        Heal::H08 | Heal::H10 | Heal::H12 | Heal::H22 => (Requests, Warning),
        Heal::H24 | Heal::H25 | Heal::H29 => (Requests, Warning),
        Heal::H09 | Heal::H11 | Heal::H14 | Heal::H17 | Heal::H18 => (Requests, Error),
        Heal::H23 => (Handshake, Error),
        Heal::H19 | Heal::H20 => (Handshake, Warning),
        Heal::H21 => (Handshake, Information),
        Heal::H27 | Heal::H28 => (Ending, Warning),
        // A kind that is newer than this table.
        _ => (Requests, Warning),
    }
}
