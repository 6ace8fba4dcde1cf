// Live page of a daemon: reads /status each second. Text of the network enters the page as text alone.
'use strict';
const element = id => document.getElementById(id);
const say = (to, text) => { if (to.textContent !== text) to.textContent = text; };
const set = (to, values) => {
  for (const [name, value] of Object.entries(values)) if (to.getAttribute(name) !== `${value}`) to.setAttribute(name, value);
  return to;
};
// New element at the end of another one, of the same kind of document: HTML or SVG.
const add = (to, tag, values) => set(to.appendChild(document.createElementNS(to.namespaceURI, tag)), values);

// Texts of numbers. An unknown number is a dash.
const NONE = '–';
const known = show => value => value === null || value === undefined ? NONE : show(value);
const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const count = known(value => grouped.format(value));
const bytes = known(value => {
  const unit = value < 1e3 ? 0 : value < 1e6 ? 1 : value < 1e9 ? 2 : 3, scaled = value / 1e3 ** unit;
  return `${scaled.toFixed(unit && scaled < 99.95 ? 1 : 0)} ${['B', 'kB', 'MB', 'GB'][unit]}`;
});
const perSecond = show => known(value => `${show(value)}/s`);
const millis = known(value => `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`);
const dollars = known(value => `$${value.toFixed(value < 100 ? 2 : 0)}`);
const percent = known(value => `${(100 * value).toFixed(0)} %`);
const clock = time => time.toLocaleTimeString('en-GB');
const short = (text, most) => { const all = [...text]; return all.length > most ? `${all.slice(0, most - 1).join('')}…` : text; };

const order = new Intl.Collator('en', { numeric: true }).compare, ROWS_MAX = 200;
// Table that sorts by any column, filters by its texts, and keeps its cells from one state to the next.
class Table {
  constructor(section, about, empty, columns, by, isFiltered) {
    Object.assign(this, { empty, columns, by, isDown: !columns[by].isText, rows: [] });
    const root = element(section), tools = add(root, 'div', { class: 'tools' }), box = add(root, 'div', { class: 'card' });
    tools.append(root.querySelector('h2'));
    if (isFiltered) {
      this.filter = add(tools, 'input', { type: 'search', placeholder: 'Filter', 'aria-label': `Filter: ${about}` });
      this.filter.addEventListener('input', () => this.draw());
    }
    const scroll = add(box, 'div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': about }), table = add(scroll, 'table', {});
    say(table.createCaption(), about);
    const head = table.createTHead().insertRow();
    this.heads = columns.map((column, place) => {
      const cell = add(head, 'th', { scope: 'col', class: column.isText ? 'l' : '' }), button = add(cell, 'button', { type: 'button' });
      say(button, column.title);
      button.addEventListener('click', () => {
        [this.isDown, this.by] = [this.by === place ? !this.isDown : !column.isText, place];
        this.draw();
      });
      return cell;
    });
    this.body = table.createTBody();
    this.more = add(box, 'p', { class: 'more soft small' });
  }

  show(rows) { this.rows = rows; this.draw(); }

  draw() {
    const { columns, by } = this, sign = this.isDown ? -1 : 1, wanted = this.filter?.value.trim().toLowerCase();
    const texts = columns.filter(column => column.isText);
    const isWanted = row => !wanted || texts.some(column => `${column.of(row) ?? ''}`.toLowerCase().includes(wanted));
    const compare = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : sign * (typeof a === 'string' ? order(a, b) : a - b);
    const value = row => columns[by].of(row) ?? null, name = row => columns[0].of(row);
    const found = this.rows.filter(isWanted).sort((a, b) => compare(value(a), value(b)) || order(name(a), name(b)));
    const hides = columns.map(column => column.isOptional && !this.rows.some(row => (column.of(row) ?? null) !== null));
    this.heads.forEach((head, place) => {
      head.hidden = hides[place];
      if (place === by) set(head, { 'aria-sort': this.isDown ? 'descending' : 'ascending' });
      else head.removeAttribute('aria-sort');
    });
    const shown = found.slice(0, ROWS_MAX);
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    shown.forEach((data, at) => {
      const row = this.body.rows[at] ?? this.newRow();
      columns.forEach((column, place) => {
        say(row.cells[place], column.show ? column.show(column.of(data)) : column.of(data) ?? '');
        row.cells[place].hidden = hides[place];
      });
    });
    const none = this.rows.length ? 'No row has this text.' : this.empty;
    say(this.more, found.length > ROWS_MAX ? `and ${count(found.length - ROWS_MAX)} more` : found.length ? '' : none);
    this.more.hidden = !this.more.textContent;
  }

  newRow() {
    const row = this.body.insertRow();
    this.columns.forEach(({ isText }, place) => set(add(row, place ? 'td' : 'th', { class: isText ? 'l' : '' }), place ? {} : { scope: 'row' }));
    return row;
  }
}

