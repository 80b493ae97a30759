// What moves on the website: the drawing of attention on the first page, three explorers, and the search of the field guide.
// Without this script every page shows a still picture in the same place.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `make("rect", {x: 1}, parent)`. SVG when the parent is SVG. */
function make(name, attributes = {}, parent = null, text = "") {
  const svg = name === "svg" || parent?.namespaceURI === SVG;
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent?.append(element);
  return element;
}

function softmax(scores) {
  const highest = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - highest));
  const total = exponentials.reduce((sum, one) => sum + one, 0);
  return exponentials.map((one) => one / total);
}

// The first page: a translation is written word by word, and lines show where each word looks.

function drawAttention(figure) {
  const sentences = JSON.parse(document.getElementById("lab-weights").textContent);
  const narrow = figure.clientWidth < 480, width = narrow ? 400 : 600, size = narrow ? 14.5 : 19;
  const svg = make("svg", { viewBox: `0 0 ${width} 320`, "font-size": size, role: "group", "aria-label": "Which German words the model looks at for each English word" }, figure);
  const caption = make("figcaption", {}, figure);
  make("span", {}, caption, "The course’s own model translating. A line is as thick as the weight that an English word puts on a German one (cross-attention in the third of four layers, averaged over the heads). Point at a word to hold it.");
  const button = make("button", { type: "button" }, caption, "Pause");
  let sentence = 0, shown = 0, paused = false, held = null, english = [], lines = [], german = [];

  const place = (words) => {
    const lengths = words.map((word) => 0.52 * size * word.length + (narrow ? 12 : 20));
    const start = (width - lengths.reduce((sum, one) => sum + one, 0)) / 2;
    return lengths.map((length, i) => start + lengths.slice(0, i).reduce((sum, one) => sum + one, 0) + length / 2);
  };
  const letter = (word, x, y) => {
    const group = make("g", { class: "word" }, svg);
    return make("text", { x, y }, group, word);
  };

  function build() {
    const { source, target, weights } = sentences[sentence];
    svg.replaceChildren();
    const from = place(target), to = place(source);
    lines = weights.map((row, i) => row.map((weight, j) => make("path", {
      d: `M ${from[i]} 58 C ${from[i]} 165, ${to[j]} 155, ${to[j]} 262`,
      "stroke-width": (0.8 + 9 * weight).toFixed(2), opacity: 0,
    }, svg)));
    english = target.map((word, i) => letter(word, from[i], 42));
    german = source.map((word, j) => letter(word, to[j], 290));
    english.forEach((text, i) => {
      text.parentNode.addEventListener("pointerenter", () => { if (i < shown) { held = i; show(); } });
      text.parentNode.addEventListener("pointerleave", () => { held = null; show(); });
    });
  }

  function show() {
    const { weights } = sentences[sentence];
    const current = held ?? (shown <= english.length ? shown - 1 : null);
    english.forEach((text, i) => { text.setAttribute("opacity", i < shown ? 1 : 0); text.setAttribute("class", i === current ? "on" : ""); });
    german.forEach((text, j) => text.setAttribute("class", current !== null && current >= 0 && weights[current][j] > 0.25 ? "on" : ""));
    lines.forEach((row, i) => row.forEach((line, j) => {
      const strength = weights[i][j] < 0.04 ? 0 : current === null ? 0.75 : i === current ? 0.95 : i < shown ? 0.13 : 0;
      line.setAttribute("opacity", strength);
    }));
  }

  function step() {
    if (paused || held !== null || document.hidden) return;
    if (shown < english.length + 3) shown += 1;
    else { sentence = (sentence + 1) % sentences.length; shown = 0; build(); }
    show();
  }

  function pause(value) { paused = value; button.textContent = value ? "Play" : "Pause"; }
  button.addEventListener("click", () => pause(!paused));
  build();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) { shown = english.length + 1; pause(true); }
  show();
  setInterval(step, 900);
}

// Notebook 01: a query and three keys in the plane. The values are the keys.

