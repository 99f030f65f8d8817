
// ---- Small line charts of the last minute ---------------------------------------------------------------------------

const MINUTE = 60;  // seconds

// The least of 1, 2, 5, 10, 20, … that is no less.
function niceAbove(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  return power * [1, 2, 5, 10].find(m => m * power >= x * 0.9999);
}

class Chart {
  // lines: their names, the first one filled; say: the newest values in words; most: of the scale, else what is needed.
  constructor(title, {lines = [''], say, most = null}) {
    this.lines = lines;
    this.say = say;
    this.most = most;
    this.samples = [];  // {time, values}
    this.value = element('b', '–');
    this.canvas = element('canvas');
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', title + ' over the last minute');
    const caption = element('figcaption');
    caption.append(element('span', title), this.value);
    this.figure = element('figure');
    this.figure.append(caption, this.canvas);
  }

  // values: one a line; null where there is none.
  add(time, values) {
    this.samples.push({time, values});
    while (this.samples.length && this.samples[0].time < time - MINUTE - 2) this.samples.shift();
    this.value.textContent = values[0] === null ? '–' : this.say(values);
  }

  clear() {
    this.samples = [];
    this.value.textContent = '–';
    this.draw(0);
  }

  draw(now) {
    const height = 56, top = 8, bottom = 4;
    const {g, width} = beginDrawing(this.canvas, height);
    const seen = this.samples.flatMap(sample => sample.values.filter(value => value !== null));
    const most = this.most ?? niceAbove(Math.max(0, ...seen));
    const x = time => width - (now - time) / MINUTE * width;
    const y = value => height - bottom - Math.min(value / most, 1) * (height - top - bottom);
    g.fillStyle = theme.line;
    g.fillRect(0, y(0), width, 1);
    g.fillRect(0, y(most), width, 1);
    this.lines.forEach((_, line) => this.drawLine(g, line, x, y));
    write(g, this.most === 1 ? '100 %' : number(most, most < 1 ? 1 : 0), 0, y(most) + 8, {px: 10.5});
  }

  drawLine(g, line, x, y) {
    const color = line === 0 ? theme.accent : theme.second;
    let run = [];
    const finish = () => {
      if (run.length > 1) {
        g.beginPath();
        run.forEach(([px, py], i) => i ? g.lineTo(px, py) : g.moveTo(px, py));
        Object.assign(g, {strokeStyle: color, lineWidth: 1.5, lineJoin: 'round'});
        g.setLineDash(line === 0 ? [] : [4, 3]);
        g.stroke();
        g.setLineDash([]);
        if (line === 0) {
          g.lineTo(run[run.length - 1][0], y(0));
          g.lineTo(run[0][0], y(0));
          g.globalAlpha = 0.14;
          g.fillStyle = color;
          g.fill();
          g.globalAlpha = 1;
        }
      }
      run = [];
    };
    for (const {time, values} of this.samples) {
      if (values[line] === null) finish(); else run.push([x(time), y(values[line])]);
    }
    finish();
  }
}

// What the server's figures make of it: they are counts, of which differences are drawn.
class Figures {
  constructor(place) {
    const mebibytes = x => number(x) + ' MiB';
    this.charts = {
      rate: new Chart('Tokens/s', {say: ([x]) => rate(x)}),
      acceptance: new Chart('Guesses accepted', {say: ([x]) => percent(x), most: 1}),
      utilisation: new Chart('Utilisation', {say: ([x]) => percent(x), most: 1}),
      queue: new Chart('Running · waiting', {lines: ['running', 'waiting'], say: ([a, b]) => `${a} · ${b}`}),
      memory: new Chart('Memory', {say: ([x]) => mebibytes(x)}),
      cells: new Chart('KV cells in use', {say: ([x]) => percent(x), most: 1}),
    };
    this.old = [];
    place.replaceChildren(...Object.values(this.charts).map(chart => chart.figure));
  }

  // Gives the busy share of each stage.
  take(news) {
    this.old.push(news);
    while (this.old.length > 3) this.old.shift();
    const before = this.old[0], passed = news.now - before.now, {charts} = this, now = news.now;
    const grown = name => news[name] - before[name];
    const shares = passed > 0 ? news.busy.map((busy, i) => Math.min(Math.max((busy - before.busy[i]) / passed, 0), 1)) : [];
    if (passed > 0) {
      charts.rate.add(now, [grown('tokens') / passed]);
      charts.acceptance.add(now, [grown('drafted') > 0 ? Math.min(grown('accepted') / grown('drafted'), 1) : null]);
      charts.utilisation.add(now, [shares.reduce((sum, share) => sum + share, 0) / Math.max(shares.length, 1)]);
    }
    charts.queue.add(now, [news.running, news.waiting]);
    charts.memory.add(now, [news.memory / 2 ** 20]);
    charts.cells.add(now, [news.cells ? news.cells_running / news.cells : 0]);
    this.draw();
    return shares;
  }

  // A server that has begun anew counts anew.
  clear() {
    this.old = [];
    for (const chart of Object.values(this.charts)) chart.clear();
  }

  draw() {
    const newest = this.old[this.old.length - 1];
    for (const chart of Object.values(this.charts)) chart.draw(newest ? newest.now : 0);
  }
}
