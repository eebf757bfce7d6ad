// Values as people read them, in the words of sodactl.

// What moves, hides or reorders text is spelled out, whoever wrote it: control and format characters, lone surrogates.
function visible(value) {
  return String(value).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (char) => {
    const code = char.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

function two(number) {
  return String(number).padStart(2, '0');
}

function duration(seconds) {
  if (seconds === null) return '-';
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${two(Math.floor((whole % 86400) / 3600))} h`;
}

// By the controller's clocks, as in the sentences that sodad writes.
function instant(seconds) {
  if (seconds === null) return '-';
  const date = new Date((seconds + state.zone) * 1000);
  if (Number.isNaN(date.getTime())) return `${seconds} s since 1970`;
  return date.toISOString().slice(0, 19).replace('T', ' ');
}

function percent(ratio) {
  return ratio === null ? '-' : `${Math.round(ratio * 100)} %`;
}

function amount(value, unit, digits = 0) {
  return value === null ? '-' : `${value.toLocaleString('en', { maximumFractionDigits: digits })} ${unit}`;
}

function memory(mib) {
  if (mib === null) return '-';
  const gib = mib / 1024;
  return gib < 1 ? `${Math.round(mib)} MiB` : `${gib.toFixed(gib < 10 ? 1 : 0)} GiB`;
}

function count(number, noun) {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

function lower(words) {
  return words.toLowerCase().replaceAll('_', ' ');
}

function changedFields(change) {
  const keys = Object.keys(change.new);
  return keys.length ? keys.map((key) => `${key}: ${change.old[key] ?? '?'} → ${change.new[key]}`).join('; ') : '-';
}
