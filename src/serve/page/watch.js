
// ---- Watching the server --------------------------------------------------------------------------------------------

// The engine's time as it is shown: so much behind that what happens until then has been told.
class Clock {
  constructor() { this.begin(false); }
  begin(simulated) {
    this.offset = null;
    this.told = 0;
    this.simulated = simulated;
  }
  saw(now) {
    const offset = performance.now() / 1000 - now;
    this.told = now;
    // Messages are late, never early; a little more each time, since clocks drift.
    this.offset = this.offset === null ? offset : Math.min(offset, this.offset + 0.0005);
  }
  now() {
    if (this.offset === null) return 0;
    return this.simulated ? this.told : Math.min(performance.now() / 1000 - this.offset - 0.25, this.told + 5);
  }
}

const clock = new Clock();
const flow = new Flow($('flow'), () => clock.now());
const figures = new Figures($('charts'));
const still = matchMedia('(prefers-reduced-motion: reduce)');

function setState(text, bad = false) {
  $('state').textContent = text;
  $('state').classList.toggle('bad', bad);
}

let known = '';  // what the server said it is

function sayHello(about) {
  const said = JSON.stringify(about);
  if (said === known) return flow.lose();  // this page was away for a while
  known = said;
  begin(about);
  writeFates();
  const where = about.stages === 1 ? 'one stage' : `${about.stages} stages`;
  const paced = about.simulated ? ', simulated' : about.profile ? `, paced by ${about.profile}` : '';
  $('about').textContent = `${about.model} · ${where}${paced}`;
}

function begin(about) {
  clock.begin(about.simulated);
  flow.setup(about);
  figures.clear();
}

function take(event) {
  if (event.type === 'hello') return sayHello(event);
  if (event.type === 'lost') return flow.lose();
  if (event.now < clock.told - 1) begin(flow.about);  // another server of the same kind
  clock.saw(event.now);
  if (event.type === 'steps') flow.take(event);
  if (event.type === 'figures') {
    flow.busy = figures.take(event);
    const at = event.running ? `answers ${many(event.running, 'request')}` + (event.waiting ? `, ${event.waiting} wait` : '') : 'ready';
    setState(event.trouble || at, event.trouble !== '');
  }
  wake();
}

// As long as the page is looked at. A server that goes away may come back.
async function watch() {
  for (let pause = 500;; pause = Math.min(2 * pause, 8000)) {
    if (document.hidden) await new Promise(resolve => document.addEventListener('visibilitychange', resolve, {once: true}));
    const gone = new AbortController();
    const leave = () => { if (document.hidden) gone.abort(); };
    document.addEventListener('visibilitychange', leave);
    try {
      const answer = await ask('/live', {signal: gone.signal});
      offer();
      for await (const event of events(answer)) {
        take(event);
        pause = 500;
      }
      setState('the server has ended', true);
    } catch (error) {
      if (error.status === 401) { setState('waits for the key'); await nextKey(); continue; }
      if (!document.hidden) setState(error instanceof ServerError ? error.message : 'the server is away', true);
    } finally {
      document.removeEventListener('visibilitychange', leave);
    }
    if (!document.hidden) await later(pause);
  }
}

// ---- Drawing it -----------------------------------------------------------------------------------------------------

let awake = false;

// Every frame while something moves, twice a second for who wants it still.
function wake() {
  if (awake) return;
  awake = true;
  const frame = () => {
    awake = false;
    flow.draw();
    if (flow.heldAt === null && !flow.isQuiet() && !document.hidden) wake();
  };
  if (still.matches) setTimeout(frame, 500); else requestAnimationFrame(frame);
}

function hold(on) {
  flow.hold(on);
  showHeld();
}

function showHeld() {
  const held = flow.heldAt !== null;
  $('hold').setAttribute('aria-pressed', String(held));
  $('hold').textContent = held ? 'Go on' : 'Hold';
  $('span').value = String([1, 3, 10, 30].includes(flow.span) ? flow.span : 0);
  wake();
}

$('hold').addEventListener('click', () => hold(flow.heldAt === null));
$('span').addEventListener('change', () => { flow.span = Number($('span').value); wake(); });
$('replay').addEventListener('click', () => openReplay(flow).catch(error => setState(error.message, true)));

const FLOW_KEYS = {
  ' ': () => hold(flow.heldAt === null), ArrowLeft: () => flow.move(-flow.shown() / 10), ArrowRight: () => flow.move(flow.shown() / 10),
  '+': () => flow.zoom(-1), '=': () => flow.zoom(-1), '-': () => flow.zoom(1), End: () => hold(false), Escape: () => hold(false),
};
$('flow').addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !FLOW_KEYS[event.key]) return;
  event.preventDefault();
  FLOW_KEYS[event.key]();
  showHeld();
});

let dragged = null;
$('flow').addEventListener('pointerdown', event => {
  if (event.button !== 0) return;
  dragged = event.clientX;
  $('flow').setPointerCapture(event.pointerId);
});
$('flow').addEventListener('pointermove', event => {
  const {left, top} = $('flow').getBoundingClientRect();
  $('box').textContent = flow.describe(event.clientX - left, event.clientY - top);
  if (dragged === null || event.clientX === dragged || !flow.area) return;
  flow.move((dragged - event.clientX) / (flow.area.right - flow.area.left) * flow.shown());
  dragged = event.clientX;
  showHeld();
});
$('flow').addEventListener('pointerleave', () => { $('box').textContent = ''; });
for (const end of ['pointerup', 'pointercancel']) $('flow').addEventListener(end, () => { dragged = null; });

function fatesLegend(drafts) {
  const item = (style, name, className) => {
    const made = element('span');
    made.append(swatch(style, className), name);
    return made;
  };
  return [
    item(theme.accepted, 'accepted'), item(theme.pruned, 'pruned'), item(theme.flushed, 'flushed'), item(theme.prunedEarly, 'cancelled before computed'),
    item(theme.unresolved, 'under way'), item(theme.prompt, 'prompt'), ...(drafts ? [item(theme.drafted, 'drafted')] : []),
    item({flat: theme.miss}, 'flush', 'line'),
  ];
}

const writeFates = () => $('fates').replaceChildren(...fatesLegend(flow.about.drafts.length > 0));

function dress() {
  readTheme();
  writeFates();
  figures.draw();
  wake();
}
addEventListener('resize', dress);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', dress);
