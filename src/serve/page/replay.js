
// ---- A replay in the timeline page ----------------------------------------------------------------------------------

// What Flow knows of the last seconds, in the form in which a timeline's page holds a trace (engine/trace_html.cpp).
function traceOf(flow) {
  const {about} = flow, now = flow.heldAt ?? flow.clock(), from = now - 30;
  const ids = [...flow.batches.keys()].filter(id => flow.batches.get(id).entered >= from && flow.batches.get(id).entered <= now);
  const origin = ids.length ? flow.batches.get(ids[0]).entered : from, ns = time => Math.round((time - origin) * 1e9);
  const batches = batchColumns(flow, ids, ns);
  const spans = new Columns(['stage', 'batch', 'begin', 'end', 'computed']), index = new Map(ids.map((id, i) => [id, i]));
  flow.lanes.forEach((lane, stage) => {
    for (const {id, begin, end, computed} of lane) if (index.has(id) && end <= now) spans.add(stage, index.get(id), ns(begin), ns(end), computed);
  });
  const emissions = new Columns(['time', 'request', 'position', 'text', 'hit']), texts = [''];
  for (const {time, request, tokens, hit, text} of flow.came) {
    if (time < origin || time > now) continue;
    for (let i = 1; i < tokens; i++) emissions.add(ns(time), request, null, 0, hit ? 1 : 0);
    emissions.add(ns(time), request, null, text ? texts.push(text) - 1 : 0, hit ? 1 : 0);
  }
  const times = emissions.all.time, begin = times[0] ?? 0, end = Math.max(times[times.length - 1] ?? 0, begin + 1);
  const busy = Array.from({length: about.stages}, () => 0);
  spans.all.stage.forEach((stage, s) => {
    const share = Math.min(spans.all.end[s], end) - Math.max(spans.all.begin[s], begin);
    if (stage < about.stages) busy[stage] += Math.max(share, 0) / (end - begin);
  });
  const {model, executor, profile, stages, drafts, cuts, simulated} = about;
  const header = {
    model, method: 'The last seconds', source: 'of each request', executor, profile, stages, drafts, steps: 0, cuts, simulated,
    decode_begin: begin, decode_end: end, utilisation: busy.map(share => Math.min(share, 1)),
  };
  return {header, batches, spans: spans.all, emissions: emissions.all, texts};
}

class Columns {
  constructor(names) { this.all = Object.fromEntries(names.map(name => [name, []])); }
  add(...values) { Object.values(this.all).forEach((column, i) => column.push(values[i])); }
}

// Of rows only the fates are known.
function batchColumns(flow, ids, ns) {
  const heads = new Columns(['id', 'submitted', 'first']);
  const rows = new Columns(['token', 'text', 'position', 'parent', 'probability', 'log_path', 'fate', 'resolved', 'request']);
  const add = (n, fate, when) => { for (let i = 0; i < n; i++) rows.add(-1, 0, null, -1, 1, null, fate, when, 0); };
  for (const id of ids) {
    const {model, entered, prompt, nodes, fates} = flow.batches.get(id);
    heads.add(id, ns(entered), rows.all.fate.length);
    add(prompt, PROMPT, -1);
    for (const {fate, rows: n, time} of fates) add(n, fate, ns(time));
    add(nodes - fates.reduce((sum, {rows: n}) => sum + n, 0), model === 0 ? UNRESOLVED : DRAFTED, -1);
  }
  heads.all.first.push(rows.all.fate.length);
  return {...heads.all, ...rows.all};
}

// Opens it in a tab of its own.
async function openReplay(flow) {
  const tab = window.open('', '_blank');  // while the click still allows it
  const template = await (await ask('/timeline')).text();
  const data = JSON.stringify(traceOf(flow)).replaceAll('<', '\\u003c');
  const [before, after] = template.split('@TRACE@');
  const address = URL.createObjectURL(new Blob([before, data, after], {type: 'text/html'}));
  if (tab) tab.location = address; else location.href = address;
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
