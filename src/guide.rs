#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/guide.md")]

/// Declares an empty module for each page of a folder, with the page as its documentation. A page with a picture
/// names the file that defines it.
macro_rules! pages {
    ($folder:literal: $($(#[$pictures:meta])? $page:ident)*) => { $(
        $(#[$pictures])?
        #[doc = include_str!("../docs/links.md")]
        #[doc = include_str!(concat!("../docs/", $folder, stringify!($page), ".md"))]
        pub mod $page {}
    )* };
}

pages! {
    "guide/":
    #[doc = include_str!("../docs/pictures/links.md")] algorithms
    choosing keys proxies rules costs concurrency
    #[doc = include_str!("../docs/pictures/links.md")] leases
    #[doc = include_str!("../docs/pictures/links.md")] trials
    blocking responses browsers streams grpc jobs postgres load_tests testing comparison features glossary
}

pages! {
    "":
    resilience faults guarantees live_limits migrating operations
    #[doc = include_str!("../docs/pictures/links.md")] report
}
