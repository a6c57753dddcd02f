//! Lines and messages without the secrets in them.
//!
//! A text with a mistake may have any form, so this reads lines and not values. It would rather mask too much.

use std::ops::Range;

use super::document::nearest;

/// The names of fields whose values are secret, or have a password.
const SECRET: [&str; 11] = [
    "url",
    "cluster",
    "sentinels",
    "primary",
    "secret",
    "password",
    "passwd",
    "pass",
    "token",
    "credentials",
    "partition_secret",
];

/// The shortest row of hexadecimal digits that is a secret in every place.
const SECRET_DIGITS: usize = 16;

/// The lines in which the name of a value is searched, upwards from the value.
const MAX_LINES: usize = 100;

/// A name in a line: the place of its first character, and that behind the sign between it and the value.
struct Name {
    start: usize,
    end: usize,
    is_secret: bool,
}

/// Returns the line at this place of a text, without secrets. The columns stay.
pub(super) fn line(text: &str, place: Range<usize>) -> Vec<char> {
    let mut line = printable(text[place.clone()].trim_end());
    let names = names(&line);
    // A quoted text may have any form. A list goes on until there is a name.
    let mut end = match before(&text[..place.start], indentation(&line)) {
        Before::Other => 0,
        Before::Secret => names.first().map_or(line.len(), |first| first.start),
        Before::OpenSecret => line.len(),
    };
    mask_value(&mut line[..end]);
    for name in names.iter().filter(|name| name.is_secret) {
        if name.end >= end {
            end = value_end(&line, name.end);
            mask_value(&mut line[name.end..end]);
        }
    }
    mask_anywhere(&mut line);
    line
}

/// Returns a message without the secrets that have a known form.
pub(super) fn message(text: &str) -> String {
    let mut text = printable(text);
    mask_anywhere(&mut text);
    text.into_iter().collect()
}

/// The last value before a line.
enum Before {
    Other,
    Secret,
    /// A secret whose quotes are not closed, or a block of YAML.
    OpenSecret,
}

/// Returns the last value of these lines, which are followed by a line of this indentation.
fn before(before: &str, indented: usize) -> Before {
    for line in before.lines().rev().take(MAX_LINES) {
        let trimmed = line.trim_start();
        let is_section =
            trimmed.strip_prefix('[').is_some_and(|it| it.starts_with(char::is_alphabetic));
        let line = printable(line);
        match names(&line).last() {
            Some(name) if !name.is_secret => return Before::Other,
            Some(name) if has_open_quote(&line[name.end..]) => return Before::OpenSecret,
            Some(name) if is_block(&line[name.end..]) && indented > indentation(&line) => {
                return Before::OpenSecret;
            }
            Some(_) => return Before::Secret,
            None if is_section || trimmed.starts_with("[[") => return Before::Other,
            None => {}
        }
    }
    Before::Other
}

/// Returns whether the lines after this value belong to it, as far as they are indented.
fn is_block(value: &[char]) -> bool {
    value.iter().find(|it| **it != ' ').is_none_or(|it| matches!(it, '|' | '>'))
}

fn indentation(line: &[char]) -> usize {
    line.iter().take_while(|it| **it == ' ').count()
}

fn has_open_quote(value: &[char]) -> bool {
    let mut open = None;
    for character in value.iter().filter(|it| matches!(it, '"' | '\'')) {
        open = match open {
            None => Some(character),
            Some(quote) if quote == character => None,
            other => other,
        };
    }
    open.is_some()
}

/// Returns the names in a line: words before `=` or `: `, with or without quotes. The name of a secret is one
/// also if a character by mistake is in it or behind it.
fn names(line: &[char]) -> Vec<Name> {
    let name = |sign: usize| {
        if !matches!(line[sign], '=' | ':') {
            return None;
        }
        let is_quote = |it: &&char| matches!(it, '"' | '\'');
        let spaces = line[..sign].iter().rev().take_while(|it| **it == ' ').count();
        let before = &line[..sign - spaces];
        let quotes = before.iter().rev().take_while(is_quote).count();
        let before = &before[..before.len() - quotes];
        let start = before.len() - before.iter().rev().take_while(|it| is_word(it)).count();
        let next = line.get(sign + 1).copied().unwrap_or(' ');
        let has_sign = match line[sign] {
            '=' => next != '=',
            _ => next == ' ' || quotes > 0,
        };
        let is_start = start == 0 || !matches!(line[start - 1], '/' | '@' | ':');
        let word: String = before[start..].iter().collect();
        let is_name = has_sign && is_start && !word.is_empty();
        let is_secret = is_name && nearest(&word, SECRET).is_some()
            || next != '/' && SECRET.iter().any(|name| ends_with_broken(before, name));
        (is_name || is_secret).then_some(Name { start, end: sign + 1, is_secret })
    };
    // Between the name and its sign there may be a word too many.
    let lone = |start: usize| {
        if start > 0 && is_word(&line[start - 1]) {
            return None;
        }
        let is_quote = |it: &char| matches!(it, '"' | '\'');
        let length = line[start..].iter().take_while(|it| is_word(it)).count();
        let (word, behind): (String, _) =
            (line[start..start + length].iter().collect(), &line[start + length..]);
        let is_value = || {
            start > 0 && is_quote(&line[start - 1]) && {
                let next = behind.iter().find(|it| !is_quote(it) && **it != ' ');
                matches!(next, None | Some(',' | '}' | ']' | '#'))
            }
        };
        let is_secret = SECRET.contains(&&*word) && !is_value();
        is_secret.then_some(Name { start, end: start + length, is_secret })
    };
    let mut names: Vec<_> = (0..line.len()).filter_map(name).collect();
    let is_named =
        |at: usize| names.iter().any(|it| it.is_secret && (it.start..it.end).contains(&at));
    let lone: Vec<_> = (0..line.len()).filter_map(lone).filter(|it| !is_named(it.start)).collect();
    names.extend(lone);
    names.sort_by_key(|it| it.start);
    names
}

