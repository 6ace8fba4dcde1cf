//! Damage to packets in the network, from the bytes of a fuzzer.

/// Changes bytes of a packet, or of an added copy if `copy` is set, and returns the packet. A
/// change is a position, a count and as many bytes; the count's high bit truncates the packet.
pub(crate) fn damage<'p, T: Clone>(
    flying: &'p mut Vec<T>,
    bytes: impl FnOnce(&mut T) -> &mut Vec<u8>,
    (copy, argument): (bool, u8),
    data: &mut &[u8],
) -> Option<&'p mut T> {
    let place = usize::from(argument >> 2).checked_rem(flying.len())?;
    if copy {
        flying.insert(place, flying[place].clone());
    }
    let packet = &mut flying[place];
    let packet_bytes = bytes(packet);
    for _ in 0..=argument & 3 {
        let Some((&[at, len], rest)) = data.split_first_chunk() else { break };
        let (values, rest) = rest.split_at(usize::from(len & 7).min(rest.len()));
        *data = rest;
        for (byte, value) in packet_bytes.iter_mut().skip(at.into()).zip(values) {
            *byte = *value;
        }
        if len & 0x80 != 0 {
            packet_bytes.truncate(at.into());
        }
    }
    Some(packet)
}
