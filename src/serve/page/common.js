
'use strict';

// ---- Elements and words ---------------------------------------------------------------------------------------------
// Whatever comes from models or users becomes text of an element, never markup.

const $ = id => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const number = (x, digits = 0) => x.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
const rate = x => number(x, x < 99.95 ? 1 : 0);
const percent = x => number(100 * x, x > 0 && x < 0.0995 ? 1 : 0) + ' %';
const many = (n, word) => `${number(n)} ${word}${n === 1 ? '' : 's'}`;
const seconds = s => s < 0.0995 ? number(1000 * s) + ' ms' : number(s, s < 9.95 ? 2 : 1) + ' s';

// ---- The server -----------------------------------------------------------------------------------------------------

const KEY = 'sluice-key';
const storage = {
  get: () => { try { return sessionStorage.getItem(KEY) || ''; } catch { return ''; } },
  set: key => { try { sessionStorage.setItem(KEY, key); } catch { /* not allowed: it is asked for again */ } },
};
let key = storage.get();

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// What the server answers to a request with the key; without a body it is a GET. Throws ServerError for what it refuses.
async function ask(path, {body, signal} = {}) {
  const headers = key ? {Authorization: 'Bearer ' + key} : {};
  const answer = await fetch(path, body === undefined ? {headers, signal, cache: 'no-store'} : {
    method: 'POST', headers: {...headers, 'Content-Type': 'application/json'}, body: JSON.stringify(body), signal,
  });
  if (answer.ok) return answer;
  if (answer.status === 401) askForKey();
  let message = `the server says ${answer.status}`;
  try { message = (await answer.json()).error.message; } catch { /* it says no more */ }
  throw new ServerError(answer.status, message);
}

// The data of the events of a stream, each parsed, as they come; `[DONE]` is none.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split('\n\n');
    text = whole.pop();
    for (const event of whole) {
      const data = event.split('\n').filter(line => line.startsWith('data: ')).map(line => line.slice(6)).join('\n');
      if (data && data !== '[DONE]') yield JSON.parse(data);
    }
  }
}

const later = ms => new Promise(resolve => setTimeout(resolve, ms));

// ---- The key --------------------------------------------------------------------------------------------------------

let keyGiven = null;  // is told when there is one

function askForKey() {
  if (!$('key-form').hidden) return;
  $('key-label').textContent = key ? 'The server does not take this key.' : 'This server wants its key.';
  $('key-form').hidden = false;
  $('key').focus();
}

// Resolves when a key has been given since the last one was refused.
const nextKey = () => $('key-form').hidden ? Promise.resolve() : new Promise(resolve => { keyGiven = resolve; });

$('key-form').addEventListener('submit', event => {
  event.preventDefault();
  key = $('key').value.trim();
  storage.set(key);
  $('key').value = '';
  $('key-form').hidden = true;
  if (keyGiven) keyGiven();
  keyGiven = null;
  $('message').focus();
});

// ---- Colours --------------------------------------------------------------------------------------------------------
// Every fate that is not the good one has a pattern of its own besides its colour, as in timelines.

const ratio = () => window.devicePixelRatio || 1;
const FONT = getComputedStyle(document.body).fontFamily;
let theme = {};

function drawHatch(kind, base, ink) {
  const size = 8, tile = element('canvas');
  tile.width = tile.height = size * ratio();
  const g = tile.getContext('2d');
  g.scale(ratio(), ratio());
  g.fillStyle = base;
  g.fillRect(0, 0, size, size);
  g.strokeStyle = g.fillStyle = ink;
  g.lineWidth = 1.1;
  const stroke = (x0, y0, x1, y1) => { g.beginPath(); g.moveTo(x0, y0); g.lineTo(x1, y1); g.stroke(); };
  for (const d of [-size, 0, size]) {
    if (kind !== 'dots') stroke(d - 2, size + 2, d + size + 2, -2);
    if (kind === 'cross') stroke(d - 2, -2, d + size + 2, size + 2);
  }
  if (kind === 'dots') { g.fillRect(1, 1, 1.5, 1.5); g.fillRect(5, 5, 1.5, 1.5); }
  return tile;
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue('--' + name).trim();
  const plain = base => ({flat: color(base), tile: null});
  const hatched = (kind, base, ink) => ({flat: color(base), tile: drawHatch(kind, color(base), color(ink))});
  theme = {
    surface: color('surface'), ink: color('ink'), muted: color('muted'), line: color('line'), idle: color('idle'),
    focus: color('focus'), miss: color('miss'), accent: color('accepted'), second: color('pruned-ink'),
    accepted: plain('accepted'), prompt: plain('prompt'), drafted: plain('drafted'),
    pruned: hatched('rising', 'pruned', 'pruned-ink'), prunedEarly: hatched('rising', 'pruned-light', 'pruned'),
    flushed: hatched('cross', 'flushed', 'flushed-ink'), flushedEarly: hatched('cross', 'flushed-light', 'flushed'),
    unresolved: hatched('dots', 'unresolved', 'unresolved-ink'),
  };
}

// Fits a canvas to its width on the page, and gives what draws on it, in CSS pixels.
function beginDrawing(canvas, height) {
  const width = canvas.clientWidth;
  const w = Math.round(width * ratio()), h = Math.round(height * ratio());
  if (canvas.width !== w || canvas.height !== h) {
    canvas.style.height = height + 'px';
    canvas.width = w;
    canvas.height = h;
  }
  const g = canvas.getContext('2d');
  g.setTransform(ratio(), 0, 0, ratio(), 0, 0);
  g.clearRect(0, 0, width, height);
  g.textBaseline = 'middle';
  return {g, width};
}

function write(g, text, x, y, {color = theme.muted, px = 11.5, weight = 400, align = 'left'} = {}) {
  Object.assign(g, {fillStyle: color, font: `${weight} ${px}px ${FONT}`, textAlign: align});
  g.fillText(text, x, y);
}

function swatch(style, className) {
  const made = element('i', undefined, 'swatch' + (className ? ' ' + className : ''));
  if (style) made.style.background = style.tile ? `url(${style.tile.toDataURL()}) 0 0 / 8px 8px` : style.flat;
  return made;
}
