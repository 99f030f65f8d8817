
// ---- The pipeline as it runs: a lane a stage, time from left to right -----------------------------------------------

const UNRESOLVED = 0, PROMPT = 1, ACCEPTED = 2, PRUNED = 3, FLUSHED = 4, DRAFTED = 5;  // fates, as in trace.h
const KEPT = 40;           // seconds of what has happened
const MOST_SPANS = 60000;  // likewise, at most
const SPANS = [1, 2, 3, 5, 10, 20, 30];  // seconds that may be shown

// Index of the first of `n` for which `is(i)`; `is` is false up to some point, then true.
function firstWhere(n, is) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

class Flow {
  // clock: the engine's time that is shown as now, in seconds.
  constructor(canvas, clock) {
    this.canvas = canvas;
    this.clock = clock;
    this.span = 0;       // seconds shown; 0: what fits
    this.fitting = 5;
    this.heldAt = null;  // the time at the right while nothing moves
    this.words = new WordsOfRequests();
    this.setup({stages: 1, cuts: [], drafts: [], executor: ''});
  }

  // about: as the `hello` event says. Forgets all that was.
  setup(about) {
    this.about = about;
    this.lanes = Array.from({length: about.stages + about.drafts.length}, () => []);  // spans, by end
    this.batches = new Map();
    this.came = [];
    this.passes = [];  // the newest durations
    this.busy = [];
    this.words.clear();
  }

  // What `steps` events tell.
  take(news) {
    if (news.lost > 0) this.lose();
    for (const [id, model, entered, prompt, nodes] of news.batches) {
      this.batches.set(id, {model, entered, prompt, nodes, fates: [], reached: 0, left: entered});
    }
    for (const [lane, id, begin, end, computed] of news.spans) {
      const batch = this.batches.get(id);
      if (!batch || lane >= this.lanes.length) continue;
      this.lanes[lane].push({id, begin, end, computed});
      batch.reached = lane + 1;
      batch.left = end;
      if (lane < this.about.stages) this.passes.push(end - begin);
    }
    for (const [id, fate, rows, time] of news.fates) this.batches.get(id)?.fates.push({fate, rows, time});
    for (const [time, request, tokens, hit] of news.tokens) {
      const came = {time, request, tokens, hit: hit === 1, text: ''};
      this.came.push(came);
      this.words.take(came);
    }
    this.forget(news.now - KEPT);
    this.fit();
  }

  // Not all was told: who is under way is not known any more.
  lose() {
    for (const batch of this.batches.values()) batch.reached = this.lanes.length;
    this.words.clear();
  }

  forget(before) {
    for (const lane of this.lanes) {
      const most = MOST_SPANS / this.lanes.length;
      const old = Math.max(firstWhere(lane.length, i => lane[i].end >= before), lane.length - most);
      if (old > 500 || (old > 0 && old > lane.length / 2)) lane.splice(0, old);
    }
    const old = firstWhere(this.came.length, i => this.came[i].time >= before);
    if (old > 500) this.came.splice(0, old);
    for (const [id, batch] of this.batches) {
      if (batch.entered >= before && this.batches.size < MOST_SPANS) break;
      this.batches.delete(id);
    }
    this.passes.splice(0, this.passes.length - 60);
  }

  // A time in which a pass has some pixels, and which does not change with every pass.
  fit() {
    if (this.passes.length < 5) return;
    const usual = [...this.passes].sort((a, b) => a - b)[this.passes.length >> 1];
    const wanted = usual * Math.max(48, 6 * this.about.stages);
    if (wanted > this.fitting * 0.45 && wanted < this.fitting) return;
    this.fitting = SPANS.find(span => span >= wanted) ?? SPANS[SPANS.length - 1];
  }

  shown() { return this.span || this.fitting; }

  // ---- Moving about ----

  hold(on) { this.heldAt = on ? this.clock() : null; }
  move(by) {
    if (this.heldAt === null) this.hold(true);
    this.heldAt = Math.min(Math.max(this.heldAt + by, this.clock() - KEPT), this.clock());
  }
  zoom(further) {
    const at = SPANS.findIndex(span => span >= this.shown());
    this.span = SPANS[Math.min(Math.max(at + further, 0), SPANS.length - 1)];
  }

  // ---- Drawing ----

