// Making elements. Text only ever becomes text: nothing here, or elsewhere in the page, parses a string as HTML.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.filter((child) => child !== null).map((child) => (child instanceof Node ? child : visible(child))));
  return node;
}

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function table(columns, rows, classOf = () => null) {
  const head = columns.map(([title, kind]) => element('th', { scope: 'col', class: kind ?? null }, title));
  const body = rows.map((row) => element('tr', { class: classOf(row) },
    ...columns.map(([, kind, cell]) => element('td', { class: kind ?? null }, ...[cell(row)].flat()))));
  return element('div', { class: 'wide' },
    element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...body)));
}

function fields(pairs) {
  return element('dl', {}, ...pairs.filter(([, value]) => value !== null)
    .flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, ...[value].flat())]));
}

function sentences(texts) {
  return element('ul', { class: 'sentences' }, ...texts.map((text) => element('li', {}, text)));
}

function jobLink(id) {
  return element('a', { href: `#/job/${Number(id)}` }, String(id));
}

// A choice of one of several words, which calls back with it.
function choice(label, options, chosen, change) {
  const select = element('select', { 'aria-label': label, change: () => change(select.value) },
    ...options.map(([value, text]) => element('option', { value, selected: value === chosen }, text)));
  return select;
}

// Buttons to the rows before and after those that are shown.
function pager(page, size, shown, go) {
  const last = page.offset + shown;
  return element('div', { class: 'tools' },
    element('button', { type: 'button', disabled: page.offset === 0, click: () => go(Math.max(page.offset - size, 0)) }, 'Previous'),
    element('button', { type: 'button', disabled: last >= page.found, click: () => go(page.offset + size) }, 'Next'),
    element('span', { class: 'count' }, shown ? `${page.offset + 1} to ${last} of ${page.found}` : 'none'));
}
