//! Address book: nodes and their addresses.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;

use faircast_base::NodeId;
use lru::LruCache;

/// Most addresses in a book. The least recently used address makes room.
pub const ADDRESSES_MAX: usize = 1 << 16;

/// Maps nodes to addresses. Protocols know only [`NodeId`]s, which are encoded as IPv4 addresses.
///
/// A *native* book maps an IPv4 host to the node of its address. Second ports, IPv6 hosts and hosts
/// in 240.0.0.0/4 get numbers from 240.0.0.0/5, valid only in this book. A *fixed* book has only
/// its initial entries. A book *of hosts* assigns numbers by host.
#[derive(Debug)]
pub struct AddressBook {
    by_address: LruCache<SocketAddr, Peer>,
    by_node: BTreeMap<NodeId, SocketAddr>,
    next_local: u32,
    /// Node of this host, whose number no other program gets.
    pub(crate) own_node: Option<NodeId>,
    learns: bool,
    hosts: Option<Hosts>,
}

/// Numbers of hosts, of which [`HOST_ADDRESSES`] nodes each have the number as a prefix.
#[derive(Debug, Default)]
struct Hosts {
    by_network: BTreeMap<IpAddr, (u32, Numbers)>,
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    used: BTreeSet<u32>,
    last: u32,
}

impl Numbers {
    /// Takes the first unused number after the last, cyclic from 1 to `max` - 1.
    fn take(&mut self, max: u32) -> Option<u32> {
        if self.used.len() + 1 >= max as usize {
            return None;
        }
        let mut numbers = (1..=max).map(|step| (self.last + step) % max);
        self.last = numbers.find(|number| *number != 0 && !self.used.contains(number))?;
        self.used.insert(self.last);
        Some(self.last)
    }
}

/// Returns the host: an IPv4 address, or an IPv6 network of 64 bits, which one host may own.
pub(crate) const fn host(node: NodeId) -> u32 {
    node.0 / HOST_ADDRESSES
}

fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip => ip,
    }
}

