// The session, which view is shown, and when it is asked for again.

const REFRESH_MS = 15000;
const KEY = 'soda-page-key';
const state = { key: '', view: null, head: { private: [], user: '' }, now: Date.now() / 1000, zone: 0, asking: 0, timer: 0 };

// With what was searched and chosen in them, for as long as the page is open.
const kept = { __proto__: null, queue: queueView(), gpus: gpusView(), changes: changesView() };

function byId(id) {
  return document.getElementById(id);
}

function say(text, bad = false) {
  byId('status').textContent = visible(text);
  byId('status').className = bad ? 'bad' : '';
}

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, query, headers) {
  const words = new URLSearchParams(query).toString();
  const answer = await fetch(words ? `${path}?${words}` : path, { headers, credentials: 'same-origin', cache: 'no-store' });
  const body = await answer.text();
  if (answer.ok) return JSON.parse(body);
  let told = body;
  try {
    told = JSON.parse(body).detail ?? body;
  } catch { /* it is text */ }
  throw new Refusal(answer.status, typeof told === 'string' ? told : 'sodad cannot read this request');
}

function drawHead(head) {
  Object.assign(state, { head, now: head.now_s, zone: head.zone_s });
  const zone = head.zone_s / 3600;
  const fares = head.daemon_alive ? `${head.mode}, policy ${head.policy}` : `sodad schedules nothing now: ${head.stall || 'it does not run'}`;
  byId('site').textContent = visible(`${head.user} · ${fares} · times are UTC${zone < 0 ? '' : '+'}${zone} · ${instant(head.now_s)}`);
  byId('leave').hidden = false;
}

async function refresh() {
  const view = state.view;
  if (!view) return;
  const turn = ++state.asking;
  clearTimeout(state.timer);
  try {
    const [path, query] = view.ask();
    const shown = await ask(`data/${path}`, query, { 'X-Soda-Page': state.key });
    if (view !== state.view || turn !== state.asking) return;
    drawHead(shown.head);
    view.draw(shown.view);
    say('');
    document.documentElement.dataset.drawn = location.hash;
    document.documentElement.dataset.drawnMs ??= String(performance.now());
  } catch (error) {
    if (turn !== state.asking) return;
    if (error.status === 401) {
      over(error.message);
      return;
    }
    say(error.status ? error.message : `sodad does not answer (${error.message}); this is what it said last`, true);
  }
  state.timer = setTimeout(() => (document.hidden ? wait() : refresh()), REFRESH_MS);
}

function wait() {
  document.addEventListener('visibilitychange', refresh, { once: true });
}

function over(why) {
  clearTimeout(state.timer);
  localStorage.removeItem(KEY);
  state.key = '';
  state.view = null;
  byId('leave').hidden = true;
  byId('site').textContent = '';
  byId('main').replaceChildren(element('h2', {}, 'No session'),
    element('p', {}, 'On a host of the cluster, type ', element('code', {}, 'sodactl page'), ' and open the link that it prints.'));
  say(why, true);
  document.documentElement.dataset.drawn = 'over';
}

function show() {
  if (!state.key) return;
  const [, name, id] = location.hash.split('/');
  if (name === 'job' && /^[1-9][0-9]{0,9}$/.test(id ?? '')) state.view = jobView(id);
  else state.view = kept[name] ?? kept.queue;
  document.title = `${state.view.title} · slurm-soda`;
  for (const link of byId('views').children) {
    if (link.getAttribute('href') === `#/${name || 'queue'}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  byId('main').replaceChildren(...state.view.build());
  refresh();
}

async function leave() {
  try {
    await ask('leave', {}, { 'X-Soda-Page': state.key });
  } finally {
    over('You ended the session.');
  }
}

async function begin() {
  const token = location.hash.slice(1);
  state.key = localStorage.getItem(KEY) ?? '';
  if (/^[A-Za-z0-9_-]{43}$/.test(token)) {
    history.replaceState(null, '', '#/queue');
    try {
      const session = await ask('session', {}, { 'X-Soda-Link': token });
      state.key = session.key;
      localStorage.setItem(KEY, session.key);
    } catch (error) {
      if (!state.key) {
        over(error.message);
        return;
      }
    }
  }
  if (state.key) show();
  else over('');
}

addEventListener('hashchange', () => (/^#[A-Za-z0-9_-]{43}$/.test(location.hash) ? begin() : show()));
byId('leave').addEventListener('click', leave);
begin();