  draw() {
    const narrow = this.canvas.clientWidth < 480, count = this.lanes.length;
    const row = Math.min(Math.max(Math.round(300 / count), 20), 46);
    const area = {left: narrow ? 62 : 104, top: 22, tokens: 34, row};
    const {g, width} = beginDrawing(this.canvas, area.top + area.tokens + 6 + row * count + 6);
    const now = this.heldAt ?? this.clock();
    Object.assign(area, {right: width - 1, now, from: now - this.shown()});
    area.x = time => area.right - (now - time) / (now - area.from) * (area.right - area.left);
    area.y = lane => area.top + area.tokens + 6 + lane * row;
    this.area = area;
    this.drawAxis(g, area);
    this.drawNames(g, area, narrow);
    g.save();
    g.beginPath();
    g.rect(area.left, 0, area.right - area.left, this.canvas.clientHeight);
    g.clip();
    this.lanes.forEach((lane, i) => this.drawLane(g, area, lane, i));
    this.drawUnderWay(g, area);
    this.drawTokens(g, area);
    g.restore();
  }

  drawAxis(g, area) {
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10].find(s => s / this.shown() * (area.right - area.left) >= 64) ?? 10;
    const bottom = area.y(this.lanes.length);
    for (let ago = 0; ago <= this.shown(); ago += step) {
      const x = area.x(area.now - ago);
      if (x < area.left + 1) break;
      g.fillStyle = theme.line;
      g.fillRect(Math.round(x), area.top - 4, 1, bottom - area.top + 4);
      const text = ago === 0 ? (this.heldAt === null ? 'now' : 'held') : '−' + number(ago, step < 1 ? 1 : 0) + ' s';
      write(g, text, ago === 0 ? x - 3 : x, area.top / 2, {px: 10.5, align: ago === 0 ? 'right' : 'center'});
    }
  }

  drawNames(g, area, narrow) {
    write(g, 'tokens', 10, area.top + area.tokens / 2, {px: narrow ? 10.5 : 11.5});
    for (let lane = 0; lane < this.lanes.length; lane++) {
      const y = area.y(lane), middle = y + area.row / 2, cut = this.about.cuts[lane], tall = area.row >= 34 && cut;
      g.fillStyle = theme.idle;
      g.fillRect(area.left, y + 1, area.right - area.left, area.row - 2);
      const name = lane < this.about.stages ? (narrow ? 'st. ' : 'stage ') + lane : this.about.drafts[lane - this.about.stages];
      write(g, name, 10, tall ? middle - 7 : middle, {color: theme.ink, px: narrow ? 11 : 12, weight: 500});
      if (tall && !narrow) {
        write(g, cut[1] - cut[0] === 1 ? `layer ${cut[0]}` : `layers ${cut[0]}–${cut[1] - 1}`, 10, middle + 8, {px: 10.5});
      }
      const share = this.busy[lane];
      if (share !== undefined && !narrow) write(g, percent(share), area.left - 8, tall ? middle - 7 : middle, {px: 10.5, align: 'right'});
    }
  }

  // How many of a batch's rows came to what by the time that is shown.
  parts(batch, computed, now) {
    const parts = {prompt: batch.prompt, accepted: 0, pruned: 0, prunedEarly: 0, flushed: 0, flushedEarly: 0, drafted: 0, unresolved: 0};
    if (batch.model !== 0) return {...parts, drafted: batch.nodes};
    let leftOut = Math.max(batch.prompt + batch.nodes - computed, 0), open = batch.nodes;
    for (const {fate, rows, time} of batch.fates) {
      if (time > now) continue;
      open -= rows;
      if (fate === ACCEPTED) parts.accepted += rows;
      if (fate !== PRUNED && fate !== FLUSHED) continue;
      const early = Math.min(leftOut, rows), name = fate === PRUNED ? 'pruned' : 'flushed';
      leftOut -= early;
      parts[name] += rows - early;
      parts[name + 'Early'] += early;
    }
    parts.unresolved = Math.max(open, 0);
    return parts;
  }

  drawLane(g, area, lane, index) {
    const top = area.y(index) + 2, height = area.row - 4;
    for (let i = firstWhere(lane.length, i => lane[i].end >= area.from); i < lane.length; i++) {
      const {id, begin, end, computed} = lane[i];
      if (begin > area.now) break;
      const batch = this.batches.get(id);
      if (batch) this.drawBox(g, area.x(begin), area.x(end), top, height, this.parts(batch, computed, area.now));
    }
  }

  drawBox(g, x0, x1, top, height, parts) {
    const width = Math.max(x1 - x0 - (x1 - x0 > 5 ? 1 : 0), 0.6);
    let rows = 0, y = top;
    for (const part of Object.values(parts)) rows += part;
    if (rows === 0) return;
    for (const [name, part] of Object.entries(parts)) {
      if (part === 0) continue;
      const style = theme[name], share = part / rows * height;
      g.fillStyle = style.flat;
      if (style.tile && width >= 6) {
        const pattern = g.createPattern(style.tile, 'repeat');
        pattern.setTransform(new DOMMatrix([1 / ratio(), 0, 0, 1 / ratio(), x0 % 8, 0]));
        g.fillStyle = pattern;
      }
      g.fillRect(x0, y, width, share);
      y += share;
    }
  }

  // What a stage of the target has now; the others' batches wait before theirs.
  drawUnderWay(g, area) {
    if (this.heldAt !== null) return;
    const taken = new Set();
    for (const batch of this.batches.values()) {
      if (batch.model !== 0 || batch.reached >= this.about.stages || taken.has(batch.reached) || batch.entered > area.now) continue;
      const lane = this.lanes[batch.reached], last = lane[lane.length - 1];
      taken.add(batch.reached);
      const begin = Math.max(batch.left, last ? last.end : 0);
      if (begin >= area.now || begin < area.now - 30) continue;
      this.drawBox(g, area.x(begin), area.right, area.y(batch.reached) + 2, area.row - 4,
                   this.parts(batch, batch.prompt + batch.nodes, area.now));
    }
  }

  // Bars as high as tokens came at once, words where they are one's own, and lines where the pipeline was flushed.
  drawTokens(g, area) {
    const bottom = area.top + area.tokens, end = area.y(this.lanes.length);
    let free = -Infinity;
    for (let i = firstWhere(this.came.length, i => this.came[i].time >= area.from); i < this.came.length; i++) {
      const {time, tokens, hit, text} = this.came[i];
      if (time > area.now) break;
      const x = area.x(time), height = Math.min(3 + 2.5 * tokens, area.tokens - 14);
      g.fillStyle = hit ? theme.accent : theme.miss;
      if (!hit) g.fillRect(x - 0.75, area.top, 1.5, end - area.top);
      g.fillRect(x - 1, bottom - height, 2, height);
      const word = text.trim() === '' ? '' : text.replace(/\s+/g, ' ').trim();
      if (!word || x < free) continue;
      g.font = `11px ${FONT}`;
      const next = this.came[i + 1], room = (next ? area.x(next.time) : area.right) - x;
      const wide = g.measureText(word).width;
      if (wide > room + 30 || x + wide > area.right) continue;
      write(g, word, x, area.top + 6, {color: theme.ink, px: 11});
      free = x + wide + 5;
    }
  }

  // The box at a place of the canvas, in words; empty: there is none.
  describe(x, y) {
    const {area} = this, lane = area ? Math.floor((y - area.y(0)) / area.row) : -1, spans = this.lanes[lane];
    if (!spans || x < area.left) return '';
    const perPixel = (area.now - area.from) / (area.right - area.left), time = area.now - (area.right - x) * perPixel;
    const span = spans[firstWhere(spans.length, i => spans[i].end >= time - 2 * perPixel)];
    const batch = span && this.batches.get(span.id);
    if (!batch || span.begin > time + 2 * perPixel) return '';
    const words = {
      prompt: 'of the prompt', accepted: 'accepted', pruned: 'pruned', prunedEarly: 'pruned before it was computed', flushed: 'flushed',
      flushedEarly: 'flushed before it was computed', drafted: 'drafted', unresolved: 'under way',
    };
    const parts = Object.entries(this.parts(batch, span.computed, Infinity)).filter(([, n]) => n > 0);
    const rows = batch.prompt + batch.nodes;
    return `Batch ${span.id}: ${span.computed} of ${many(rows, 'row')} computed in ${seconds(span.end - span.begin)}: ` +
      parts.map(([name, n]) => `${n} ${words[name]}`).join(', ') + '.';
  }

  // Whether there is anything to be seen that moves.
  isQuiet() {
    const newest = Math.max(0, ...this.lanes.map(lane => lane.length ? lane[lane.length - 1].end : 0));
    return newest < this.clock() - this.shown() - 1;
  }
}

// Which words tokens of one's own requests were, as far as both are known.
class WordsOfRequests {
  constructor() { this.clear(); }
  clear() { this.all = new Map(); }
  of(request) {
    if (!this.all.has(request)) this.all.set(request, {came: [], texts: []});
    if (this.all.size > 64) this.all.delete(this.all.keys().next().value);
    return this.all.get(request);
  }
  take(came) {
    const {texts} = this.of(came.request), all = this.of(came.request).came;
    came.text = texts[all.length] ?? '';
    all.push(came);
  }
  // A piece of an answer, of tokens that came at so many times.
  say({request, batches}, text) {
    const {came, texts} = this.of(request);
    for (let i = 1; i < batches; i++) texts.push('');
    texts.push(text);
    const last = came[texts.length - 1];
    if (last) last.text = text;
  }
}
