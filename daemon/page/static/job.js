// One job: why it is where it is, its timeline, its report, and what was changed.

function jobView(id) {
  const content = element('div');
  return {
    title: `Job ${id}`,
    build: () => [content],
    ask: () => [`jobs/${id}`, {}],
    draw: (job) => content.replaceChildren(...jobParts(job)),
  };
}

function section(title, ...children) {
  return [element('h3', {}, title), ...children];
}

function jobParts(job) {
  const hints = Object.entries(job.hints).map(([key, value]) => `${key}=${value}`).join(' ');
  return [
    element('h2', {}, `Job ${job.job_id} (${job.name}) of ${job.user}`),
    fields([
      ['state', lower(job.state)],
      ['asks', `${count(job.gpus, 'GPU')}, ${count(job.cpus, 'CPU')} on ${count(job.nodes, 'node')} of ${job.partition}`],
      ['account', job.account || null],
      ['hints', hints || null],
    ]),
    ...section('Why', sentences(job.reasons)),
    ...section('Timeline', timeline(job, state.now)),
    ...(job.report ? reportParts(job) : section('Report', element('p', { class: 'weak' }, 'Slurm keeps private what jobs of others used.'))),
    ...(job.shares.length ? section('Shared GPUs', sharesTable(job.shares)) : []),
    ...section('Changes', job.changes.length ? changesTable([...job.changes].reverse(), false)
      : element('p', { class: 'weak' }, 'slurm-soda has changed nothing of this job.')),
  ];
}

function reportParts({ report, runs }) {
  const used = report.used;
  const job = report.job;
  const measured = new Map(runs.map((run) => [run.restart, run.gpus_measured]));
  return [
    ...(report.advice.length ? section('Advice', sentences(report.advice.map((advice) => advice.text))) : []),
    ...section('What it used', fields([
      ['GPU utilisation', `${percent(used.gpu_util_ratio)} of ${amount(used.gpu_hours, 'GPU h', 2)}, idle ${percent(used.gpu_idle_ratio)}`],
      ['never used', used.gpus_never_used ? element('span', { class: 'bad' }, count(used.gpus_never_used, 'GPU')) : null],
      ['GPU memory', `${memory(used.gpu_memory_peak_mib)} of ${memory(used.gpu_memory_mib)} on the fullest GPU`],
      ['energy', used.energy_wh === null ? null : amount(used.energy_wh / 1000, 'kWh', 2)],
      ['CPU cores', `${used.cores_used === null ? '-' : used.cores_used.toFixed(1)} of ${job.cpus}`],
      ['memory', `${memory(used.memory_peak_mib)} of ${memory(used.memory_asked_mib)} on the fullest node`],
      ['waited', duration(report.waiting.first_s) + (report.waiting.later_s ? `, and ${duration(report.waiting.later_s)} between runs` : '')],
      ['because of', report.waiting.reasons.map((why) => `${why.reason} ${duration(why.waited_s)}`).join(', ') || null],
      ['gave way', report.preemptions.times ? times(report.preemptions.times) : null],
      ['lost', report.preemptions.lost_s === null ? null : `${duration(report.preemptions.lost_s)} of work was done again`],
      ['sharing', report.sharing === null ? null : sharingText(report.sharing)],
      ['not known', report.missing.length ? sentences(report.missing) : null],
    ])),
    ...report.runs.filter((run) => run.nodes.length).slice(-5).flatMap((run) => runParts(run, measured.get(run.restart) ?? 0)),
  ];
}

function sharingText(sharing) {
  const slower = sharing.slowdown_ratio === null ? '' : `, ${sharing.slowdown_ratio.toFixed(2)} times as slow as alone`;
  return `with ${count(sharing.other_jobs, 'other job')} for ${duration(sharing.shared_s)}${slower}`;
}

function runParts(run, measured) {
  const gpus = run.nodes.flatMap((node) => node.gpus.map((gpu) => ({ node: node.node, ...gpu })));
  const columns = [
    ['node', null, (gpu) => gpu.node],
    ['GPU', 'number', (gpu) => gpu.index],
    ['use', 'number', (gpu) => percent(gpu.util_ratio)],
    ['highest', 'number', (gpu) => percent(gpu.util_max_ratio)],
    ['memory', 'number', (gpu) => `${memory(gpu.memory_peak_mib)} of ${memory(gpu.memory_mib)}`],
    ['power', 'number', (gpu) => amount(gpu.power_w, 'W')],
    ['idle', 'number', (gpu) => duration(gpu.idle_s)],
    ['pauses', null, (gpu) => (gpu.never_used ? element('span', { class: 'bad' }, 'never used') : pauses(gpu))],
  ];
  const shared = run.shared ? ', with other jobs on its GPUs: figures of GPUs are those of all' : '';
  return section(`Run ${run.restart}, from ${instant(run.start_s)}${shared}`,
    gpus.length ? table(columns, gpus) : element('p', { class: 'weak' }, 'No GPU was read.'),
    measured > gpus.length ? element('p', { class: 'weak' }, `the first ${gpus.length} of ${measured}; sodactl report --json has all`) : '');
}

function pauses(gpu) {
  if (!gpu.idle_spans) return '-';
  const longest = gpu.longest_idle.slice(0, 3).map((idle) => `${duration(idle.length_s)} at ${instant(idle.start_s)}`);
  return `${gpu.idle_spans}, ${duration(gpu.idle_spans_s)} in all${longest.length ? `; ${longest.join(', ')}` : ''}`;
}

function sharesTable(shares) {
  return table([
    ['as', null, (share) => (share.as_guest ? 'guest of' : 'host of')],
    ['jobs', null, (share) => share.others.flatMap((id) => [jobLink(id), ' '])],
    ['nodes', null, (share) => share.nodes.join(', ')],
    ['GPUs', null, (share) => share.gpus.join(', ')],
    ['from', 'short', (share) => instant(share.start_s)],
    ['to', 'short', (share) => instant(share.end_s)],
    ['phase', null, (share) => share.phase],
    ['why', null, (share) => share.reason],
  ], shares);
}