function explorePlane(box) {
  const colors = ["#2f6fab", "#c8641b", "#1b8f6b"];
  const vectors = [[1.41, 1.41], [1.5, 0.55], [-0.48, 1.32], [-0.62, -1.69]]; // the query, then the keys
  const names = ["query", "key 1", "key 2", "key 3"];
  const controls = make("div", { class: "controls" }, box);
  const label = make("label", {}, controls, "Scores times");
  const factor = make("input", { type: "range", min: 0, max: 8, step: 0.1, value: 1 }, label);
  const number = make("output", {}, label);
  const panels = make("div", { class: "panels" }, box);
  const svg = make("svg", { viewBox: "0 0 300 300", role: "group", "aria-label": "A query and three keys as arrows" }, panels);
  const table = make("svg", { viewBox: "0 25 300 240", role: "group", "aria-label": "The score and the weight of each key" }, panels);
  make("p", {}, box, "Drag the tips of the arrows, or focus one and use the arrow keys. The diamond is the output: the keys, mixed with their weights.");
  const screen = ([x, y]) => [150 + 44 * x, 150 - 44 * y];
  for (let line = -3; line <= 3; line++) {
    const tone = { stroke: "var(--lab-line)", "stroke-width": line ? 0.7 : 1.4 };
    make("line", { x1: 150 + 44 * line, x2: 150 + 44 * line, y1: 12, y2: 288, ...tone }, svg);
    make("line", { y1: 150 + 44 * line, y2: 150 + 44 * line, x1: 12, x2: 288, ...tone }, svg);
  }
  const color = (i) => (i ? colors[i - 1] : "var(--lab-ink)");
  const arrows = vectors.map((_, i) => make("line", { stroke: color(i), "stroke-width": i ? 2.4 : 3.4, x1: 150, y1: 150 }, svg));
  const diamond = make("path", { fill: "var(--lab-page)", stroke: "var(--lab-ink)", "stroke-width": 2 }, svg);
  const labels = names.map((name) => make("text", { "text-anchor": "middle" }, svg, name));
  const handles = vectors.map((_, i) => make("circle", { r: 8, fill: color(i), class: "handle", tabindex: 0, role: "slider", "aria-label": `tip of ${names[i]}`, "aria-valuenow": 0 }, svg));
  make("text", { x: 105, y: 50, "text-anchor": "end", class: "quiet" }, table, "score");
  make("text", { x: 125, y: 50, class: "quiet" }, table, "weight");
  const rows = colors.map((tone, i) => {
    const y = 86 + 52 * i;
    make("text", { x: 6, y }, table, names[i + 1]);
    return {
      score: make("text", { x: 105, y, "text-anchor": "end" }, table),
      bar: make("rect", { x: 125, y: y - 18, height: 26, fill: tone, rx: 3 }, table),
      weight: make("text", { y, class: "weight" }, table),
    };
  });
  make("text", { x: 6, y: 250, class: "quiet" }, table, "score = query · key / √2");

  function draw() {
    const [query, ...keys] = vectors, times = Number(factor.value);
    const scores = keys.map((key) => (times * (query[0] * key[0] + query[1] * key[1])) / Math.SQRT2);
    const weights = softmax(scores);
    number.textContent = times.toFixed(1);
    vectors.forEach((vector, i) => {
      const [x, y] = screen(vector), length = Math.hypot(...vector) || 1;
      arrows[i].setAttribute("x2", x); arrows[i].setAttribute("y2", y);
      handles[i].setAttribute("cx", x); handles[i].setAttribute("cy", y);
      handles[i].setAttribute("data-exact", vector.map((one) => one.toFixed(4)).join(" "));
      handles[i].setAttribute("aria-valuetext", vector.map((one) => one.toFixed(1)).join(", "));
      labels[i].setAttribute("x", x + (22 * vector[0]) / length); labels[i].setAttribute("y", y - (20 * vector[1]) / length + 4);
    });
    rows.forEach((row, i) => {
      row.score.textContent = scores[i].toFixed(2);
      row.bar.setAttribute("width", Math.max(1, 125 * weights[i]));
      row.weight.setAttribute("x", 133 + 125 * weights[i]); row.weight.textContent = weights[i].toFixed(2);
    });
    const [x, y] = screen([0, 1].map((axis) => keys.reduce((sum, key, i) => sum + weights[i] * key[axis], 0)));
    diamond.setAttribute("d", `M ${x} ${y - 8} l 8 8 l -8 8 l -8 -8 z`);
  }
  const clamp = (value) => Math.max(-2.9, Math.min(2.9, value));
  handles.forEach((handle, i) => {
    handle.addEventListener("pointerdown", (event) => { handle.setPointerCapture(event.pointerId); event.preventDefault(); });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      vectors[i] = [clamp((point.x - 150) / 44), clamp((150 - point.y) / 44)];
      draw();
    });
    handle.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (!move) return;
      event.preventDefault();
      vectors[i] = vectors[i].map((one, axis) => clamp(one + move[axis]));
      draw();
    });
  });
  factor.addEventListener("input", draw);
  draw();
}

