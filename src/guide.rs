#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/guide.md")]

/// Declares an empty module for each page in `docs/guide`, with the page as its documentation. A page
/// with a picture names the file that defines it.
macro_rules! pages {
    ($($(#[$pictures:meta])? $page:ident)*) => { $(
        $(#[$pictures])?
        #[doc = include_str!("../docs/links.md")]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($page), ".md"))]
        pub mod $page {}
    )* };
}

pages! {
    #[doc = include_str!("../docs/pictures/links.md")] algorithms
    keys proxies rules costs concurrency
    #[doc = include_str!("../docs/pictures/links.md")] leases
    #[doc = include_str!("../docs/pictures/links.md")] trials
    blocking responses browsers streams grpc jobs postgres testing comparison features glossary
}

macro_rules! pages_outside {
    ($($(#[$pictures:meta])? $page:ident)*) => { $(
        $(#[$pictures])?
        #[doc = include_str!("../docs/links.md")]
        #[doc = include_str!(concat!("../docs/", stringify!($page), ".md"))]
        pub mod $page {}
    )* };
}

pages_outside! {
    guarantees live_limits migrating operations
    #[doc = include_str!("../docs/pictures/links.md")] report
}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/resilience.md")]
pub mod resilience {
    #[doc = include_str!("../docs/links.md")]
    #[doc = include_str!("../docs/faults.md")]
    pub mod faults {}
}
