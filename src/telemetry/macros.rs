//! The seam of the features `metrics` and `tracing`.

/// Defines functions that do nothing, and return the default of their type, if the crate is built
/// without the feature. Their callers need no `cfg`.
macro_rules! reports {
    (
        feature $feature:literal;
        $(
            $(#[$meta:meta])*
            $vis:vis fn $name:ident $(<$lifetime:lifetime>)? ($($argument:ident: $type:ty),* $(,)?)
            $(-> $returned:ty)? $body:block
        )+
    ) => {$(
        $(#[$meta])*
        #[cfg(feature = $feature)]
        $vis fn $name $(<$lifetime>)? ($($argument: $type),*) $(-> $returned)? $body

        $(#[$meta])*
        #[cfg(not(feature = $feature))]
        $vis fn $name $(<$lifetime>)? ($(_: $type),*) $(-> $returned)? {
            Default::default()
        }
    )+};
}

pub(super) use reports;
