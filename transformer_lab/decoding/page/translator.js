// The page around the Transformer. You enter a sentence, the translation appears word by word, and every word shows
// what it attended to. Everything runs in this browser window.
//
// The element with the id `translator` gets the widget in a shadow root, isolated from the style of the page around it.
// The element's original content, a still picture, is for readers without JavaScript.

import STYLE from "./style.js";
import { loadModel } from "./transformer.js";

const EXAMPLES = {
  de: [
    "Ein brauner Hund rennt über die grüne Wiese.",
    "Eine Frau mit rotem Hut fährt auf dem Fahrrad durch die Stadt.",
    "Zwei Kinder spielen mit einem Ball im Park.",
    "Ein Mann putzt ein Fenster, während seine Tochter zusieht.",
  ],
  en: ["A brown dog is running across the green meadow.", "Two children are playing with a ball in the park."],
};
const WRITING_SECONDS = 1.2; // for a sentence of any length
const FAINTEST_LINK = 0.12; // among those drawn for all words at once

// -------------------------------------------------------------------------------------------------------- what to draw

const sum = numbers => numbers.reduce((total, number) => total + number, 0);
const mean = rows => Array.from(rows[0], (_, column) => sum(rows.map(row => row[column])) / rows.length);

// Tokens grouped into words: `{text, tokens}` with the indices of the tokens. The end of the sentence is a word too.
function wordsOf(side, ids, endId) {
  const texts = side.texts(ids);
  const starts = new Set();
  let offset = 0;
  for (const piece of side.pieces(texts.join(""))) {
    starts.add(offset);
    offset += piece.length;
  }
  const words = [];
  offset = 0;
  texts.forEach((text, token) => {
    if (ids[token] === endId) words.push({ text: " end", tokens: [token], end: true });
    else if (!words.length || (text && starts.has(offset))) words.push({ text, tokens: [token] });
    else {
      words.at(-1).text += text;
      words.at(-1).tokens.push(token);
    }
    offset += text.length;
  });
  return words;
}

// Each token as a separate word.
const piecesOf = (side, ids, endId) => side.texts(ids).map((text, token) =>
  ids[token] === endId ? { text: " end", tokens: [token], end: true } : { text: text || "·", tokens: [token] });

// One row of weights for each written token, from one head of one layer or averaged over several.
const rowsOf = (steps, layer, head) => steps.map(({ attention }) => {
  const layers = layer === null ? attention : [attention[layer]];
  return mean(layers.flatMap(heads => (head === null ? heads : [heads[head]])));
});

// From tokens to words: the weight of a source word is the sum over its tokens, averaged over the target word's tokens.
const grouped = (rows, targetWords, sourceWords) => targetWords.map(({ tokens }) => {
  const row = mean(tokens.map(token => rows[token]));
  return sourceWords.map(word => sum(word.tokens.map(token => row[token])));
});

const percent = weight => (weight > 0 && weight < 0.01 ? "under 1%" : `${Math.round(100 * weight)}%`);

// ------------------------------------------------------------------------------------------------------------ elements

// `element("p", {class: "readout"}, "text")`
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const languageName = code => {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code;
  }
};

class TranslatorWidget {
  constructor(host) {
    this.root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    this.chosen = { layer: null, head: null };
    this.result = null; // `{source, steps}`: token ids and the result of each step
    this.pointed = this.pinned = null; // `{side, word}`
    this.written = 0; // how many words of the translation are shown
    this.runs = 0;
    this.build();
    new ResizeObserver(() => this.arrange()).observe(this.stage);
  }

  build() {
    const submit = event => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    };
    this.input = element("textarea", { id: "sentence", rows: 1, maxlength: 600, spellcheck: "false", keydown: submit });
    this.button = element("button", { class: "primary", disabled: true }, "Translate");
    this.label = element("label", { for: "sentence" }, "Type a sentence");
    this.examples = element("div", { class: "examples", role: "group", "aria-label": "Examples" });
    this.form = element("form", { submit: event => {
      event.preventDefault();
      this.translate();
    } }, this.label, element("div", { class: "entry" }, this.input, this.button), this.examples);

