//! Errors, written as rustc writes them.

use std::{fmt, io, ops::Range, sync::Arc};

use super::document::{Mistake, may_have_secret};

/// The error of a configuration that cannot be read, or has a [mistake](Mistake). [`Display`](fmt::Display)
/// writes it as rustc does:
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
/// If there are several mistakes, each is written.
///
/// A mistake in a table that may have a secret, such as the URL of a store, shows its place and what is allowed, and
/// not the line. The values of environment variables are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Arc<[Report]>);

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
    /// The text of the line, or a part of it if it is long, and the part of it that is underlined, in characters.
    /// `None` if a secret may be near.
    shown: Option<(String, Range<usize>)>,
}

/// The most characters of a line, of a message, and of what is allowed.
const MAX_CHARS: [usize; 3] = [120, 400, 800];

impl ConfigError {
    /// Creates the error of a file that cannot be read.
    #[must_use]
    pub fn unreadable(file: &str, error: &io::Error) -> Self {
        let mistake = Mistake::new(format_args!("the file cannot be read: {error}"));
        Self::new(mistake, file, "")
    }

    pub(super) fn of_format(file: &str) -> Self {
        let mistake = Mistake::new("the name of the file does not say its format");
        Self::new(mistake.allowed("a name that ends with .toml, .yaml, .yml or .json"), file, "")
    }

    /// Creates the error of the [mistakes](Mistake) in the text of a file.
    #[must_use]
    pub fn new(mistakes: impl Into<Vec<Mistake>>, file: &str, text: &str) -> Self {
        let mistakes: Vec<Mistake> = mistakes.into();
        Self(mistakes.into_iter().map(|mistake| Report::new(mistake, file, text)).collect())
    }

    /// Returns what is wrong with the first mistake, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        self.0.first().map_or("", |report| &report.message)
    }

    /// Returns the line of the first mistake, from 1, if it has a place.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        Some(self.0.first()?.place.as_ref()?.line)
    }

    /// Returns the column of the first mistake in characters, from 1, if it has a place.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        Some(self.0.first()?.place.as_ref()?.column)
    }
}

impl Report {
    fn new(mut mistake: Mistake, file: &str, text: &str) -> Self {
        let place = mistake.span.clone().map(|span| Place::new(text, span));
        let place = place.map(|(place, line)| {
            mistake.is_secret |= may_have_secret(line);
            let shown = place.shown.filter(|_| !mistake.is_secret);
            Place { shown, ..place }
        });
        let (message, nearest) = mistake.shown();
        let [_, max_message, max_allowed] = MAX_CHARS;
        Self {
            message: short(printable(&message), max_message),
            file: file.into(),
            place,
            help: nearest.map(|nearest| format!("did you mean `{nearest}`?")),
            allowed: mistake
                .allowed
                .as_deref()
                .map(|allowed| short(allowed.to_owned(), max_allowed)),
        }
    }
}

impl Place {
    /// Returns a place, and the text of its whole line.
    fn new(text: &str, span: Range<usize>) -> (Self, &str) {
        let start = floor(text, span.start);
        let end = floor(text, span.end);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let before = text[line_start..start].chars().count();
        let marked = text[start..end.clamp(start, line_end)].trim_end();
        let width = marked.chars().count().max(1);
        let line = &text[line_start..line_end];
        let characters: Vec<_> = printable(line.trim_end()).chars().collect();
        // A long line is cut to the part around the mistake.
        let [max, ..] = MAX_CHARS;
        let length = characters.len();
        let first = if length > max { before.saturating_sub(max / 3).min(length) } else { 0 };
        let shown = &characters[first..length.min(first + max)];
        let at = before - first;
        let underlined = at..(at + width).min(shown.len().max(at + 1));
        let place = Self {
            line: text[..start].matches('\n').count() + 1,
            column: before + 1,
            shown: Some((shown.iter().collect(), underlined)),
        };
        (place, line)
    }
}

/// Returns the start of the character at this byte, or the end of the text.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
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
        for (index, report) in self.0.iter().enumerate() {
            let between = if index > 0 { "\n\n" } else { "" };
            write!(f, "{between}{report}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, file, place, allowed, help } = self;
        write!(f, "error: {message}")?;
        let number = place.as_ref().map_or(String::new(), |place| place.line.to_string());
        let margin = " ".repeat(number.len() + 1);
        write!(f, "\n{margin}--> {file}")?;
        if let Some(Place { line, column, shown }) = place {
            write!(f, ":{line}:{column}")?;
            if let Some((text, underlined)) = shown {
                write!(f, "\n{margin} |\n {number} | {text}\n{margin} | ")?;
                write!(f, "{}{}", " ".repeat(underlined.start), "^".repeat(underlined.len()))?;
            } else {
                write!(f, "\n{margin} = the line is not shown, because it may have a secret")?;
            }
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
