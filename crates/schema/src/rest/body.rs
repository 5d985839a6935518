//! A body checked and completed.
//!
//! What fits stays as it was written. An alternative is chosen as Pydantic does in its smart mode: an exact match before
//! one that needs a change, and of objects the one that knows more of the members.

use std::borrow::Cow;

use super::field::{Field, Model};
use super::limits::{Breach, Limits};
use super::misfit::{Misfit, Place};
use super::number::{self, Whole};
use crate::cursor::Cursor;
use crate::node::{Member, Node};

/// No more is told of one body: so many misfits, and so many bytes of what stands there.
const MAX_MISFITS: usize = 100;
const MAX_INPUT: usize = 64 << 10;

/// So many values are looked at, alternatives included; what comes after them is left to the server.
const MAX_LOOKS: usize = 1 << 20;

/// How well a value fits, from what needs a change to what is exactly meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Changed,
    Near,
    Exact,
}

/// It does not fit; what is wrong was noted.
struct Unfit;

/// What takes the place of a value, if anything does.
type Fitted<'t> = Result<Option<Node<'t>>, Unfit>;

/// Why a body is no arguments.
pub(super) struct BodyRefusal {
    pub(super) misfits: Vec<Misfit>,
    /// Whether any value was refused that has the right type.
    pub(super) has_breach: bool,
}

/// The arguments that a body is. Limits of values count where that is wanted.
pub(super) fn arguments<'t>(
    model: &Model,
    body: &Node<'t>,
    has_limits: bool,
) -> Result<Option<Node<'t>>, BodyRefusal> {
    let mut check = BodyCheck {
        place: vec![Place::Name("body".to_owned())],
        misfits: Vec::new(),
        input_left: MAX_INPUT,
        looks_left: MAX_LOOKS,
        fit: Fit::Exact,
        known: None,
        has_limits,
        has_breach: false,
    };
    let fitted = check.model(model, body);
    let BodyCheck { misfits, has_breach, .. } = check;
    fitted.map_err(|Unfit| BodyRefusal { misfits, has_breach })
}

/// What of a body a misfit repeats, if it is not too much.
pub(super) fn repeated(body: &str) -> String {
    if body.len() <= MAX_INPUT { body.to_owned() } else { "null".to_owned() }
}

struct BodyCheck {
    place: Vec<Place>,
    misfits: Vec<Misfit>,
    input_left: usize,
    looks_left: usize,
    /// How well the value fits so far, and how many members of objects are known in it.
    fit: Fit,
    known: Option<usize>,
    has_limits: bool,
    has_breach: bool,
}

