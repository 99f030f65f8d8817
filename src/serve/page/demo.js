
// ---- Stored runs, side by side --------------------------------------------------------------------------------------

const PASS = 0.08;  // seconds that a pass of a stage takes here

// Its clock begins when the answer does, and can be held.
class Play {
  constructor() { this.again(); this.pace = 1; }
  again() { this.at = 0; this.since = performance.now(); this.held = false; }
  now() {
    if (!this.held) this.at += this.pace * (performance.now() - this.since) / 1000;
    this.since = performance.now();
    return this.at;
  }
  hold(on) { this.now(); this.held = on; }
}

// Its times in the seconds of this page, from the answer's first token on.
function pacedSteps({steps, about}) {
  const first = steps.tokens[0][0];
  const passes = steps.spans.filter(([lane]) => lane < about.stages).map(([,, begin, end]) => end - begin).sort((a, b) => a - b);
  const scale = PASS / passes[passes.length >> 1], time = t => (t - first) * scale + 0.5;
  return {
    ...steps,
    now: 0,
    batches: steps.batches.map(([id, model, entered, prompt, nodes]) => [id, model, time(entered), prompt, nodes]),
    spans: steps.spans.map(([lane, id, begin, end, computed]) => [lane, id, time(begin), time(end), computed]),
    fates: steps.fates.map(([id, fate, rows, t]) => [id, fate, rows, time(t)]),
    tokens: steps.tokens.map(([t, request, n, hit]) => [time(t), request, n, hit]),
  };
}

class StoredRun {
  constructor(run, play) {
    this.run = run;
    this.play = play;
    this.root = element('article', undefined, 'answer run');
    this.rate = element('span', '', 'rate');
    const head = element('div', undefined, 'head');
    head.append(element('b', run.title), this.rate);
    this.body = element('div', undefined, 'text');
    const canvas = element('canvas', undefined, 'flow');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `${run.title}: batches at each stage over time`);
    this.root.append(head, canvas, this.body);
    this.flow = new Flow(canvas, () => this.play.now());
    this.flow.setup(run.about);
    this.flow.take(pacedSteps(run));
    this.flow.lose();  // what was under way when the run ended stays nowhere
    this.flow.span = 4;
    this.flow.came.forEach((came, i) => { came.text = run.texts[i]; });
    this.total = this.flow.came.reduce((sum, {tokens}) => sum + tokens, 0);
    this.again();
  }
  again() {
    this.said = 0;
    this.body.replaceChildren();
  }
  end() { return this.flow.came[this.flow.came.length - 1].time; }
  perSecond() { return (this.total - this.flow.came[0].tokens) / (this.end() - this.flow.came[0].time); }

  draw() {
    const now = this.play.now(), {came} = this.flow;
    while (this.said < came.length && came[this.said].time <= now) {
      const {tokens, text} = came[this.said++], piece = element('span', text, shadeOf(tokens));
      if (tokens > 1) piece.title = `${tokens} tokens at once`;
      this.body.append(piece);
    }
    const said = came.slice(0, this.said).reduce((sum, {tokens}) => sum + tokens, 0);
    this.rate.textContent = `${said} of ${this.total} tokens · ${rate(this.perSecond())} tokens/s`;
    this.flow.draw();
  }
}

function startDemo({prompt, runs}) {
  const play = new Play();
  for (const id of ['chat', 'watch']) $(id).hidden = true;
  $('runs').hidden = false;
  document.querySelector('main').classList.add('demo');
  document.querySelector('.skip').hidden = true;
  const stored = runs.map(run => new StoredRun(run, play)), [plain, other] = stored;
  const times = number(other.perSecond() / plain.perSecond(), 1);
  $('about').textContent = `demonstration: ${runs[0].about.model} over ${runs[0].about.stages} stages, stored schedules`;
  $('runs-title').textContent = `The same answer, ${times} times as fast`;
  $('runs-about').textContent = `“${prompt}” — ${runs[0].about.stages} devices hold the model in stages, one after the other. ` +
    'Plain pipelining has one token under way, and all stages but one wait. Speculation keeps them busy with guesses and keeps ' +
    'those that the model itself confirms. The models chose these tokens before; a clock plays them here as if each pass took ' +
    `${number(1000 * PASS)} ms.`;
  $('runs-place').replaceChildren(...stored.map(run => run.root));
  $('runs-fates').replaceChildren(...fatesLegend(true));
  const end = Math.max(...stored.map(run => run.end())) + 2;
  const frame = () => {
    for (const run of stored) run.draw();
    if (play.now() > end) play.hold(true);
    if (play.held) show(); else next();
  };
  const next = () => still.matches ? setTimeout(frame, 500) : requestAnimationFrame(frame);
  const show = () => {
    $('pause').setAttribute('aria-pressed', String(play.held));
    $('pause').textContent = play.held ? 'Go on' : 'Hold';
    $('pause').disabled = play.now() > end;
  };
  const pause = () => {
    if (play.now() > end) return;
    play.hold(!play.held);
    show();
    if (!play.held) next();
  };
  const again = () => {
    const stood = play.held;
    play.again();
    for (const run of stored) run.again();
    show();
    if (stood) next();
  };
  $('pause').addEventListener('click', pause);
  $('again').addEventListener('click', again);
  $('pace').addEventListener('change', () => { play.now(); play.pace = Number($('pace').value); });
  addEventListener('keydown', event => {
    if (event.target.closest('button, select') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === ' ') { event.preventDefault(); pause(); }
    if (event.key === 'r') again();
  });
  addEventListener('resize', () => { for (const run of stored) run.draw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    $('runs-fates').replaceChildren(...fatesLegend(true));
    for (const run of stored) run.draw();
  });
  setState('plays', false);
  next();
}

// ---- Start ----------------------------------------------------------------------------------------------------------

writeShades();
dress();
if ($('demo').textContent.trim()) {
  startDemo(JSON.parse($('demo').textContent));
} else {
  sayEmpty();
  setState('connects');
  watch();
}
