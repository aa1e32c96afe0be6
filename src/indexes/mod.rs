//! indexes