// Notebook 04: the table of sinusoidal encodings, and how similar each position is to one of them.

function explorePositions(box) {
  const controls = make("div", { class: "controls" }, box);
  const slider = (text, attributes) => {
    const label = make("label", {}, controls, text);
    const input = make("input", { type: "range", ...attributes }, label);
    return { input, output: make("output", {}, label) };
  };
  const width = slider("d_model", { min: 4, max: 128, step: 4, value: 32 });
  const base = slider("base", { min: 0.5, max: 5, step: 0.1, value: 4 });
  const chosen = slider("position", { min: 0, max: 59, step: 1, value: 20 });
  const panels = make("div", { class: "panels" }, box);
  const canvas = make("canvas", { role: "img" }, panels);
  const svg = make("svg", { viewBox: "0 0 320 220", role: "img" }, panels);
  make("p", {}, box, "The table has one row for each of 60 positions and one column for each feature, from −1 (purple) to 1 (orange). The curve is the dot product of every position with the chosen one, divided by the largest possible value.");

  function draw() {
    const size = Number(width.input.value), scale = 10 ** Number(base.input.value), position = Number(chosen.input.value), length = 60;
    const frequencies = Array.from({ length: size / 2 }, (_, pair) => scale ** ((-2 * pair) / size));
    width.output.textContent = size; base.output.textContent = Math.round(scale).toLocaleString("en"); chosen.output.textContent = position;
    canvas.width = size; canvas.height = length;
    const context = canvas.getContext("2d"), image = context.createImageData(size, length);
    for (let row = 0; row < length; row++) for (let column = 0; column < size; column++) {
      const angle = row * frequencies[column >> 1], value = column % 2 ? Math.cos(angle) : Math.sin(angle);
      const [red, green, blue] = value < 0 ? [84, 39, 136] : [179, 88, 6], mix = Math.abs(value);
      image.data.set([247 + mix * (red - 247), 247 + mix * (green - 247), 247 + mix * (blue - 247), 255], 4 * (row * size + column));
    }
    context.putImageData(image, 0, 0);
    context.fillStyle = "rgb(0 0 0 / 55%)"; context.fillRect(0, position, size, 0.35);
    canvas.setAttribute("aria-label", `The encodings of ${length} positions with d_model ${size} and base ${Math.round(scale)}.`);
    const similarity = Array.from({ length }, (_, row) => frequencies.reduce((sum, one) => sum + Math.cos((row - position) * one), 0) / frequencies.length);
    svg.replaceChildren();
    const x = (row) => 34 + (276 * row) / (length - 1), y = (value) => 112 - 92 * value;
    for (const value of [-1, -0.5, 0, 0.5, 1]) {
      make("line", { x1: 34, x2: 310, y1: y(value), y2: y(value), stroke: "var(--lab-line)" }, svg);
      make("text", { x: 28, y: y(value) + 4, "text-anchor": "end", class: "quiet" }, svg, String(value));
    }
    make("line", { x1: x(position), x2: x(position), y1: 14, y2: 206, stroke: "var(--lab-muted)", "stroke-dasharray": "3 4" }, svg);
    make("polyline", { "data-exact": similarity.map((value) => value.toFixed(5)).join(" "), points: similarity.map((value, row) => `${x(row)},${y(value)}`).join(" "), fill: "none", stroke: "var(--lab-accent)", "stroke-width": 2.4 }, svg);
    svg.setAttribute("aria-label", `Similarity to position ${position}: highest there, and lower on both sides.`);
  }
  [width, base, chosen].forEach(({ input }) => input.addEventListener("input", draw));
  draw();
}

