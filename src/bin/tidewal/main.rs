//! The bundled binary.
fn main() {}
