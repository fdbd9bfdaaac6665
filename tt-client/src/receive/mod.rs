//! Receiving messages: take them from the inbox, show them, confirm what was shown. `tt msg recv`, `tt wait` and the MCP
//! server do it through this module.
//!
//! A message that was taken belongs to the connection that took it, until it is confirmed or returned. What is neither when
//! the connection ends goes back into the inbox. So a message is confirmed after it was written out and never before: one
//! that found no reader is not lost, and one that was confirmed is not shown again.

mod printer;
mod receipt;

pub(crate) use printer::InboxPrinter;
pub(crate) use receipt::{MessageKey, Receipt, TakeOptions};
