
// ---- Answers --------------------------------------------------------------------------------------------------------

// Shades by how many tokens came at once: the class, from how many on, in words.
const SHADES = [['at1', 1, '1'], ['at2', 2, '2'], ['at3', 3, '3'], ['at4', 4, '4–5'], ['at6', 6, '6–7'], ['at8', 8, '8 or more']];

function shadeOf(n) {
  return SHADES.findLast(([, least]) => n >= least)?.[0] ?? 'at1';
}

function writeShades() {
  const items = SHADES.map(([className,, words]) => {
    const made = element('span');
    made.append(swatch(null, className), words);
    return made;
  });
  $('shades').replaceChildren(element('span', 'tokens at once'), ...items);
}

// Whoever looks at the end of the conversation goes on to do so while more is added.
function following(add) {
  const turns = $('turns'), follows = turns.scrollHeight - turns.scrollTop - turns.clientHeight < 60;
  add();
  if (follows) turns.scrollTop = turns.scrollHeight;
}

// One answer on the page.
class Answer {
  constructor(method, width) {
    this.method = method;
    this.width = width;
    this.text = '';
    this.usage = null;
    this.finish = null;
    this.tokens = 0;
    this.first = this.newest = null;  // times
    this.root = element('article', undefined, 'answer');
    this.root.setAttribute('aria-label', `Answer by ${method}`);
    this.name = element('b', method + (width ? `, width ${width}` : ''));
    this.rate = element('span', 'waits', 'rate');
    const head = element('div', undefined, 'head');
    head.append(this.name, this.rate);
    this.thought = element('div', undefined, 'text thought');
    this.thought.hidden = true;
    this.body = element('div', undefined, 'text');
    this.facts = element('ul', undefined, 'facts');
    this.root.append(head, this.thought, this.body, this.facts);
  }

  // Throws what has gone wrong; an answer that was stopped is none of that.
  async fetch(body, signal) {
    this.root.setAttribute('aria-busy', 'true');
    this.asked = performance.now();
    this.rate.textContent = 'reads the prompt';
    try {
      const answer = await ask('/v1/chat/completions', {body, signal});
      for await (const event of events(answer)) {
        if (event.error) throw new ServerError(500, event.error.message);
        this.take(event);
      }
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.fail(error.message);
        throw error;
      }
      this.finish = 'stopped';
    } finally {
      this.root.removeAttribute('aria-busy');
      this.sum();
    }
  }

  take(event) {
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const content = choice.delta?.content ?? '', thought = choice.delta?.reasoning_content ?? '';
    const came = event.sluice ?? {tokens: 0, batches: 0};
    if (came.tokens > 0) this.count(came.tokens);
    if (came.request !== undefined) flow.words.say(came, content || thought);
    if (thought) this.write(this.thought, thought, came);
    if (content) this.write(this.body, content, came);
    this.text += content;
  }

  count(tokens) {
    this.newest = performance.now();
    this.first ??= this.newest;
    this.tokens += tokens;
    this.afterFirst = (this.afterFirst ?? -tokens) + tokens;
    const passed = (this.newest - this.first) / 1000;
    this.rate.textContent = passed > 0.05 ? rate(this.afterFirst / passed) + ' tokens/s' : '';
  }

  write(place, text, {tokens, batches}) {
    const once = tokens / Math.max(batches, 1), piece = element('span', text, shadeOf(Math.round(once)));
    if (once > 1) piece.title = `${number(once, Number.isInteger(once) ? 0 : 1)} tokens at once`;
    following(() => {
      place.hidden = false;
      place.append(piece);
    });
  }

  fail(message) {
    const line = element('p', message, 'error');
    line.setAttribute('role', 'alert');
    this.body.after(line);
    this.rate.textContent = '';
  }

  perSecond() { return this.usage?.sluice?.tokens_per_second || null; }

  // What it was, by the server's own counts.
  sum() {
    const told = this.usage?.sluice, facts = [];
    if (told && told.method !== this.method) this.name.textContent += ` → ${told.method}`;
    if (this.perSecond()) this.rate.textContent = rate(this.perSecond()) + ' tokens/s';
    if (this.usage) facts.push(many(this.usage.completion_tokens, 'token'));
    else if (this.tokens) facts.push(many(this.tokens, 'token'));
    if (told && told.drafted > 0) {
      facts.push(`${number(told.accepted)} guessed`, `${percent(told.accepted / told.drafted)} of ${number(told.drafted)} guesses accepted`,
                 `${number(told.flushes)} flush${told.flushes === 1 ? '' : 'es'}`);
    }
    if (this.first !== null) facts.push(`first after ${seconds((this.first - this.asked) / 1000)}`);
    if (this.finish === 'length') facts.push('cut off by its length');
    if (this.finish === 'stopped') facts.push('stopped');
    following(() => this.facts.replaceChildren(...facts.map(fact => element('li', fact))));
    if (this.rate.textContent === 'reads the prompt') this.rate.textContent = '';
  }
}

// Of two answers to the same: whether the text is, and which was faster.
function verdictOf([one, other]) {
  const line = element('p', undefined, 'verdict');
  const [a, b] = [one.perSecond(), other.perSecond()];
  if (a && b) {
    const [fast, slow, times] = a >= b ? [one, other, a / b] : [other, one, b / a];
    line.append(`${fast.method} was `, element('b', `${number(times, 2)} times`), ` as fast as ${slow.method}. `);
  }
  if (one.finish === 'stopped' || other.finish === 'stopped') return line;
  let same = 0;
  while (same < one.text.length && one.text[same] === other.text[same]) same++;
  line.append(one.text === other.text ? 'The text is the same, letter by letter.' : `The texts differ from letter ${same + 1} on.`);
  return line;
}
