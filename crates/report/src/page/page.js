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
  // Colours tell protocols apart, dashes the flows of one.
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 1, 2, 1, 2]];
  const colour = i => theme.lines[i % theme.lines.length];
  const dash = line => line.kind === 'acknowledged' ? [3, 3] : DASHES[line.dash % DASHES.length];

  // --- Numbers.

  const SI = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];
  const trim = text => text.includes('.') ? text.replace(/\.?0+$/, '') : text;
  const short = v => trim(Math.abs(v) >= 100 || v === 0 ? v.toFixed(0) : v.toPrecision(3));
  const group = v => Math.round(v).toLocaleString('en');
  /// Divisor of values up to `top`, and their unit after the division.
  function scaled(unit, top) {
    if (unit === 'count') return top >= 2e6 ? [1e6, 'millions'] : top >= 2e4 ? [1e3, 'thousands'] : [1, ''];
    if (unit === 'rate') { const [scale, prefix] = SI.find(([scale]) => top >= scale) || [1, '']; return [scale, prefix + 'bit/s']; }
    if (unit === 'span') return top >= 1 ? [1, 's'] : [1e-3, 'ms'];
    return [1, unit === 'packets' ? 'packets' : ''];
  }
  const units = {
    count: v => group(v),
    packets: v => short(v),
    rate: v => { const [scale, unit] = scaled('rate', Math.abs(v)); return short(v / scale) + ' ' + unit; },
    span: v => v < 1 ? short(v * 1e3) + ' ms' : short(v) + ' s',
  };
  units.name = v => String(v);
  units.receivers = units.count;
  const ticks = {
    count: v => v >= 1e6 ? trim((v / 1e6).toFixed(3)) + ' M' : group(v),
    packets: v => trim(v.toFixed(2)),
    receivers: v => trim(v.toFixed(2)),
    rate: (v, top) => trim((v / scaled('rate', top)[0]).toFixed(3)),
    span: (v, top) => trim(top < 1 ? (v * 1e3).toFixed(1) : v.toFixed(2)),
  };
  const clock = t => t.toFixed(t < 10 ? 3 : t < 1000 ? 2 : 1) + ' s';

  // --- Small parts of the page.

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /// A piece of a line, or bars for marks, as it is in a plot.
  const SVG = 'http://www.w3.org/2000/svg';
  function swatch(line) {
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('width', 22); svg.setAttribute('height', 12); svg.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', line.total === undefined ? 'M0 6h22' : line.upright ? 'M11 0v12' : 'M5 12V7M9 12V1M13 12V5M17 12V8');
    path.setAttribute('fill', 'none');
    path.setAttribute('stroke', line.colour === undefined ? 'var(--soft)' : `var(--c${line.colour % 8})`);
    path.setAttribute('stroke-width', line.total === undefined ? line.width || 2 : 1.5);
    const dashes = line.upright ? [4, 3] : line.total === undefined && line.dash !== undefined ? dash(line) : [];
    if (dashes.length) path.setAttribute('stroke-dasharray', dashes.join(' '));
    svg.append(path);
    if (line.low) {
      const band = document.createElementNS(SVG, 'path');
      band.setAttribute('d', 'M0 1h22v10h-22z');
      band.setAttribute('fill', `var(--c${line.colour % 8})`);
      band.setAttribute('opacity', .22);
      svg.prepend(band);
    }
    return svg;
  }
  const capital = text => text[0].toUpperCase() + text.slice(1);

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
    const specs = p.plots.filter(spec => spec.lines.length);
    for (const spec of specs) spec.full = spec.key === 'sequence' || spec.key === 'representative';
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
    const chart = { g, spec, plot: null, start: null };
    const save = saving(spec.key, `${spec.title.toLowerCase()}, as it is shown,`, () => picture(chart));
    figure.append(make('figcaption', {}, make('h3', {}, spec.title), make('p', {}, spec.about), save));
    const legend = make('ul', { class: 'legend', 'aria-label': 'Lines: press to show or hide' });
    const canvas = make('div', { class: 'canvas', role: 'img', 'aria-label': describe(spec, g) });
    figure.append(legend);

    const entry = (list, line, label, output, pressed, act) => {
      const b = make('button', { type: 'button', 'aria-pressed': String(pressed) }, swatch(line), label, output);
      b.addEventListener('click', () => {
        pressed = !pressed;
        b.setAttribute('aria-pressed', String(pressed));
        act(pressed);
      });
      list.append(make('li', {}, b));
    };
    const show = (line, shown) => {
      if (line.hidden === !shown) return;
      line.hidden = !shown;
      if (line.index) for (let i = 0; i < (line.low ? 3 : 1); i++) chart.plot.setSeries(line.index + i, { show: shown });
      else chart.plot.redraw(false, true);
    };
    const blank = () => make('output', { 'aria-live': 'off' });
    if (spec.crowd) {
      // One button for each flow or group of flows, one for each kind of line where there are several: a
      // line shows where both are pressed.
      const names = key => [...new Set(spec.lines.map(line => line[key]))];
      const off = new Set(['owner', 'kind'].flatMap(key => names(key).filter(name =>
        spec.lines.every(line => line[key] !== name || line.hidden))));
      const update = () => spec.lines.forEach(line => show(line, !off.has(line.owner) && !off.has(line.kind)));
      const flip = name => pressed => { if (pressed) off.delete(name); else off.add(name); update(); };
      const singles = make('ul', { class: 'legend', 'aria-label': 'Single flows: press to show or hide' });
      for (const name of names('owner')) {
        const line = spec.lines.find(line => line.owner === name);
        line.output = blank();
        entry(off.has(name) ? singles : legend, line, line.low ? line.label : name, line.output, !off.has(name), flip(name));
      }
      const kinds = names('kind');
      if (kinds.length > 1) for (const name of kinds) entry(legend, {}, capital(name), '', !off.has(name), flip(name));
      if (singles.children.length) {
        const list = make('details', { class: 'singles' }, make('summary', {}, `${singles.children.length} single flows`), singles);
        figure.append(list);
      }
    } else {
      for (const line of spec.lines) {
        line.output = blank();
        entry(legend, line, line.label, line.output, !line.hidden, pressed => show(line, pressed));
      }
    }
    for (const row of spec.marks) {
      const total = make('output', { 'aria-live': 'off', class: 'total' }, `× ${group(row.total)}`);
      entry(legend, row, row.label, total, !row.hidden, pressed => show(row, pressed));
    }
    figure.append(canvas);

    chart.start = () => {
      // A mean is three series of uPlot: itself, and the ends of its range.
      let next = 1;
      const tables = spec.lines.map(line => {
        line.index = next;
        next += line.low ? 3 : 1;
        return line.low ? [line.times, line.values, line.low, line.high] : [line.times, line.values];
      });
      const height = () => spec.key === 'sequence' ? Math.min(380, Math.max(260, canvas.clientWidth * .75)) : 250;
      const size = () => ({ width: Math.max(200, canvas.clientWidth), height: spec.names.length ? 96 + 26 * spec.names.length : height() });
      chart.plot = new uPlot(options(g, chart, size()), uPlot.join(tables), canvas);
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
    const ends = spec.lines.filter(l => !l.hidden).slice(0, 6).map(l => {
      const last = l.values[l.values.length - 1];
      const value = spec.names.length ? (last === null ? 'nobody' : spec.names[last]) : units[spec.unit](last || 0);
      return `${l.label}: ${value} at the end`;
    });
    return `${spec.title} over ${short(g.end)} seconds. ${ends.join('; ')}.`;
  }

  /// What the vertical axis reaches between two moments: what the shown lines have there in the counted
  /// time, so that what happens while things settle does not press all the rest to the ground.
  function reach(chart, min, max) {
    const { spec, g } = chart;
    if (spec.names.length) return [-.5, spec.names.length - .5];
    const from = g.p.warmup < max ? Math.max(min, g.p.warmup) : min;
    let low = Infinity, high = 0;
    for (const line of spec.lines) {
      if (line.hidden) continue;
      const { times } = line, lows = line.low || line.values, highs = line.high || line.values;
      for (let i = 0; i < times.length; i++) {
        if (times[i] < from && !(times[i + 1] > from) || times[i] > max || highs[i] === null) continue;
        if (lows[i] < low) low = lows[i];
        if (highs[i] > high) high = highs[i];
      }
    }
    // A count that only grows is looked at where it is; all else from zero on.
    if (spec.unit === 'count' && high > low && min > 0) return [low, high + (high - low) * .05];
    return [0, high > 0 ? high * 1.06 : 1];
  }

  const lanes = spec => spec.marks.filter(row => !row.upright && !row.hidden);
  const LANE = 12;

  function options(g, chart, size) {
    const spec = chart.spec, stepped = uPlot.paths.stepped({ align: 1 });
    const font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    const axis = { stroke: () => theme.soft, font, grid: { stroke: () => theme.grid, width: 1 }, ticks: { stroke: () => theme.grid, width: 1, size: 4 } };
    const top = u => u.scales.y.max;
    let y;
    if (spec.names.length) {
      const widest = Math.max(...spec.names.map(name => Math.min(name.length, 14)));
      y = { ...axis, size: Math.max(72, 34 + 7 * widest), splits: () => spec.names.map((_, i) => i), values: () => spec.names.map(n => n.length > 14 ? n.slice(0, 13) + '…' : n) };
    } else {
      y = { ...axis, size: 72, values: (u, splits) => splits.map(v => ticks[spec.unit](v, top(u))) };
    }
    const series = [{}], bands = [];
    for (const line of spec.lines) {
      const show = !line.hidden, spanGaps = false, points = { show: false };
      const paths = line.step ? stepped : undefined;
      series.push({ label: line.label, show, stroke: () => colour(line.colour), width: line.width, dash: dash(line), paths, points, spanGaps });
      if (!line.low) continue;
      const edge = { show, paths, points, spanGaps, stroke: () => alpha(colour(line.colour), .3), width: .5 };
      series.push(edge, { ...edge });
      bands.push({ series: [line.index + 2, line.index + 1], fill: () => alpha(colour(line.colour), .16) });
    }
    return {
      ...size,
      padding: [() => 10 + LANE * lanes(spec).length, 26, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: g.key, setSeries: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { show: (u, i) => spec.lines.some(line => line.index === i) ? undefined : false, size: 7, fill: (u, i) => series[i].stroke(), width: 0 },
        bind: { dblclick: () => () => { zoom(g, 0, g.end); } },
      },
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: () => reach(chart, g.min, g.max) } },
      axes: [{ ...axis, size: 48, space: 60, values: (u, splits) => splits.map(v => trim(v.toFixed(4))) }, y],
      series, bands,
      hooks: {
        drawClear: [u => shade(u, g)],
        draw: [u => { drawMarks(u, spec); drawNames(u, spec); }],
        setCursor: [u => readout(u, g, chart)],
        setSelect: [u => {
          if (u.select.width > 3) zoom(g, u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
  }

  const alpha = (hex, share) => hex + Math.round(share * 255).toString(16).padStart(2, '0');

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

  /// How many marks fall into each cell of the drawing, from left to right.
  function cells(row, x, width, left, right) {
    const sums = new Map();
    row.times.forEach((t, i) => {
      const at = x(t);
      if (at < left || at > right) return;
      const cell = Math.floor((at - left) / width);
      sums.set(cell, (sums.get(cell) || 0) + row.counts[i]);
    });
    const most = Math.max(1, ...sums.values());
    // By the square root, so that one beside a hundred is still seen.
    return [...sums].map(([cell, sum]) => [left + (cell + .5) * width, Math.sqrt(sum / most)]);
  }

  /// Marks stand in lanes above the plot, where they cover no line: bars as high as marks are many.
  function drawMarks(u, spec) {
    const { ctx, bbox } = u, d = devicePixelRatio, right = bbox.left + bbox.width;
    const x = t => u.valToPos(t, 'x', true);
    ctx.save();
    lanes(spec).forEach((row, i, all) => {
      const floor = bbox.top - 4 * d - (all.length - 1 - i) * LANE * d;
      ctx.strokeStyle = colour(row.colour);
      ctx.lineWidth = 1.5 * d;
      ctx.beginPath();
      for (const [at, height] of cells(row, x, 3 * d, bbox.left, right)) {
        ctx.moveTo(at, floor); ctx.lineTo(at, floor - (2 + (LANE - 4) * height) * d);
      }
      ctx.stroke();
      ctx.font = `${10 * d}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
      ctx.fillStyle = theme.soft;
      ctx.textAlign = 'right';
      ctx.textBaseline = 'bottom';
      // Where the flow's name does not fit, the legend has it.
      const name = ctx.measureText(row.label).width < bbox.left - 6 * d ? row.label : row.kind;
      ctx.fillText(name, bbox.left - 5 * d, floor + 2 * d);
    });
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.setLineDash([4 * d, 3 * d]);
    ctx.globalAlpha = .55;
    ctx.lineWidth = 1.25 * d;
    for (const row of spec.marks.filter(row => row.upright && !row.hidden)) {
      ctx.strokeStyle = colour(row.colour);
      ctx.beginPath();
      for (const t of row.times) { ctx.moveTo(x(t), bbox.top); ctx.lineTo(x(t), bbox.top + bbox.height); }
      ctx.stroke();
    }
    ctx.restore();
  }

  // Numbers of packets have separators on the screen, and are not divided.
  const axisName = (spec, top) => [spec.axis, spec.unit === 'count' ? '' : scaled(spec.unit, top)[1]].filter(Boolean).join(', ');

  /// The names of both axes with their units.
  function drawNames(u, spec) {
    const { ctx, bbox } = u, d = devicePixelRatio;
    ctx.save();
    ctx.font = `${12 * d}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
    ctx.fillStyle = theme.soft;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'bottom';
    ctx.fillText('Time, s', bbox.left + bbox.width / 2, u.height * d - 2 * d);
    ctx.translate(2 * d, bbox.top + bbox.height / 2);
    ctx.rotate(-Math.PI / 2);
    ctx.textBaseline = 'top';
    ctx.fillText(axisName(spec, u.scales.y.max), 0, 0);
    ctx.restore();
  }

  function readout(u, g, chart) {
    const { idx, left } = u.cursor;
    const inside = idx !== null && idx !== undefined && left >= 0;
    if (inside) g.readout.textContent = 't = ' + clock(u.posToVal(left, 'x'));
    for (const line of chart.spec.lines) {
      if (!line.output) continue;
      let text = '';
      if (inside) {
        const values = u.data[line.index];
        let i = idx;
        while (i >= 0 && values[i] === undefined) i--;
        const v = i >= 0 ? values[i] : null;
        if (v !== null && v !== undefined) text = chart.spec.names.length ? chart.spec.names[v] : units[chart.spec.unit](v);
      }
      line.output.textContent = text;
    }
  }

  // --- Pictures for papers: what is shown now, on white, each line with dashes of its own.

  const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

  /// Round numbers between two, about so many.
  function rounds(low, high, number) {
    const least = (high - low) / number, power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map(digit => digit * power).find(s => s >= least) || 10 * power;
    const found = [];
    for (let i = Math.ceil(low / step - 1e-6); i * step <= high + (high - low) * 1e-6; i++) found.push(i * step);
    return found;
  }
  /// Picture for papers of what is shown now: zoomed, with the lines that are on. plots/svg.rs draws the
  /// whole run without a browser; sizes and colours are its, and a test compares all elements.
  function picture(chart) {
    const { g, spec } = chart, { style } = g.p;
    const { width, font, lane, cell } = style, aside = style.sample + 3;
    const paint = i => style.colours[i % style.colours.length];
    const dashed = i => style.dashes[i % style.dashes.length] ? ` stroke-dasharray="${style.dashes[i % style.dashes.length]}"` : '';
    const lines = spec.lines.filter(line => !line.hidden), marks = spec.marks.filter(row => !row.hidden), rows = lanes(spec);
    const wide = text => text.length * font * .53;
    const left = Math.max(style.left, ...spec.names.map(name => wide(name) + 18)), fieldWidth = width - left - style.right;
    let out = '', x = 4, y = font;
    const n = v => v.toFixed(2);
    const entry = (label, sample) => {
      const w = aside + wide(label);
      if (x + w > width - 2 && x > 4) { x = 4; y += font + 3; }
      out += sample(x, y - 2.6) + `<text x="${n(x + aside)}" y="${n(y)}">${escaped(label)}</text>\n`;
      x += w + 9;
    };
    lines.forEach((line, i) => entry(line.label, (x, y) => `<path d="M${n(x)} ${n(y)}h${style.sample}" stroke="${paint(line.colour)}" stroke-width="${line.width / 2}"${dashed(i)}/>`));
    for (const row of marks) {
      entry(`${row.label} (${row.total})`, (x, y) => row.upright
        ? `<path d="M${n(x + style.sample / 2)} ${n(y - 4)}v8" stroke="${paint(row.colour)}" stroke-width=".5" stroke-dasharray="2 1.5"/>`
        : `<path d="M${n(x + style.sample / 2 - 3)} ${n(y + 2.5)}v-3m3 3v-5m3 5v-3" stroke="${paint(row.colour)}"/>`);
    }
    const above = y + 5, top = above + lane * rows.length + 4, height = style.row * spec.names.length || style.field;
    const right = left + fieldWidth, bottom = top + height;
    const [low, high] = reach(chart, g.min, g.max);
    const px = t => left + fieldWidth * Math.min(Math.max((t - g.min) / (g.max - g.min), -.5), 1.5);
    const py = v => top + height * (1 - Math.min(Math.max((v - low) / (high - low), -1), 3));
    const warm = Math.min(px(g.p.warmup), right) - left;
    if (g.p.warmup > 0 && warm > 0) out += `<rect x="${n(left)}" y="${n(top)}" width="${n(warm)}" height="${n(height)}" fill="#eee"/>\n`;
    const [scale, unit] = scaled(spec.unit, high), shown = v => trim(v.toFixed(6));
    const levels = spec.names.length ? spec.names.map((name, i) => [i, name]) : rounds(low / scale, high / scale, 5).map(v => [v * scale, shown(v)]);
    for (const [v, text] of levels) {
      out += `<path d="M${n(left)} ${n(py(v))}H${n(right)}" stroke="#ddd" stroke-width=".4"/><text x="${n(left - 4)}" y="${n(py(v) + 2.8)}" text-anchor="end">${escaped(text)}</text>\n`;
    }
    for (const t of rounds(g.min, g.max, 6)) {
      out += `<path d="M${n(px(t))} ${n(bottom)}v3" stroke="#000" stroke-width=".6"/><text x="${n(px(t))}" y="${n(bottom + 11)}" text-anchor="middle">${shown(t)}</text>\n`;
    }
    out += `<path d="M${n(left)} ${n(top)}V${n(bottom)}H${n(right)}" fill="none" stroke="#000" stroke-width=".6"/>\n` +
      `<text x="${n(left + fieldWidth / 2)}" y="${n(bottom + 23)}" text-anchor="middle">Time, s</text>\n` +
      `<text transform="translate(9 ${n(top + height / 2)}) rotate(-90)" text-anchor="middle">${escaped([spec.axis, unit].filter(Boolean).join(', '))}</text>\n`;
    rows.forEach((row, i) => {
      const floor = above + lane * (i + 1);
      const d = cells(row, px, cell, left, right).map(([at, share]) => `M${n(at)} ${n(floor)}v${n(-2 - (lane - 3) * share)}`).join('');
      out += `<path d="${d}" stroke="${paint(row.colour)}"/>\n`;
    });
    out += '<g clip-path="url(#field)" fill="none">\n';
    for (const row of marks.filter(row => row.upright)) {
      const d = row.times.filter(t => t >= g.min && t <= g.max).map(t => `M${n(px(t))} ${n(top)}V${n(bottom)}`).join('');
      out += `<path d="${d}" stroke="${paint(row.colour)}" stroke-width=".5" stroke-dasharray="2 1.5" opacity=".6"/>\n`;
    }
    lines.forEach((line, place) => {
      const at = line.times.map(px);
      if (line.low) {
        const edge = [...line.high.map((v, i) => `${n(at[i])} ${n(py(v))}`), ...line.low.map((v, i) => `${n(at[i])} ${n(py(v))}`).reverse()];
        out += `<path d="M${edge.join('L')}Z" fill="${paint(line.colour)}" opacity=".16"/>\n`;
      }
      let d = '', open = false;
      line.values.forEach((v, i) => {
        if (v === null) { open = false; return; }
        d += !open ? `M${n(at[i])} ${n(py(v))}` : line.step ? `H${n(at[i])}V${n(py(v))}` : `L${n(at[i])} ${n(py(v))}`;
        open = true;
      });
      out += `<path d="${d}" stroke="${paint(line.colour)}" stroke-width="${line.width / 2}" stroke-linejoin="round"${dashed(place)}/>\n`;
    });
    const total = bottom + style.bottom;
    return `<svg xmlns="${SVG}" width="${width}pt" height="${n(total)}pt" viewBox="0 0 ${width} ${n(total)}" font-family="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif" font-size="${font}" fill="#000">\n` +
      `<title>${escaped(spec.title)}</title>\n<desc>${escaped(spec.about)}</desc>\n<rect width="${width}" height="${n(total)}" fill="#fff"/>\n` +
      `<clipPath id="field"><rect x="${n(left)}" y="${n(top)}" width="${n(fieldWidth)}" height="${n(height)}"/></clipPath>\n${out}</g>\n</svg>\n`;
  }

  function download(name, blob) {
    const link = make('a', { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  function savePng(name, text) {
    const image = new Image();
    image.onload = () => {
      // 600 points an inch, what printers ask of drawings; the picture is in points of 1/72 inch.
      const scale = 600 / 96, canvas = make('canvas', { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(blob => download(`${name}.png`, blob), 'image/png');
    };
    image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  }

  /// Buttons that save a picture, of which `text` gives the SVG.
  function saving(name, what, text) {
    const svg = () => download(`${name}.svg`, new Blob([text()], { type: 'image/svg+xml' }));
    const buttons = [['SVG', svg], ['PNG', () => savePng(name, text())]].map(([type, act]) => {
      const label = `Save ${what} as ${type}`;
      const b = make('button', { type: 'button', 'aria-label': label, title: label }, type);
      b.addEventListener('click', act);
      return b;
    });
    return make('span', { class: 'save' }, ...buttons);
  }

  // Plots that came as pictures are saved with the colours of paper, which stand beside the page's.
  for (const figure of document.querySelectorAll('figure.drawn')) {
    const text = () => new XMLSerializer().serializeToString(figure.querySelector('svg')).replace(/var\([^,()]+,([^()]+)\)/g, '$1');
    figure.querySelector('figcaption').append(saving(figure.dataset.key, figure.dataset.what, text));
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
