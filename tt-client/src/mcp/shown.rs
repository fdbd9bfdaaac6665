//! The messages that answers of this process carry until the daemon has confirmed them. Each call has a connection of its own, so a
//! message whose confirmation is still under way, because the daemon has just been started again for example, may be handed out
//! to the next call as well. That one must not show it again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tt_proto::AgentId;

use crate::receive::MessageKey;

/// The most messages that are remembered. What another surface confirmed meanwhile is never heard of again.
const MAX_REMEMBERED: usize = 1000;

/// How far an answer with a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is not written yet, and may never be if the harness cancels the call.
    Composed,
    Written,
}

/// The messages in answers of this process that are not confirmed yet, by the member they are for.
#[derive(Debug, Clone, Default)]
pub(super) struct ShownMessages(Rc<RefCell<BTreeMap<(AgentId, MessageKey), Progress>>>);

impl ShownMessages {
    pub(super) fn get(&self, agent: &AgentId, message: &MessageKey) -> Option<Progress> {
        self.0.borrow().get(&(agent.clone(), message.clone())).copied()
    }

    /// Notes that an answer with these messages was composed. One that an earlier answer has shown stays shown.
    pub(super) fn compose(&self, agent: &AgentId, messages: impl IntoIterator<Item = MessageKey>) {
        let mut shown = self.0.borrow_mut();
        for message in messages {
            shown.entry((agent.clone(), message)).or_insert(Progress::Composed);
        }
        while shown.len() > MAX_REMEMBERED {
            shown.pop_first();
        }
    }

    /// Notes that the answer with these messages was written, or that it never will be.
    pub(super) fn finish<'a>(
        &self,
        agent: &AgentId,
        messages: impl IntoIterator<Item = &'a MessageKey>,
        written: bool,
    ) {
        let mut shown = self.0.borrow_mut();
        for message in messages {
            let key = (agent.clone(), message.clone());
            match shown.get_mut(&key) {
                Some(progress) if written => *progress = Progress::Written,
                Some(Progress::Composed) => drop(shown.remove(&key)),
                _ => {}
            }
        }
    }

    /// Forgets messages that were confirmed.
    pub(super) fn forget<'a>(&self, agent: &AgentId, messages: impl IntoIterator<Item = &'a MessageKey>) {
        let mut shown = self.0.borrow_mut();
        for message in messages {
            shown.remove(&(agent.clone(), message.clone()));
        }
    }
}
