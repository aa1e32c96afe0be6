//! Filters against a naive evaluator, SQL text against builders, scans against brute force.
mod filters;
mod oracle;
mod scans;
mod shard;
mod sql;
mod streams;
