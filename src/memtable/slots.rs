//! A list that grows at its end while others read it, without locks and without moving what it
//! holds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots in chunks of one size, which are found through a directory whose parts double in size.
/// Neither moves once it exists, so a reference into a chunk stays good while the list grows,
/// and the most a growing list ever does at once is to make one chunk and one part. Every slot
/// begins as `T::default()`.
///
/// One writer makes chunks; a reader that asks for a slot of a chunk that does not exist yet
/// gets `None`. What a slot holds is published by the slot itself (an atomic, a `OnceLock`).
#[derive(Debug)]
pub(crate) struct Slots<T> {
    parts: [OnceLock<Part<T>>; PARTS],
    /// How many chunks exist, for the count of bytes. Relaxed: it publishes nothing.
    chunks: AtomicUsize,
}

type Chunk<T> = Box<[T]>;
type Part<T> = Box<[OnceLock<Chunk<T>>]>;

/// How many slots a chunk holds. Fewer would cost more directory, more would make the put that
/// needs the next chunk wait for it.
pub(crate) const CHUNK_SLOTS: usize = 256;
/// Enough for more slots than memory has bytes.
const PARTS: usize = 40;

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { parts: [const { OnceLock::new() }; PARTS], chunks: AtomicUsize::new(0) }
    }
}

/// The part of the directory that has the slot's chunk, the chunk's place in it, and the slot's
/// in the chunk. Part `n` has `2^n` chunks.
const fn place(index: usize) -> (usize, usize, usize) {
    let chunk = index / CHUNK_SLOTS + 1;
    let part = chunk.ilog2();
    (part as usize, chunk - (1 << part), index % CHUNK_SLOTS)
}

impl<T: Default> Slots<T> {
    /// The slot, if its chunk exists.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (part, chunk, at) = place(index);
        self.parts.get(part)?.get()?.get(chunk)?.get()?.get(at)
    }

    /// The slot, whose chunk is made if need be. `None` only past the last part.
    pub(crate) fn get_or_grow(&self, index: usize) -> Option<&T> {
        let (part, chunk, at) = place(index);
        let part = self.parts.get(part)?.get_or_init(|| (0..1 << part).map(|_| OnceLock::new()).collect());
        let chunk = part.get(chunk)?.get_or_init(|| {
            self.chunks.fetch_add(1, Ordering::Relaxed);
            (0..CHUNK_SLOTS).map(|_| T::default()).collect()
        });
        chunk.get(at)
    }

    /// The bytes of the chunks and parts that exist.
    pub(crate) fn bytes(&self) -> u64 {
        let places: usize = self.parts.iter().map_while(OnceLock::get).map(|part| part.len()).sum();
        let chunks = self.chunks.load(Ordering::Relaxed) * CHUNK_SLOTS * size_of::<T>();
        (chunks + places * size_of::<OnceLock<Chunk<T>>>()) as u64
    }

    /// What each slot adds at most to [`Slots::bytes`], beside two chunks that any list may take:
    /// itself, and its share of a directory that is half empty.
    pub(crate) const fn bytes_per_slot() -> u64 {
        size_of::<T>() as u64 + (2 * size_of::<OnceLock<Chunk<T>>>()).div_ceil(CHUNK_SLOTS) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_index_has_its_own_slot_across_the_borders_of_chunks_and_parts() {
        let slots = Slots::<AtomicU64>::default();
        for index in 0..5000 {
            slots.get_or_grow(index).expect("in reach").store(index as u64 + 1, Ordering::Relaxed);
        }
        for index in 0..5000 {
            assert_eq!(slots.get(index).expect("grown").load(Ordering::Relaxed), index as u64 + 1);
        }
        assert_eq!(place(0), (0, 0, 0));
        assert_eq!(place(CHUNK_SLOTS - 1), (0, 0, CHUNK_SLOTS - 1));
        assert_eq!(place(CHUNK_SLOTS), (1, 0, 0));
        assert_eq!(place(3 * CHUNK_SLOTS + 5), (2, 0, 5));
    }

    #[test]
    fn a_slot_beyond_the_last_chunk_is_not_there() {
        let slots = Slots::<AtomicU64>::default();
        assert!(slots.get(0).is_none());
        slots.get_or_grow(0);
        assert!(slots.get(CHUNK_SLOTS - 1).is_some());
        assert!(slots.get(CHUNK_SLOTS).is_none());
        assert!(slots.get_or_grow(usize::MAX).is_none());
    }

    #[test]
    fn b1_a_slot_never_costs_more_than_is_said() {
        let slots = Slots::<AtomicU64>::default();
        slots.get_or_grow(0);
        let first = slots.bytes();
        for index in 1..200_000 {
            slots.get_or_grow(index);
            let said = first + index as u64 * Slots::<AtomicU64>::bytes_per_slot();
            // A chunk is made whole for its first slot.
            let chunk = (CHUNK_SLOTS * size_of::<AtomicU64>()) as u64;
            assert!(slots.bytes() <= said + chunk, "{} of {said} at {index}", slots.bytes());
        }
    }
}