/// Returns whether a text ends with a name that has other characters in it or behind it.
fn ends_with_broken(text: &[char], name: &str) -> bool {
    let (mut rest, mut is_broken) = (name.chars().rev().peekable(), false);
    for character in text.iter().rev().take(name.len() + 8) {
        match rest.peek() {
            Some(expected) if expected == character => drop(rest.next()),
            Some(_) if is_word(character) => return false,
            Some(_) => is_broken = true,
            None => break,
        }
    }
    is_broken && rest.peek().is_none()
}

/// Returns the end of a value: behind the closing quote or bracket if the line goes on as it may, and
/// otherwise the end of the line.
fn value_end(line: &[char], start: usize) -> usize {
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    let first = line[start..].iter().find(|it| **it != ' ');
    if !matches!(first, Some('"' | '\'' | '[')) {
        // A table has names of its own.
        return if first == Some(&'{') { start } else { line.len() };
    }
    for (at, character) in line.iter().enumerate().skip(start) {
        match (character, quote) {
            _ if is_escaped => is_escaped = false,
            ('\\', Some('"')) => is_escaped = true,
            (it, Some(open)) if *it == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(*character),
            ('[', None) => depth += 1,
            (']', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if quote.is_none() && depth == 0 && matches!(character, '"' | '\'' | ']') {
            let next = line[at + 1..].iter().find(|it| **it != ' ');
            // An empty text may be the start of a text in three quotes.
            let is_empty = line[at - 1] == *character;
            let goes_on = !is_empty && matches!(next, None | Some(',' | '}' | ']' | '#'));
            return if goes_on { at + 1 } else { line.len() };
        }
    }
    line.len()
}

/// Masks a value, except for the scheme of a URL and for the names of environment variables.
fn mask_value(value: &mut [char]) {
    let mut at = 0;
    while at < value.len() {
        let variable = variable(&value[at..]);
        let scheme =
            value[at..].iter().take_while(|it| it.is_ascii_alphabetic() || **it == '+').count();
        let is_scheme = scheme > 0 && value[at + scheme..].starts_with(&[':', '/', '/']);
        if variable > 0 {
            at += variable;
        } else if is_scheme {
            at += scheme + 3;
            at += mask_until(&mut value[at..], |it| matches!(it, '"' | '\''));
        } else {
            let kept =
                |it: char| it.is_whitespace() || matches!(it, '"' | '\'' | '[' | ']' | ',' | '-');
            if !kept(value[at]) {
                value[at] = '*';
            }
            at += 1;
        }
    }
}

/// Returns the length of an environment variable at the start, or 0 if there is none.
fn variable(text: &[char]) -> usize {
    let name = text.strip_prefix(&['$', '{']).unwrap_or_default();
    let length = name.iter().take_while(|it| it.is_ascii_alphanumeric() || **it == '_').count();
    if length > 0 && name.get(length) == Some(&'}') { length + 3 } else { 0 }
}

/// Masks the characters before an end, except for environment variables. Returns their number.
fn mask_until(text: &mut [char], is_end: impl Fn(char) -> bool) -> usize {
    let length = text.iter().position(|it| is_end(*it)).unwrap_or(text.len());
    let mut at = 0;
    while at < length {
        match variable(&text[at..length]) {
            0 => {
                text[at] = '*';
                at += 1;
            }
            variable => at += variable,
        }
    }
    length
}

/// Masks the user and the password of URLs, and long numbers.
fn mask_anywhere(line: &mut [char]) {
    let is_quote = |it: &char| matches!(it, '"' | '\'' | '`');
    for part in line.chunk_by_mut(|one, other| is_quote(one) == is_quote(other)) {
        // The URLs of a store may have a password in the query too.
        for scheme in ["redis://", "rediss://", "unix://"] {
            let scheme: Vec<_> = scheme.chars().collect();
            if let Some(at) = part.windows(scheme.len()).position(|it| *it == *scheme) {
                mask_until(&mut part[at + scheme.len()..], |_| false);
            }
        }
        let Some(end) = part.iter().rposition(|it| *it == '@') else { continue };
        let scheme = part[..end].windows(3).position(|it| it == [':', '/', '/']);
        let word = part[..end].iter().rposition(|it| it.is_whitespace()).map_or(0, |at| at + 1);
        mask_until(&mut part[scheme.map_or(word, |at| at + 3)..end], |_| false);
    }
    let are_digits =
        |one: &char, other: &char| one.is_ascii_hexdigit() && other.is_ascii_hexdigit();
    for digits in line.chunk_by_mut(are_digits).filter(|digits| digits.len() >= SECRET_DIGITS) {
        digits.fill('*');
    }
}

fn printable(line: &str) -> Vec<char> {
    line.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

fn is_word(character: &char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '$')
}
