//! Sweeps and what comes of due events.
