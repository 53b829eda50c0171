//! Which messages of a batch may be worked on at one time.

use std::collections::{BTreeMap, VecDeque};

use forebay_core::queue::Message;

/// Most messages that are worked on at one time.
const ROUND_MESSAGES_MAX: usize = 50;

/// Most bytes of the messages of one round, where it has more than one: about what one call sends to an inbox, so that a round
/// of large messages does not end before its sends do.
const ROUND_BYTES_MAX: usize = 1_048_576;

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
                    if let Some(group) = message.group().filter(|_| is_ordered(&message)) {
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
        let mut heads: Vec<Head> = Vec::new();
        let mut bytes: usize = 0;
        while heads.len() < most.min(ROUND_MESSAGES_MAX) {
            let size = self.lanes.front().and_then(VecDeque::front).map_or(0, Message::bytes);
            if !heads.is_empty() && bytes.saturating_add(size) > ROUND_BYTES_MAX {
                break;
            }
            let Some(mut lane) = self.lanes.pop_front() else { break };
            if let Some(message) = lane.pop_front() {
                bytes = bytes.saturating_add(size);
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

#[cfg(test)]
mod tests {
    use forebay_core::queue::Body;

    use super::*;

    fn message(queue: &str, group: Option<&str>, id: &str, bytes: usize) -> Message {
        let group = group.map(|group| ("MessageGroupId".to_owned(), group.to_owned()));
        Message {
            queue: queue.to_owned(),
            id: id.to_owned(),
            receipt_handle: None,
            body: Body::Text("x".repeat(bytes)),
            system: group.into_iter().collect(),
            attributes: BTreeMap::new(),
        }
    }

    fn ids(heads: &[Head]) -> Vec<&str> {
        heads.iter().map(|head| head.message.id.as_str()).collect()
    }

    #[test]
    fn a_group_of_a_fifo_queue_is_a_lane_and_every_other_message_is_its_own() {
        let fifo = |group, id| message("q.fifo", Some(group), id, 1);
        let mut lanes = Lanes::of(vec![fifo("a", "1"), fifo("b", "2"), fifo("a", "3")]);
        let heads = lanes.heads(usize::MAX);
        assert_eq!(ids(&heads), ["1", "2"]);
        heads.into_iter().for_each(|head| lanes.go_on(head));
        assert_eq!(ids(&lanes.heads(usize::MAX)), ["3"]);
        // SQS takes a group for a standard queue too, and keeps no order there.
        let standard = |id| message("q", Some("a"), id, 1);
        let mut lanes = Lanes::of(vec![standard("1"), standard("2")]);
        assert_eq!(ids(&lanes.heads(usize::MAX)), ["1", "2"]);
    }

    #[test]
    fn a_round_has_no_more_bytes_than_one_call_sends_but_always_a_message() {
        let large = |id| message("q", None, id, 600_000);
        let mut lanes = Lanes::of(vec![
            large("1"),
            message("q", None, "2", 400_000),
            large("3"),
            large("4"),
        ]);
        assert_eq!(ids(&lanes.heads(usize::MAX)), ["1", "2"]);
        assert_eq!(ids(&lanes.heads(usize::MAX)), ["3"]);
        let mut lanes = Lanes::of(vec![message("q", None, "1", 2_000_000)]);
        assert_eq!(ids(&lanes.heads(usize::MAX)), ["1"]);
        let mut lanes = Lanes::of((0..60).map(|n| message("q", None, &n.to_string(), 1)).collect());
        assert_eq!(lanes.heads(usize::MAX).len(), ROUND_MESSAGES_MAX);
        assert_eq!(lanes.rest().count(), 10);
    }
}