impl BodyCheck {
    fn field<'t>(&mut self, field: &Field, node: &Node<'t>) -> Fitted<'t> {
        if self.looks_left == 0 {
            return Ok(None);
        }
        self.looks_left -= 1;
        match field {
            Field::Any => {
                self.fit = self.fit.min(Fit::Near);
                Ok(None)
            }
            Field::Text => match node.as_text().is_some() || is_text(node) {
                true => Ok(None),
                false => self.unfit("string_type", "Input should be a valid string", node),
            },
            Field::Integer => self.integer(node),
            Field::Number => self.number(node),
            Field::Bool => self.bool(node),
            Field::Null => match node.is_null() {
                true => Ok(None),
                false => self.unfit("none_required", "Input should be None", node),
            },
            Field::Map => match node {
                Node::Object(members) => {
                    if !members.is_empty() {
                        self.fit = self.fit.min(Fit::Near);
                    }
                    Ok(None)
                }
                Node::Deep(text) if text.starts_with('{') => Ok(None),
                _ => self.unfit("dict_type", "Input should be a valid dictionary", node),
            },
            Field::List(field) => self.list(field, node),
            Field::Model(model) => self.model(model, node),
            Field::Nullable(_) if node.is_null() => Ok(None),
            Field::Nullable(field) => self.field(field, node),
            Field::OneOf(fields) => self.one_of(fields, node),
            Field::Limited(field, limits) => self.limited(field, limits, node),
        }
    }

    fn limited<'t>(&mut self, field: &Field, limits: &Limits, node: &Node<'t>) -> Fitted<'t> {
        let fitted = self.field(field, node)?;
        self.looks_left = self.looks_left.saturating_sub(limits.weight());
        if !self.has_limits || self.looks_left == 0 {
            return Ok(fitted);
        }
        match limits.breach(fitted.as_ref().unwrap_or(node)) {
            None => Ok(fitted),
            Some(Breach { kind, msg, ctx }) => {
                self.has_breach = true;
                self.note(kind, Cow::Owned(msg), Some(ctx), node);
                Err(Unfit)
            }
        }
    }

    fn unfit<'t>(&mut self, kind: &'static str, msg: &'static str, node: &Node<'_>) -> Fitted<'t> {
        self.note(kind, Cow::Borrowed(msg), None, node);
        Err(Unfit)
    }

    fn note(
        &mut self,
        kind: &'static str,
        msg: Cow<'static, str>,
        ctx: Option<String>,
        node: &Node<'_>,
    ) {
        if self.misfits.len() < MAX_MISFITS {
            let input = if self.input_left == 0 { None } else { Some(node.written()) };
            // What has no room is not written out again and again.
            let left = input.as_ref().and_then(|input| self.input_left.checked_sub(input.len()));
            self.input_left = left.unwrap_or(0);
            let input = input.filter(|_| left.is_some()).unwrap_or_else(|| "null".to_owned());
            let kind = Cow::Borrowed(kind);
            self.misfits.push(Misfit { kind, loc: self.place.clone(), msg, input, ctx });
        }
    }

    /// The value is another one than was written.
    fn changed<'t>(&mut self, to: impl Into<Cow<'t, str>>) -> Fitted<'t> {
        self.fit = Fit::Changed;
        Ok(Some(Node::Plain(to.into())))
    }

    fn integer<'t>(&mut self, node: &Node<'t>) -> Fitted<'t> {
        const PARSING: &str =
            "Input should be a valid integer, unable to parse string as an integer";
        const SIZE: &str = "Unable to parse input string as an integer, exceeded maximum size";
        const FRACTION: &str =
            "Input should be a valid integer, got a number with a fractional part";
        if let Some(number) = node.as_number() {
            if !number.contains(['.', 'e', 'E']) {
                return Ok(None);
            }
            return match number::whole_of_number(number) {
                Whole::Some(whole) => self.changed(whole),
                Whole::None => self.unfit("int_from_float", FRACTION, node),
                Whole::Long => Ok(None),
            };
        }
        if let Some(word) = node.as_bool() {
            return self.changed(if word { "1" } else { "0" });
        }
        match node.as_text() {
            Some(text) if text.len() > number::MAX_DIGITS => {
                self.unfit("int_parsing_size", SIZE, node)
            }
            Some(text) => match number::whole_of_text(&text) {
                Some(whole) => self.changed(whole),
                None => self.unfit("int_parsing", PARSING, node),
            },
            None => self.unfit("int_type", "Input should be a valid integer", node),
        }
    }

    fn number<'t>(&mut self, node: &Node<'t>) -> Fitted<'t> {
        const PARSING: &str = "Input should be a valid number, unable to parse string as a number";
        if let Some(number) = node.as_number() {
            if !number.contains(['.', 'e', 'E']) {
                self.fit = self.fit.min(Fit::Near);
            }
            return Ok(None);
        }
        if let Some(word) = node.as_bool() {
            return self.changed(if word { "1.0" } else { "0.0" });
        }
        match node.as_text() {
            Some(text) => match number::number_of_text(&text) {
                Some(number) => self.changed(number),
                None => self.unfit("float_parsing", PARSING, node),
            },
            None => self.unfit("float_type", "Input should be a valid number", node),
        }
    }

    fn bool<'t>(&mut self, node: &Node<'t>) -> Fitted<'t> {
        const PARSING: &str = "Input should be a valid boolean, unable to interpret input";
        if node.as_bool().is_some() {
            return Ok(None);
        }
        let is_text = node.as_text().is_some();
        let word = match (node.as_text(), node.as_number()) {
            (Some(text), _) => number::bool_of_text(&text),
            (None, Some(number)) => match number.parse::<f64>() {
                Ok(0.0) => Some(false),
                Ok(1.0) => Some(true),
                _ => None,
            },
            _ => None,
        };
        let is_small = node
            .as_number()
            .and_then(|number| number.parse::<f64>().ok())
            .is_some_and(|size| size.fract() == 0.0 && size.abs() < 9e18);
        match word {
            Some(word) => self.changed(if word { "true" } else { "false" }),
            None if is_text || is_small => self.unfit("bool_parsing", PARSING, node),
            None => self.unfit("bool_type", "Input should be a valid boolean", node),
        }
    }

    fn list<'t>(&mut self, field: &Field, node: &Node<'t>) -> Fitted<'t> {
        let items = match node {
            Node::List(items) => items,
            Node::Deep(text) if text.starts_with('[') => return Ok(None),
            _ => return self.unfit("list_type", "Input should be a valid list", node),
        };
        let (mut changed, mut is_unfit) = (None, false);
        for (at, item) in items.iter().enumerate() {
            self.place.push(Place::Index(at));
            match self.field(field, item) {
                Ok(None) => {}
                Ok(Some(to)) => changed.get_or_insert_with(|| items.clone())[at] = to,
                Err(Unfit) => is_unfit = true,
            }
            self.place.pop();
        }
        if is_unfit { Err(Unfit) } else { Ok(changed.map(Node::List)) }
    }

    fn model<'t>(&mut self, model: &Model, node: &Node<'t>) -> Fitted<'t> {
        const OBJECT: &str = "Input should be a valid dictionary or object to extract fields from";
        let members = match node {
            Node::Object(members) => members,
            Node::Deep(text) if text.starts_with('{') => return Ok(None),
            _ => return self.unfit("model_attributes_type", OBJECT, node),
        };
        self.fit = self.fit.min(Fit::Near);
        // Each alternative goes over all of them.
        self.looks_left = self.looks_left.saturating_sub(members.len() + model.fields.len());
        let mut found: Vec<Option<usize>> = vec![None; model.fields.len()];
        let (mut is_changed, mut is_unfit) = (false, false);
        for (at, member) in members.iter().enumerate() {
            match model.places.get(&*member.name()) {
                // Of two with one name the last counts.
                Some(place) => is_changed |= found[*place].replace(at).is_some(),
                None => is_changed |= model.is_closed,
            }
        }
        let mut fitted: Vec<Option<Node<'t>>> = Vec::new();
        fitted.resize_with(members.len(), || None);
        let mut added = Vec::new();
        for (known, found) in model.fields.iter().zip(&found) {
            self.place.push(Place::Name(known.name.clone()));
            match (found, &known.default) {
                (Some(at), _) => match self.field(&known.field, &members[*at].value) {
                    Ok(to) => {
                        is_changed |= to.is_some();
                        fitted[*at] = to;
                    }
                    Err(Unfit) => is_unfit = true,
                },
                (None, _) if known.is_required => {
                    is_unfit |= self.unfit("missing", "Field required", node).is_err();
                }
                (None, Some(default)) => {
                    let default = Node::Plain(Cow::Owned(default.clone()));
                    added.push(Member::new(&known.name, default));
                }
                (None, None) => {}
            }
            self.place.pop();
        }
        let count = found.iter().flatten().count();
        self.known = Some(self.known.unwrap_or(0) + count);
        if is_unfit {
            return Err(Unfit);
        }
        if !is_changed && added.is_empty() {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(members.len() + added.len());
        for (at, (member, fitted)) in members.iter().zip(fitted).enumerate() {
            let place = model.places.get(&*member.name());
            let is_kept = place.map_or(!model.is_closed, |place| found[*place] == Some(at));
            if is_kept {
                let mut member = member.clone();
                if let Some(fitted) = fitted {
                    member.value = fitted;
                }
                kept.push(member);
            }
        }
        kept.extend(added);
        Ok(Some(Node::Object(kept)))
    }

    fn one_of<'t>(&mut self, fields: &[Field], node: &Node<'t>) -> Fitted<'t> {
        let (fit, known) = (self.fit, self.known);
        let misfits = self.misfits.len();
        let mut best: Option<(Option<Node<'t>>, Fit, Option<usize>)> = None;
        for field in fields {
            (self.fit, self.known) = (Fit::Exact, None);
            self.place.push(Place::Name(field.label()));
            let fitted = self.field(field, node);
            self.place.pop();
            let Ok(fitted) = fitted else { continue };
            let is_better = best.as_ref().is_none_or(|(_, fit, known)| match (known, self.known) {
                (Some(before), Some(now)) if *before != now => *before < now,
                _ => self.fit > *fit,
            });
            if is_better {
                best = Some((fitted, self.fit, self.known));
            }
            if (self.fit, self.known) == (Fit::Exact, None) {
                break;
            }
        }
        let Some((fitted, best_fit, best_known)) = best else { return Err(Unfit) };
        self.misfits.truncate(misfits);
        self.fit = fit.min(best_fit);
        self.known = match (known, best_known) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
        Ok(fitted)
    }
}

