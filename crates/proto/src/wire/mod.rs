//! What goes over the wire: the codecs of packet formats. A codec knows bytes and fields; what
//! they mean is the business of endpoints, relays and schemes.

pub mod pgm;
