//! Lists of Strings with parameters (RFC 9651), as drafts 11 and 12 write them.
//!
//! The bytes come from a server that is not trusted, so the input and the output are bounded. A whole
//! field is ignored if one member is malformed (section 4.2), or is neither a String nor a Token.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{
    BareItemFromInput, KeyRef, Parser,
    visitor::{EntryVisitor, InnerListVisitor, ItemVisitor, ListVisitor, Never, ParameterVisitor},
};

/// The length of the longest field that is read, in bytes.
const MAX_BYTES: usize = 8 << 10;
/// The largest number of members of a field. A field with more members is ignored.
const MAX_MEMBERS: usize = 64;

/// A member of a list: the name of a policy, and its parameters.
#[derive(Default)]
pub(crate) struct Member {
    /// The String or Token.
    pub(crate) name: String,
    /// The parameter `r`: the units that are left.
    pub(crate) remaining: Option<i64>,
    /// The parameter `a`, which takes the place of `r` in draft 12.
    pub(crate) available: Option<i64>,
    /// The parameter `t`: the seconds until more units are free.
    pub(crate) reset: Option<i64>,
    /// The parameter `w`: the window in seconds. In draft 12, it also takes the place of `t`.
    pub(crate) window: Option<i64>,
}

/// Parses all lines of a field as one list. Returns `None` if it is missing, malformed or too long.
pub(crate) fn list(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<Member>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() || lines.iter().map(|line| line.len()).sum::<usize>() > MAX_BYTES {
        return None;
    }
    let mut members = Members(Vec::new());
    Parser::new(&lines.join(&b","[..])).parse_list_with_visitor(&mut members).ok()?;
    Some(members.0)
}

/// The members that the parser has visited.
struct Members(Vec<Member>);

/// A member that draft 11 does not allow, or one member too many.
#[derive(Debug)]
pub(crate) struct UnexpectedMember;

impl<'f> ListVisitor<'f> for Members {
    type Error = UnexpectedMember;

    fn entry(&mut self) -> Result<impl EntryVisitor<'f>, UnexpectedMember> {
        if self.0.len() == MAX_MEMBERS {
            return Err(UnexpectedMember);
        }
        self.0.push(Member::default());
        self.0.last_mut().ok_or(UnexpectedMember)
    }
}

impl<'f> EntryVisitor<'f> for &mut Member {
    fn inner_list(self) -> Result<impl InnerListVisitor<'f>, UnexpectedMember> {
        Err::<Never, _>(UnexpectedMember)
    }
}

impl<'f> ItemVisitor<'f> for &mut Member {
    type Error = UnexpectedMember;

    fn bare_item(
        self,
        item: BareItemFromInput<'f>,
    ) -> Result<impl ParameterVisitor<'f>, UnexpectedMember> {
        self.name = match item {
            BareItemFromInput::String(text) => text.as_str().to_owned(),
            BareItemFromInput::Token(token) => token.as_str().to_owned(),
            _ => return Err(UnexpectedMember),
        };
        Ok(self)
    }
}

impl<'f> ParameterVisitor<'f> for &mut Member {
    type Error = UnexpectedMember;

    /// Keeps the integers. If a parameter is repeated, the last one counts (section 4.2.3.2).
    fn parameter(
        &mut self,
        key: &'f KeyRef,
        value: BareItemFromInput<'f>,
    ) -> Result<(), UnexpectedMember> {
        let integer = match value {
            BareItemFromInput::Integer(number) => Some(number.into()),
            _ => None,
        };
        match key.as_str() {
            "r" => self.remaining = integer,
            "a" => self.available = integer,
            "t" => self.reset = integer,
            "w" => self.window = integer,
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Display for UnexpectedMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member that is neither a String nor a Token, or too many members")
    }
}

impl std::error::Error for UnexpectedMember {}
