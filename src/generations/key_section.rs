//! Sorted keys in a generation: a primary key's, or a B-tree's.