/// A text of which no reader knows what it says stands there as it was written.
fn is_text(node: &Node<'_>) -> bool {
    matches!(node, Node::Plain(text) if text.starts_with('"'))
}

impl Model {
    /// Whether nothing is to be changed in a body, nor wrong with it. This is what bodies mostly are, so it goes over
    /// the text once and makes nothing of it.
    pub(super) fn suits(&self, body: &str) -> bool {
        let mut cursor = Cursor::new(body);
        cursor.space();
        cursor.peek() == Some(b'{') && self.suits_next(&mut cursor) == Some(true)
    }

    fn suits_next(&self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let mut seen = 0_u128;
        let mut expected = 0;
        while cursor.next_item(b'}') {
            let key = cursor.skip().strip_prefix('"')?.strip_suffix('"')?;
            cursor.colon()?;
            if key.contains('\\') {
                return Some(false);
            }
            match self.places.get(key) {
                None if self.is_closed => return Some(false),
                None => drop(cursor.skip()),
                Some(at) => {
                    // Of two with one name the last counts.
                    let bit = 1_u128.checked_shl(u32::try_from(*at).ok()?)?;
                    if seen & bit != 0 || !self.fields[*at].field.suits(cursor)? {
                        return Some(false);
                    }
                    seen |= bit;
                    expected += usize::from(self.fields[*at].is_expected());
                }
            }
        }
        Some(expected == self.expected)
    }
}

