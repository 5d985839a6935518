//! The wire format of Protocol Buffers, as far as spans need it: written into memory, and read where a collector answers.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// A message that is being written. A field that has the value of none is left out, as the format has it.
#[derive(Debug, Default)]
pub(super) struct ProtobufWriter(Vec<u8>);

impl ProtobufWriter {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, form: u64) {
        self.varint(u64::from(field) << 3 | form);
    }

    /// A number of variable length.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.always_number(field, value);
        }
    }

    /// The same where zero is a value, too.
    pub(super) fn always_number(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// A number of eight bytes.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
    }

    /// A number of four bytes.
    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED32);
        self.0.extend(value.to_le_bytes());
    }

    /// Bytes, or a text.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.always(field, value);
        }
    }

    /// The same where none is a value, too.
    pub(super) fn always(&mut self, field: u32, value: &[u8]) {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    /// A message in this one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.always(field, &inner.0);
    }

    /// All that was written.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// One field that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The fields of a message with their numbers; they end where it is none.
pub(super) fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let key = read_varint(&mut rest)?;
        let field = match key & 7 {
            VARINT => Field::Number(read_varint(&mut rest)?),
            FIXED64 => Field::Bytes(take(&mut rest, 8)?),
            FIXED32 => Field::Bytes(take(&mut rest, 4)?),
            BYTES => {
                let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                Field::Bytes(take(&mut rest, length)?)
            }
            _ => return None,
        };
        Some((key >> 3, field))
    })
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(rest, 1)? else { return None };
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}
