//! Common and combined log format, also with the virtual host of Apache in front.

use std::{net::IpAddr, sync::Arc};

use memchr::memchr;

use super::super::{
    Entry,
    columns::Columns,
    roles::Roles,
    time::{self, TimeZone},
    words::{Word, Words},
};

/// The columns. Servers may add others behind the last, which are `extra1`, `extra2` and so on.
const NAMES: &[&str] = &[
    "vhost",
    "remote_addr",
    "ident",
    "remote_user",
    "time_local",
    "request",
    "status",
    "body_bytes_sent",
    "http_referer",
    "http_user_agent",
];
const EXTRA: usize = 16;

const VHOST: usize = 0;
const REMOTE_ADDR: usize = 1;
const REMOTE_USER: usize = 3;
const TIME: usize = 4;
const REQUEST: usize = 5;
const STATUS: usize = 6;
const BYTES: usize = 7;

/// The parser of common and combined log format.
#[derive(Debug)]
pub(super) struct Combined {
    columns: Arc<Columns>,
    zone: TimeZone,
}

impl Combined {
    pub(super) fn new(roles: &Roles, zone: TimeZone) -> Self {
        let extra = (1..=EXTRA).map(|number| format!("extra{number}"));
        let names = NAMES.iter().map(|name| (*name).to_owned()).chain(extra);
        Self { columns: Arc::new(Columns::new(names, roles)), zone }
    }

    pub(super) fn parse(&self, line: &str, entry: &mut Entry) -> Result<(), &'static str> {
        let columns = &*self.columns;
        entry.set_columns(&self.columns);
        let mut words = self.head(line, entry)?;
        for column in REQUEST..columns.len() {
            let Some(word) = words.next()? else {
                return if column > BYTES { Ok(()) } else { Err("the line ends too early") };
            };
            match column {
                REQUEST if !word.is_quoted() => return Err("the request is not in quotes"),
                STATUS if !is_status(word.text(line)) => return Err("the status is no number"),
                BYTES if word.text(line) == "-" => entry.request.bytes = Some(0),
                _ => {}
            }
            word.push(line, entry, columns, column);
        }
        Ok(())
    }

    /// Reads the words in front of the time, and the time. The name of a user may have spaces and brackets.
    fn head<'a>(&self, line: &'a str, entry: &mut Entry) -> Result<Words<'a>, &'static str> {
        let bytes = line.as_bytes();
        let mut at = 0;
        while let Some(found) = memchr(b'[', &bytes[at..]) {
            let bracket = at + found;
            let mut words = Words::new(line, bracket);
            let word = words.bracketed();
            let word = word.filter(|it| time::parse(it.text(line), self.zone).is_some());
            let Some(word) = word else {
                at = bracket + 1;
                continue;
            };
            self.who(line, bracket, entry)?;
            word.push(line, entry, &self.columns, TIME);
            return Ok(words);
        }
        Err("no time in brackets")
    }

    /// Reads the words in front of the time: address, identity and user, and perhaps the virtual host before them.
    fn who(&self, line: &str, bracket: usize, entry: &mut Entry) -> Result<(), &'static str> {
        let head = line[..bracket].trim_end_matches(' ');
        let mut words = head.splitn(3, ' ');
        let (Some(first), Some(second), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            return Err("too few words before the time");
        };
        let second_at = first.len() + 1;
        let rest_at = second_at + second.len() + 1;
        let third_and_user = rest.find(' ').filter(|_| !is_address(first) && is_address(second));
        let (starts, user_at) = match third_and_user {
            Some(length) => (VHOST, rest_at + length + 1),
            None => (REMOTE_ADDR, rest_at),
        };
        let mut columns = starts..REMOTE_USER;
        let mut at = 0;
        for word in head[..user_at - 1].split(' ') {
            let column = columns.next().unwrap_or(REMOTE_USER);
            let end = at + word.len();
            Word::between(at, end).push(line, entry, &self.columns, column);
            at = end + 1;
        }
        Word::between(user_at, head.len()).push(line, entry, &self.columns, REMOTE_USER);
        Ok(())
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_status(text: &str) -> bool {
    text == "-" || (text.len() == 3 && text.bytes().all(|it| it.is_ascii_digit()))
}