impl Field {
    /// The same for the value that comes next; false where a closer look is needed.
    fn suits(&self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let next = cursor.peek()?;
        let is_number = matches!(next, b'-' | b'0'..=b'9');
        let is_well = match self {
            Self::Limited(field, limits) => {
                let raw = cursor.skip();
                let is_plain = !matches!(next, b'[' | b'{');
                let value = Node::Plain(Cow::Borrowed(raw));
                let is_well = is_plain && limits.breach(&value).is_none();
                return Some(is_well && field.suits(&mut Cursor::new(raw))?);
            }
            Self::Any => true,
            Self::Text => next == b'"',
            Self::Integer => return Some(is_number && !cursor.skip().contains(['.', 'e', 'E'])),
            Self::Number => is_number,
            Self::Bool => matches!(next, b't' | b'f'),
            Self::Null => next == b'n',
            Self::Map => next == b'{',
            Self::List(_) if next != b'[' => false,
            Self::List(field) => {
                while cursor.next_item(b']') {
                    if !field.suits(cursor)? {
                        return Some(false);
                    }
                }
                return Some(true);
            }
            Self::Model(_) if next != b'{' => false,
            Self::Model(model) => return model.suits_next(cursor),
            Self::Nullable(_) if next == b'n' => true,
            Self::Nullable(field) => return field.suits(cursor),
            Self::OneOf(fields) => {
                // What is limited is looked at more closely.
                let has = |wanted: fn(&Self) -> bool| fields.iter().any(wanted);
                match next {
                    b'"' => has(|it| matches!(it, Self::Text)),
                    b't' | b'f' => has(|it| matches!(it, Self::Bool)),
                    b'-' | b'0'..=b'9' if has(|it| matches!(it, Self::Number)) => true,
                    b'-' | b'0'..=b'9' if has(|it| matches!(it, Self::Integer)) => {
                        return Some(!cursor.skip().contains(['.', 'e', 'E']));
                    }
                    b'[' | b'{' => {
                        let mut opens = fields.iter().filter(|it| match it {
                            Self::List(_) => next == b'[',
                            Self::Model(_) | Self::Map => next == b'{',
                            Self::Limited(..) => true,
                            Self::Any => true,
                            _ => false,
                        });
                        let only = opens.next();
                        return match (only, opens.next()) {
                            (Some(only), None) => only.suits(cursor),
                            _ => Some(false),
                        };
                    }
                    _ => false,
                }
            }
        };
        cursor.skip();
        Some(is_well)
    }
}
