// How far a finding reaches on a chart. It is found in windows of a minute, and not in
// one of which it spoils little; what the chart shows of it may begin before its first
// window and end after its last one.

const FAR = 120; // s that the chart may show it before and after

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

// reach is the time of a finding, and the time next to it in which one of several lists of
// values stays nearer to those during it than to those of the time without a finding.
// d: {t, step, lists}; bands: all findings.
export function reach(band, d, bands) {
  const all = d.lists.map((values) => one(band, { ...d, values: values || [] }, bands));
  return { ...band, from: Math.min(band.from, ...all.map((x) => x.from)), to: Math.max(band.to, ...all.map((x) => x.to)) };
}

function one(band, d, bands) {
  const { t, step, values } = d, inside = (b, i) => t[i] + step > b.from && t[i] < b.to;
  const known = t.map((_, i) => i).filter((i) => values[i] !== null && values[i] !== undefined);
  const during = known.filter((i) => inside(band, i)).map((i) => values[i]), rest = known.filter((i) => !bands.some((b) => inside(b, i))).map((i) => values[i]);
  if (!during.length || rest.length < 3) return band;
  const high = median(during), usual = median(rest), half = Math.sqrt(high * Math.max(usual, 1));
  if (!(high > usual * 1.5)) return band; // this chart does not show it
  let { from, to } = band;
  const first = t.findIndex((_, i) => inside(band, i)), last = t.findLastIndex((_, i) => inside(band, i));
  const shows = (i) => values[i] >= half && !bands.some((b) => b !== band && inside(b, i)); // what another one explains is that one's
  for (let i = first - 1; i >= 0 && shows(i) && t[i] > band.from - FAR; i--) from = t[i];
  for (let i = last + 1; i < t.length && shows(i) && t[i] < band.to + FAR; i++) to = t[i] + step;
  return { from, to };
}
