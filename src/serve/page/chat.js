
// ---- The chat -------------------------------------------------------------------------------------------------------

let messages = [];      // of the conversation, as the API wants them
let offered = null;     // what the server has: /props
let underWay = null;    // stops the answers that are being made

const sayEmpty = () => {
  const box = element('div', undefined, 'empty');
  box.append(
    element('p', 'Ask the model something. Tokens that came together, because a guess of theirs came true, are shaded by how many they were.'),
    element('p', 'With “beside it” two methods answer the same, one after the other: the text is the same, the speed is not.'));
  $('turns').replaceChildren(box);
};

// Methods and defaults, once the server has told them.
async function offer() {
  try {
    offered = await (await ask('/props')).json();
  } catch { return; }
  const [method, beside] = [$('method').value, $('beside').value];
  const names = offered.sluice.methods.map(method => method.name);
  const options = all => all.map(([value, text]) => {
    const made = element('option', text);
    made.value = value;
    return made;
  });
  $('method').replaceChildren(...options(names.map(name => [name, name])));
  $('method').value = names.includes(method) ? method : names.includes(offered.sluice.method) ? offered.sluice.method : names[0];
  $('beside').replaceChildren(...options([['', 'nothing'], ...names.map(name => [name, name])]));
  $('beside').value = names.includes(beside) ? beside : '';
  chooseMethod();
}

const methodNamed = name => offered?.sluice.methods.find(method => method.name === name);

// Which of the options the chosen methods take.
function chooseMethod() {
  const chosen = [$('method').value, $('beside').value].map(methodNamed).filter(Boolean);
  for (const option of ['width', 'depth']) $(option).disabled = !chosen.some(method => method[option]);
}

function bodyFor(method, seed) {
  const body = {messages, stream: true, stream_options: {include_usage: true}, seed};
  const given = (id, name, as) => { if ($(id).value !== '' && $(id).validity.valid) body[name] = as($(id).value); };
  if (method) body.method = method;
  if (methodNamed(method)?.width) given('width', 'width', Number);
  if (methodNamed(method)?.depth) given('depth', 'depth', Number);
  given('temperature', 'temperature', Number);
  given('most', 'max_tokens', Number);
  return body;
}

function setBusy(on) {
  $('send').hidden = on;
  $('stop').hidden = !on;
  if (document.activeElement === document.body) (on ? $('stop') : $('message')).focus();
}

function addTurn(text, answers) {
  if (messages.length === 1) $('turns').replaceChildren();
  const turn = element('div', undefined, 'turn'), place = element('div', undefined, 'answers');
  place.classList.toggle('two', answers.length > 1);
  place.append(...answers.map(answer => answer.root));
  turn.append(element('div', text, 'user'), place);
  $('turns').append(turn);
  $('turns').scrollTop = $('turns').scrollHeight;
  return turn;
}

async function send() {
  const text = $('message').value.trim();
  if (!text || underWay) return;
  const stop = underWay = new AbortController();
  const talk = messages;
  talk.push({role: 'user', content: text});
  $('message').value = '';
  setBusy(true);
  const seed = Math.floor(Math.random() * 2 ** 32), methods = [$('method').value];
  if ($('beside').value) methods.push($('beside').value);
  const answers = methods.map(method => new Answer(method || 'auto', methodNamed(method)?.width ? $('width').value : ''));
  const turn = addTurn(text, answers);
  try {
    // One after the other: each has the pipeline to itself.
    for (const [i, answer] of answers.entries()) {
      if (!stop.signal.aborted) await answer.fetch(bodyFor(methods[i], seed), stop.signal); else answer.rate.textContent = '';
    }
    if (answers.length > 1 && !stop.signal.aborted) following(() => turn.append(verdictOf(answers)));
    if (answers[0].text) talk.push({role: 'assistant', content: answers[0].text}); else talk.pop();
  } catch {  // the answer says why
    talk.pop();
    if ($('message').value === '') $('message').value = text;
    for (const answer of answers) if (answer.rate.textContent === 'waits') answer.rate.textContent = '';
  } finally {
    underWay = null;
    setBusy(false);
  }
}

$('ask').addEventListener('submit', event => {
  event.preventDefault();
  send();
});
$('message').addEventListener('keydown', event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
addEventListener('keydown', event => {
  if (event.key === 'Escape' && underWay && event.target !== $('flow')) underWay.abort();
});
$('stop').addEventListener('click', () => underWay?.abort());
$('clear').addEventListener('click', () => {
  underWay?.abort();
  messages = [];
  sayEmpty();
  $('message').focus();
});
for (const id of ['method', 'beside']) $(id).addEventListener('change', chooseMethod);
