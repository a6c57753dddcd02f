//! CSV with a header line, as RFC 4180 describes it, but for fields over several lines.

use std::sync::Arc;

use memchr::memchr;

use super::super::{
    Entry,
    columns::Columns,
    entry::{Name, Span},
    roles::{Role, Roles},
};

/// The separators, of which the header line has most.
const SEPARATORS: &[u8] = b",;\t|";

const MAX_COLUMNS: usize = 1_024;

/// The parser of a file of CSV, after its header line.
#[derive(Debug)]
pub(super) struct Csv {
    columns: Arc<Columns>,
    separator: u8,
}

/// A field of a line, without its quotes.
struct Cell {
    start: usize,
    end: usize,
    has_escapes: bool,
    /// The place behind its separator, or `None` for the last field.
    next: Option<usize>,
}

impl Csv {
    /// Reads a header line. It must have a name for the time.
    pub(super) fn new(header: &str, roles: &Roles) -> Result<Self, &'static str> {
        // `max_by_key` takes the last of equal ones.
        let separators = SEPARATORS.iter().rev().copied();
        let separator =
            separators.max_by_key(|separator| header.bytes().filter(|it| it == separator).count());
        let separator = separator.unwrap_or(b',');
        let mut names = Vec::new();
        let mut at = Some(0);
        while let Some(start) = at {
            let cell = Cell::read(header, start, separator)?;
            names.push(header[cell.start..cell.end].trim().replace("\"\"", "\""));
            at = cell.next;
        }
        if names.len() > MAX_COLUMNS {
            return Err("too many columns");
        }
        let columns = Columns::new(names, roles);
        if !columns.has(Role::Time) {
            return Err("no column of the header line is a time");
        }
        Ok(Self { columns: Arc::new(columns), separator })
    }

    pub(super) fn parse(&self, line: &str, entry: &mut Entry) -> Result<(), &'static str> {
        entry.set_columns(&self.columns);
        let mut at = Some(0);
        let mut column = 0;
        while let Some(start) = at {
            if column == self.columns.len() {
                return Err("more fields than columns");
            }
            let cell = Cell::read(line, start, self.separator)?;
            let value = if cell.has_escapes {
                let text = line[cell.start..cell.end].replace("\"\"", "\"");
                entry.add_text(line, &text)
            } else {
                Span::of(cell.start..cell.end)
            };
            entry.push(line, Name::Column(column as u16), value, self.columns.role(column));
            at = cell.next;
            column += 1;
        }
        if column < self.columns.len() {
            return Err("fewer fields than columns");
        }
        Ok(())
    }
}

impl Cell {
    /// Reads the field that begins here.
    fn read(line: &str, start: usize, separator: u8) -> Result<Self, &'static str> {
        let bytes = line.as_bytes();
        if bytes.get(start) != Some(&b'"') {
            let length = memchr(separator, &bytes[start..]);
            let end = length.map_or(bytes.len(), |it| start + it);
            let next = length.map(|it| start + it + 1);
            return Ok(Self { start, end, has_escapes: false, next });
        }
        let start = start + 1;
        let mut at = start;
        let mut has_escapes = false;
        while let Some(found) = memchr(b'"', &bytes[at..]) {
            let end = at + found;
            match bytes.get(end + 1) {
                Some(b'"') => {
                    has_escapes = true;
                    at = end + 2;
                }
                None => return Ok(Self { start, end, has_escapes, next: None }),
                Some(byte) if *byte == separator => {
                    return Ok(Self { start, end, has_escapes, next: Some(end + 2) });
                }
                Some(_) => return Err("a text follows a quote"),
            }
        }
        Err("a quote is not closed")
    }
}
