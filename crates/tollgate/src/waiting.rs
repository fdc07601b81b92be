//! Who waits for a turn, in arrival order.
