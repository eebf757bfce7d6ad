"""Style sheet of the demo's page: what the simulator's pages share, the two phases' colours, and the Gantt chart."""

from __future__ import annotations

from slurm_soda.simulator.report.page_style import BASE_CSS

CSS = (
    BASE_CSS
    + """
:root { --stock: #8a6d3b; --soda: #0b7d75; }
@media (prefers-color-scheme: dark) { :root { --stock: #d9b26a; --soda: #3fc9bd; } }
.key i.wait { height: 3px; vertical-align: 3px; }
.gantt { font-size: 11px; line-height: 15px; }
.row { display: grid; grid-template-columns: minmax(84px, 26%) 1fr; gap: 8px; align-items: center; height: 17px; }
.row:hover { background: color-mix(in srgb, var(--line) 45%, transparent); }
.row span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft); }
.track { position: relative; height: 100%; }
.track i { position: absolute; display: block; }
.track .wait { top: 7px; height: 3px; background: var(--wait); border-radius: 2px; }
.track .run { top: 2px; height: 13px; border-radius: 3px; min-width: 2px; }
.track b { position: absolute; top: 0; transform: translateX(-50%); color: var(--mark); font-size: 9px; line-height: 17px; }
.wait { background: var(--wait); }
.plot .stock { stroke: var(--stock); } .plot .soda { stroke: var(--soda); }
i.stock { background: var(--stock); } i.soda { background: var(--soda); }
"""
)
