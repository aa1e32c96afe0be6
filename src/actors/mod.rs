pub(crate) mod lifecycle;