const words = (title, key) => ({ title, of: row => row[key], isText: true });
const figure = (title, key, show, isOptional = false) => ({ title, of: row => row[key], show, isOptional });
const tables = {
  own: new Table('own', 'Links of this daemon', 'No links.', [
    words('Daemon', 'name'), figure('Round trip', 'rtt_ms', millis), figure('Sent', 'sent', perSecond(bytes)), figure('Waiting', 'queued_bytes', bytes),
    figure('Packets waiting', 'queue_packets', known(value => value.toFixed(1)), true),
    figure('Price', 'price', dollars, true), figure('Lost', 'lost_packets', count), words('Address', 'address'),
  ], 0, false),
  clients: new Table('client-list', 'Clients of this daemon', 'No clients.', [
    words('Client', 'name'), figure('Requests', 'sends', perSecond(count)), figure('Events', 'gets', perSecond(count)),
    figure('Waiting', 'queued_bytes', bytes), figure('Purse', 'purse', dollars, true),
    figure('Blocked', 'blocked', percent, true), words('State', 'state'),
  ], 0, true),
  groups: new Table('group-list', 'Groups with members', 'No groups.', [
    words('Group', 'name'), figure('Members', 'members', count), figure('Here', 'here', count), words('Senders', 'state'),
  ], 1, true),
  all: new Table('all', 'Directions of the links of the overlay', 'No links.', [
    words('From', 'from'), words('To', 'to'), figure('One way', 'ms', millis), figure('Price', 'price', dollars, true),
  ], 0, true),
};

