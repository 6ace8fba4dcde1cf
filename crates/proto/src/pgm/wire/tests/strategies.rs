//! Strategies for packets: headers, and bodies of all types.

use faircast_base::Seq;
use proptest::prelude::*;

use crate::congestion::common::bench::encoded;
use crate::congestion::{AckVector, Wire};
use crate::pgm::wire::*;

impl Encoder<'_> {
    pub(crate) fn scheme_option<W: Wire>(&mut self, scheme: &W) {
        self.option(W::OPTION, &encoded(scheme));
    }
}

pub(super) fn nla() -> impl Strategy<Value = Nla> + Clone {
    prop_oneof![any::<[u8; 4]>().prop_map(Nla::V4), any::<[u8; 16]>().prop_map(Nla::V6)]
}

pub(crate) fn bodies(
    number: impl Strategy<Value = u32> + Clone,
    nla: impl Strategy<Value = Nla> + Clone,
    group: impl Strategy<Value = Nla> + Clone,
) -> impl Strategy<Value = Body> {
    let seq = number.prop_map(Seq::new);
    let nak = (seq.clone(), nla.clone(), group).prop_map(|(first, source, group)| Nak {
        first,
        source,
        group,
    });
    let data = (seq.clone(), seq.clone()).prop_map(|(sequence, trail)| Data { sequence, trail });
    let spm = (seq.clone(), seq.clone(), seq.clone(), nla.clone())
        .prop_map(|(sequence, trail, lead, path)| Body::Spm(Spm { sequence, trail, lead, path }));
    let ack = (seq.clone(), any::<u32>())
        .prop_map(|(highest, bitmap)| Body::Ack(Ack { vector: AckVector { highest, bitmap } }));
    prop_oneof![
        spm,
        data.clone().prop_map(Body::Odata),
        data.prop_map(Body::Rdata),
        nak.clone().prop_map(Body::Nak),
        nak.clone().prop_map(Body::Nnak),
        nak.prop_map(Body::Ncf),
        Just(Body::Spmr),
        ack,
    ]
}

pub(super) fn header() -> impl Strategy<Value = Header> {
    any::<(u16, u16, [u8; 6], bool, bool)>().prop_map(
        |(source_port, destination_port, gsi, parity, variable_length)| Header {
            source_port,
            destination_port,
            gsi: Gsi(gsi),
            parity,
            variable_length,
        },
    )
}
