//! What is kept by the small numbers that others give, in a vector that grows with them.

/// The element at an index; up to it, all are there from then on. Allocates only where a higher index comes than before.
#[inline]
pub fn at<T: Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if all.len() <= index {
        all.resize_with(index + 1, T::default);
    }
    &mut all[index]
}
