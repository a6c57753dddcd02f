//! Lists that mostly hold one item, as a check mostly has one charge.

use smallvec::SmallVec;

pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// A list of `len` items. One item, the common case, does not go through an iterator.
#[inline]
pub(crate) fn build<T>(len: usize, mut item: impl FnMut(usize) -> T) -> Few<T> {
    if len == 1 { Few::from_buf([item(0)]) } else { (0..len).map(item).collect() }
}

/// Joins two lists of one length, item by item.
#[inline]
pub(crate) fn join<A, B, T>(mut a: Few<A>, mut b: Few<B>, join: impl Fn(A, B) -> T) -> Few<T> {
    if a.len() == 1
        && let (Some(a), Some(b)) = (a.pop(), b.pop())
    {
        return Few::from_buf([join(a, b)]);
    }
    a.into_iter().zip(b).map(|(a, b)| join(a, b)).collect()
}
