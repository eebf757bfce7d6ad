"""Style sheet of the demo's page: one accent, light and dark, from phone to wide screen, nothing loaded from outside."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f7f8fa; --card: #ffffff; --ink: #16202c; --soft: #5b6877; --line: #dfe4ea; --wait: #cdd5df;
  --stock: #8a6d3b; --soda: #0b7d75; --good: #0b7d75; --bad: #b3432b; --mark: #d4351c;
  --g1: #8ecae6; --g2: #4f9fd0; --g4: #2a6fb0; --g8: #173f78;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f141a; --card: #171e27; --ink: #e6ebf1; --soft: #93a1b1; --line: #2a3441; --wait: #3a4656;
    --stock: #d9b26a; --soda: #3fc9bd; --good: #3fc9bd; --bad: #f0907a; --mark: #ff6b57;
    --g1: #2f5f86; --g2: #4589bd; --g4: #6fb4e6; --g8: #bfe1fb;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: clamp(1.4rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0 0 8px; text-wrap: balance; }
h2 { font-size: 1.1rem; margin: 0 0 4px; }
p { margin: 0 0 12px; } .soft { color: var(--soft); font-size: .9rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px; margin-top: 16px; }
.wide { overflow-x: auto; }
.pair { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); }
@media (min-width: 900px) { .pair { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.pair .card { margin-top: 0; } .pair { margin-top: 16px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; }
tr:last-child td { border-bottom: 0; } tr.first td { font-weight: 650; }
.good { color: var(--good); } .bad { color: var(--bad); }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .82rem; color: var(--soft); margin: 4px 0 10px; }
.key i { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 5px; vertical-align: -1px; }
.key i.wait { height: 3px; vertical-align: 3px; } .key b { color: var(--mark); font-size: .7rem; margin-right: 5px; }
.gantt { font-size: 11px; line-height: 15px; }
.row { display: grid; grid-template-columns: minmax(84px, 26%) 1fr; gap: 8px; align-items: center; height: 17px; }
.row:hover { background: color-mix(in srgb, var(--line) 45%, transparent); }
.row span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft); }
.track { position: relative; height: 100%; }
.track i { position: absolute; display: block; }
.track .wait { top: 7px; height: 3px; background: var(--wait); border-radius: 2px; }
.track .run { top: 2px; height: 13px; border-radius: 3px; min-width: 2px; }
.track b { position: absolute; top: 0; transform: translateX(-50%); color: var(--mark); font-size: 9px; line-height: 17px; }
.g1 { background: var(--g1); } .g2 { background: var(--g2); } .g4 { background: var(--g4); } .g8 { background: var(--g8); }
.wait { background: var(--wait); }
.axis { position: relative; height: 20px; border-top: 1px solid var(--line); margin-top: 3px; }
.axis em { position: absolute; top: 2px; transform: translateX(-50%); font-style: normal; color: var(--soft); }
.axis em:first-child { transform: none; } .axis em:last-child { transform: translateX(-100%); }
.plot { position: relative; margin: 6px 0 0 34px; font-size: 11px; }
.plot svg { display: block; width: 100%; height: clamp(200px, 34vw, 320px); overflow: visible; }
.plot path { fill: none; stroke-width: 2.5; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.plot line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.plot .stock { stroke: var(--stock); } .plot .soda { stroke: var(--soda); }
.plot .y { position: absolute; right: 100%; margin-right: 6px; transform: translateY(-50%); color: var(--soft); }
i.stock { background: var(--stock); } i.soda { background: var(--soda); }
pre { overflow-x: auto; font-size: .8rem;
  background: var(--page); border: 1px solid var(--line); border-radius: 8px; padding: 10px; }
details > summary { cursor: pointer; font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; font-size: .9rem; margin: 8px 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
"""
