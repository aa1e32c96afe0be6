//! A list that grows at its end while others read it, without locks and without moving what it
//! holds.

use std::sync::OnceLock;

/// Slots in buckets of doubling size. A bucket never moves once it exists, so a reference into
/// it stays good while the list grows. Every slot begins as `T::default()`.
///
/// One writer makes buckets; a reader that asks for a slot of a bucket that does not exist yet
/// gets `None`. What a slot holds is published by the slot itself (an atomic, a `OnceLock`).
#[derive(Debug)]
pub(crate) struct Slots<T> {
    buckets: [OnceLock<Box<[T]>>; BUCKETS],
}

/// The first bucket holds this many slots, each further one twice as many as the one before.
const FIRST_SLOTS: usize = 256;
/// Enough for 2^40 slots.
const BUCKETS: usize = 32;

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { buckets: [const { OnceLock::new() }; BUCKETS] }
    }
}

/// The bucket of a slot, and its place in the bucket.
const fn place(index: usize) -> (usize, usize) {
    // Shifted by the first bucket's size, the buckets begin at powers of two.
    let shifted = index + FIRST_SLOTS;
    let bucket = shifted.ilog2() - FIRST_SLOTS.ilog2();
    (bucket as usize, shifted - (FIRST_SLOTS << bucket))
}

impl<T: Default> Slots<T> {
    /// The slot, if its bucket exists.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (bucket, at) = place(index);
        self.buckets.get(bucket)?.get()?.get(at)
    }

    /// The slot, whose bucket is made if need be. `None` only past 2^40 slots.
    pub(crate) fn get_or_grow(&self, index: usize) -> Option<&T> {
        let (bucket, at) = place(index);
        let slots = FIRST_SLOTS << bucket;
        self.buckets.get(bucket)?.get_or_init(|| (0..slots).map(|_| T::default()).collect()).get(at)
    }

    /// The bytes of the buckets that exist.
    pub(crate) fn bytes(&self) -> u64 {
        let slots: usize = self.buckets.iter().filter_map(OnceLock::get).map(|bucket| bucket.len()).sum();
        (slots * size_of::<T>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_index_has_its_own_slot_across_bucket_borders() {
        let slots = Slots::<AtomicU64>::default();
        for index in 0..5000 {
            slots.get_or_grow(index).expect("in reach").store(index as u64 + 1, Ordering::Relaxed);
        }
        for index in 0..5000 {
            assert_eq!(slots.get(index).expect("grown").load(Ordering::Relaxed), index as u64 + 1);
        }
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(FIRST_SLOTS - 1), (0, FIRST_SLOTS - 1));
        assert_eq!(place(FIRST_SLOTS), (1, 0));
        assert_eq!(place(3 * FIRST_SLOTS), (2, 0));
    }

    #[test]
    fn a_slot_beyond_the_last_bucket_is_not_there() {
        let slots = Slots::<AtomicU64>::default();
        assert!(slots.get(0).is_none());
        slots.get_or_grow(0);
        assert!(slots.get(FIRST_SLOTS - 1).is_some());
        assert!(slots.get(FIRST_SLOTS).is_none());
        assert!(slots.get_or_grow(usize::MAX - FIRST_SLOTS).is_none());
    }
}
