//! Offline optimum of a network: the best rates by an objective, with a certificate. The solver
//! finds rates and prices of links (the dual variables); weak duality proves that no rates are
//! better.

use microlp::{ComparisonOp, OptimizationDirection, Problem};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Objective {
    /// Greatest sum of rates, as a linear programme.
    Throughput,
    /// Max-min fairness: a client can gain only at the cost of a client that has no more.
    Fair,
    /// Greatest sum of the rates' logarithms: benefit 1/x of the next packet after x packets.
    Concave,
}

impl Objective {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Fair => "fair",
            Self::Concave => "concave",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    pub(crate) links: Vec<usize>,
    /// Number of clients, at least 1; all have the same rate.
    pub(crate) clients: u32,
    /// Highest rate of a client in bit/s; infinite without a limit.
    pub(crate) rate_max: f64,
}

impl Flow {
    fn count(&self) -> f64 {
        f64::from(self.clients)
    }

    fn alone(&self, capacities: &[f64]) -> f64 {
        let links = self.links.iter().map(|link| capacities[*link] / self.count());
        links.fold(self.rate_max, f64::min)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Optimum {
    /// Rate of a client of each flow, in bit/s.
    pub(crate) rates: Vec<f64>,
    /// Price of each link for a bit/s, in units of the objective; empty for max-min fairness.
    prices: Vec<f64>,
}

/// Largest gap between value and bound: a share, or a difference of the mean logarithm.
const GAP_MAX: f64 = 1e-6;
/// Relative tolerance of limits and capacities, for rounding.
const ROUNDING: f64 = 1e-9;
const TANGENTS_MAX: usize = 500;

/// Finds the best rates over links with capacities in bit/s, and proves their optimality.
pub(crate) fn best(
    objective: Objective,
    flows: &[Flow],
    capacities: &[f64],
) -> Result<Optimum, String> {
    if flows.is_empty() {
        return Err("no client sends; allowed: at least one".into());
    }
    if !flows.iter().all(|flow| flow.alone(capacities).is_finite()) {
        return Err("a client has no limit; allowed: clients with a rate or a link".into());
    }
    if let Some(link) = capacities.iter().position(|it| it.is_nan() || *it <= 0.0) {
        return Err(format!("link {link} carries nothing; allowed: links that carry something"));
    }
    let optimum = match objective {
        Objective::Throughput => most_throughput(flows, capacities)?,
        Objective::Fair => Optimum { rates: max_min(flows, capacities), prices: Vec::new() },
        Objective::Concave => most_logarithms(flows, capacities)?,
    };
    optimum.check(objective, flows, capacities)?;
    Ok(optimum)
}

/// Returns the range of the `chosen` flows' sum of rates at maximum throughput.
pub(crate) fn sums_of_best(
    flows: &[Flow],
    capacities: &[f64],
    chosen: &[bool],
) -> Result<[f64; 2], String> {
    let most = throughput(flows, &most_throughput(flows, capacities)?.rates);
    let alone: Vec<f64> = flows.iter().map(|it| it.count() * it.alone(capacities)).collect();
    let mut constraints = over_links(flows, capacities);
    let all = alone.iter().map(|rate| rate / most).enumerate().collect();
    constraints.push((all, ComparisonOp::Ge, 1.0 - GAP_MAX));
    let variables: Vec<_> = alone
        .iter()
        .zip(chosen)
        .map(|(rate, chosen)| (if *chosen { rate / most } else { 0.0 }, (0.0, 1.0)))
        .collect();
    let sum = |direction| {
        let shares = linear(direction, &variables, &constraints)?;
        Ok::<_, String>(
            most * shares.iter().zip(&variables).map(|(x, (of, _))| x * of).sum::<f64>(),
        )
    };
    Ok([sum(OptimizationDirection::Minimize)?, sum(OptimizationDirection::Maximize)?])
}

fn throughput(flows: &[Flow], rates: &[f64]) -> f64 {
    flows.iter().zip(rates).map(|(flow, rate)| flow.count() * rate).sum()
}

fn logarithms(flows: &[Flow], rates: &[f64]) -> f64 {
    flows.iter().zip(rates).map(|(flow, rate)| flow.count() * rate.ln()).sum()
}

fn loads(flows: &[Flow], capacities: &[f64], rates: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; capacities.len()];
    for (flow, rate) in flows.iter().zip(rates) {
        flow.links.iter().for_each(|link| loads[*link] += flow.count() * rate);
    }
    loads
}

fn paths(flows: &[Flow], prices: &[f64]) -> impl Iterator<Item = f64> {
    // The sum of no floats is -0, which must not be a divisor.
    flows.iter().map(|flow| flow.links.iter().fold(0.0, |sum, link| sum + prices[*link]))
}

impl Optimum {
    fn check(&self, of: Objective, flows: &[Flow], capacities: &[f64]) -> Result<(), String> {
        let loads = loads(flows, capacities, &self.rates);
        let within = |value: f64, most: f64| value <= most * (1.0 + ROUNDING);
        let possible =
            flows.iter().zip(&self.rates).all(|(it, x)| *x >= 0.0 && within(*x, it.rate_max))
                && loads.iter().zip(capacities).all(|(load, most)| within(*load, *most));
        if !possible {
            return Err(format!("{}: the rates exceed a limit or a link", of.name()));
        }
        if !self.prices.iter().all(|price| *price >= 0.0) {
            return Err(format!("{}: a link has a negative price", of.name()));
        }
        let gap = match of {
            Objective::Throughput => {
                self.throughput_bound(flows, capacities) / throughput(flows, &self.rates) - 1.0
            }
            Objective::Concave => {
                let clients: f64 = flows.iter().map(Flow::count).sum();
                let value = logarithms(flows, &self.rates);
                (self.logarithms_bound(flows, capacities) - value) / clients
            }
            Objective::Fair => return self.check_fair(flows, capacities, &loads),
        };
        match gap <= GAP_MAX {
            true => Ok(()),
            false => Err(format!("{}: the gap is {gap:e}; allowed: {GAP_MAX:e}", of.name())),
        }
    }

