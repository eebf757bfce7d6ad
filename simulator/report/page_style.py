"""Style sheet of pages that report runs: one accent, light and dark, from phone to wide screen, nothing loaded."""

from __future__ import annotations

from slurm_soda.simulator.report.charts.palette import DARK, GPU_DARK, GPU_LIGHT, LIGHT, MARK_DARK, MARK_LIGHT, STROKES


def _variables(colours: tuple[str, ...], gpus: dict[int, str], mark: str) -> str:
    lines = [f"--p{number}: {colour};" for number, colour in enumerate(colours)]
    lines += [f"--g{count}: {colour};" for count, colour in gpus.items()]
    return " ".join([*lines, f"--mark: {mark};"])


BASE_CSS = f"""
:root {{
  color-scheme: light dark;
  --page: #f7f8fa; --card: #ffffff; --ink: #16202c; --soft: #5b6877; --line: #dfe4ea; --wait: #cdd5df;
  --good: #0b7d75; --bad: #b3432b;
  {_variables(LIGHT, GPU_LIGHT, MARK_LIGHT)}
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #0f141a; --card: #171e27; --ink: #e6ebf1; --soft: #93a1b1; --line: #2a3441; --wait: #3a4656;
    --good: #3fc9bd; --bad: #f0907a;
    {_variables(DARK, GPU_DARK, MARK_DARK)}
  }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1240px; margin: 0 auto; padding: 24px 16px 48px; }}
h1 {{ font-size: clamp(1.4rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0 0 8px; text-wrap: balance; }}
h2 {{ font-size: 1.1rem; margin: 0 0 4px; }}
p {{ margin: 0 0 12px; }} .soft {{ color: var(--soft); font-size: .9rem; }}
.card {{ background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px; margin-top: 16px; }}
.wide {{ overflow-x: auto; }}
.pair {{ display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); }}
@media (min-width: 900px) {{ .pair {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }} }}
.pair .card {{ margin-top: 0; }} .pair {{ margin-top: 16px; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 6px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; }}
thead th {{ color: var(--soft); font-weight: 600; font-size: .85rem; }}
tr:last-child td {{ border-bottom: 0; }} tr.first td {{ font-weight: 650; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.key {{ display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .82rem; color: var(--soft); margin: 4px 0 10px; }}
.key i {{ display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 5px; vertical-align: -1px; }}
.key b {{ color: var(--mark); font-size: .7rem; margin-right: 5px; }}
.g1 {{ background: var(--g1); }} .g2 {{ background: var(--g2); }} .g4 {{ background: var(--g4); }}
.g8 {{ background: var(--g8); }} .g16 {{ background: var(--g16); }}
.axis {{ position: relative; height: 20px; border-top: 1px solid var(--line); margin-top: 3px; }}
.axis em {{ position: absolute; top: 2px; transform: translateX(-50%); font-style: normal; color: var(--soft);
  white-space: nowrap; }}
.axis .first {{ transform: none; }} .axis .last {{ transform: translateX(-100%); }}
.plot {{ position: relative; margin: 6px 0 0 38px; font-size: 11px; }}
.plot svg {{ display: block; width: 100%; height: clamp(200px, 34vw, 320px); overflow: visible; }}
.plot path {{ fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }}
.plot path:hover {{ stroke-width: 6; }}
.plot line {{ stroke: var(--line); vector-effect: non-scaling-stroke; }}
.plot .y {{ position: absolute; right: 100%; margin-right: 6px; transform: translateY(-50%); color: var(--soft);
  white-space: nowrap; }}
pre {{ overflow-x: auto; font-size: .8rem;
  background: var(--page); border: 1px solid var(--line); border-radius: 8px; padding: 10px; }}
details > summary {{ cursor: pointer; font-weight: 600; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; font-size: .9rem; margin: 8px 0; }}
dt {{ color: var(--soft); }} dd {{ margin: 0; overflow-wrap: anywhere; }}
"""
"""What every page has: colours, cards, tables, keys, plots."""

_STROKES = "\n".join(
    f".s{number} {{ stroke-dasharray: {' '.join(f'{part:g}' for part in parts) or 'none'}; }}"
    for number, parts in enumerate(STROKES)
)

CSS = (
    BASE_CSS
    + "\n".join(f".p{n} {{ stroke: var(--p{n}); }} .f{n} {{ fill: var(--p{n}); }}" for n in range(len(LIGHT)))
    + f"""
{_STROKES}
.key svg {{ width: 26px; height: 8px; margin-right: 5px; }} .key line {{ stroke-width: 3; }}
tr.best td {{ font-weight: 650; }}
.x {{ text-align: center; color: var(--soft); font-size: .8rem; margin: 2px 0 0; }}
.strip {{ display: grid; grid-template-columns: minmax(84px, 14%) 1fr 5.5em; gap: 8px; align-items: end;
  font-size: .82rem; }}
.strip > span {{ color: var(--soft); overflow-wrap: anywhere; }} .strip > span:last-child {{ text-align: right; }}
.strip svg {{ display: block; width: 100%; height: 46px; border-bottom: 1px solid var(--line); }}
.strip line {{ stroke: var(--line); vector-effect: non-scaling-stroke; }}
.strip .axis {{ border-top: 0; font-size: 11px; }}
.lanes {{ position: relative; margin-left: 52px; font-size: 11px; }}
.bars {{ position: relative; border-left: 1px solid var(--line); overflow: hidden; }}
.bars i {{ position: absolute; display: block; border: 1px solid var(--card); border-radius: 3px; min-width: 2px;
  overflow: hidden; white-space: nowrap; padding-left: 2px; font: 9px/1.1 system-ui, sans-serif; color: var(--ink); }}
.bars .g4, .bars .g8, .bars .g16 {{ color: var(--card); }}
.bars i.cut {{ border-right: 3px solid var(--mark); }}
.bars u {{ position: absolute; left: 0; right: 0; border-top: 1px solid var(--line); }}
.lane {{ position: absolute; right: 100%; margin-right: 6px; color: var(--soft); line-height: 1; white-space: nowrap; }}
"""
)
"""The simulator's own pages."""