impl Hosts {
    fn add(&mut self, ip: IpAddr) -> Option<NodeId> {
        let (host, addresses) = match self.by_network.entry(network(ip)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let host = self.numbers.take(u32::MAX / HOST_ADDRESSES)?;
                new.insert((host, Numbers::default()))
            }
        };
        Some(NodeId(*host * HOST_ADDRESSES + addresses.take(HOST_ADDRESSES)?))
    }

    fn remove(&mut self, ip: IpAddr, node: NodeId) {
        let network = network(ip);
        if let Some((host, addresses)) = self.by_network.get_mut(&network) {
            addresses.used.remove(&(node.0 % HOST_ADDRESSES));
            if addresses.used.is_empty() {
                self.numbers.used.remove(host);
                self.by_network.remove(&network);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    node: NodeId,
    way: usize,
}

impl AddressBook {
    /// Makes an empty book that learns addresses.
    pub fn native() -> Self {
        Self::bounded(ADDRESSES_MAX)
    }

    pub(crate) fn of_hosts() -> Self {
        Self { hosts: Some(Hosts::default()), ..Self::native() }
    }

    /// Makes a book of these entries only. The last entry of a node or an address counts.
    pub fn fixed(entries: impl IntoIterator<Item = (NodeId, SocketAddr)>) -> Self {
        let by_address = LruCache::unbounded();
        let mut book = Self { by_address, learns: false, ..Self::native() };
        for (node, address) in entries {
            book.insert(address, node);
        }
        book
    }

    fn bounded(max: usize) -> Self {
        // A cache made with its limit would allocate all of its memory at once.
        let mut by_address = LruCache::unbounded();
        by_address.resize(NonZeroUsize::new(max).expect("it is above zero"));
        let (by_node, next_local) = (BTreeMap::new(), LOCAL_FIRST);
        Self { by_address, by_node, next_local, own_node: None, learns: true, hosts: None }
    }

    /// Returns the node at the sender's address. `None` for an unknown address in a fixed book.
    pub fn node(&mut self, address: SocketAddr) -> Option<NodeId> {
        // Fast path: the next packet is most likely from the same sender.
        if let Some((last, entry)) = self.by_address.peek_mru()
            && *last == address
        {
            return Some(entry.node);
        }
        if let Some(entry) = self.by_address.get(&address) {
            return Some(entry.node);
        }
        if !self.learns {
            return None;
        }
        while self.by_address.len() >= self.by_address.cap().get()
            && let Some((at, oldest)) = self.by_address.pop_lru()
        {
            self.by_node.remove(&oldest.node);
            if let Some(hosts) = &mut self.hosts {
                hosts.remove(at.ip(), oldest.node);
            }
        }
        let is_free = |id: &NodeId| !self.by_node.contains_key(id) && self.own_node != Some(*id);
        let node = match &mut self.hosts {
            Some(hosts) => hosts.add(address.ip())?,
            None => native(address.ip()).filter(is_free).unwrap_or_else(|| self.local()),
        };
        self.insert(address, node);
        Some(node)
    }

    pub(crate) fn relocate(&mut self, old: SocketAddr, new: SocketAddr) -> Option<NodeId> {
        let entry = *self.by_address.peek(&old)?;
        self.insert(new, entry.node);
        Some(entry.node)
    }

    /// Returns the address of a node; `None` if unknown or forgotten.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.by_node.get(&node).copied()
    }

    pub(crate) fn set_way(&mut self, address: SocketAddr, way: usize) {
        if let Some(entry) = self.by_address.peek_mut(&address) {
            entry.way = way;
        }
    }

    pub(crate) fn way(&self, address: SocketAddr) -> usize {
        self.by_address.peek(&address).map_or(0, |entry| entry.way)
    }

    /// True if the book learns the addresses of senders.
    pub const fn learns(&self) -> bool {
        self.learns
    }

    fn insert(&mut self, address: SocketAddr, node: NodeId) {
        if let Some((_, old)) = self.by_address.push(address, Peer { node, way: 0 }) {
            self.by_node.remove(&old.node);
        }
        if let Some(moved) = self.by_node.insert(node, address)
            && moved != address
        {
            self.by_address.pop(&moved);
        }
    }

    fn local(&mut self) -> NodeId {
        loop {
            let node = NodeId(self.next_local);
            self.next_local =
                if self.next_local == LOCAL_LAST { LOCAL_FIRST } else { self.next_local + 1 };
            if !self.by_node.contains_key(&node) {
                return node;
            }
        }
    }
}

pub(crate) fn native(ip: IpAddr) -> Option<NodeId> {
    match ip {
        IpAddr::V4(ip) => {
            Some(NodeId(u32::from(ip))).filter(|node| (1..LOCAL_FIRST).contains(&node.0))
        }
        IpAddr::V6(_) => None,
    }
}

/// Returns a random number for this node itself: in 248.0.0.0/5, outside the range of books.
pub(crate) fn own_choice(random: u64) -> NodeId {
    // All ones is the broadcast address.
    NodeId((OWN_FIRST | random as u32 & 0x07ff_ffff).min(u32::MAX - 1))
}

const HOST_ADDRESSES: u32 = 4096;
/// Numbers assigned by books: 240.0.0.0 to 247.255.255.255.
const LOCAL_FIRST: u32 = 0xf000_0000;
const LOCAL_LAST: u32 = 0xf7ff_ffff;
/// Numbers that nodes choose for themselves: 248.0.0.0 to 255.255.255.254.
const OWN_FIRST: u32 = 0xf800_0000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv4_host_is_the_node_of_its_address_and_others_are_local() {
        let mut book = AddressBook::native();
        assert_eq!(book.node(at("10.1.2.3:5000")), Some(NodeId(0x0a01_0203)));
        let second = book.node(at("10.1.2.3:5001")).unwrap();
        let six = book.node(at("[fd00::1]:5000")).unwrap();
        assert_eq!((second.0 >> 27, six.0 >> 27), (0b11110, 0b11110));
        assert_ne!(second, six);
        assert_eq!(book.node(at("10.1.2.3:5000")), Some(NodeId(0x0a01_0203)), "it stays");
        assert_eq!(book.address(second), Some(at("10.1.2.3:5001")));
        assert_eq!(book.address(six), Some(at("[fd00::1]:5000")));
        assert_eq!(book.address(NodeId(7)), None);
    }

    #[test]
    fn a_host_that_makes_room_for_itself_keeps_the_number_of_its_address() {
        let mut book = AddressBook::bounded(2);
        for (address, want) in [("10.0.0.1:1", 1), ("10.0.0.2:1", 2), ("10.0.0.1:2", 1)] {
            assert_eq!(book.node(at(address)), Some(NodeId(0x0a00_0000 + want)), "{address}");
        }
        assert_eq!(book.address(NodeId(0x0a00_0001)), Some(at("10.0.0.1:2")));
    }

    #[test]
    fn who_is_heard_at_the_own_address_is_somebody_else() {
        let mut book = AddressBook::native();
        book.own_node = Some(NodeId(0x7f00_0001));
        let other = book.node(at("127.0.0.1:5000")).unwrap();
        assert_eq!(other.0 >> 27, 0b11110);
        assert_eq!(book.address(other), Some(at("127.0.0.1:5000")));
        assert_eq!(book.address(NodeId(0x7f00_0001)), None);
    }

    #[test]
    fn the_table_is_bounded_and_who_was_heard_longest_ago_goes() {
        let mut book = AddressBook::native();
        let host = |i: u32| SocketAddr::new(IpAddr::from((0x0a00_0000 + i).to_be_bytes()), 9);
        let count = ADDRESSES_MAX as u32;
        for i in 0..count {
            book.node(host(i));
        }
        book.node(host(0));
        for i in count..count + 1000 {
            book.node(host(i));
        }
        assert_eq!([book.by_address.len(), book.by_node.len()], [ADDRESSES_MAX; 2]);
        assert_eq!(book.address(NodeId(0x0a00_0000)), Some(host(0)), "heard again");
        assert_eq!(book.address(NodeId(0x0a00_0001)), None, "made room");
        assert_eq!(book.address(NodeId(0x0a00_0000 + count)), Some(host(count)));
    }

    #[test]
    fn addresses_of_one_host_or_network_have_numbers_of_one_host() {
        let mut book = AddressBook::of_hosts();
        book.by_address.resize(NonZeroUsize::new(6000).unwrap());
        let mut hosts = |text: &str| book.node(at(text)).map(host);
        let all = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[fd00::1]:1", "[fd00::2]:1"];
        let all = all.map(|text| hosts(text).unwrap());
        assert_eq!([all[0] == all[1], all[1] == all[2], all[3] == all[4]], [true, false, true]);
        assert_ne!(hosts("[fd00:0:0:1::1]:1"), Some(all[3]));
        let six = |i: u64| {
            SocketAddr::new(IpAddr::from((0xfd01_u128 << 112 | u128::from(i)).to_be_bytes()), 9)
        };
        let known = (0..10_000).filter(|i| book.node(six(*i)).is_some()).count();
        assert_eq!(known, 4095, "the others are forgotten by nobody");
        assert_eq!(book.node(at("10.0.0.1:1")).map(host), Some(all[0]));
        (0..6000)
            .for_each(|i| _ = book.node(SocketAddr::from(([10, 1, (i >> 8) as u8, i as u8], 9))));
        assert!((0..10).all(|i| book.node(six(i)).is_some()));
        assert_eq!(book.hosts.as_ref().unwrap().by_network.len(), book.by_address.len() - 9);
    }

    #[test]
    fn local_numbers_are_used_again_only_when_they_are_free() {
        let mut book = AddressBook::bounded(4);
        book.next_local = LOCAL_LAST;
        let six = |i: u16| SocketAddr::new(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, i]), 9);
        let nodes: Vec<_> = (0..4).map(|i| book.node(six(i)).unwrap()).collect();
        assert_eq!(nodes[0], NodeId(LOCAL_LAST));
        book.next_local = LOCAL_LAST;
        let fifth = book.node(six(4)).unwrap();
        assert!(!nodes[1..].contains(&fifth));
        assert_eq!(book.by_address.len(), 4);
    }

    #[test]
    fn a_fixed_book_learns_nothing() {
        let mut book =
            AddressBook::fixed([(NodeId(1), at("10.0.0.1:9")), (NodeId(2), at("10.0.0.2:9"))]);
        assert_eq!(book.node(at("10.0.0.2:9")), Some(NodeId(2)));
        assert_eq!(book.node(at("10.0.0.3:9")), None);
        assert_eq!(book.address(NodeId(1)), Some(at("10.0.0.1:9")));
        assert_eq!(book.by_address.len(), 2);
    }

    #[test]
    fn a_node_that_moves_keeps_its_number() {
        let mut book = AddressBook::native();
        let (node, other) = (book.node(at("10.0.0.1:9")).unwrap(), book.node(at("10.0.0.2:9")));
        assert_eq!(book.relocate(at("10.0.0.1:9"), at("10.0.0.2:9")), Some(node));
        assert_eq!(book.address(node), Some(at("10.0.0.2:9")));
        assert_eq!(book.node(at("10.0.0.2:9")), Some(node));
        assert_eq!(book.address(other.unwrap()), None, "nobody else is there");
        assert_eq!([book.by_address.len(), book.by_node.len()], [1; 2]);
        assert_eq!(book.relocate(at("10.0.0.7:9"), at("10.0.0.8:9")), None);
    }

    #[test]
    fn what_a_node_calls_itself_is_never_what_a_book_calls_it() {
        for random in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            assert!(own_choice(random).0 > LOCAL_LAST && own_choice(random).0 < u32::MAX);
        }
    }
}