// Positions of daemons by stress majorization (Gansner, Koren, North 2004): distances are numbers of hops. Daemons begin
// where they were, or on a circle in the order of identifiers, so the same overlay always has the same drawing.
function positions(ids, pairs, old) {
  const hops = ids.map((_, i) => ids.map((_, j) => i === j ? 0 : ids.length)), degree = ids.map(() => 0);
  pairs.forEach(([a, b]) => { hops[a][b] = hops[b][a] = 1; degree[a]++; degree[b]++; });
  ids.forEach((_, k) => ids.forEach((_, i) => ids.forEach((_, j) => {
    if (hops[i][k] + hops[k][j] < hops[i][j]) hops[i][j] = hops[i][k] + hops[k][j];
  })));
  const turns = ids.map((_, i) => 2 * Math.PI * i / ids.length);
  const at = ids.map((id, i) => old.get(id) ?? [ids.length / 6 * Math.cos(turns[i]), ids.length / 6 * Math.sin(turns[i])]);
  for (let step = 0; step < 120; step++) {
    at.forEach((p, i) => {
      let [x, y, sum] = [0, 0, 0];
      at.forEach((q, j) => {
        if (i === j) return;
        // Links between hubs would vanish beside those of many leaves.
        const far = hops[i][j], weight = (far === 1 ? Math.min(degree[i], degree[j]) : 1) / far ** 2;
        const dx = p[0] - q[0], dy = p[1] - q[1], length = Math.hypot(dx, dy) || 1;
        x += weight * (q[0] + far * dx / length);
        y += weight * (q[1] + far * dy / length);
        sum += weight;
      });
      if (sum) at[i] = [x / sum, y / sum];
    });
  }
  if (ids.some(id => old.has(id))) return at;
  // The longest axis of a new drawing is horizontal.
  const mean = [0, 1].map(axis => at.reduce((sum, p) => sum + p[axis], 0) / at.length);
  const moment = (a, b) => at.reduce((sum, p) => sum + (p[a] - mean[a]) * (p[b] - mean[b]), 0);
  const turn = -Math.atan2(2 * moment(0, 1), moment(0, 0) - moment(1, 1)) / 2, [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  return at.map(([x, y]) => [x * cos - y * sin, x * sin + y * cos]);
}

const DEAR = 10, HOP_MAX = 320, NEAR = .05;
const level = price => [NEAR, 1, 5, DEAR].filter(least => price >= least).length;
const priceClass = price => price === null ? 'px' : `p${level(price)}`;
const map = {
  root: element('map'), layers: [], kept: new Map(), ids: '', at: new Map(), chosen: null, view: null,

  start() {
    this.layers = ['links', 'labels', 'nodes'].map(name => add(this.root, 'g', { class: name }));
    this.root.addEventListener('pointerover', event => this.choose(event.target.closest('[data-id]')?.dataset.id ?? null));
    this.root.addEventListener('pointerleave', () => this.choose(null));
    new ResizeObserver(() => this.draw()).observe(this.root);
  },
  // Element of this key, made once and removed when no drawing has asked for it.
  keep(to, tag, key, values, text) {
    let found = this.kept.get(key);
    if (!found) this.kept.set(key, found = { made: add(to, tag, {}) });
    found.isUsed = true;
    set(found.made, values);
    if (text !== undefined) say(found.made, text);
    return found.made;
  },
  choose(id) { if (this.chosen !== id) { this.chosen = id; this.draw(); } },
  show(view) {
    this.view = view;
    const ids = view.daemons.map(it => it.id).join(' ');
    if (ids !== this.ids) {
      const order = view.daemons.map(it => it.id), place = new Map(order.map((id, i) => [id, i]));
      const at = positions(order, view.links.map(it => it.ends.map(end => place.get(end))), this.at);
      [this.ids, this.at] = [ids, new Map(order.map((id, i) => [id, at[i]]))];
    }
    this.draw();
  },
  // Positions in pixels: all of the box is used, with neither axis stretched too much.
  scaled(width, height) {
    const all = [...this.at.values()], pads = [Math.min(70, width / 6), 46], sizes = [width, height];
    const ends = [0, 1].map(axis => [Math.min(...all.map(p => p[axis])), Math.max(...all.map(p => p[axis]))]);
    const fits = ends.map(([low, high], axis) => Math.min(HOP_MAX, (sizes[axis] - 2 * pads[axis]) / Math.max(high - low, 1e-3)));
    const scales = fits.map(fit => Math.min(fit, 2.2 * Math.min(...fits)));
    const pixel = p => p.map((v, axis) => Math.round(sizes[axis] / 2 + (v - (ends[axis][0] + ends[axis][1]) / 2) * scales[axis]) - (axis ? 6 : 0));
    return new Map([...this.at].map(([id, p]) => [id, pixel(p)]));
  },
  draw() {
    this.root.classList.toggle('few', this.at.size < 4);
    const { width, height } = this.root.getBoundingClientRect(), { view } = this;
    if (!view || !width) return;
    set(this.root, { viewBox: `0 0 ${width} ${height}` });
    const at = this.scaled(width, height), [links, labels, nodes] = this.layers, names = new Map(view.daemons.map(it => [it.id, it.name]));
    const radius = view.daemons.length > 40 ? 5 : 8, isNear = id => view.links.some(it => it.ends.includes(id) && it.ends.includes(this.chosen));
    this.root.classList.toggle('chosen', this.chosen !== null && at.has(this.chosen));
    this.kept.forEach(it => { it.isUsed = false; });
    const isChosen = it => this.chosen !== null && it.ends.includes(this.chosen), taken = [], wishes = [];
    // A drawing of many links names the dear ones, and all links of the daemon under the pointer.
    const isSmall = view.links.length <= 12, owned = view.links.filter(it => it.own).length;
    const [hasRates, hasFlow] = [owned <= 4, owned <= 24];
    const takes = (x, y, w, h) => {
      const box = [x - w / 2, y - h / 2, x + w / 2, y + h / 2];
      const isFree = taken.every(it => box[0] > it[2] || box[2] < it[0] || box[1] > it[3] || box[3] < it[1]);
      if (isFree) taken.push(box);
      return isFree;
    };
    at.forEach(([x, y]) => taken.push([x - radius - 2, y - radius - 2, x + radius + 2, y + radius + 2]));
    for (const it of view.links) {
      const [a, b] = it.ends.map(end => at.get(end)), key = it.ends.join(' '), dim = this.chosen && !it.ends.includes(this.chosen) ? 'dim' : '';
      const group = this.keep(links, 'g', key, { class: dim });
      const along = share => [0, 1].map(axis => a[axis] + (b[axis] - a[axis]) * share), middle = along(.5);
      [a, b].forEach((from, i) => {
        const price = it.prices[i], ends = { x1: from[0], y1: from[1], x2: middle[0], y2: middle[1] };
        const wide = 2 + 6 * Math.min(1, (price ?? 0) / DEAR);
        const dashed = view.hasPrices && price === null ? '3 6' : 'none';
        this.keep(group, 'line', `${key} ${i}`, { ...ends, class: priceClass(price), 'stroke-width': wide.toFixed(1), 'stroke-dasharray': dashed });
        if (it.ends[i] === view.id && it.own?.sent > 0 && hasFlow) {
          const far = i ? a : b;
          this.keep(group, 'line', `${key} flow`, { ...ends, x2: far[0], y2: far[1], class: 'flow' });
        }
        const hit = this.keep(group, 'line', `${key} ${i} hit`, { ...ends, class: 'hit' });
        const [to, cost] = [names.get(it.ends[1 - i]), `${millis(it.cost_us / 1e3)} one way`];
        const text = `${names.get(it.ends[i])} to ${to}: ${view.hasPrices ? `price ${dollars(price)}, ` : ''}${cost}`;
        this.keep(hit, 'title', `${key} ${i} title`, {}, text);
      });
      const texts = view.hasPrices ? it.prices.map(dollars) : [millis(it.cost_us / 1e3), millis(it.cost_us / 1e3)];
      const isOne = texts[0] === texts[1];
      (isOne ? [[0, .5]] : [[0, .3], [1, .7]]).forEach(([i, share]) => {
        const price = it.prices[i] ?? 0, isOwn = it.own && (isOne || it.ends[i] === view.id);
        if (!isSmall && !isChosen(it) && price < NEAR) return;
        const sub = isOwn && (hasRates || isChosen(it)) ? `${perSecond(bytes)(it.own.sent)}, ${bytes(it.own.queued_bytes)} wait` : '';
        const weight = (isChosen(it) ? 20 : 0) + (it.own ? 10 : 0) + level(price);
        wishes.push({ key: `${key} label ${i}`, spot: along(share), text: texts[i], sub, weight, dim, tint: priceClass(it.prices[i]) });
      });
    }
    const most = width < 500 || view.daemons.length > 24 ? 10 : 18;
    const rank = it => it.id === view.id ? 0 : it.id === this.chosen ? 1 : 2;
    for (const it of [...view.daemons].sort((a, b) => rank(a) - rank(b))) {
      const [x, y] = at.get(it.id), own = it.id === view.id ? 'own' : '';
      const dim = this.chosen && it.id !== this.chosen && !isNear(it.id) ? 'dim' : '';
      const node = this.keep(nodes, 'g', it.id, { class: `${own} ${dim}`, 'data-id': it.id, transform: `translate(${x} ${y})` });
      if (own) this.keep(node, 'circle', `${it.id} ring`, { r: radius + 5, class: 'ring' });
      this.keep(node, 'circle', `${it.id} dot`, { r: radius });
      this.keep(node, 'title', `${it.id} title`, {}, `${it.name}${own ? ', this daemon' : ''}`);
      const text = short(it.name, most), below = radius + (own ? 20 : 16);
      if (takes(x, y + below - 4, 7 * text.length, 15)) this.keep(node, 'text', `${it.id} name`, { y: below, class: 'name' }, text);
    }
    wishes.sort((a, b) => b.weight - a.weight || (a.key < b.key ? -1 : 1));
    for (const { key, spot: [x, y], text, sub, dim, tint } of wishes) {
      const wide = Math.max(7 * text.length, 5.8 * sub.length) + 4, high = sub ? 29 : 16, middle = y + (sub ? 6 : 0);
      if (!takes(x, middle, wide, high)) continue;
      this.keep(labels, 'rect', `${key} box`, { x: x - wide / 2, y: middle - high / 2, width: wide, height: high, rx: 3 });
      this.keep(labels, 'text', key, { x, y: y + 4, class: `label ${tint} ${dim}` }, text);
      if (sub) this.keep(labels, 'text', `${key} sub`, { x, y: y + 17, class: `sub ${dim}` }, sub);
    }
    this.kept.forEach((it, key) => { if (!it.isUsed) { it.made.remove(); this.kept.delete(key); } });
  },
};

// Messages per second of the last two minutes.
const SPAN_S = 120, points = [];
function spark(now, rate) {
  points.push([now, rate]);
  while (points[0][0] < now - SPAN_S - 1) points.shift();
  const root = element('spark'), top = Math.max(1, ...points.map(point => point[1]));
  const line = points.map(([at, value]) => `${(SPAN_S - now + at).toFixed(2)} ${(92 - 68 * value / top).toFixed(1)}`).join(' L');
  set(root, { viewBox: `0 0 ${SPAN_S} 100` });
  set(root.children[0], { d: `M${(SPAN_S - now + points[0][0]).toFixed(2)} 100 L${line} L${SPAN_S} 100 Z` });
  set(root.children[1], { d: `M${line}` });
}

const showState = (text, kind) => { say(element('state'), text); set(element('state'), { class: `pill ${kind}` }); };
let last = null, lastAt = null;
function show(status, now) {
  const seconds = last ? now - last.now : 0, byKey = (list, key) => new Map((list ?? []).map(it => [it[key], it]));
  // Growth in a second; unknown for what is new or has begun again.
  const growth = (old, entry, key) => old && seconds > 0 && entry[key] >= old[key] ? (entry[key] - old[key]) / seconds : null;
  const old = { clients: byKey(last?.status.clients, 'name'), links: byKey(last?.status.neighbors, 'address') };
  const daemons = status.member_ids.map((id, i) => ({ id, name: status.members[i] || id }));
  const names = byKey(daemons, 'id'), nameOf = id => names.get(id).name;
  document.title = `${status.name} – faircast node`;
  say(element('name'), status.name);
  showState(...status.settled ? ['settled', 'good'] : ['changing', 'warn']);
  say(element('view'), `view ${status.view}`);
  say(element('lookup'), status.name_error ? `A peer is not found: ${status.name_error}` : '');
  element('lookup').hidden = !status.name_error;
  const away = status.clients.filter(it => !it.connected).length;
  say(element('daemons'), count(daemons.length));
  say(element('groups'), count(status.groups.length));
  say(element('clients'), count(status.clients.length - away));
  say(element('away'), away ? `, ${count(away)} away` : '');
  say(element('unstable'), bytes(status.unstable_bytes));
  const rate = growth(last?.status.counters, status.counters, 'messages');
  say(element('rate'), perSecond(count)(rate));
  if (rate !== null) spark(now, rate);

  const own = status.neighbors.map(it => ({
    ...it, name: it.daemon ?? 'no daemon yet', address: it.address ?? '', rtt_ms: it.daemon === null ? null : it.rtt_ms,
    sent: growth(old.links.get(it.address), it, 'sent_bytes'),
  }));
  const links = status.links.map(it => ({
    ...it, own: it.ends.includes(status.id) ? own.find(link => it.ends.includes(link.id)) : undefined,
  }));
  const hasPrices = links.some(it => it.prices.some(price => price !== null));
  map.show({ id: status.id, daemons, links, hasPrices });
  say(element('map-about'), hasPrices
    ? 'Each half of a link has the price of a packet from the daemon at its end. The filled daemon is this one.'
    : 'Messages have no price: links show their delay of one way. The filled daemon is this one.');
  element('scale').hidden = !hasPrices;
  say(element('top-price'), `${dollars(DEAR)} and more`);
  tables.own.show(own);
  tables.all.show(links.flatMap(it => [0, 1].map(i => (
    { from: nameOf(it.ends[i]), to: nameOf(it.ends[1 - i]), ms: it.cost_us / 1e3, price: it.prices[i] }))));
  tables.clients.show(status.clients.map(it => {
    const before = old.clients.get(it.name), blocked = it.waited_ms === null ? null : growth(before, it, 'waited_ms');
    const state = [it.connected ? '' : 'away', it.waiting ? `waits: ${it.waiting}` : ''].filter(Boolean).join(', ');
    return {
      ...it, sends: growth(before, it, 'request'), gets: growth(before, it, 'event'), state,
      blocked: blocked === null ? null : Math.min(1, blocked / 1e3),
    };
  }));
  tables.groups.show(status.groups.map(it => ({ ...it, state: it.held ? 'held by a slow member' : '' })));
  last = { status, now };
}

function showLost() {
  showState('no answer', 'bad');
  say(element('banner'), `No answer ${lastAt ? `since ${clock(lastAt)}` : 'yet'}. The page tries again each second.`);
}

const PAUSE_MS = 1000, PAUSE_MAX_MS = 10_000;
let timer = 0, isAsking = false;
async function poll() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;
  isAsking = true;
  const start = performance.now();
  let status = null;
  try {
    const answer = await fetch('status', { cache: 'no-store', signal: AbortSignal.timeout(PAUSE_MAX_MS) });
    if (answer.ok) status = await answer.json();
  } catch { /* The banner says so. */ }
  element('banner').hidden = status !== null;
  document.body.classList.toggle('stale', status === null);
  try {
    if (!status) return showLost();
    lastAt = new Date();
    say(element('fresh'), `updated ${clock(lastAt)}`);
    show(status, performance.now() / 1e3);
  } finally {
    isAsking = false;
    // A state of many clients takes long: the page asks a busy daemon less often.
    const pause = status ? Math.min(PAUSE_MAX_MS, 9 * (performance.now() - start)) : 0;
    timer = setTimeout(poll, Math.max(PAUSE_MS, pause));
  }
}

map.start();
document.addEventListener('visibilitychange', poll);
poll();
