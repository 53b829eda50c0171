//! Which messages of a batch may be worked on at one time.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::queue::Message;

/// Most messages that are worked on at one time.
const ROUND_MESSAGES_MAX: usize = 50;

/// The messages of a batch in lanes. Within a lane they go one after the other; lanes do not wait for each other.
///
/// In a FIFO queue a lane is a message group. In a standard queue every message has its own.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: VecDeque<VecDeque<Message>>,
}

/// The first message of a lane, and what is behind it.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) message: Message,
    behind: VecDeque<Message>,
}

impl Lanes {
    pub(crate) fn of(messages: Vec<Message>) -> Self {
        let mut lanes: VecDeque<VecDeque<Message>> = VecDeque::new();
        let mut by_group: BTreeMap<String, usize> = BTreeMap::new();
        for message in messages {
            let known = message.group().and_then(|group| by_group.get(group).copied());
            match known.and_then(|lane| lanes.get_mut(lane)) {
                Some(lane) => lane.push_back(message),
                None => {
                    if let Some(group) = message.group().filter(|_| message.queue.ends_with(FIFO)) {
                        by_group.insert(group.to_owned(), lanes.len());
                    }
                    lanes.push_back(VecDeque::from([message]));
                }
            }
        }
        Self { lanes }
    }

    /// The heads of some lanes, at most `most`. The lanes are away until their heads are given back.
    pub(crate) fn heads(&mut self, most: usize) -> Vec<Head> {
        let mut heads = Vec::new();
        while heads.len() < most.min(ROUND_MESSAGES_MAX) {
            let Some(mut lane) = self.lanes.pop_front() else { break };
            if let Some(message) = lane.pop_front() {
                heads.push(Head { message, behind: lane });
            }
        }
        heads
    }

    /// The lane of `head` goes on.
    pub(crate) fn go_on(&mut self, head: Head) {
        if !head.behind.is_empty() {
            self.lanes.push_back(head.behind);
        }
    }

    /// Everything that nobody began.
    pub(crate) fn rest(self) -> impl Iterator<Item = Message> {
        self.lanes.into_iter().flatten()
    }
}

impl Head {
    /// Everything behind the head.
    pub(crate) fn behind(self) -> impl Iterator<Item = Message> {
        self.behind.into_iter()
    }
}

/// What the name of every FIFO queue ends in.
const FIFO: &str = ".fifo";

/// Whether the order of a queue's messages counts.
pub(crate) fn is_ordered(message: &Message) -> bool {
    message.queue.ends_with(FIFO)
}
