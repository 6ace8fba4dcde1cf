(() => {
  'use strict';

  const root = document.documentElement;
  const data = JSON.parse(document.getElementById('data').textContent);

  // --- Colours: read from the style sheet, so that there is one palette for pages and plots.

  const theme = {};
  function readTheme() {
    const style = getComputedStyle(root);
    const get = name => style.getPropertyValue(name).trim();
    for (const name of ['ink', 'soft', 'line', 'grid', 'shade', 'card', 'bad']) theme[name] = get('--' + name);
    theme.lines = Array.from({ length: 8 }, (_, i) => get('--c' + i));
  }
  readTheme();
  const DASHES = [[], [8, 4], [2, 3]];
  const colour = i => theme.lines[i % theme.lines.length];
  const dash = i => DASHES[Math.floor(i / theme.lines.length) % DASHES.length];

  // --- Numbers.

  const SI = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];
  const trim = text => text.includes('.') ? text.replace(/\.?0+$/, '') : text;
  const short = v => trim(Math.abs(v) >= 100 || v === 0 ? v.toFixed(0) : v.toPrecision(3));
  const group = v => Math.round(v).toLocaleString('en');
  const units = {
    count: v => group(v),
    packets: v => short(v),
    rate: v => { const [s, u] = SI.find(([s]) => Math.abs(v) >= s) || [1, '']; return short(v / s) + ' ' + u + 'bit/s'; },
    span: v => v < 1 ? short(v * 1e3) + ' ms' : short(v) + ' s',
  };
  const ticks = {
    count: v => v >= 1e6 ? trim((v / 1e6).toFixed(3)) + ' M' : group(v),
    packets: v => trim(v.toFixed(2)),
    rate: (v, top) => trim((v / (SI.find(([s]) => top >= s) || [1])[0]).toFixed(3)),
    span: (v, top) => trim(top < 1 ? (v * 1e3).toFixed(1) : v.toFixed(2)),
  };
  const axisUnit = {
    count: () => 'packets', packets: () => 'packets',
    rate: top => ((SI.find(([s]) => top >= s) || [1, ''])[1]) + 'bit/s',
    span: top => top < 1 ? 'ms' : 's',
  };
  const clock = t => t.toFixed(t < 10 ? 3 : t < 1000 ? 2 : 1) + ' s';

  // --- Small parts of the page.

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const SVG = 'http://www.w3.org/2000/svg';
  function swatch(line) {
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('width', 22); svg.setAttribute('height', 12); svg.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS(SVG, 'path');
    const shapes = { cross: 'M7 2l8 8M15 2l-8 8', down: 'M6 2h10l-5 8z', box: 'M7 2h8v8h-8z', up: 'M6 10h10l-5 -8z', bar: 'M11 0v12' };
    path.setAttribute('d', line.mark ? shapes[line.mark] : 'M0 6h22');
    const paint = line.colour === undefined ? 'var(--soft)' : `var(--c${line.colour % 8})`;
    path.setAttribute('fill', line.mark && line.mark !== 'cross' && line.mark !== 'bar' ? paint : 'none');
    path.setAttribute('stroke', paint);
    path.setAttribute('stroke-width', line.mark ? 1.5 : (line.width || 2));
    if (line.opacity) path.setAttribute('opacity', line.opacity);
    const dashes = line.dash || dash(line.colour || 0);
    if (dashes.length && (!line.mark || line.mark === 'bar')) path.setAttribute('stroke-dasharray', dashes.join(' '));
    svg.append(path);
    return svg;
  }

  // --- What each plot shows.

  const pairs = bins => {
    // A step ends where the next begins; the last one needs an end of its own.
    const t = [], v = [];
    bins.v.forEach((bytes, i) => { t.push(i * bins.w); v.push(bytes * 8 / bins.w); });
    if (v.length) { t.push(v.length * bins.w); v.push(v[v.length - 1]); }
    return [t, v];
  };
  const has = points => points && points[0].length > 0;
  const capital = text => text[0].toUpperCase() + text.slice(1);
  /// With more flows or links than this a legend names flows and kinds of lines apart.
  const CROWD = 3;

  function sequencePlot(p) {
    const lines = [], crowd = p.flows.length > CROWD;
    const add = (flow, i, kind, line) => {
      const label = p.flows.length > 1 ? `${flow.name}, ${kind}` : capital(kind);
      lines.push({ label, owner: flow.name, kind, colour: i, ...line });
    };
    p.flows.forEach((f, i) => {
      if (has(f.sent)) add(f, i, f.received ? 'received' : 'sent', { points: f.sent });
      if (has(f.acked)) add(f, i, 'acknowledged', { points: f.acked, dash: [3, 3], width: 1.25, hidden: crowd });
    });
    p.flows.forEach((f, i) => {
      for (const [key, kind, mark] of [['naks', 'NAK', 'cross'], ['losses', 'loss found', 'up'], ['cuts', 'cut', 'down'], ['timeouts', 'timeout', 'box']]) {
        // What was found missing is asked for, and what is asked for makes the sender cut: one
        // kind of mark is enough to begin with.
        const hidden = crowd || ((key === 'cuts' || key === 'losses') && has(f.naks));
        if (has(f[key])) add(f, i, kind, { points: f[key], mark, total: f[key][2], hidden });
      }
      const switches = f.switches.filter(s => s[1] !== null);
      if (switches.length > 1) {
        const points = [switches.map(s => s[0]), switches.map(() => null)];
        add(f, i, 'new representative', { points, mark: 'bar', dash: [4, 3], total: switches.length, hidden: crowd || switches.length > 60 });
      }
    });
    const text = p.flows.some(f => f.received) ? 'New data packets received, in all' : 'New data packets sent and acknowledged, in all';
    return { key: 'sequence', title: 'Sequence numbers', text, unit: 'count', lines, crowd, height: 380, full: true };
  }

  /// Upright lines where flows changed their representatives, unless they are too many to tell apart.
  function switchBars(p, lines) {
    p.flows.forEach((f, i) => {
      const switches = f.switches.filter(s => s[1] !== null);
      if (switches.length < 2 || switches.length > 60) return;
      const points = [switches.map(s => s[0]), switches.map(() => null)];
      lines.push({ label: p.flows.length > 1 ? `${f.name}, new representative` : 'New representative', colour: i, points, mark: 'bar', dash: [4, 3], total: switches.length, hidden: p.flows.length > CROWD });
    });
  }

  function throughputPlot(p) {
    const lines = p.flows.filter(f => f.bins.v.length).map(f => ({ label: f.name, colour: p.flows.indexOf(f), points: pairs(f.bins), step: true }));
    p.rest.forEach((r, i) => {
      const mean = { w: r.bins.w, v: r.bins.v.map(v => v / r.flows) };
      if (mean.v.length) lines.push({ label: `mean of ${r.flows} other ${r.protocol} flows`, colour: p.flows.length + i, points: pairs(mean), step: true });
    });
    switchBars(p, lines);
    const width = p.flows.length ? p.flows[0].bins.w : 0;
    return { key: 'throughput', title: 'Throughput', text: `New payload (TCP: acknowledged payload) per ${units.span(width)}`, unit: 'rate', lines };
  }

  const perFlow = (p, key) => p.flows.map((f, i) => ({ label: f.name, colour: i, points: f[key], width: 1.5 })).filter(l => has(l.points));
  const windowPlot = p => ({ key: 'window', title: 'Window', text: 'Congestion window of the sender', unit: 'packets', lines: perFlow(p, 'window').map(l => ({ ...l, held: true })) });
  /// At each moment the mean of all that went before: how papers show that a share settles.
  function meanPlot(p) {
    const lines = p.flows.filter(f => f.bins.v.length > 1).map(f => {
      let sum = 0;
      const t = [], v = [];
      f.bins.v.forEach((bytes, i) => { const at = Math.min((i + 1) * f.bins.w, p.ended); sum += bytes; t.push(at); v.push(sum * 8 / at); });
      return { label: f.name, colour: p.flows.indexOf(f), points: [t, v] };
    });
    switchBars(p, lines);
    return { key: 'mean', title: 'Mean throughput', text: `Throughput from the start of the run to each moment, every ${units.span(p.flows.length ? p.flows[0].bins.w : 0)}`, unit: 'rate', lines };
  }

  const ratePlot = p => ({ key: 'rate', title: 'Sending rate', text: 'Rate that the sender allows itself', unit: 'rate', lines: perFlow(p, 'rate').map(l => ({ ...l, held: true })) });
  const rttPlot = p => ({ key: 'rtt', title: 'Round trip', text: 'As the sender measures it', unit: 'span', lines: perFlow(p, 'rtt') });

  function queuePlot(p) {
    const lines = [], crowd = p.links.length > CROWD;
    p.links.forEach((l, i) => {
      const add = (kind, line) => {
        const label = p.links.length > 1 ? `${l.name}, ${kind}` : capital(kind);
        lines.push({ label, owner: l.name, kind, colour: i, ...line });
      };
      if (has(l.mean)) add('mean', { points: l.mean, width: 2 });
      if (has(l.max)) add('greatest', { points: l.max, width: 1, opacity: .45, hidden: crowd });
      if (has(l.drops)) add('drop', { points: l.drops, mark: 'cross', total: l.drops[2], hidden: crowd });
    });
    const text = p.links.length > 1 ? 'Links that queue or drop most' : `Link ${p.links.length ? p.links[0].name : ''}`;
    return { key: 'queue', title: 'Queues', text, unit: 'packets', lines, crowd };
  }

  function representativePlot(p) {
    const held = new Map();
    const flows = p.flows.filter(f => f.switches.some(s => s[1] !== null));
    for (const f of flows) {
      f.switches.forEach(([t, name], i) => {
        if (name === null) return;
        const until = i + 1 < f.switches.length ? f.switches[i + 1][0] : p.ended;
        held.set(name, (held.get(name) || 0) + until - t);
      });
    }
    let names = [...held.keys()].sort((a, b) => held.get(b) - held.get(a));
    const OTHER = 'others', most = 11;
    if (names.length > most) names = [...names.slice(0, most), OTHER];
    else names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    const place = name => { const i = names.indexOf(name); return i < 0 ? names.length - 1 : i; };
    const lines = flows.map(f => {
      const t = [], v = [];
      for (const [at, name] of f.switches) {
        const last = v.length ? v[v.length - 1] : null;
        // A line that ends has an end: without one it would not be drawn.
        if (name === null && last !== null) { t.push(at); v.push(last); }
        t.push(name === null ? at + 1e-6 : at);
        v.push(name === null ? null : place(name));
      }
      if (t.length && p.ended > t[t.length - 1]) { t.push(p.ended); v.push(v[v.length - 1]); }
      return { label: f.name, colour: p.flows.indexOf(f), points: [t, v], step: true, width: 3 };
    });
    return { key: 'representative', title: 'Representative', text: 'Whose feedback sets the pace: pgmcc’s acker, TFMCC’s CLR', unit: 'packets', lines, names, height: 80 + 26 * names.length, full: true };
  }

  const kinds = {
    run: [sequencePlot, representativePlot, throughputPlot, meanPlot, queuePlot, windowPlot, ratePlot, rttPlot],
    sequence: [sequencePlot],
    rate: [throughputPlot],
    mean: [meanPlot],
  };

  // --- Plots that move together.

  const groups = [];

  function makeGroup(host) {
    const p = data[Number(host.dataset.plot)];
    // Of an interrupted run a little of what is missing shows that something is.
    const end = (p.interrupted ? Math.min(p.duration, p.ended * 1.1) : p.ended) || p.duration || 1;
    const g = { p, end, charts: [], min: 0, max: end, key: 'g' + groups.length };
    const tools = make('div', { class: 'tools' });
    g.readout = make('output', { 'aria-live': 'off' }, '');
    g.readout.textContent = 'Drag across a plot to zoom; double-click to see all.';
    const button = (text, label, act) => {
      const b = make('button', { type: 'button', 'aria-label': label, title: label }, text);
      b.addEventListener('click', act);
      return b;
    };
    const move = share => { const w = g.max - g.min, from = Math.min(Math.max(0, g.min + share * w), end - w); zoom(g, from, from + w); };
    const scale = factor => { const c = (g.min + g.max) / 2, w = (g.max - g.min) * factor / 2; zoom(g, c - w, c + w); };
    g.reset = button('All', 'Show the whole run', () => zoom(g, 0, end));
    g.reset.disabled = true;
    tools.append(g.readout, button('◀', 'Earlier', () => move(-.4)), button('▶', 'Later', () => move(.4)),
      button('−', 'Zoom out', () => scale(2)), button('+', 'Zoom in', () => scale(.5)), g.reset);
    const specs = kinds[host.dataset.kind].map(kind => kind(p)).filter(spec => spec.lines.length);
    const halves = specs.filter(spec => !spec.full);
    if (halves.length % 2) halves[halves.length - 1].full = true;
    const figures = specs.map(spec => makeChart(g, spec, host.dataset.kind));
    if (host.dataset.kind === 'run') host.append(tools, ...figures); else host.append(...figures, tools);
    if (!specs.length) host.replaceChildren(make('p', { class: 'soft' }, 'The trace has nothing to plot.'));
    g.charts.forEach(chart => chart.start());
    groups.push(g);
  }

  function zoom(g, min, max) {
    min = Math.max(0, min); max = Math.min(g.end, max);
    if (!(max - min > g.end * 1e-6)) return;
    g.min = min; g.max = max;
    g.reset.disabled = min <= 0 && max >= g.end;
    for (const chart of g.charts) chart.plot.setScale('x', { min, max });
  }

  function makeChart(g, spec, kind) {
    const figure = make('figure', { class: 'plot card' + (spec.full || kind !== 'run' ? ' full' : ''), 'data-key': spec.key });
    const heading = make('h3', {}, spec.title);
    figure.append(make('figcaption', {}, heading, make('p', {}, spec.text)));
    const chart = { spec, plot: null, start: null };
    const legend = make('ul', { class: 'legend', 'aria-label': 'Lines: press to show or hide' });
    const canvas = make('div', { class: 'canvas', role: 'img', 'aria-label': describe(spec, g) });
    figure.append(legend, canvas);

    const entry = (line, label, output, pressed, act) => {
      const b = make('button', { type: 'button', 'aria-pressed': String(pressed) }, swatch(line), label, output);
      b.addEventListener('click', () => {
        pressed = !pressed;
        b.setAttribute('aria-pressed', String(pressed));
        act(pressed);
      });
      legend.append(make('li', {}, b));
    };
    const show = (line, shown) => {
      if (line.hidden === !shown) return;
      line.hidden = !shown;
      if (line.index) chart.plot.setSeries(line.index, { show: shown }); else chart.plot.redraw(false);
    };
    const blank = () => make('output', { 'aria-live': 'off' });
    const total = sum => make('output', { 'aria-live': 'off', class: 'total' }, `× ${group(sum)}`);
    if (spec.crowd) {
      // One button for each flow, one for each kind of line: a line shows where both are pressed.
      const off = new Set(spec.lines.filter(line => line.hidden).map(line => line.kind));
      const update = () => spec.lines.forEach(line => show(line, !off.has(line.owner) && !off.has(line.kind)));
      spec.lines.forEach(line => { line.hidden = off.has(line.kind); });
      const flip = name => pressed => { if (pressed) off.delete(name); else off.add(name); update(); };
      const first = (key, line) => spec.lines.find(other => other[key] === line[key]) === line;
      for (const line of spec.lines.filter(line => first('owner', line))) {
        line.output = blank();
        entry({ ...line, mark: undefined }, line.owner, line.output, true, flip(line.owner));
      }
      legend.append(make('li', { class: 'break' }));
      for (const line of spec.lines.filter(line => first('kind', line))) {
        const sum = spec.lines.filter(l => l.kind === line.kind).reduce((sum, l) => sum + (l.total || 0), 0);
        entry({ ...line, colour: undefined }, capital(line.kind), line.mark ? total(sum) : '', !off.has(line.kind), flip(line.kind));
      }
    } else {
      for (const line of spec.lines) {
        line.output = line.mark ? total(line.total) : blank();
        entry(line, line.label, line.output, !line.hidden, pressed => show(line, pressed));
      }
    }

    chart.start = () => {
      const curves = spec.lines.filter(line => !line.mark);
      curves.forEach((line, i) => { line.index = i + 1; });
      const joined = curves.length ? uPlot.join(curves.map(line => line.points)) : [[0, g.end], [null, null]];
      const height = () => spec.height ? Math.min(spec.height, Math.max(240, canvas.clientWidth * .75)) : 240;
      const size = () => ({ width: Math.max(200, canvas.clientWidth), height: spec.names ? spec.height : height() });
      chart.plot = new uPlot(options(g, chart, curves, size()), joined, canvas);
      chart.plot.setScale('x', { min: g.min, max: g.max });
      new ResizeObserver(() => {
        const want = size();
        if (want.width !== chart.plot.width || want.height !== chart.plot.height) chart.plot.setSize(want);
      }).observe(canvas);
      touch(chart.plot.over);
    };
    g.charts.push(chart);
    return figure;
  }

  function describe(spec, g) {
    const ends = spec.lines.filter(l => !l.mark).slice(0, 6).map(l => {
      const last = l.points[1][l.points[1].length - 1];
      const value = spec.names ? (last === null ? 'nobody' : spec.names[last]) : units[spec.unit](last || 0);
      return `${l.label}: ${value} at the end`;
    });
    return `${spec.title} over ${short(g.end)} seconds. ${ends.join('; ')}.`;
  }

  function options(g, chart, curves, size) {
    const spec = chart.spec, stepped = uPlot.paths.stepped({ align: 1 });
    const paint = (line, name) => () => line.opacity ? uPlotAlpha(colour(line.colour), line.opacity) : colour(line.colour);
    const font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    const axis = { stroke: () => theme.soft, font, grid: { stroke: () => theme.grid, width: 1 }, ticks: { stroke: () => theme.grid, width: 1, size: 4 } };
    const top = u => u.scales.y.max;
    let y;
    if (spec.names) {
      const widest = Math.max(...spec.names.map(name => Math.min(name.length, 14)));
      y = { ...axis, size: Math.max(62, 14 + 7 * widest), splits: () => spec.names.map((_, i) => i), values: () => spec.names.map(n => n.length > 14 ? n.slice(0, 13) + '…' : n) };
    } else {
      y = { ...axis, size: 62, values: (u, splits) => splits.map(v => ticks[spec.unit](v, top(u))) };
    }
    const range = (u, min, max) => {
      if (spec.names) return [-.5, spec.names.length - .5];
      if (max === null || max === undefined) return [0, 1];
      if (spec.unit === 'count') return uPlot.rangeNum(min, max, .05, true);
      return [0, max > 0 ? max * 1.06 : 1];
    };
    return {
      ...size,
      padding: spec.names ? [8, 26, 0, 0] : [22, 26, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: g.key, setSeries: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 7, fill: (u, i) => colour(curves[i - 1].colour), width: 0 },
        bind: { dblclick: () => () => { zoom(g, 0, g.end); } },
      },
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range } },
      axes: [
        { ...axis, size: 34, space: 60, values: (u, splits) => splits.map((v, i) => trim(v.toFixed(4)) + (i === splits.length - 1 ? ' s' : '')) },
        y,
      ],
      series: [{}, ...curves.map(line => ({
        label: line.label, show: !line.hidden, stroke: paint(line), width: line.width || 2, dash: line.dash || dash(line.colour),
        paths: line.step || line.held ? stepped : undefined, points: { show: false }, spanGaps: false,
      }))],
      hooks: {
        drawClear: [u => shade(u, g)],
        draw: [u => { drawMarks(u, spec); drawUnit(u, spec); }],
        setCursor: [u => readout(u, g, chart, curves)],
        setSelect: [u => {
          if (u.select.width > 3) zoom(g, u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
  }

  const uPlotAlpha = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, '0');

  /// Greys what is not counted: the warm-up, and what an interrupted run did not reach.
  function shade(u, g) {
    const { ctx, bbox } = u;
    const fill = (from, to) => {
      const a = Math.max(bbox.left, u.valToPos(from, 'x', true)), b = Math.min(bbox.left + bbox.width, u.valToPos(to, 'x', true));
      if (b > a) ctx.fillRect(a, bbox.top, b - a, bbox.height);
    };
    ctx.save();
    ctx.fillStyle = theme.shade;
    if (g.p.warmup > 0) fill(0, g.p.warmup);
    if (g.p.interrupted && g.p.ended < g.end) fill(g.p.ended, g.end);
    ctx.restore();
  }

  function drawMarks(u, spec) {
    const { ctx, bbox } = u, d = devicePixelRatio, r = 3.5 * d;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const line of spec.lines) {
      if (!line.mark || line.hidden) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(line.colour);
      ctx.lineWidth = 1.25 * d;
      ctx.setLineDash(line.mark === 'bar' ? [4 * d, 3 * d] : []);
      ctx.globalAlpha = line.mark === 'bar' ? .55 : .9;
      const [ts, vs] = line.points;
      ctx.beginPath();
      for (let i = 0; i < ts.length; i++) {
        const x = u.valToPos(ts[i], 'x', true);
        if (x < bbox.left - r || x > bbox.left + bbox.width + r) continue;
        if (line.mark === 'bar') { ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); continue; }
        const y = u.valToPos(vs[i], 'y', true);
        if (line.mark === 'cross') { ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r); ctx.moveTo(x + r, y - r); ctx.lineTo(x - r, y + r); }
        if (line.mark === 'down') { ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y - r); ctx.lineTo(x, y + r); ctx.closePath(); }
        if (line.mark === 'up') { ctx.moveTo(x - r, y + r); ctx.lineTo(x + r, y + r); ctx.lineTo(x, y - r); ctx.closePath(); }
        if (line.mark === 'box') ctx.rect(x - r, y - r, 2 * r, 2 * r);
      }
      if (line.mark === 'cross' || line.mark === 'bar') ctx.stroke(); else ctx.fill();
    }
    ctx.restore();
  }

  function drawUnit(u, spec) {
    if (spec.names) return;
    const { ctx, bbox } = u, d = devicePixelRatio;
    ctx.save();
    ctx.font = `${12 * d}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
    ctx.fillStyle = theme.soft;
    ctx.textBaseline = 'bottom';
    ctx.fillText(axisUnit[spec.unit](u.scales.y.max), bbox.left, bbox.top - 6 * d);
    ctx.restore();
  }

  function readout(u, g, chart, curves) {
    const { idx, left } = u.cursor;
    const inside = idx !== null && idx !== undefined && left >= 0;
    if (inside) g.readout.textContent = 't = ' + clock(u.posToVal(left, 'x'));
    for (const line of curves) {
      let text = '';
      if (inside) {
        const values = u.data[line.index];
        let i = idx;
        while (i >= 0 && values[i] === undefined) i--;
        const v = i >= 0 ? values[i] : null;
        if (v !== null && v !== undefined) text = chart.spec.names ? chart.spec.names[v] : units[chart.spec.unit](v);
      }
      if (line.output) line.output.textContent = text;
    }
  }

  /// Fingers do what the mouse does: slide sideways to zoom, tap to read.
  function touch(over) {
    const as = { pointerdown: 'mousedown', pointermove: 'mousemove', pointerup: 'mouseup' };
    for (const [from, to] of Object.entries(as)) {
      over.addEventListener(from, e => {
        if (e.pointerType === 'mouse') return;
        const make = type => new MouseEvent(type, { clientX: e.clientX, clientY: e.clientY, button: 0, buttons: to === 'mouseup' ? 0 : 1, bubbles: true });
        if (from === 'pointerdown') { over.setPointerCapture(e.pointerId); over.dispatchEvent(make('mouseenter')); over.dispatchEvent(make('mousemove')); }
        over.dispatchEvent(make(to));
      });
    }
    over.style.touchAction = 'pan-y';
  }

  // --- Start.

  const hosts = [...document.querySelectorAll('.plots[data-plot]')];
  if (hosts.length > 2 && 'IntersectionObserver' in window) {
    // A page of many experiments draws each when it comes near.
    const seen = new IntersectionObserver(entries => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        makeGroup(entry.target);
      }
    }, { rootMargin: '600px' });
    hosts.forEach(host => seen.observe(host));
  } else {
    hosts.forEach(makeGroup);
  }

  function repaint() {
    readTheme();
    for (const g of groups) for (const chart of g.charts) chart.plot.redraw(false, true);
  }
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', repaint);
  const toggle = document.getElementById('theme');
  const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches;
  const say = () => { toggle.textContent = isDark() ? 'Light' : 'Dark'; toggle.setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colours`); };
  toggle.hidden = false;
  toggle.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    // Some browsers give files no storage; the choice then lasts as long as the page.
    try { localStorage.setItem('faircast-theme', root.dataset.theme); } catch { /* as said */ }
    say();
    repaint();
  });
  dark.addEventListener('change', say);
  say();
})();
