// The queue, some rows at a time as the server has them in order.

const ROWS = 100;

function expectedStart(job, now) {
  if (!job.expects_start) return '';
  if (job.low_s === null) return 'cannot be said';
  if (job.high_s !== null && job.high_s <= now + 5) return 'now';
  if (job.median_s === null || job.high_s === null) return `after ${instant(Math.max(job.low_s, now))}`;
  return `${instant(Math.max(job.median_s, now))}, in ${duration(Math.max(job.median_s - now, 0))} `
    + `(${duration(Math.max(job.low_s - now, 0))} to ${duration(Math.max(job.high_s - now, 0))})`;
}

function queueView() {
  const asked = { states: 'all', mine: false, words: '', offset: 0 };
  const totals = element('p', { class: 'count' });
  const rows = element('div');
  let typing = 0;
  const again = (change) => {
    Object.assign(asked, { offset: 0 }, change);
    refresh();
  };
  const words = element('input', {
    type: 'search', placeholder: 'user, name, partition, id', 'aria-label': 'Search', maxlength: 100,
    input: () => {
      clearTimeout(typing);
      typing = setTimeout(() => again({ words: words.value }), 250);
    },
  });
  const number = element('input', {
    placeholder: 'job number', 'aria-label': 'Show a job by its number', inputmode: 'numeric', size: 10, maxlength: 10,
    change: () => {
      if (/^[1-9][0-9]{0,9}$/.test(number.value.trim())) location.hash = `#/job/${number.value.trim()}`;
    },
  });
  const mine = element('input', { type: 'checkbox', change: () => again({ mine: mine.checked }) });
  const columns = [
    ['place', 'number', (job) => job.position ?? ''],
    ['job', 'number', (job) => jobLink(job.job_id)],
    ['user', null, (job) => job.user],
    ['name', null, (job) => job.name],
    ['partition', null, (job) => job.partition],
    ['GPUs', 'number', (job) => job.gpus],
    ['state', null, (job) => [lower(job.state), job.reason && job.reason !== 'None' ? ` (${job.reason})` : '']],
    ['since', 'short', (job) => duration(state.now - (job.start_s ?? job.submit_s))],
    ['expected start', null, (job) => expectedStart(job, state.now)],
    ['policy', null, (job) => [lower(job.verdict), job.overdue ? ', overdue' : '']],
    ['nodes', null, (job) => job.node_names],
  ];
  return {
    title: 'Queue',
    build: () => [
      element('div', { class: 'tools' },
        choice('State', [['all', 'waiting and running'], ['waiting', 'waiting'], ['running', 'running']], asked.states,
          (states) => again({ states })),
        words, element('label', {}, mine, ' mine only'), number),
      totals, rows,
    ],
    ask: () => ['queue', { ...asked, limit: ROWS }],
    draw: (view) => {
      const sums = view.totals;
      totals.textContent = `${count(sums.waiting, 'job')} for ${count(sums.waiting_gpus, 'GPU')} waiting, `
        + `${count(sums.running, 'job')} with ${count(sums.running_gpus, 'GPU')} running`
        + (state.head.private.includes('jobs') ? ', of those that Slurm shows you' : '');
      rows.replaceChildren(
        table(columns, view.jobs, (job) => (job.user === state.head.user ? 'own' : null)),
        pager(view, ROWS, view.jobs.length, (offset) => again({ offset })));
    },
  };
}
