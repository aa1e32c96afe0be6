//! Reads.
mod bind;
mod decimal;
mod eval;
mod filter;
mod literal;
mod sql;

pub use filter::{Expr, col, lit};

#[cfg(test)]
mod tests;
