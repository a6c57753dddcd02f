//! The queue of loads that wait for their turn.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use smallvec::SmallVec;

/// The client that asks for a load: its address, or `None` if its address is not known.
pub(super) type Client = Option<IpAddr>;

/// The number of clients in whose stacks an item is at most.
const MAX_CLIENTS: usize = 4;

/// A queue with one stack for each client. The clients take turns, and the newest item of a client is
/// taken first.
///
/// A client with many items thus delays others by one item in each round. Its old items, which can no
/// longer end in time, do not delay its new ones.
///
/// Several clients can ask for one item. It is in the stack of each of them, and the first turn takes it.
/// So a client cannot delay an item of others if it asks for the item before they do.
///
/// Each operation takes a time that grows with the logarithm of the length, because an attack makes the
/// queue long.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// The items by their numbers. Each is in the stack of at least one client.
    items: HashMap<u64, QueuedItem<T>>,
    /// No stack is empty.
    stacks: HashMap<Client, Stack>,
    /// The clients by the numbers of their turns.
    turns: BTreeMap<u64, Client>,
    /// The clients by the numbers of their items.
    lens: BTreeSet<(usize, Client)>,
    /// The number of the next turn, or of the next place in a stack.
    next: u64,
}

#[derive(Debug)]
struct QueuedItem<T> {
    item: T,
    /// The clients that ask for the item, with the place of the item in the stack of each.
    clients: SmallVec<[(Client, u64); 1]>,
}

/// The items of one client.
#[derive(Debug)]
struct Stack {
    /// The number of the client's turn.
    turn: u64,
    /// The numbers of the items, by their places: in the order in which the client asked for them.
    items: BTreeMap<u64, u64>,
}

impl<T> FairQueue<T> {
    pub(super) fn new() -> Self {
        let (items, stacks) = (HashMap::new(), HashMap::new());
        Self { items, stacks, turns: BTreeMap::new(), lens: BTreeSet::new(), next: 0 }
    }

    /// Adds an item with a number of its own.
    ///
    /// If the queue then has more than `max_len` items, the client with the most items loses its oldest
    /// ones, until one item has no client. If each client has one item, the new item has no place. The item
    /// that was removed is returned.
    pub(super) fn push(
        &mut self,
        client: Client,
        number: u64,
        item: T,
        max_len: usize,
    ) -> Option<T> {
        self.items.insert(number, QueuedItem { item, clients: SmallVec::new() });
        self.add_client(client, number);
        let mut removed = None;
        while self.items.len() > max_len && removed.is_none() {
            let longest = self.lens.last().map(|(_, client)| *client);
            let loser = longest.filter(|it| self.len(it) > self.len(&client)).unwrap_or(client);
            let Some(stack) = self.stacks.get(&loser) else { break };
            let Some((_, &oldest)) = stack.items.first_key_value() else { break };
            removed = self.remove_client(loser, oldest);
        }
        removed
    }

    /// Adds a client that also asks for an item. If the item then has more than [`MAX_CLIENTS`], the client
    /// with the most items does not have this one.
    pub(super) fn join(&mut self, client: Client, number: u64) {
        let Some(item) = self.items.get(&number) else { return };
        if item.clients.iter().any(|(other, _)| *other == client) {
            return;
        }
        self.add_client(client, number);
        let clients = self.items.get(&number).map_or(&[][..], |item| &item.clients);
        if clients.len() > MAX_CLIENTS
            && let Some(&(loser, _)) = clients.iter().rev().max_by_key(|(it, _)| self.len(it))
        {
            self.remove_client(loser, number);
        }
    }

