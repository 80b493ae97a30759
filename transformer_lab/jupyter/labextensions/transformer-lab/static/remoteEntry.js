// The course's additions to JupyterLab while `transformer-lab open` runs. A prebuilt extension is a module federation
// container; this one is short enough to write by hand.

const STYLE = `
/* Lines of text end after about 80 characters. Headings, tables, code, and pictures may be as wide as the page. */
.jp-Notebook .jp-MarkdownCell .jp-RenderedMarkdown :is(p, ul, ol, blockquote, details):not(td *) { max-width: 66ch; }
/* The lines of a figure have one gray for light and dark pages; on a dark one they can be brighter. */
[data-jp-theme-light="false"] .jp-OutputArea img[alt][width] { filter: url(#transformer-lab-on-dark); }
`;

// Lightens medium colors (#757575 becomes #898989) and leaves black and white as they are.
const ON_DARK = `<svg width="0" height="0" aria-hidden="true" style="position: absolute">
  <filter id="transformer-lab-on-dark" color-interpolation-filters="sRGB" x="0" y="0" width="1" height="1">
    <feComponentTransfer>
      ${["R", "G", "B"].map(channel => `<feFunc${channel} type="gamma" exponent="0.8"/>`).join("")}
    </feComponentTransfer>
  </filter>
</svg>`;

// JupyterLab selects the next cell and scrolls to it. Without this, a report could start above or below the window.
function showReport(cell) {
  const report = cell.node.querySelector(".transformer-lab-report");
  const page = report?.closest(".jp-WindowedPanel-outer");
  report?.scrollIntoView({ block: report.offsetHeight < page?.clientHeight ? "nearest" : "start" });
}

function makePlugin({ NotebookActions }) {
  return {
    id: "transformer-lab:plugin",
    autoStart: true,
    activate: () => {
      document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));
      document.body.insertAdjacentHTML("beforeend", ON_DARK);
      // An output is drawn one frame after it arrives.
      const soon = show => requestAnimationFrame(() => requestAnimationFrame(show));
      NotebookActions.executed.connect((_, { cell }) => soon(() => showReport(cell)));
    },
  };
}

let shared;

window._JUPYTERLAB ??= {};
window._JUPYTERLAB["transformer-lab"] = {
  init: scope => { shared = scope; },
  get: async () => {
    const [notebook] = Object.values(shared["@jupyterlab/notebook"]); // JupyterLab's own, in its one version
    const plugin = makePlugin((await notebook.get())());
    return () => ({ __esModule: true, default: plugin });
  },
};
