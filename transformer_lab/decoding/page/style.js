// The style of the widget. The variables --lab-… and --pst-… come from the course's website; without them, their
// fallback values apply.
export default `
:host {
  --ink: var(--lab-ink, light-dark(#1f2328, #e6e8eb));
  --muted: var(--lab-muted, light-dark(#57606a, #a3adb8));
  --line: var(--lab-line, light-dark(#d8dee4, #3a414a));
  --surface: var(--lab-surface, light-dark(#ffffff, #1a1e24));
  --accent: var(--lab-accent, light-dark(#08519c, #9ecae1));
  --on-accent: light-dark(#ffffff, #10151b);
  --attention: light-dark(#08519c, #9ecae1); /* blue, as in the notebooks */
  --lit: var(--lab-accent, light-dark(#c2500a, #fdae6b));
  display: block;
}
* { box-sizing: border-box; }
.card {
  position: relative; padding: clamp(1rem, 4vw, 1.75rem); border: 1px solid var(--line); border-radius: 14px;
  background: var(--surface); color: var(--ink); text-align: left;
  font: 16px/1.5 var(--pst-font-family-base, system-ui, sans-serif);
}
.card.dropping { outline: 3px dashed var(--accent); outline-offset: -3px; }
button, textarea { font: inherit; color: inherit; }
button { cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
h3 { margin: 0 0 .6rem; font-size: .9rem; font-weight: 600; }
p { margin: 0; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

form > label, .sentence::before {
  display: block; margin-bottom: .35rem; font-size: .78rem; line-height: 1.3; letter-spacing: .04em;
  color: var(--muted);
}
.entry { display: flex; gap: .6rem; align-items: flex-start; }
textarea {
  flex: 1; min-width: 0; padding: .5rem .7rem; overflow: hidden; resize: none;
  border: 1px solid color-mix(in srgb, var(--muted) 75%, var(--line)); border-radius: 8px; background: transparent;
}
.primary {
  padding: .5rem 1rem; border: 1px solid var(--accent); border-radius: 8px;
  background: var(--accent); color: var(--on-accent); font-weight: 600;
}
.primary:hover { filter: brightness(1.12); }
.primary:disabled { opacity: .5; cursor: default; }
.examples { display: flex; flex-wrap: wrap; gap: .4rem; margin-top: .6rem; }
.examples button {
  max-width: 100%; padding: .15rem .7rem; border: 1px solid var(--line); border-radius: 99px; background: none;
  color: var(--muted); font-size: .85rem; text-align: left;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
}
.examples button:hover { border-color: var(--accent); color: var(--ink); }

.stage { position: relative; margin: 1.6rem 0 0; }
.stage svg { position: absolute; inset: 0; overflow: visible; pointer-events: none; }
.stage path { fill: none; stroke: var(--attention); stroke-linecap: round; }
.stage path.lit { stroke: var(--lit); }
.stage path[pathLength] { stroke-dasharray: 1; animation: draw .2s ease-out both; }
@keyframes draw { from { stroke-dashoffset: 1; } }
.sentence { position: relative; font-size: clamp(1.1rem, 2.6vw, 1.4rem); line-height: 1.9; text-align: center; }
.sentence::before { content: attr(data-language); }
.sentence.target { min-height: 1.9em; margin: 5.2rem 0 1.8rem; }
.sentence.target::before { position: absolute; inset: 100% 0 auto; margin: .2rem 0 0; }
.columns { display: grid; grid-template-columns: 1fr minmax(4rem, .7fr) 1fr; }
.columns .sentence { grid-row: 1; margin: 0 0 1rem; font-size: 1rem; line-height: 1.5; }
.columns .sentence span { display: contents; }
.columns .sentence button { display: block; width: fit-content; margin: 0; }
.columns .source button { margin-left: auto; }
.columns .sentence::before { position: static; margin: 0 .3rem .3rem; }
.columns .source { text-align: right; }
.columns .target { grid-column: 3; text-align: left; }
slot { display: block; text-align: center; color: var(--muted); }
::slotted(*) { max-width: 100%; }
.sentence span { white-space: nowrap; }
.sentence button {
  position: relative; padding: .05em .3em; border: 1px solid transparent; border-radius: 6px; line-height: 1.4;
  background: color-mix(in srgb, var(--lit) calc(var(--weight, 0) * 42%), var(--surface)); transition: background .15s;
}
.sentence span button + button { margin-left: -.2em; }
.sentence button:hover { border-color: var(--line); }
.sentence button.active { border-color: var(--lit); color: var(--lit); }
.sentence button[aria-pressed="true"] { box-shadow: 0 0 0 1px var(--lit); }
.sentence .end { color: var(--muted); font-size: .72em; }
.unwritten { visibility: hidden; }
.readout { min-height: 3em; color: var(--muted); text-align: center; text-wrap: balance; }
.readout b { color: var(--ink); }
.readout.problem { color: var(--lit); }

.heat { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 1.2rem 2rem; margin-top: 1rem; }
.heads {
  display: grid; grid-template-columns: auto repeat(var(--columns, 5), 2.4rem); gap: .3rem; justify-content: start;
}
.heading { align-self: center; font-size: .75rem; line-height: 1.2; color: var(--muted); text-align: center; }
.heads .heading:nth-child(1), .heads label + .heading { text-align: left; padding-right: .3rem; }
.heads label { position: relative; display: block; height: 2.4rem; cursor: pointer; }
.heads input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer; }
.heads canvas {
  display: block; width: 100%; height: 100%; border: 1px solid var(--line); border-radius: 4px;
  image-rendering: pixelated;
}
.heads label:hover canvas { border-color: var(--accent); }
.heads input:checked + canvas { outline: 2px solid var(--lit); border-color: transparent; }
.heads input:focus-visible + canvas { outline: 3px solid var(--accent); outline-offset: 2px; }
.switch { display: block; margin-top: .8rem; font-size: .85rem; color: var(--muted); }
.switch input { accent-color: var(--accent); vertical-align: -.1em; }

.large { min-width: 0; container-type: inline-size; }
.map {
  position: relative; overflow-x: auto; color: var(--attention);
  --cell: clamp(14px, calc((100cqi - 6.5rem) / var(--columns)), 42px);
}
table { border-collapse: collapse; color: var(--ink); font-size: .78rem; line-height: 1; }
thead th { height: 5.2rem; padding: 0 0 .35rem; vertical-align: bottom; font-weight: 400; cursor: default; }
thead th span {
  display: inline-block; max-height: 5rem; writing-mode: vertical-rl; rotate: 180deg;
  overflow: hidden; text-overflow: ellipsis;
}
tbody th {
  position: sticky; left: 0; max-width: 6rem; padding: 0 .5rem 0 0; background: var(--surface);
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: right; font-weight: 400; cursor: default;
}
tbody td {
  width: var(--cell); min-width: var(--cell); height: clamp(14px, var(--cell), 24px);
  padding: 0; border: 1px solid var(--surface);
  background: color-mix(in srgb, var(--attention) calc(4% + var(--weight) * 96%), var(--surface));
}
.scale { margin-top: .6rem; font-size: .75rem; color: var(--muted); text-align: left; }
.scale span {
  display: inline-block; width: 5rem; height: .7em; border-radius: 2px; vertical-align: -.05em;
  background: linear-gradient(to right, color-mix(in srgb, var(--attention) 4%, var(--surface)), var(--attention));
}
tr.marked th { color: var(--lit); font-weight: 600; }
tr.marked td, td.marked { box-shadow: inset 0 2px var(--lit), inset 0 -2px var(--lit); }
td.marked { box-shadow: inset 2px 0 var(--lit), inset -2px 0 var(--lit); }

.small {
  margin-top: 1.4rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .82rem; color: var(--muted);
}
.small p + p { margin-top: .4rem; }
.small code { font-family: var(--pst-font-family-monospace, ui-monospace, monospace); font-size: .95em; }
.plain { padding: 0; border: none; background: none; color: var(--accent); text-decoration: underline; }

@media (max-width: 620px) {
  .heat { grid-template-columns: minmax(0, 1fr); }
  .entry { flex-direction: column; align-items: stretch; }
  textarea { flex: none; }
}
@media (prefers-reduced-motion: reduce) { .stage path { animation: none; } }
`;
