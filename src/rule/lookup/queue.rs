//! The queue of loads that wait for their turn.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

/// The client that has caused a load: its address, or `None` if its address is not known.
pub(super) type Client = Option<IpAddr>;

/// A queue with one stack for each client. The clients take turns, and the newest item of a client is
/// taken first.
///
/// A client with many items thus delays others by one item in each round. Its old items, which can no
/// longer end in time, do not delay its new ones.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// The items of each client with their numbers, the oldest first. No stack is empty.
    stacks: BTreeMap<Client, VecDeque<(u64, T)>>,
    /// The clients in the order of their turns.
    turns: VecDeque<Client>,
    len: usize,
}

impl<T> FairQueue<T> {
    pub(super) fn new() -> Self {
        Self { stacks: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// Adds an item. Its number is higher than those of all items before.
    ///
    /// If the queue then has more than `max_len` items, the client with the most items loses its oldest
    /// one. If each client has one item, the new item has no place. The item that was removed is returned.
    pub(super) fn push(
        &mut self,
        client: Client,
        number: u64,
        item: T,
        max_len: usize,
    ) -> Option<T> {
        let own_len = self.stacks.get(&client).map_or(0, VecDeque::len);
        let removed = if self.len < max_len {
            None
        } else if let Some(longest) = self.client_with_more_than(own_len + 1) {
            self.pop_oldest(longest)
        } else if let Some(stack) = self.stacks.get_mut(&client) {
            // The client keeps its turn.
            stack.push_back((number, item));
            return stack.pop_front().map(|(_, oldest)| oldest);
        } else {
            return Some(item);
        };
        let stack = self.stacks.entry(client).or_default();
        if stack.is_empty() {
            self.turns.push_back(client);
        }
        stack.push_back((number, item));
        self.len += 1;
        removed
    }

    /// Returns the client with the most items, if it has more than `len`.
    fn client_with_more_than(&self, len: usize) -> Option<Client> {
        let (client, stack) = self.stacks.iter().max_by_key(|(_, stack)| stack.len())?;
        (stack.len() > len).then_some(*client)
    }

    /// Removes the newest item of the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let client = self.turns.pop_front()?;
        let stack = self.stacks.get_mut(&client)?;
        let (_, newest) = stack.pop_back()?;
        self.len -= 1;
        if stack.is_empty() {
            self.stacks.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        Some(newest)
    }

    /// Removes the item with this number.
    pub(super) fn remove(&mut self, client: Client, number: u64) -> Option<T> {
        self.remove_if(client, number, |_| true)
    }

    /// Removes the item with this number if the condition is true for it.
    pub(super) fn remove_if(
        &mut self,
        client: Client,
        number: u64,
        condition: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let stack = self.stacks.get_mut(&client)?;
        let index = stack.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        if !condition(&stack.get(index)?.1) {
            return None;
        }
        let (_, item) = stack.remove(index)?;
        self.removed_one(client);
        Some(item)
    }

    fn pop_oldest(&mut self, client: Client) -> Option<T> {
        let (_, oldest) = self.stacks.get_mut(&client)?.pop_front()?;
        self.removed_one(client);
        Some(oldest)
    }

    /// Counts an item of a client that was removed out of turn.
    fn removed_one(&mut self, client: Client) {
        self.len -= 1;
        if self.stacks.get(&client).is_some_and(VecDeque::is_empty) {
            self.stacks.remove(&client);
            self.turns.retain(|other| *other != client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn client(number: u8) -> Client {
        Some(IpAddr::from([192, 0, 2, number]))
    }

    /// A queue with these items, each of a client, in this order. The numbers are those of the items.
    fn queue(items: &[(u8, u64)]) -> FairQueue<u64> {
        let mut queue = FairQueue::new();
        for (owner, item) in items {
            assert_eq!(queue.push(client(*owner), *item, *item, usize::MAX), None);
        }
        queue
    }

    fn drain(mut queue: FairQueue<u64>) -> Vec<u64> {
        let items = iter::from_fn(|| queue.pop()).collect();
        assert!(queue.len == 0 && queue.stacks.is_empty() && queue.turns.is_empty());
        items
    }

    #[test]
    fn clients_take_turns_and_the_newest_item_is_first() {
        let queue = queue(&[(1, 1), (1, 2), (1, 3), (2, 4), (3, 5), (3, 6)]);
        assert_eq!(drain(queue), [3, 4, 6, 2, 5, 1]);
    }

    #[test]
    fn a_client_that_comes_again_has_one_turn() {
        let mut queue = queue(&[(1, 1), (2, 2), (2, 3)]);
        assert_eq!(queue.pop(), Some(1));
        queue.push(client(1), 4, 4, 10);
        queue.push(client(1), 5, 5, 10);
        assert_eq!(drain(queue), [3, 5, 2, 4]);
    }

    #[test]
    fn the_longest_stack_of_a_full_queue_loses_its_oldest_item() {
        let mut queue = queue(&[(1, 1), (1, 2), (1, 3), (2, 4)]);
        assert_eq!(queue.push(client(3), 5, 5, 4), Some(1), "of the client with three");
        assert_eq!(queue.push(client(2), 6, 6, 4), Some(4), "its own, as it would have the most");
        assert_eq!(queue.push(client(4), 7, 7, 4), Some(2), "of the client with two");
        assert_eq!(queue.push(client(5), 8, 8, 4), Some(8), "all have one");
        assert_eq!(queue.push(client(3), 9, 9, 4), Some(5), "its own");
        assert_eq!(drain(queue), [3, 6, 9, 7]);
        assert_eq!(FairQueue::new().push(client(1), 1, 1, 0), Some(1));
    }

    #[test]
    fn items_are_removed_by_number() {
        let mut queue = queue(&[(1, 1), (1, 2), (2, 3), (1, 4)]);
        assert_eq!(queue.remove(client(1), 2), Some(2));
        assert_eq!(queue.remove(client(1), 2), None);
        assert_eq!(queue.remove(client(2), 4), None);
        assert_eq!(queue.remove(client(2), 3), Some(3));
        assert_eq!(queue.remove(client(2), 3), None);
        assert_eq!(drain(queue), [4, 1]);
    }
}
