//! Course of a source over PGM: ticks, and effects of the course on the session.

use faircast_base::{Bitrate, Cx, NodeId, Time};

use super::ObjectSource;
use crate::object::Part;

impl ObjectSource {
    pub(super) fn review(&mut self, cx: &mut Cx<'_>) {
        let packets = &mut self.packets;
        packets.announced.status_interval = self.course.status_interval();
        let content_bytes = packets.offer.layout.len(Part::Content);
        let turn = self.course.review(cx, &mut packets.offer.failed, content_bytes);
        if turn.begins {
            self.begin_content(cx.now);
        }
        if turn.ends {
            self.end(cx);
        }
    }

    pub(super) fn begin_content(&mut self, now: Time) {
        self.packets.offer.begun = true;
        self.session.announce_now(now);
    }

    pub(super) fn end(&mut self, cx: &mut Cx<'_>) {
        self.confirm.clear();
        self.course.end(cx.now, self.packets.offer.supply.is_repeatable());
        self.packets.close();
        self.session.close(cx.now);
    }

    pub(super) fn tick(&mut self, cx: &mut Cx<'_>) {
        let packets = &mut self.packets;
        if !self.course.take_tick(
            cx.now,
            self.session.is_over(),
            packets.offer.supply.is_repeatable(),
        ) {
            return;
        }
        // Both are polled: the end of growing content comes with its digests.
        let (grown, known) = (packets.offer.poll_growth(|_| true), packets.offer.poll_digests());
        if grown || known {
            self.session.announce_now(cx.now);
        }
        if grown {
            self.course.note_growth(cx.now);
        }
        for reporter in self.course.lose_members(cx.now, &self.packets.offer.announcement) {
            self.session.control.on_leave(cx, reporter);
        }
        self.check_pace(cx);
        self.course.judge_end(cx.now, self.packets.offer.announcement.growing);
        self.review(cx);
    }

    fn check_pace(&mut self, cx: &mut Cx<'_>) {
        let (packets, members) = (&mut self.packets, &mut self.course.members);
        let busy = packets.offer.begun && !packets.is_exhausted() && members.active() > 1;
        let limiting = self.session.control.gauges().representative;
        let slow = self.slow.who_is_too_slow(cx.now, packets.payload_bytes, busy, limiting);
        if let Some(reporter) = slow
            && members.defer(reporter)
        {
            self.session.control.on_leave(cx, reporter);
        }
        self.obey_limits(cx);
    }

    fn obey_limits(&mut self, cx: &mut Cx<'_>) {
        let members = &mut self.course.members;
        let mut least = members.least_limit();
        while let Some((limit, reporter)) = least
            && self.packets.offer.begun
            && self.slow.is_below(limit)
            && members.active() > 1
            && members.defer(reporter)
        {
            self.session.control.on_leave(cx, reporter);
            least = members.least_limit();
        }
        self.obey(cx.now, least);
    }

    pub(super) fn obey(&mut self, now: Time, least: Option<(Bitrate, NodeId)>) {
        if least != self.limit {
            self.limit = least;
            let limit = least.map(|(limit, _)| limit);
            let binds = self.session.control.set_limit(now, limit);
            self.limited_by = least.filter(|_| binds).map(|(_, reporter)| reporter);
        }
    }
}
