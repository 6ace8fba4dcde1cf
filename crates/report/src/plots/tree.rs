//! Plot of repair trees: number of receivers at each level.

use faircast_base::Time;

use super::{
    CROWD, Line, MarkRow, Plot, Shape, Unit, Weight, curve, labelled, line, row, to_the_end,
};
use crate::series::{FlowSeries, LEVELS, Series};
use crate::text::capital;

const NO_HEAD: usize = 6;

pub(super) fn tree(series: &Series, ended: Time) -> Plot {
    let mut plot = Plot::new("tree", "Repair tree", "Receivers", Unit::Receivers);
    plot.about = "Receivers at each level; the sender’s own members are at level 2".into();
    let flows: Vec<&FlowSeries> = series.flows.iter().filter(|flow| flow.tree.total > 0).collect();
    plot.crowd = flows.len() > CROWD;
    for (dash, flow) in flows.into_iter().enumerate() {
        let hidden = plot.crowd && dash > 0;
        for (place, counts) in flow.tree.levels() {
            let kind = LEVELS[place];
            let mut points = curve(counts);
            to_the_end(&mut points, ended);
            let colour = if place == 0 { NO_HEAD } else { (place - 1) % NO_HEAD };
            plot.lines.push(Line {
                label: labelled(series, &flow.name, kind),
                kind,
                shape: Shape::Step,
                weight: if place == 0 { Weight::Light } else { Weight::Normal },
                hidden,
                ..line(flow, colour, dash, points)
            });
        }
        let moves = row("other head", &[&flow.tree.moves]);
        if moves.total > 0 {
            let label = match plot.crowd {
                true => capital(moves.kind),
                false => labelled(series, &flow.name, moves.kind),
            };
            let (owner, protocol) = (flow.name.clone(), flow.protocol.clone());
            plot.marks.push(MarkRow { label, owner, protocol, colour: NO_HEAD, hidden, ..moves });
        }
    }
    plot
}
