//! Errors, written as rustc writes them.

use std::{fmt, io, ops::Range, sync::Arc};

use super::{document::Mistake, mask};

/// The error of a configuration that cannot be read, or has a mistake. [`Display`](fmt::Display) writes it
/// as rustc does:
///
/// ```text
/// error: unknown field `polcy`
///   --> limits.toml:5:1
///    |
///  5 | polcy = "search"
///    | ^^^^^
///    = allowed: `policy`, `key`, `only`, `cost`
///    = help: did you mean `policy`?
/// ```
///
/// The values of secret fields, passwords in URLs, and the values of environment variables are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Arc<Report>);

#[derive(Debug, PartialEq, Eq)]
struct Report {
    message: String,
    file: String,
    place: Option<Place>,
    allowed: Option<String>,
    help: Option<String>,
}

/// A place in a text: the line and the columns, from 1, and the text of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
    /// The text of the line, or a part of it if it is long.
    text: String,
    /// The part of the text that is underlined, in characters.
    underlined: Range<usize>,
}

/// The most characters of a line, of a message, and of what is allowed.
const MAX_CHARS: [usize; 3] = [120, 400, 800];

impl ConfigError {
    /// Creates the error of a file that cannot be read.
    #[must_use]
    pub fn unreadable(file: &str, error: &io::Error) -> Self {
        let message = format!("the file cannot be read: {error}");
        let file = file.into();
        Self(Arc::new(Report { message, file, place: None, allowed: None, help: None }))
    }

    pub(super) fn of_format(file: &str) -> Self {
        let mistake = Mistake::new("the name of the file does not say its format");
        Self::new(mistake.allowed("a name that ends with .toml, .yaml, .yml or .json"), file, "")
    }

    /// Creates the error of a mistake in the text of a file.
    #[must_use]
    pub fn new(mistake: Mistake, file: &str, text: &str) -> Self {
        let Mistake { message, span, allowed, nearest } = mistake;
        let [_, max_message, max_allowed] = MAX_CHARS;
        let place = span.map(|span| Place::new(text, span));
        // The message would name the value that the line does not show.
        let message = match place.as_ref().is_some_and(Place::is_masked) {
            true if message.starts_with("found ") => "found another value".to_owned(),
            _ => mask::message(&message),
        };
        Self(Arc::new(Report {
            message: short(message, max_message),
            file: file.into(),
            place,
            allowed: allowed.map(|allowed| short(allowed, max_allowed)),
            help: nearest.map(|nearest| format!("did you mean `{nearest}`?")),
        }))
    }

    /// Returns what is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the line of the mistake, from 1, if it has a place.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.0.place.as_ref().map(|place| place.line)
    }

    /// Returns the column of the mistake in characters, from 1, if it has a place.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.0.place.as_ref().map(|place| place.column)
    }
}

impl Place {
    fn new(text: &str, span: Range<usize>) -> Self {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let (before, width) = (
            text[line_start..start].chars().count(),
            text[start..end.clamp(start, line_end)].trim_end().chars().count().max(1),
        );
        let line = mask::line(text, line_start..line_end);
        // Of a long line, the part around the mistake is shown.
        let [max, ..] = MAX_CHARS;
        let first =
            if line.len() > max { before.saturating_sub(max / 3).min(line.len()) } else { 0 };
        let shown = &line[first..line.len().min(first + max)];
        let at = before - first;
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: before + 1,
            text: shown.iter().collect(),
            underlined: at..(at + width).min(shown.len().max(at + 1)),
        }
    }

    /// Returns whether a part of what is underlined is not shown.
    fn is_masked(&self) -> bool {
        let Range { start, end } = self.underlined;
        self.text.chars().skip(start).take(end - start).any(|it| it == '*')
    }
}

/// Returns a text, or its start if it is long.
fn short(text: String, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { message, file, place, allowed, help } = &*self.0;
        write!(f, "error: {message}")?;
        let number = place.as_ref().map_or(String::new(), |place| place.line.to_string());
        let margin = " ".repeat(number.len() + 1);
        match place {
            Some(Place { line, column, text, underlined }) => {
                write!(f, "\n{margin}--> {file}:{line}:{column}\n{margin} |")?;
                write!(f, "\n {number} | {text}\n{margin} | ")?;
                write!(f, "{}{}", " ".repeat(underlined.start), "^".repeat(underlined.len()))?;
            }
            None => write!(f, "\n{margin}--> {file}")?,
        }
        for (name, text) in [("allowed", allowed), ("help", help)] {
            if let Some(text) = text {
                write!(f, "\n{margin} = {name}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