    /// Returns a bound by weak duality: each bit/s of a flow is worth 1 and pays its path; a
    /// client's limit pays the rest.
    fn throughput_bound(&self, flows: &[Flow], capacities: &[f64]) -> f64 {
        let links: f64 = self.prices.iter().zip(capacities).map(|(price, most)| price * most).sum();
        let limits = flows.iter().zip(paths(flows, &self.prices)).map(|(flow, path)| {
            // A remainder from rounding pays with the rate that the links allow.
            let limit = if path >= 1.0 - ROUNDING { flow.alone(capacities) } else { flow.rate_max };
            if path < 1.0 { flow.count() * limit * (1.0 - path) } else { 0.0 }
        });
        links + limits.sum::<f64>()
    }

    /// Returns an upper bound of the sum of logarithms: each client buys its best rate.
    fn logarithms_bound(&self, flows: &[Flow], capacities: &[f64]) -> f64 {
        let links: f64 = self.prices.iter().zip(capacities).map(|(price, most)| price * most).sum();
        let gains = flows.iter().zip(paths(flows, &self.prices)).map(|(flow, path)| {
            let rate = (1.0 / path).min(flow.rate_max);
            flow.count() * (rate.ln() - path * rate)
        });
        links + gains.sum::<f64>()
    }

    fn check_fair(&self, flows: &[Flow], capacities: &[f64], loads: &[f64]) -> Result<(), String> {
        for (flow, rate) in flows.iter().zip(&self.rates) {
            let is_first = |link: usize| {
                let most = rate * (1.0 + ROUNDING);
                let mut there =
                    flows.iter().zip(&self.rates).filter(|(it, _)| it.links.contains(&link));
                there.all(|(_, other)| *other <= most)
            };
            let is_full = |link: usize| loads[link] >= capacities[link] * (1.0 - ROUNDING);
            let is_limited = *rate >= flow.rate_max * (1.0 - ROUNDING);
            if !is_limited && !flow.links.iter().any(|link| is_full(*link) && is_first(*link)) {
                return Err(format!("fair: nothing limits a client with {rate} bit/s"));
            }
        }
        Ok(())
    }
}

type Constraint = (Vec<(usize, f64)>, ComparisonOp, f64);

fn linear(
    direction: OptimizationDirection,
    variables: &[(f64, (f64, f64))],
    constraints: &[Constraint],
) -> Result<Vec<f64>, String> {
    let mut problem = Problem::new(direction);
    let of: Vec<_> =
        variables.iter().map(|(factor, within)| problem.add_var(*factor, *within)).collect();
    for (terms, is, bound) in constraints {
        let terms: Vec<_> = terms.iter().map(|(index, factor)| (of[*index], *factor)).collect();
        problem.add_constraint(&terms[..], *is, *bound);
    }
    let failed = |why: String| format!("the linear programme has no solution: {why}");
    let solved = problem.solve().map_err(|error| failed(error.to_string()))?;
    let solution = solved.into_solution().map_err(|_| failed("interrupted".into()))?;
    Ok(of.into_iter().map(|variable| solution.var_value(variable)).collect())
}

/// Returns the constraints of links; a variable is a flow's rate as a share of its rate alone.
fn over_links(flows: &[Flow], capacities: &[f64]) -> Vec<Constraint> {
    let mut constraints: Vec<Constraint> =
        capacities.iter().map(|_| (Vec::new(), ComparisonOp::Le, 1.0)).collect();
    for (index, flow) in flows.iter().enumerate() {
        let load = flow.count() * flow.alone(capacities);
        flow.links.iter().for_each(|it| constraints[*it].0.push((index, load / capacities[*it])));
    }
    constraints
}

/// Converts shares of the rates alone into rates, without the solver's rounding excess.
fn rates(flows: &[Flow], capacities: &[f64], shares: &[f64]) -> Vec<f64> {
    let mut rates: Vec<f64> =
        flows.iter().zip(shares).map(|(it, x)| it.alone(capacities) * x.clamp(0.0, 1.0)).collect();
    let loads = loads(flows, capacities, &rates);
    for (flow, rate) in flows.iter().zip(&mut rates) {
        let over = flow.links.iter().map(|link| loads[*link] / capacities[*link]);
        *rate /= over.fold(1.0, f64::max);
    }
    rates
}

fn most_throughput(flows: &[Flow], capacities: &[f64]) -> Result<Optimum, String> {
    let unit = capacities.iter().copied().fold(0.0, f64::max);
    let unit = flows.iter().map(|flow| flow.alone(capacities)).fold(unit, f64::max);
    let alone = flows.iter().map(|flow| flow.count() * flow.alone(capacities) / unit);
    let variables: Vec<_> = alone.map(|rate| (rate, (0.0, 1.0))).collect();
    let constraints = over_links(flows, capacities);
    let shares = linear(OptimizationDirection::Maximize, &variables, &constraints)?;
    let any = (0.0, f64::INFINITY);
    let mut prices: Vec<_> = capacities.iter().map(|capacity| (capacity / unit, any)).collect();
    let mut worth = Vec::new();
    for flow in flows {
        let mut terms: Vec<_> = flow.links.iter().map(|link| (*link, 1.0)).collect();
        if flow.rate_max.is_finite() {
            terms.push((prices.len(), 1.0));
            prices.push((flow.count() * flow.rate_max / unit, any));
        }
        worth.push((terms, ComparisonOp::Ge, 1.0));
    }
    let mut prices = linear(OptimizationDirection::Minimize, &prices, &worth)?;
    prices.truncate(capacities.len());
    prices.iter_mut().for_each(|price| *price = price.max(0.0));
    Ok(Optimum { rates: rates(flows, capacities, &shares), prices })
}

fn max_min(flows: &[Flow], capacities: &[f64]) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut held = vec![false; flows.len()];
    let mut left = capacities.to_vec();
    let mut level = 0.0;
    while held.contains(&false) {
        let mut rising = vec![0.0; capacities.len()];
        let free = || flows.iter().zip(&held).filter(|(_, held)| !**held).map(|(flow, _)| flow);
        free().for_each(|it| it.links.iter().for_each(|link| rising[*link] += it.count()));
        let room = |link: usize| left[link] / rising[link];
        let links = (0..left.len()).filter(|link| rising[*link] > 0.0).map(room);
        let step = links.chain(free().map(|it| it.rate_max - level)).fold(f64::INFINITY, f64::min);
        level += step;
        // A link with as little room as the minimum is full; rounding forbids a comparison with 0.
        let is_full =
            |link: &usize| left[*link] / rising[*link] <= step + ROUNDING * (level + step);
        let stops: Vec<bool> = flows
            .iter()
            .map(|it| it.links.iter().any(is_full) || it.rate_max <= level * (1.0 + ROUNDING))
            .collect();
        left.iter_mut().zip(&rising).for_each(|(left, rising)| *left -= step * rising);
        for (index, stops) in stops.into_iter().enumerate() {
            if !held[index] {
                (rates[index], held[index]) = (level, stops);
            }
        }
    }
    rates
}