// Notebook 03: the masks of two sentences in one batch.

function exploreMasks(box) {
  const controls = make("div", { class: "controls" }, box);
  const field = (text, value) => make("input", { type: "text", value, maxlength: 60 }, make("label", {}, controls, text));
  const fields = [field("First sentence", "the dog sees the cat"), field("Second sentence", "dogs run")];
  const box_ = (text) => {
    const label = make("label", {}, controls);
    const input = make("input", { type: "checkbox", checked: "" }, label);
    label.append(text);
    return input;
  };
  const padding = box_("Hide padding"), future = box_("Hide the future");
  const panels = make("div", { class: "panels" }, box);
  make("p", {}, box, "Rows are queries and columns are keys. A filled cell may be seen.");

  function draw() {
    const rows = fields.map((input) => input.value.trim().split(/\s+/).slice(0, 10).filter(Boolean));
    const length = Math.max(1, ...rows.map((row) => row.length));
    panels.replaceChildren();
    rows.forEach((row, index) => {
      const words = Array.from({ length }, (_, i) => row[i] ?? "<pad>");
      const table = make("table", { class: "grid" }, panels);
      make("caption", { class: "visually-hidden" }, table, `Mask of sentence ${index + 1}`);
      const head = make("tr", {}, make("thead", {}, table));
      make("td", { style: "border:0" }, head);
      words.forEach((word) => make("th", { scope: "col" }, head, word));
      const body = make("tbody", {}, table);
      words.forEach((word, query) => {
        const line = make("tr", {}, body);
        make("th", { scope: "row" }, line, word);
        words.forEach((_, key) => {
          const seen = !(padding.checked && key >= row.length) && !(future.checked && key > query);
          make("td", { class: seen ? "seen" : "", "aria-label": seen ? "may be seen" : "hidden" }, line);
        });
      });
    });
  }
  [...fields, padding, future].forEach((input) => input.addEventListener("input", draw));
  draw();
}

// The field guide: show the entries that contain every word of the search, and open the one that the address names.

function searchFieldGuide(bar) {
  bar.hidden = false;
  const input = bar.querySelector("input"), output = bar.querySelector("output");
  const sections = [...document.querySelectorAll(".bd-article section section")];
  const entries = [...document.querySelectorAll("details.lab-bug")].map((element) => ({
    element, text: `${element.id.replaceAll(/[_-]/g, " ")} ${element.textContent}`.toLowerCase(),
  }));
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { element, text } of entries) {
      const fits = words.every((word) => text.includes(word));
      element.hidden = !fits;
      count += fits;
    }
    for (const section of sections) section.hidden = !section.querySelector("details.lab-bug:not([hidden])");
    output.textContent = words.length ? `${count.toLocaleString("en")} of ${entries.length.toLocaleString("en")}` : "";
  };
  input.addEventListener("input", search);
  const open = () => {
    const entry = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (entry?.matches("details.lab-bug")) { entry.open = true; entry.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
}

const EXPLORERS = { plane: explorePlane, positions: explorePositions, masks: exploreMasks };
for (const box of document.querySelectorAll(".lab-explorer")) {
  box.replaceChildren();
  EXPLORERS[box.dataset.explorer](box);
}
const figure = document.getElementById("lab-attention");
if (figure) drawAttention(figure);
const bar = document.getElementById("lab-filter");
if (bar) searchFieldGuide(bar);
for (const summary of document.querySelectorAll(".bd-sidebar-primary summary")) summary.setAttribute("aria-label", "Show the pages below");
