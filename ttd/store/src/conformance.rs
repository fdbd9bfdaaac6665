//! The tests that any implementation of the store must pass.