/// Maximises the sum of logarithms by cutting planes (Kelley). Tangents of the logarithm at the
/// points that the linear programme finds bound the sum from above.
///
/// Let `x` be the best rates and `y` any feasible rates. The sum of `y/x` over all clients is at
/// most their number, since the sum of logarithms does not grow towards `y`. A flow alone is such a
/// `y`. Hence its rate as a share of its rate alone is at least its share of all clients.
fn most_logarithms(flows: &[Flow], capacities: &[f64]) -> Result<Optimum, String> {
    let clients: f64 = flows.iter().map(Flow::count).sum();
    let count = flows.len();
    let shares = flows.iter().map(|flow| (0.0, (flow.count() / clients, 1.0)));
    let any = (f64::NEG_INFINITY, f64::INFINITY);
    let tangents = flows.iter().map(|flow| (flow.count() / clients, any));
    let variables: Vec<_> = shares.chain(tangents).collect();
    let mut constraints = over_links(flows, capacities);
    let mut point: Vec<f64> = max_min(flows, capacities)
        .iter()
        .zip(flows)
        .map(|(rate, flow)| rate / flow.alone(capacities))
        .collect();
    let mut found = point.clone();
    let mean = |shares: &[f64]| logarithms(flows, shares) / clients;
    for _ in 0..TANGENTS_MAX {
        for (index, at) in point.iter().enumerate() {
            let terms = vec![(count + index, 1.0), (index, -1.0 / at)];
            constraints.push((terms, ComparisonOp::Le, at.ln() - 1.0));
        }
        let solved = linear(OptimizationDirection::Maximize, &variables, &constraints)?;
        let (shares, tangents) = solved.split_at(count);
        if mean(shares) > mean(&found) {
            found = shares.to_vec();
        }
        let bound =
            tangents.iter().zip(&variables[count..]).map(|(t, (of, _))| t * of).sum::<f64>();
        if bound - mean(&found) <= GAP_MAX / 10.0 {
            break;
        }
        point = shares.to_vec();
    }
    let rates = rates(flows, capacities, &found);
    let prices = clearing_prices(flows, capacities, &rates)?;
    Ok(Optimum { rates, prices })
}

