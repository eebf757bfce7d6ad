// Nodes with their GPUs, and the jobs on each.

const NODES = 50;

function gpusView() {
  const asked = { kind: 'all', offset: 0 };
  const totals = element('p', { class: 'count' });
  const nodes = element('div');
  const again = (change) => {
    Object.assign(asked, { offset: 0 }, change);
    refresh();
  };
  const kinds = [['all', 'all nodes'], ['shared', 'with a shared GPU'], ['free', 'with a free GPU'], ['mine', 'with my jobs']];
  return {
    title: 'GPUs',
    build: () => [element('div', { class: 'tools' }, choice('Nodes', kinds, asked.kind, (kind) => again({ kind }))), totals, nodes],
    ask: () => ['gpus', { ...asked, limit: NODES }],
    draw: (view) => {
      const sums = view.totals;
      totals.textContent = `${count(sums.gpus, 'GPU')}, of which jobs hold ${sums.held.toLocaleString('en')} and share ${sums.shared.toLocaleString('en')}`;
      nodes.replaceChildren(element('div', { class: 'nodes' }, ...view.nodes.map(nodeCard)),
        pager(view, NODES, view.nodes.length, (offset) => again({ offset })));
    },
  };
}

function nodeCard(node) {
  return element('section', { class: 'node' },
    element('h3', {}, node.node, node.silent ? element('span', { class: 'weak' }, ' (its agent is silent)') : null),
    ...node.gpus.map(gpuRow));
}

function gpuRow(gpu) {
  const jobs = gpu.jobs.map((job) => element('p', {}, jobLink(job.job_id), ` ${job.name} of ${job.user}`,
    job.is_guest ? element('span', { class: 'weak' }, ', guest') : null,
    job.util_ratio === null ? null : element('span', { class: 'weak' }, `, ${percent(job.util_ratio)}`)));
  const without = element('p', { class: 'weak' }, gpu.held ? 'held by another job' : 'free');
  return element('div', { class: gpu.jobs.length > 1 ? 'gpu two' : 'gpu' },
    element('span', { class: 'weak' }, String(gpu.index)), element('div', {}, ...(jobs.length ? jobs : [without])));
}
