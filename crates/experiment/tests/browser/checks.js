// What the tests ask of a page; evaluated in it once it is open.
globalThis.checks = (() => {
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  const frame = () => new Promise(requestAnimationFrame);
  const LINES = [...Array(8).keys()].map(i => '--c' + i);

  // Relative luminance, and the contrast of two of them, as WCAG has them.
  function luminance(colour) {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  }
  function contrastOf(a, b) {
    const [x, y] = [luminance(a), luminance(b)];
    return (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
  }

  // Experiments are drawn when they come near.
  async function drawAll() {
    if (all('[data-plot]').length < 2) return;
    for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
      scrollTo(0, y);
      await frame();
      await frame();
    }
    scrollTo(0, 0);
  }

  // Plots without the colours of lines in most columns of pixels: axes and texts have other colours, and
  // marks alone leave gaps. A representative may be chosen late.
  function blank() {
    const lines = LINES.map(name => rgb(variable(name)));
    const isBlank = plot => {
      const canvas = plot.querySelector('canvas'), { width, height } = canvas, columns = new Set();
      const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
      for (let i = 0; i < data.length; i += 4) {
        const off = line => line.reduce((sum, v, k) => sum + Math.abs(v - data[i + k]), 0);
        if (data[i + 3] > 200 && lines.some(line => off(line) < 40)) columns.add(i / 4 % width);
      }
      return columns.size < width * (plot.dataset.key === 'representative' ? .35 : .55);
    };
    return all('.plot:has(canvas)').filter(isBlank).map(plot => plot.dataset.key);
  }

  function faults() {
    const faults = [];
    if (all('h1').length !== 1) faults.push('one h1');
    if (!document.documentElement.lang) faults.push('lang');
    for (const table of all('table')) {
      const isNameless = table.tBodies[0].rows.length && !table.querySelector('th[scope=row]');
      if (!table.caption || !table.querySelector('th[scope=col]') || isNameless) {
        faults.push('table without caption or headings');
      }
    }
    for (const e of all('button, a[href], [role=img]')) {
      if (!(e.textContent.trim() || e.getAttribute('aria-label'))) faults.push('unlabelled ' + e.outerHTML);
    }
    const ids = all('[id]').map(e => e.id);
    if (new Set(ids).size !== ids.length) faults.push('ids repeat');
    for (const a of all('a[href^="#"]')) {
      if (!document.querySelector(a.getAttribute('href'))) faults.push('no anchor ' + a.getAttribute('href'));
    }
    let level = 1;
    for (const h of all('h1, h2, h3, h4')) {
      const next = Number(h.tagName[1]);
      if (next > level + 1) faults.push('heading skips to ' + h.textContent);
      level = next;
    }
    return faults;
  }

  // Texts and lines whose colours are too close to what is behind them: WCAG AA wants 4.5, lines 3.
  function contrast() {
    const wanted = [
      ...['--ink', '--soft', '--accent', '--good', '--bad'].flatMap(c => [[c, '--bg', 4.5], [c, '--card', 4.5]]),
      ['--good', '--good-bg', 4.5], ['--bad', '--bad-bg', 4.5], ['--warn', '--warn-bg', 4.5],
      ...LINES.map(c => [c, '--card', 3]),
    ];
    const of = (a, b) => contrastOf(rgb(variable(a)), rgb(variable(b)));
    return wanted.filter(([a, b, least]) => of(a, b) < least).map(([a, b]) => `${a} on ${b}: ${of(a, b).toFixed(2)}`);
  }

  // Numbers whose colour is too close to that of their cell.
  function heatContrast() {
    const colour = text => text.match(/\d+/g).slice(0, 3).map(Number);
    const isClose = e => {
      const style = getComputedStyle(e);
      return contrastOf(colour(style.color), colour(style.backgroundColor)) < 4.5;
    };
    return all('.heat td b, .heat td small').filter(isClose).map(e => e.outerHTML);
  }

  // Tables that are wider than their box and cannot be scrolled to their end with the names in view.
  function stuck() {
    const isStuck = box => {
      box.scrollLeft = 1e6;
      const cells = ['tbody th[scope=row]', 'tbody tr:last-child > :last-child'];
      const [name, last, edge] = [...cells.map(cell => box.querySelector(cell)), box].map(e => e.getBoundingClientRect());
      box.scrollLeft = 0;
      return last.right > edge.right + 1 || name.left < edge.left - 1;
    };
    return all('.scroll').filter(box => box.checkVisibility() && isStuck(box)).map(box => box.ariaLabel);
  }

  // A number for each plot's picture, which tells it from others.
  const prints = () => all('.plot canvas').map(canvas =>
    [...canvas.toDataURL()].reduce((hash, c) => (Math.imul(hash, 31) + c.charCodeAt(0)) | 0, 7));
  const place = key => all('.plot').findIndex(plot => plot.dataset.key === key);
  const pressed = key => all(`[data-key=${key}] .legend button`)
    .filter(button => button.ariaPressed === 'true').map(button => button.childNodes[1].data);

  // Of the first line's pixels in the middle column of the sequence plot: how many there are, where the
  // first one is as a share of the field's height, and how far below the canvas's edge the field begins.
  function firstLine() {
    const plot = document.querySelector('[data-key=sequence]'), canvas = plot.querySelector('canvas');
    const c = canvas.getBoundingClientRect(), field = plot.querySelector('.u-over').getBoundingClientRect();
    const x = Math.round(field.left - c.left + field.width / 2), top = Math.round(field.top - c.top) + 1;
    const { data } = canvas.getContext('2d').getImageData(x, top, 1, Math.round(field.height) - 2);
    const line = rgb(variable('--c0')), at = [];
    for (let i = 0; i < data.length; i += 4) {
      if (line.every((v, k) => Math.abs(v - data[i + k]) < 30)) at.push(i / data.length);
    }
    return [at.length, at[0], field.top - c.top];
  }

  // Presses the buttons that save pictures, and keeps what they save.
  const saved = [];
  function save(buttons) {
    saved.length = 0;
    URL.createObjectURL = blob => { saved.push(blob); return 'data:,'; };
    HTMLAnchorElement.prototype.click = () => {};
    all(buttons).forEach(button => button.click());
  }
  // Type, width and height of a saved PNG, which takes a while to be made.
  async function png(place) {
    for (const start = Date.now(); !saved[place]; await frame()) {
      if (Date.now() - start > 20000) throw Error('no picture');
    }
    const view = new DataView(await saved[place].slice(0, 24).arrayBuffer());
    return [saved[place].type, view.getUint32(16), view.getUint32(20)];
  }

  // Where a saved picture differs from another one by more than what rounding makes.
  async function differs(place, other) {
    const elements = text => all('*', new DOMParser().parseFromString(text, 'image/svg+xml'));
    const [x, y] = [elements(await saved[place].text()), elements(other)], differs = [];
    if (x.length !== y.length) differs.push(`${x.length} and ${y.length} elements`);
    const words = text => text.split(/(-?\d*\.?\d+)/);
    const alike = (p, q) => p === q || p !== '' && q !== '' && Math.abs(p - q) < .11;
    const same = (s, t) => {
      const [p, q] = [words(s), words(t)];
      return p.length === q.length && p.every((word, i) => alike(word, q[i]));
    };
    const shown = e => e.tagName + [...e.attributes].filter(a => a.name !== 'xmlns')
      .map(a => ` ${a.name}=${a.value}`).sort().join('') + (e.children.length ? '' : '>' + e.textContent);
    x.slice(0, y.length).map(shown).forEach((text, i) => {
      if (!same(text, shown(y[i]))) differs.push([text.slice(0, 300), shown(y[i]).slice(0, 300)]);
    });
    return differs.slice(0, 5);
  }

  return {
    all, blank, contrast, differs, drawAll, faults, firstLine, heatContrast, place, png, pressed, prints, save, saved, stuck,
  };
})();
void 0;
