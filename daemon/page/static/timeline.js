// A job over time: its waits, its runs, when it gave way, what was changed, and how its GPUs were used.

const WIDTH = 1000;
const LEFT = 90;
const LANE = 16;
const MAX_GPU_LANES = 32;

function timeline(job, now) {
  const from = job.submit_s;
  const to = Math.max(job.end_s ?? now, from + 1);
  const x = (at) => LEFT + (Math.min(Math.max(at, from), to) - from) / (to - from) * (WIDTH - LEFT);
  const bar = (start, end, y, kind, text) => drawing('rect',
    { x: x(start), y, width: Math.max(x(end) - x(start), 1), height: LANE, class: kind }, drawing('title', {}, text));
  const parts = [drawing('text', { x: 0, y: 14 }, 'job'), ...jobBars(job, to, bar)];
  for (const entry of job.preemptions) {
    const at = x(entry.created_s);
    parts.push(drawing('path', { d: `M${at - 5} ${LANE + 14}h10l-5 -9z`, class: 'mark' },
      drawing('title', {}, `gave way at ${instant(entry.created_s)}: ${entry.reason}`)));
  }
  for (const change of job.changes) {
    const at = x(change.at_s);
    parts.push(drawing('line', { x1: at, x2: at, y1: LANE + 4, y2: LANE + 14, class: 'change' },
      drawing('title', {}, `${change.kind} at ${instant(change.at_s)}: ${change.reason}`)));
  }
  let y = LANE + 22;
  for (const [label, lanes] of gpuLanes(job)) {
    parts.push(drawing('text', { x: 0, y: y + 12 }, label),
      drawing('rect', { x: LEFT, y, width: WIDTH - LEFT, height: LANE, class: 'lane' }),
      ...lanes.map((lane) => useArea(lane, x, y)));
    y += LANE + 4;
  }
  parts.push(drawing('text', { x: LEFT, y: y + 12 }, instant(from)),
    drawing('text', { x: WIDTH, y: y + 12, 'text-anchor': 'end' }, job.end_s === null ? `now, ${instant(now)}` : instant(to)));
  const said = `From submission at ${instant(from)} on: ${count(job.runs.length, 'run')}, gave way ${job.preemptions.length} times.`;
  return element('figure', { 'aria-label': 'Timeline' },
    drawing('svg', { viewBox: `0 0 ${WIDTH} ${y + 18}`, role: 'img', 'aria-label': said }, ...parts), legend(job));
}

function jobBars(job, to, bar) {
  const bars = [];
  let free = job.submit_s;
  for (const run of job.runs) {
    if (run.start_s > free) bars.push(bar(free, run.start_s, 2, 'wait', `waited ${duration(run.start_s - free)}`));
    const end = run.end_s ?? to;
    const text = `run ${run.restart} on ${run.node_names}, ${duration(end - run.start_s)}${run.shared ? ', beside other jobs' : ''}`;
    bars.push(bar(run.start_s, end, 2, run.shared ? 'shared' : 'run', text));
    free = end;
  }
  if (job.end_s === null && free < to) bars.push(bar(free, to, 2, 'wait', `waits since ${duration(to - free)}`));
  return bars;
}

// Of each GPU that it had, by node and index: the utilisation in its runs.
function gpuLanes(job) {
  const lanes = new Map();
  for (const run of job.report?.runs ?? []) {
    for (const node of run.nodes) {
      for (const gpu of node.gpus) {
        const label = `${node.node} ${gpu.index}`;
        lanes.set(label, [...(lanes.get(label) ?? []), gpu.timeline]);
      }
    }
  }
  return [...lanes].slice(0, MAX_GPU_LANES);
}

function useArea(lane, x, y) {
  const steps = lane.util_ratios.map((ratio, at) => {
    const left = x(lane.start_s + at * lane.step_s);
    const width = x(lane.start_s + (at + 1) * lane.step_s) - left;
    const high = (ratio ?? 0) * LANE;
    return high > 0 && width > 0 ? `M${left.toFixed(1)} ${y + LANE}v${(-high).toFixed(1)}h${width.toFixed(1)}v${high.toFixed(1)}z` : '';
  });
  return drawing('path', { d: steps.join(''), class: 'use' });
}

function legend(job) {
  const words = [['wait', 'waits'], ['run', 'runs'], ['shared', 'runs beside other jobs'], ['mark', 'gave way'],
    ['change', 'was changed'], ['use', 'utilisation of a GPU']];
  return element('ul', { class: 'legend' }, ...words.map(([kind, text]) => element('li', { class: kind }, text)),
    gpuLanes(job).length === MAX_GPU_LANES ? element('li', {}, `the first ${MAX_GPU_LANES} GPUs`) : null);
}