/// Returns prices at which each client would buy its rate, as nearly as such prices exist.
fn clearing_prices(flows: &[Flow], capacities: &[f64], rates: &[f64]) -> Result<Vec<f64>, String> {
    let loads = loads(flows, capacities, rates);
    let any = (0.0, f64::INFINITY);
    // Prices are for whole links. In the bound, a price on a link counts by the link's unused
    // share, and a path's error by its square. Errors are about the square root of the gap.
    let unused = loads.iter().zip(capacities).map(|(load, most)| (1.0 - load / most).max(0.0));
    let mut variables: Vec<_> = unused.map(|unused| (unused / GAP_MAX.sqrt(), any)).collect();
    let mut constraints = Vec::new();
    for (flow, rate) in flows.iter().zip(rates) {
        let path = flow.links.iter().map(|link| (*link, rate / capacities[*link]));
        let error = variables.len();
        variables.push((flow.count(), any));
        let with = |sign| path.clone().chain([(error, sign)]).collect::<Vec<_>>();
        constraints.push((with(-1.0), ComparisonOp::Le, 1.0));
        if *rate < flow.rate_max * (1.0 - GAP_MAX) {
            constraints.push((with(1.0), ComparisonOp::Ge, 1.0));
        }
    }
    let mut prices = linear(OptimizationDirection::Minimize, &variables, &constraints)?;
    prices.truncate(capacities.len());
    let of_a_bit = prices.iter().zip(capacities).map(|(price, most)| price.max(0.0) / most);
    Ok(of_a_bit.collect())
}

