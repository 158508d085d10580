//! A vector indexed by small numbers, which grows as needed.

/// The element at an index. Extends the vector with default values up to this index. Allocates only
/// if the index is higher than all previous ones.
#[inline]
pub fn at<T: Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if all.len() <= index {
        all.resize_with(index + 1, T::default);
    }
    &mut all[index]
}
