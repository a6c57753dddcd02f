//! Operators, and how their requests are authenticated.

use std::{fmt, sync::Arc};

use http::request::Parts;

use crate::web::Tokens;

/// The rights of an [`Operator`]. The later variants include the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Role {
    /// May see everything.
    Read,
    /// May also change limits.
    Write,
}

/// A person or a program that uses the admin page or its API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    name: Arc<str>,
    role: Role,
}

/// The authentication of the operators of the admin page and its API.
///
/// - [`Access::tokens`]: requests with one of these tokens in the header `Authorization: Bearer ..`. Tokens
///   are compared in constant time. Cookies are never read.
/// - [`Access::custom`]: the authentication of the application.
///
/// ```
/// use plimsoll_control::admin::Access;
///
/// # let (token_of_alice, token_of_the_dashboard) = ("2f0e9d5c", "b71c44aa");
/// let access = Access::tokens()
///     .write("alice", token_of_alice)
///     .read("dashboard", token_of_the_dashboard);
/// ```
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Tokens(Tokens<Operator>),
    Custom(Arc<Authenticate>),
}

type Authenticate = dyn Fn(&Parts) -> Option<Operator> + Send + Sync;

impl Operator {
    /// Creates an operator. The [audit log](crate::Overrides::audit) shows the name.
    #[must_use]
    pub fn new(name: &str, role: Role) -> Self {
        Self { name: name.into(), role }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the [role](Role) of the operator.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }
}

impl Access {
    /// Creates an access by tokens. It admits no request until tokens are added with [`read`](Self::read)
    /// and [`write`](Self::write).
    #[must_use]
    pub fn tokens() -> Self {
        Self(Kind::Tokens(Tokens::default()))
    }

    /// Creates an access by the authentication of the application. The closure returns the operator who has
    /// sent the request, or `None` to reject it with status 401. What needs a database belongs in an
    /// earlier layer that leaves an extension, which the closure reads.
    ///
    /// If the application authenticates by a cookie, other sites could make the browser of an operator send
    /// requests. Therefore all changes need a body of the type `application/json`, and are rejected if the
    /// browser says that another site has caused them.
    ///
    /// ```
    /// use plimsoll_control::admin::{Access, Operator, Role};
    ///
    /// /// The user, left by the layer that authenticates.
    /// #[derive(Clone)]
    /// struct User { name: String, is_admin: bool }
    ///
    /// let access = Access::custom(|request| {
    ///     let user = request.extensions.get::<User>()?;
    ///     Some(Operator::new(&user.name, if user.is_admin { Role::Write } else { Role::Read }))
    /// });
    /// ```
    #[must_use]
    pub fn custom<F>(authenticate: F) -> Self
    where
        F: Fn(&Parts) -> Option<Operator> + Send + Sync + 'static,
    {
        Self(Kind::Custom(Arc::new(authenticate)))
    }

    /// Adds the token of an [operator](Operator) who may see everything and change nothing.
    #[must_use]
    pub fn read(self, name: &str, token: &str) -> Self {
        self.with(Operator::new(name, Role::Read), token)
    }

    /// Adds the token of an operator who may change limits. Use at least 16 random bytes. An empty token
    /// admits no request, and a token of two operators is the token of the first one. An access by [custom](Self::custom) authentication has no tokens and ignores it.
    #[must_use]
    pub fn write(self, name: &str, token: &str) -> Self {
        self.with(Operator::new(name, Role::Write), token)
    }

    fn with(mut self, operator: Operator, token: &str) -> Self {
        if let Kind::Tokens(tokens) = &mut self.0 {
            let _ = tokens.add(token, operator);
        }
        self
    }

    /// Returns the [operator](Operator) who has sent the request.
    pub(super) fn operator(&self, parts: &Parts) -> Option<Operator> {
        match &self.0 {
            Kind::Custom(authenticate) => authenticate(parts),
            Kind::Tokens(tokens) => tokens.find(&parts.headers).ok().cloned(),
        }
    }

    /// Returns whether [operators](Operator) sign in with a token.
    pub(super) fn has_tokens(&self) -> bool {
        matches!(self.0, Kind::Tokens(_))
    }
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Prints no token.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tokens(tokens) => tokens.fmt(f),
            Kind::Custom(_) => f.write_str("Custom"),
        }
    }
}