#[cfg(test)]
mod tests {
    use faircast_base::math::ln;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const ALL: [Objective; 3] = [Objective::Throughput, Objective::Fair, Objective::Concave];

    fn flow(links: &[usize], clients: u32) -> Flow {
        Flow { links: links.to_vec(), clients, rate_max: 10e6 }
    }

    fn near(rates: &[f64], want: &[f64]) {
        let most = want.iter().copied().fold(0.0, f64::max);
        let is_near = rates.iter().zip(want).all(|(rate, want)| (rate - want).abs() <= 1e-3 * most);
        assert!(is_near && rates.len() == want.len(), "{rates:?}, not {want:?}");
    }

    fn chain(clients: u32) -> (Vec<Flow>, [f64; 5]) {
        let mut flows = vec![flow(&[0, 1, 2, 3, 4], clients)];
        flows.extend((0..5).map(|link| flow(&[link], clients)));
        (flows, [1.944e6; 5])
    }

    #[test]
    fn clients_of_one_link_share_it() {
        // Five clients in two flows: a fifth each by both kinds of fairness.
        let flows = [flow(&[0, 1], 2), flow(&[0, 2], 3)];
        let capacities = [1e6, 3e6, 3e6];
        for objective in [Objective::Fair, Objective::Concave] {
            let best = best(objective, &flows, &capacities).unwrap();
            near(&best.rates, &[0.2e6, 0.2e6]);
        }
        let best = best(Objective::Throughput, &flows, &capacities).unwrap();
        assert!((throughput(&flows, &best.rates) - 1e6).abs() < 1.0, "{best:?}");
        let [least, most] = sums_of_best(&flows, &capacities, &[true, false]).unwrap();
        assert!(least < 10.0 && (most - 1e6).abs() < 10.0, "{least} to {most}");
        let [least, most] = sums_of_best(&flows, &capacities, &[true, true]).unwrap();
        assert!((least - 1e6).abs() < 10.0 && (most - 1e6).abs() < 10.0, "{least} to {most}");
    }

    #[test]
    fn a_chain_carries_most_where_the_long_flow_stands_still() {
        let (flows, capacities) = chain(20);
        let c = capacities[0] / 20.0;
        let rates = |objective| best(objective, &flows, &capacities).unwrap().rates;
        near(&rates(Objective::Throughput), &[0.0, c, c, c, c, c]);
        near(&rates(Objective::Fair), &[c / 2.0; 6]);
        // A client of the long flow pays five links: 5 x_long = x_short, and both sum to c.
        let (long, short) = (c / 6.0, 5.0 * c / 6.0);
        near(&rates(Objective::Concave), &[long, short, short, short, short, short]);
        let [least, most] =
            sums_of_best(&flows, &capacities, &[true, false, false, false, false, false]).unwrap();
        assert!(least < 10.0 && most < 10.0, "{least} to {most}");
    }

    #[test]
    fn a_limit_leaves_the_rest_to_others() {
        let slow = Flow { rate_max: 0.1e6, ..flow(&[0], 1) };
        for objective in [Objective::Fair, Objective::Concave] {
            let best = best(objective, &[slow.clone(), flow(&[0], 1)], &[1e6]).unwrap();
            near(&best.rates, &[0.1e6, 0.9e6]);
        }
        let both = [slow, flow(&[1], 1)];
        near(&best(Objective::Throughput, &both, &[1e6, 2e6]).unwrap().rates, &[0.1e6, 2e6]);
        for objective in ALL {
            near(&best(objective, &[flow(&[], 3)], &[]).unwrap().rates, &[10e6]);
        }
    }