    /// Removes the newest item of the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (_, client) = self.turns.pop_first()?;
        let turn = self.next();
        let stack = self.stacks.get_mut(&client)?;
        stack.turn = turn;
        self.turns.insert(turn, client);
        let newest = *stack.items.last_key_value()?.1;
        self.remove(newest)
    }

    /// Removes the item with this number.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let QueuedItem { item, clients } = self.items.remove(&number)?;
        clients.into_iter().for_each(|(client, place)| self.remove_from_stack(client, place));
        Some(item)
    }

    /// Removes the item with this number if the condition is true for it.
    pub(super) fn remove_if(
        &mut self,
        number: u64,
        condition: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        if condition(&self.items.get(&number)?.item) { self.remove(number) } else { None }
    }

    /// Returns the number of items of a client.
    fn len(&self, client: &Client) -> usize {
        self.stacks.get(client).map_or(0, |stack| stack.items.len())
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add_client(&mut self, client: Client, number: u64) {
        let (turn, place) = (self.next(), self.next());
        let Some(item) = self.items.get_mut(&number) else { return };
        item.clients.push((client, place));
        let stack = self.stacks.entry(client).or_insert_with(|| {
            self.turns.insert(turn, client);
            Stack { turn, items: BTreeMap::new() }
        });
        self.lens.remove(&(stack.items.len(), client));
        stack.items.insert(place, number);
        self.lens.insert((stack.items.len(), client));
    }

    /// Removes a client of an item. If it was the last one, returns the item, which is removed.
    fn remove_client(&mut self, client: Client, number: u64) -> Option<T> {
        let clients = &mut self.items.get_mut(&number)?.clients;
        if clients.len() <= 1 {
            return self.remove(number);
        }
        let index = clients.iter().position(|(other, _)| *other == client)?;
        let (_, place) = clients.swap_remove(index);
        self.remove_from_stack(client, place);
        None
    }

    fn remove_from_stack(&mut self, client: Client, place: u64) {
        let Some(stack) = self.stacks.get_mut(&client) else { return };
        self.lens.remove(&(stack.items.len(), client));
        stack.items.remove(&place);
        if stack.items.is_empty() {
            self.turns.remove(&stack.turn);
            self.stacks.remove(&client);
        } else {
            self.lens.insert((stack.items.len(), client));
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
        assert!(queue.items.is_empty() && queue.stacks.is_empty());
        assert!(queue.turns.is_empty() && queue.lens.is_empty());
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
        assert_eq!(queue.remove(2), Some(2));
        assert_eq!(queue.remove(2), None);
        assert_eq!(queue.remove_if(3, |item| *item != 3), None);
        assert_eq!(queue.remove_if(3, |item| *item == 3), Some(3));
        assert_eq!(queue.remove(3), None);
        assert_eq!(drain(queue), [4, 1]);
    }

    #[test]
    fn an_item_of_several_clients_is_taken_once_in_the_first_turn() {
        let mut queue = queue(&[(1, 1), (1, 2), (1, 3), (2, 4)]);
        queue.join(client(2), 1);
        queue.join(client(3), 1);
        queue.join(client(3), 1);
        queue.join(client(3), 9);
        assert_eq!(queue.len(&client(3)), 1, "once, and no item that is not in the queue");
        assert_eq!((queue.pop(), queue.pop()), (Some(3), Some(1)));
        assert_eq!(drain(queue), [2, 4], "the third client has no item, and no turn");
    }

    #[test]
    fn an_item_leaves_a_full_queue_when_its_last_client_loses_it() {
        let mut queue = queue(&[(1, 1), (1, 2), (1, 3)]);
        queue.join(client(2), 1);
        assert_eq!(
            queue.push(client(3), 4, 4, 3),
            Some(2),
            "the first is also of the second client"
        );
        assert_eq!(queue.push(client(3), 5, 5, 3), Some(4));
        assert_eq!(drain(queue), [3, 1, 5]);
    }

    #[test]
    fn an_item_has_few_clients_those_with_the_fewest_items() {
        let mut queue = queue(&[(1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 6), (4, 7), (4, 8)]);
        (2..=5).for_each(|number| queue.join(client(number), 1));
        let clients: Vec<_> = queue.items[&1].clients.iter().map(|(client, _)| *client).collect();
        assert_eq!(clients, [1, 2, 3, 5].map(client));
        (6..=200).for_each(|number| queue.join(client(number), 1));
        assert_eq!(queue.items[&1].clients.len(), MAX_CLIENTS);
        assert_eq!((queue.stacks.len(), queue.turns.len()), (8, 8));
        assert_eq!(queue.items.len(), 8);
        drain(queue);
    }
}