    this.links = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.links.setAttribute("aria-hidden", "true");
    this.sentences = { source: this.sentence("source"), target: this.sentence("target") };
    this.stage = element("div", { class: "stage", click: event => {
      if (!event.target.closest("button")) this.pin(null);
    } }, element("slot")); // the still picture, until there is a translation
    this.readout = element("p", { class: "readout", role: "status" }, "Loading the model …");

    this.pieces = element("input", { type: "checkbox", change: () => {
      this.pinned = this.pointed = null; // their indices no longer apply
      this.showResult();
    } });
    this.heads = element("div", { class: "heads", role: "radiogroup", "aria-label": "Layer and head" });
    this.map = element("div", { class: "map", role: "group", "aria-label": "Heat map" });
    this.mapTitle = element("h3", {}, "Attention");
    const heat = element("div", { class: "heat" },
      element("div", { class: "chooser" }, element("h3", {}, "Layers and heads"), this.heads,
        element("label", { class: "switch" }, this.pieces, " split words into the model’s tokens")),
      element("div", { class: "large" }, this.mapTitle, this.map));

    this.about = element("p");
    this.files = element("input", { type: "file", multiple: true, hidden: true, change: event => {
      this.open([...event.target.files]);
      event.target.value = "";
    } });
    const own = element("p", {}, "Have you trained a model of your own? Drop its folder here, or ",
      element("button", { class: "plain", click: () => this.files.click() }, "choose its files"),
      ": ", element("code", {}, "config.json"), ", ", element("code", {}, "tokenizer.json"), ", ",
      element("code", {}, "weights.safetensors"), ".", this.files);
    this.card = element("div", { class: "card" }, this.form, this.stage, this.readout, heat,
      element("div", { class: "small" }, this.about, own));
    for (const name of ["dragenter", "dragover"]) {
      this.card.addEventListener(name, event => {
        event.preventDefault();
        this.card.classList.add("dropping");
      });
    }
    this.card.addEventListener("dragleave", event => {
      if (!this.card.contains(event.relatedTarget)) this.card.classList.remove("dropping");
    });
    this.card.addEventListener("drop", async event => {
      event.preventDefault();
      this.card.classList.remove("dropping");
      this.open(await droppedFiles(event.dataTransfer));
    });
    this.root.replaceChildren(element("style", {}, STYLE), this.card);
  }

  // A row of words: one stop for the Tab key, and the arrow keys go from word to word.
  sentence(side) {
    const wordOf = event => event.target.closest("button")?.dataset.word;
    const look = event => {
      const word = wordOf(event);
      if (word !== undefined) this.look({ side, word: +word });
    };
    return element("p", { class: `sentence ${side}`, role: "group",
      pointerover: look, focusin: look,
      pointerout: () => this.look(null), focusout: () => this.look(null),
      click: event => {
        const word = wordOf(event);
        if (word === undefined) return;
        this.pin(this.pinned?.side === side && this.pinned.word === +word ? null : { side, word: +word });
      },
      keydown: event => {
        const buttons = [...event.currentTarget.querySelectorAll("button")], at = buttons.indexOf(event.target);
        const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
        if (event.key === "Escape") this.pin(null);
        if (!buttons[next]) return;
        event.preventDefault();
        event.target.tabIndex = -1;
        buttons[next].tabIndex = 0;
        buttons[next].focus();
      } });
  }

  // ----------------------------------------------------------------------------------------------------------- a model

  // `files`: config, tokenizer, and perhaps training as parsed JSON; weights as an ArrayBuffer.
  use({ config, tokenizer, weights, training }) {
    ({ model: this.model, tokenizer: this.tokenizer } = loadModel(config, tokenizer, weights));
    if (this.result) { // from the previous model
      this.runs += 1;
      this.result = this.words = this.weights = null;
      this.stage.replaceChildren();
      this.map.replaceChildren();
    }
    const { source, target } = this.tokenizer;
    this.languages = { source: languageName(source), target: languageName(target) };
    this.label.textContent = `Type a sentence in ${this.languages.source}`;
    this.input.lang = source;
    this.say(this.label.textContent);
    this.button.disabled = false;
    for (const side of ["source", "target"]) {
      this.sentences[side].lang = this.tokenizer[side];
      this.sentences[side].dataset.language = this.languages[side];
      this.sentences[side].setAttribute("aria-label", `${this.languages[side]} words`);
    }
    const examples = EXAMPLES[source] ?? [];
    this.examples.replaceChildren(...examples.map(sentence => element("button", { type: "button", lang: source,
      click: () => this.translate(sentence) }, sentence)));
    // The small models of this course match words most clearly in the second-to-last layer.
    this.chosen = { layer: Math.max(0, config.n_layers - 2), head: null };
    this.buildChooser();
    const rounded = { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 };
    const count = new Intl.NumberFormat("en", rounded);
    const captions = training?.configuration?.preset?.corpus === "multi30k";
    this.about.textContent = `${count.format(this.model.nParameters)} parameters${trainingText(training)}. ` +
      "The model runs in your browser; nothing you type is sent anywhere." +
      (captions ? " It has read nothing but captions of photographs, so ask it about people, dogs, and parks. " +
      "Anything else becomes a caption too, fluent and wrong." : "");
    return examples[0];
  }

  async open(files) {
    try {
      const sentence = this.use(await readFiles(files));
      this.translate(this.input.value.trim() || sentence);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  // ----------------------------------------------------------------------------------------------------- a translation

  async translate(sentence = this.input.value) {
    if (!this.model || !sentence.trim()) return;
    const run = ++this.runs;
    this.input.value = sentence;
    this.grow();
    const source = this.tokenizer.encodeSource(sentence);
    const longest = this.model.config.max_length;
    if (source.length > longest) {
      this.say(`This sentence has ${source.length} tokens, but the model reads at most ${longest}.`, true);
      return;
    }
    const known = source.slice(0, -1).filter(id => !this.tokenizer.sourceSide.isForeign(id));
    if (!/[\p{L}\p{N}]/u.test(this.tokenizer.sourceSide.texts(known).join(""))) {
      this.say(`The model knows none of these characters. It reads ${this.languages.source}.`, true);
      return;
    }
    this.stage.replaceChildren(this.links, this.sentences.source, this.sentences.target);
    // The model takes a tenth of a second for all words. They are shown one by one, so that a reader can follow.
    this.result = { source, steps: [...this.model.translate(source)] };
    this.pinned = null;
    this.written = 0;
    this.showResult();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const start = performance.now();
    while (!still && this.written < this.words.target.length) {
      this.written += 1;
      this.show();
      const due = start + (1000 * WRITING_SECONDS * this.written) / this.words.target.length;
      await new Promise(resolve => setTimeout(resolve, due - performance.now())); // a slow word makes the next one fast
      if (run !== this.runs) return; // another sentence has replaced this one
    }
    this.written = Infinity;
    this.show();
    this.root.host.dispatchEvent(new CustomEvent("translated", { detail: this.translation, bubbles: true }));
  }

  get translation() {
    return this.tokenizer.decode(this.result.steps.map(({ token }) => token));
  }

  // --------------------------------------------------------------------------------------------------------- the words

  showResult() {
    if (!this.result) return;
    const { source, steps } = this.result, { sourceSide, targetSide } = this.tokenizer;
    const group = this.pieces.checked ? piecesOf : wordsOf, end = this.model.config.eos_id;
    const written = steps.map(({ token }) => token);
    this.words = { source: group(sourceSide, source, end), target: group(targetSide, written, end) };
    this.weights = grouped(rowsOf(steps, this.chosen.layer, this.chosen.head), this.words.target, this.words.source);
    for (const side of ["source", "target"]) this.showWords(side);
    this.drawMap();
    this.drawHeads();
    this.arrange();
    this.show();
  }

  // Two lines if each sentence fits on one line; otherwise two columns.
  arrange() {
    if (!this.words) return;
    this.stage.classList.remove("columns"); // their text is smaller
    const widths = ["source", "target"].map(side =>
      sum([...this.sentences[side].querySelectorAll("button")].map(button => button.offsetWidth + 6)));
    this.stage.classList.toggle("columns", Math.max(...widths) > this.stage.clientWidth);
    this.drawLinks();
  }

  showWords(side) {
    const paragraph = this.sentences[side], words = this.words[side];
    const focused = paragraph.contains(this.root.activeElement) ? +this.root.activeElement.dataset.word : null;
    const lines = [];
    words.forEach(({ text, end }, word) => {
      const button = element("button", { type: "button", "data-word": word, tabindex: word ? -1 : 0,
        class: end ? "end" : null, title: end ? "the end of the sentence, a token like any other" : null },
        text.trim() || "␣");
      if (text.startsWith(" ") || !lines.length) lines.push(element("span", {}, button));
      else lines.at(-1).append(button); // a comma stays with its word
    });
    paragraph.replaceChildren(...lines.flatMap(line => [line, " "]));
    if (focused !== null) paragraph.querySelector(`[data-word="${focused}"]`)?.focus();
  }

  look(at) {
    this.pointed = at;
    this.show();
  }

  pin(at) {
    this.pinned = at;
    this.pointed = null;
    this.show();
  }

  get writing() {
    return this.written < Infinity;
  }

  // The word whose attention is shown: the one being written, pointed at, or pinned.
  get active() {
    if (this.writing) return this.written ? { side: "target", word: this.written - 1 } : null;
    return this.pointed ?? this.pinned;
  }

  // The weights between the active word and each word on the other side.
  weightsOf({ side, word }) {
    return side === "target" ? this.weights[word] : this.weights.map(row => row[word]);
  }

  show() {
    if (!this.words) return;
    const { active, pinned } = this;
    const other = active && (active.side === "target" ? "source" : "target");
    const weights = active && this.weightsOf(active);
    for (const side of ["source", "target"]) {
      for (const button of this.sentences[side].querySelectorAll("button")) {
        const word = +button.dataset.word;
        button.classList.toggle("active", active?.side === side && active.word === word);
        button.classList.toggle("unwritten", side === "target" && word >= this.written);
        button.setAttribute("aria-pressed", pinned?.side === side && pinned.word === word);
        button.style.setProperty("--weight", side === other ? weights[word].toFixed(3) : 0);
      }
    }
    this.drawLinks();
    this.markMap();
    if (this.writing) this.say("");
    else this.say(active ? this.sentenceAbout(active) : this.invitation());
  }

  invitation() {
    const hint = matchMedia("(hover: hover)").matches ? "Point at a word to see what it attended to; click to keep it."
      : "Tap a word to see what it attended to.";
    return [element("span", { class: "unseen" }, `Translation: ${this.translation} `), hint];
  }

  sentenceAbout({ side, word }) {
    const quoted = (side, word) => element("b", { lang: this.tokenizer[side] },
      this.words[side][word].end ? "end of sentence" : this.words[side][word].text.trim());
    const other = side === "target" ? "source" : "target";
    const strongest = this.weightsOf({ side, word }).map((weight, at) => [weight, at]).sort(([a], [b]) => b - a);
    const named = strongest.filter(([weight]) => weight >= 0.05).slice(0, 3);
    const list = named.flatMap(([weight, at], i) => [i ? ", " : "", quoted(other, at), ` (${percent(weight)})`]);
    if (!list.length) return ["Little of any word’s attention went to ", quoted(side, word), "."];
    if (side === "target") return ["To write ", quoted(side, word), ", the model looked at ", ...list, "."];
    return [quoted(side, word), " was looked at while these were written: ", ...list, "."];
  }

  say(message, problem = false) {
    this.readout.classList.toggle("problem", problem);
    this.readout.replaceChildren(...[message].flat());
  }

  // A curve from each source word to each target word that attended to it.
  drawLinks() {
    if (!this.weights) return;
    const stage = this.stage.getBoundingClientRect(), columns = this.stage.classList.contains("columns");
    const anchors = side => [...this.sentences[side].querySelectorAll("button")].map(button => {
      const box = button.getBoundingClientRect(), first = side === "source";
      const [x, y] = columns ? [first ? box.right : box.left, box.top + box.height / 2]
        : [box.left + box.width / 2, first ? box.bottom : box.top];
      return [x - stage.left, y - stage.top];
    });
    const [above, below] = [anchors("source"), anchors("target")];
    if (above.length !== this.words.source.length || below.length !== this.words.target.length) return;
    this.links.setAttribute("width", stage.width);
    this.links.setAttribute("height", stage.height);
    const paths = [];
    const active = this.active;
    this.weights.slice(0, this.written).forEach((row, target) => row.forEach((weight, source) => {
      const { side, word } = active ?? {};
      const lit = side === "target" ? word === target : side === "source" && word === source;
      if (weight < (lit ? 0.02 : FAINTEST_LINK)) return;
      const [x1, y1] = above[source], [x2, y2] = below[target];
      const bend = (columns ? x2 - x1 : y2 - y1) / 2;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", columns ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
        : `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`);
      path.setAttribute("stroke-width", (1 + 5 * weight).toFixed(2));
      path.setAttribute("stroke-opacity", (lit ? 0.25 + 0.75 * weight : weight * (active ? 0.3 : 0.75)).toFixed(3));
      path.setAttribute("class", lit ? "lit" : "");
      if (lit && this.writing) path.setAttribute("pathLength", 1);
      paths.push(path);
    }));
    paths.sort((one, other) => one.classList.contains("lit") - other.classList.contains("lit"));
    this.links.replaceChildren(...paths);
  }

  // ------------------------------------------------------------------------------------------------------ the heat map

  buildChooser() {
    const { n_layers, n_heads } = this.model.config;
    const choice = (layer, head, name) => {
      const canvas = element("canvas", { "aria-hidden": "true" });
      const radio = element("input", { type: "radio", name: "head", "aria-label": name, change: () => {
        this.chosen = { layer, head };
        this.showResult();
      } });
      radio.checked = layer === this.chosen.layer && head === this.chosen.head;
      return Object.assign(element("label", { title: name }, radio, canvas), { layer, head, canvas });
    };
    const heading = text => element("span", { class: "heading", "aria-hidden": "true" }, text);
    const heads = Array.from({ length: n_heads }, (_, head) => head);
    this.heads.style.setProperty("--columns", n_heads + 1);
    this.heads.replaceChildren(heading("head"), heading("mean"), ...heads.map(head => heading(`${head + 1}`)));
    for (let layer = 0; layer < n_layers; layer++) {
      this.heads.append(heading(`layer ${layer + 1}`), choice(layer, null, `layer ${layer + 1}, mean of its heads`),
        ...heads.map(head => choice(layer, head, `layer ${layer + 1}, head ${head + 1}`)));
    }
    this.heads.append(heading("all"), choice(null, null, "mean of all layers and heads"));
  }

  drawHeads() {
    const { words } = this;
    const ink = getComputedStyle(this.map).color;
    for (const { layer, head, canvas } of this.heads.querySelectorAll("label")) {
      canvas.width = words.source.length;
      canvas.height = Math.max(1, words.target.length);
      const context = canvas.getContext("2d");
      context.fillStyle = ink;
      grouped(rowsOf(this.result.steps, layer, head), words.target, words.source).forEach((row, y) =>
        row.forEach((weight, x) => {
          context.globalAlpha = weight;
          context.fillRect(x, y, 1, 1);
        }));
    }
  }

  drawMap() {
    const { layer, head } = this.chosen, { source, target } = this.words;
    const where = layer === null ? "Mean of all layers and heads"
      : `Layer ${layer + 1}, ${head === null ? `mean of ${this.model.config.n_heads} heads` : `head ${head + 1}`}`;
    this.mapTitle.textContent = where;
    const at = event => {
      const cell = event.target.closest("td, th[data-word]");
      if (!cell) return;
      const { word, side } = cell.dataset;
      this.look(word === undefined ? { side: "target", word: cell.parentNode.rowIndex - 1 } : { side, word: +word });
    };
    const name = ({ text, end }) => (end ? "end" : text.trim() || "␣");
    const table = element("table", { pointerover: at, pointerleave: () => this.look(null) },
      element("caption", { class: "unseen" }, `${where}: one row for each word of the translation`),
      element("thead", {}, element("tr", {}, element("td", { class: "corner" }), ...source.map((word, i) =>
        element("th", { scope: "col", "data-word": i, "data-side": "source", lang: this.tokenizer.source },
          element("span", {}, name(word)))))),
      element("tbody", {}, ...target.map((word, row) => element("tr", {},
        element("th", { scope: "row", "data-word": row, "data-side": "target", lang: this.tokenizer.target },
          name(word)),
        ...this.weights[row].map(weight => element("td", { style: `--weight: ${weight.toFixed(4)}`,
          title: percent(weight) }, element("span", { class: "unseen" }, percent(weight))))))));
    this.map.style.setProperty("--columns", source.length);
    this.map.replaceChildren(table, element("p", { class: "scale" }, "0 ", element("span"), " 100% of the attention"));
    if (this.map.scrollWidth > this.map.clientWidth) this.map.tabIndex = 0; // so that the arrow keys scroll it
    else this.map.removeAttribute("tabindex");
  }

  markMap() {
    const { side, word } = this.active ?? {};
    this.map.querySelectorAll("tbody tr").forEach((row, target) => {
      row.classList.toggle("marked", side === "target" && word === target);
      row.classList.toggle("unwritten", target >= this.written);
      [...row.querySelectorAll("td")].forEach((cell, source) =>
        cell.classList.toggle("marked", side === "source" && word === source));
    });
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight + 2}px`; // plus the border
  }
}

// --------------------------------------------------------------------------------------------------------------- files

function trainingText(training) {
  const seconds = training?.result?.seconds, pairs = training?.configuration?.train_pairs;
  const { device, threads } = training?.environment ?? {};
  if (!seconds || !pairs) return "";
  const minutes = Math.max(1, Math.round(seconds / 60));
  const cores = threads === 1 ? "one core" : `${threads} cores`;
  const machine = { cpu: ` on ${cores} of a CPU`, cuda: " on a GPU" }[device] ?? "";
  return `, trained in ${minutes} ${minutes === 1 ? "minute" : "minutes"}${machine} with ` +
    `${pairs.toLocaleString("en-US")} sentence pairs`;
}

const FILES = {
  config: "config.json", tokenizer: "tokenizer.json", weights: "weights.safetensors",
  training: "training.json", // may be missing
};

async function readFiles(files) {
  const read = {};
  for (const [part, name] of Object.entries(FILES)) {
    const file = files.find(file => file.name === name);
    if (!file && part !== "training") {
      throw new Error(`${name} is missing. Drop the folder of a trained model, or its three files together.`);
    }
    if (!file) continue;
    try {
      read[part] = part === "weights" ? await file.arrayBuffer() : JSON.parse(await file.text());
    } catch {
      throw new Error(`${name} is damaged or can’t be read.`);
    }
  }
  return read;
}

// The dropped files, including those inside a folder.
async function droppedFiles({ items, files }) {
  const entries = [...items].map(item => item.webkitGetAsEntry?.()).filter(Boolean);
  const folder = entries.find(entry => entry.isDirectory);
  if (!folder) return [...files];
  const inside = await new Promise((resolve, reject) => folder.createReader().readEntries(resolve, reject));
  return Promise.all(inside.filter(entry => entry.isFile).map(entry =>
    new Promise((resolve, reject) => entry.file(resolve, reject))));
}

// The model next to this script, or the one inside the page itself, as `transformer-lab export` writes it.
async function ownModel() {
  const inPage = document.getElementById("translator-model");
  if (inPage) {
    const { weights, ...parts } = JSON.parse(inPage.textContent);
    return { ...parts, weights: Uint8Array.from(atob(weights), character => character.charCodeAt()).buffer };
  }
  const parts = await Promise.all(Object.entries(FILES).map(async ([part, name]) => {
    const answer = await fetch(new URL(name, import.meta.url));
    if (!answer.ok) return [part, null];
    return [part, part === "weights" ? await answer.arrayBuffer() : await answer.json()];
  }));
  return Object.fromEntries(parts);
}

// --------------------------------------------------------------------------------------------------------------- start

const host = document.getElementById("translator");
if (host) {
  const files = ownModel();
  const widget = new TranslatorWidget(host);
  try {
    const sentence = widget.use(await files);
    await seen(host);
    if (!widget.result) widget.translate(sentence);
  } catch (error) {
    widget.say(`The model could not be loaded (${error.message}). You can still drop a model of your own here.`, true);
  }
}

// Wait until the element is in view. Otherwise, the reader would not see the translation appear.
function seen(element) {
  return new Promise(resolve => {
    new IntersectionObserver((entries, observer) => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      observer.disconnect();
      resolve();
    }, { threshold: 0.3 }).observe(element);
  });
}
