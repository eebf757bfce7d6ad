// What slurm-soda changed, newest first, and why.

const CHANGES = 50;

function changesView() {
  const before = [];
  const rows = element('div');
  return {
    title: 'Changes',
    build: () => [rows],
    ask: () => ['changes', before.length ? { before: before.at(-1), limit: CHANGES } : { limit: CHANGES }],
    draw: (view) => {
      const older = () => {
        before.push(view.changes.at(-1).change_id);
        refresh();
      };
      const newer = () => {
        before.pop();
        refresh();
      };
      rows.replaceChildren(
        view.changes.length ? changesTable(view.changes, true) : element('p', { class: 'weak' }, 'Nothing was changed.'),
        element('div', { class: 'tools' },
          element('button', { type: 'button', disabled: !before.length, click: newer }, 'Newer'),
          element('button', { type: 'button', disabled: !view.more, click: older }, 'Older')));
    },
  };
}

function changesTable(changes, withJobs) {
  const ofJob = [
    ['job', 'number', (change) => jobLink(change.job_id)],
    ['user', null, (change) => change.user],
    ['name', null, (change) => change.name],
  ];
  return table([
    ['at', 'short', (change) => instant(change.at_s)],
    ...(withJobs ? ofJob : []),
    ['kind', null, (change) => change.kind + (change.by_hand ? ' (by hand)' : '')],
    ['what', null, changedFields],
    ['why', null, (change) => change.reason],
    ['outcome', null, (change) => (change.error ? element('span', { class: 'bad' }, `${change.state}: ${change.error}`) : change.state)],
  ], changes);
}