    #[test]
    fn a_problem_without_an_optimum_is_refused() {
        let endless = Flow { rate_max: f64::INFINITY, ..flow(&[], 1) };
        for (flows, capacities, want) in [
            (vec![], vec![1e6], "no client sends"),
            (vec![endless], vec![], "a client has no limit"),
            (vec![flow(&[0], 1)], vec![0.0], "link 0 carries nothing"),
        ] {
            for objective in ALL {
                let error = best(objective, &flows, &capacities).unwrap_err();
                assert!(error.contains(want), "{error}");
            }
        }
    }

    #[test]
    fn a_certificate_of_worse_rates_or_of_too_much_is_refused() {
        let (flows, capacities) = chain(1);
        for objective in ALL {
            let good = best(objective, &flows, &capacities).unwrap();
            for (factor, want) in [(0.99, ""), (1.01, "exceed")] {
                let rates = good.rates.iter().map(|rate| rate * factor).collect();
                let other = Optimum { rates, ..good.clone() };
                let error = other.check(objective, &flows, &capacities).unwrap_err();
                assert!(error.contains(want), "{error}");
            }
        }
    }

    /// Random trees of up to 8 nodes, whose link `i` leads to node `i + 1`, with flows.
    fn network() -> impl Strategy<Value = (Vec<Flow>, Vec<f64>)> {
        let nodes = 2..8usize;
        nodes.prop_flat_map(|nodes| {
            let parents: Vec<_> = (1..nodes).map(|node| 0..node).collect();
            let capacity = (5.0..7.5f64).prop_map(|digits| 10f64.powf(digits));
            let limit = prop_oneof![Just(f64::INFINITY), 1e4..1e7f64];
            let of = (0..nodes, vec(1..nodes, 1..4), 1..30u32, limit);
            (parents, vec(capacity, 2 * (nodes - 1)), vec(of, 1..7)).prop_map(tree)
        })
    }

    type Ends = (usize, Vec<usize>, u32, f64);

    fn tree(
        (parents, capacities, ends): (Vec<usize>, Vec<f64>, Vec<Ends>),
    ) -> (Vec<Flow>, Vec<f64>) {
        let up = |mut node: usize| {
            let mut path = vec![];
            while node > 0 {
                path.push(node - 1);
                node = parents[node - 1];
            }
            path
        };
        let down = parents.len();
        let flow = |(from, to, clients, rate_max): Ends| {
            let mut links = std::collections::BTreeSet::new();
            for to in to {
                let (climbs, falls) = (up(from), up(to));
                links.extend(climbs.iter().filter(|it| !falls.contains(it)).copied());
                links.extend(falls.iter().filter(|it| !climbs.contains(it)).map(|it| down + it));
            }
            let links: Vec<usize> = links.into_iter().collect();
            let rate_max = if links.is_empty() { rate_max.min(1e6) } else { rate_max };
            Flow { links, clients, rate_max }
        };
        (ends.into_iter().map(flow).collect(), capacities)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn certificates_hold_on_random_trees((flows, capacities) in network()) {
            // `best` checks each certificate, and that loads are within capacities.
            let [most, fair, concave] = ALL.map(|objective| best(objective, &flows, &capacities).unwrap().rates);
            let sum = throughput(&flows, &most) * (1.0 + GAP_MAX);
            prop_assert!(sum >= throughput(&flows, &fair) && sum >= throughput(&flows, &concave));
            let logs = |rates: &[f64]| {
                let clients: f64 = flows.iter().map(Flow::count).sum();
                flows.iter().zip(rates).map(|(flow, rate)| flow.count() * ln(*rate)).sum::<f64>() / clients
            };
            let of_concave = logs(&concave) + GAP_MAX;
            prop_assert!(of_concave >= logs(&fair) && of_concave >= logs(&most));
            let least = |rates: &[f64]| rates.iter().copied().fold(f64::INFINITY, f64::min);
            let of_fair = least(&fair) * (1.0 + GAP_MAX);
            prop_assert!(of_fair >= least(&most) && of_fair >= least(&concave));
        }
    }
}
