//! GitHub as a source.
