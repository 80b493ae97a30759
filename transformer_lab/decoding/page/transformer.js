// A Transformer for translation in one file, without any library. It runs a trained model from "Attention Is All You
// Need" on one sentence at a time. It reads the three files that the course saves for a trained model.
//
// A matrix is a Float32Array in row-major order. Sizes are named as in the paper; `length` counts tokens.
// Sums are computed in double precision, as JavaScript does, and stored in single precision.

const PAD = 0, BOS = 1, EOS = 2, UNK = 3;
const EPS = 1e-5; // for layer normalization

// ---------------------------------------------------------------------------------------------- section 3.2: attention

// x W^T + b for `rows` vectors; the weight has one row for each output, as in PyTorch. Four outputs are computed at a
// time, so that each number of x is loaded once for four products.
function linear({ weight, bias }, x, rows) {
  const outputs = bias.length, inputs = weight.length / outputs;
  const y = new Float32Array(rows * outputs);
  for (let row = 0; row < rows; row++) {
    const vector = x.subarray(row * inputs, (row + 1) * inputs);
    let output = 0;
    for (; output + 3 < outputs; output += 4) {
      let a = 0, b = 0, c = 0, d = 0;
      const w = output * inputs, w2 = w + inputs, w3 = w2 + inputs, w4 = w3 + inputs;
      for (let i = 0; i < inputs; i++) {
        const value = vector[i];
        a += weight[w + i] * value;
        b += weight[w2 + i] * value;
        c += weight[w3 + i] * value;
        d += weight[w4 + i] * value;
      }
      const place = row * outputs + output;
      y[place] = a + bias[output];
      y[place + 1] = b + bias[output + 1];
      y[place + 2] = c + bias[output + 2];
      y[place + 3] = d + bias[output + 3];
    }
    for (; output < outputs; output++) {
      let sum = bias[output];
      for (let i = 0; i < inputs; i++) sum += weight[output * inputs + i] * vector[i];
      y[row * outputs + output] = sum;
    }
  }
  return y;
}

// In place: scores become positive weights that add up to 1. A score of -Infinity gets a weight of 0.
function softmax(scores) {
  const highest = scores.reduce((one, other) => Math.max(one, other), -Infinity);
  if (highest === -Infinity) return scores.fill(0); // a query that may not attend to anything
  let sum = 0;
  for (let i = 0; i < scores.length; i++) sum += scores[i] = Math.exp(scores[i] - highest);
  for (let i = 0; i < scores.length; i++) scores[i] /= sum;
  return scores;
}

// softmax(q k^T / sqrt(d_k)) v in each head. A head's features are side by side in each vector, so no copy is needed.
// Returns the output, (queries, d_model), and the weights as weights[head][query][key].
function attend(q, k, v, queries, length, nHeads, visible = null) {
  const dModel = q.length / queries, dK = dModel / nHeads;
  const output = new Float32Array(queries * dModel);
  const weights = Array.from({ length: nHeads }, () => []);
  for (let head = 0; head < nHeads; head++) {
    for (let query = 0; query < queries; query++) {
      const row = new Float32Array(length);
      for (let key = 0; key < length; key++) {
        let dot = 0;
        for (let i = head * dK; i < (head + 1) * dK; i++) dot += q[query * dModel + i] * k[key * dModel + i];
        row[key] = visible && !visible[key] ? -Infinity : dot / Math.sqrt(dK);
      }
      weights[head].push(softmax(row));
      for (let i = head * dK; i < (head + 1) * dK; i++) {
        let sum = 0;
        for (let key = 0; key < length; key++) sum += row[key] * v[key * dModel + i];
        output[query * dModel + i] = sum;
      }
    }
  }
  return [output, weights];
}

// ----------------------------------------------------------------------------- sections 3.1, 3.3: around the attention

function layerNorm({ gain, bias }, x) {
  const dModel = gain.length, y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += dModel) {
    let mean = 0, variance = 0;
    for (let i = 0; i < dModel; i++) mean += x[start + i] / dModel;
    for (let i = 0; i < dModel; i++) variance += (x[start + i] - mean) ** 2 / dModel;
    const scale = 1 / Math.sqrt(variance + EPS);
    for (let i = 0; i < dModel; i++) y[start + i] = gain[i] * (x[start + i] - mean) * scale + bias[i];
  }
  return y;
}

const add = (x, y) => x.map((value, i) => value + y[i]);

function feedForward({ w_1, w_2 }, x, rows) {
  return linear(w_2, linear(w_1, x, rows).map(value => Math.max(0, value)), rows);
}

// The paper normalizes after the addition; with `norm_first`, the sublayer's input is normalized instead.
function residual({ norm }, x, normFirst, sublayer) {
  return normFirst ? add(x, sublayer(layerNorm(norm, x))) : layerNorm(norm, add(x, sublayer(x)));
}

// -------------------------------------------------------------------------------------------- sections 3.4, 3.5: input

// The embeddings of some tokens times sqrt(d_model), plus the positional encodings from position `first` on.
function embed({ weight }, tokens, dModel, first = 0) {
  const x = new Float32Array(tokens.length * dModel);
  tokens.forEach((token, row) => {
    for (let i = 0; i < dModel; i++) {
      const angle = (first + row) * 10000 ** (-(i - (i % 2)) / dModel);
      const position = i % 2 ? Math.cos(angle) : Math.sin(angle);
      x[row * dModel + i] = weight[token * dModel + i] * Math.sqrt(dModel) + position;
    }
  });
  return x;
}

// ----------------------------------------------------------------------------------------------------- the whole model

export class Transformer {
  // `config` is config.json, and `tensors` is the result of `readSafetensors`.
  constructor(config, tensors) {
    this.config = config;
    this.nParameters = Object.values(tensors).reduce((sum, { data }) => sum + data.length, 0);
    const take = (name, ...shape) => {
      const tensor = tensors[name];
      if (!tensor) throw new Error(`weights.safetensors has no ${name}, which config.json asks for.`);
      if (String(tensor.shape) !== String(shape)) {
        throw new Error(`weights.safetensors has ${name} as ${tensor.shape.join(" × ")}, but config.json asks for ` +
                        `${shape.join(" × ")}. Take both files from the same run.`);
      }
      return tensor.data;
    };
    const { d_model, d_ff, source_vocab, target_vocab, n_layers, norm_first, tie } = config;
    const dense = (name, inputs, outputs) =>
      ({ weight: take(`${name}.weight`, outputs, inputs), bias: take(`${name}.bias`, outputs) });
    const norm = name => ({ gain: take(`${name}.gain`, d_model), bias: take(`${name}.bias`, d_model) });
    const attention = name =>
      Object.fromEntries(["w_q", "w_k", "w_v", "w_o"].map(w => [w, dense(`${name}.${w}`, d_model, d_model)]));
    const stack = (name, attentions) => Array.from({ length: n_layers }, (_, number) => {
      const layer = `${name}.layers.${number}`;
      return {
        ...Object.fromEntries(attentions.map(part => [part, attention(`${layer}.${part}`)])),
        feed_forward: { w_1: dense(`${layer}.feed_forward.w_1`, d_model, d_ff),
                        w_2: dense(`${layer}.feed_forward.w_2`, d_ff, d_model) },
        residuals: [...attentions, "feed_forward"].map((_, i) => ({ norm: norm(`${layer}.residuals.${i}.norm`) })),
      };
    });
    const embedding = (name, size) => ({ weight: take(`${name}.embedding.weight`, size, d_model) });
    this.sourceEmbedding = embedding("source_embedding", source_vocab);
    this.targetEmbedding = tie ? this.sourceEmbedding : embedding("target_embedding", target_vocab);
    this.encoder = stack("encoder", ["self_attention"]);
    this.decoder = stack("decoder", ["self_attention", "cross_attention"]);
    this.encoderNorm = norm_first ? norm("encoder.norm") : null;
    this.decoderNorm = norm_first ? norm("decoder.norm") : null;
    this.output = { weight: tie ? this.sourceEmbedding.weight : take("output.weight", target_vocab, d_model),
                    bias: take("output.bias", target_vocab) };
  }

  // Each source token as a vector that depends on all the others: (source, d_model).
  encode(source) {
    const { d_model, n_heads, norm_first } = this.config, length = source.length;
    let x = embed(this.sourceEmbedding, source, d_model);
    for (const { self_attention: w, feed_forward, residuals } of this.encoder) {
      x = residual(residuals[0], x, norm_first, x => {
        const [q, k, v] = [w.w_q, w.w_k, w.w_v].map(matrix => linear(matrix, x, length));
        return linear(w.w_o, attend(q, k, v, length, length, n_heads)[0], length);
      });
      x = residual(residuals[1], x, norm_first, x => feedForward(feed_forward, x, length));
    }
    return this.encoderNorm ? layerNorm(this.encoderNorm, x) : x;
  }

  // Start a translation. The returned function takes the newest target token and returns `{logits, attention}`:
  // attention[layer][head] holds one weight for each source token. Keys and values of earlier tokens are kept, because
  // no token sees a later one, so they can't change.
  start(source) {
    const { d_model, n_heads, norm_first, max_length } = this.config;
    const memory = this.encode(source);
    const layers = this.decoder.map(layer => ({
      layer,
      keys: new Float32Array(max_length * d_model),
      values: new Float32Array(max_length * d_model),
      sourceKeys: linear(layer.cross_attention.w_k, memory, source.length),
      sourceValues: linear(layer.cross_attention.w_v, memory, source.length),
    }));
    const visible = []; // a predicted pad is hidden from all queries, as in training
    return token => {
      const position = visible.length;
      visible.push(token !== this.config.pad_id);
      let x = embed(this.targetEmbedding, [token], d_model, position);
      const attention = [];
      for (const { layer, keys, values, sourceKeys, sourceValues } of layers) {
        const { self_attention: own, cross_attention: cross, feed_forward, residuals } = layer;
        x = residual(residuals[0], x, norm_first, x => {
          keys.set(linear(own.w_k, x, 1), position * d_model);
          values.set(linear(own.w_v, x, 1), position * d_model);
          return linear(own.w_o, attend(linear(own.w_q, x, 1), keys, values, 1, position + 1, n_heads, visible)[0], 1);
        });
        x = residual(residuals[1], x, norm_first, x => {
          const q = linear(cross.w_q, x, 1);
          const [output, weights] = attend(q, sourceKeys, sourceValues, 1, source.length, n_heads);
          attention.push(weights.map(([row]) => row));
          return linear(cross.w_o, output, 1);
        });
        x = residual(residuals[2], x, norm_first, x => feedForward(feed_forward, x, 1));
      }
      return { logits: linear(this.output, this.decoderNorm ? layerNorm(this.decoderNorm, x) : x, 1), attention };
    };
  }

  // Greedy decoding, one `{token, attention}` at a time, including the end of the sentence.
  *translate(source, maxLength = Math.min(source.length + 50, this.config.max_length)) {
    const step = this.start(source);
    for (let token = this.config.bos_id, n = 0; n < maxLength && (n === 0 || token !== this.config.eos_id); n++) {
      const { logits, attention } = step(token);
      token = logits.reduce((best, value, i) => (value > logits[best] ? i : best), 0);
      yield { token, attention };
    }
  }
}

// -------------------------------------------------------------------------------------------- byte pairs (section 5.1)

const SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>"];
// The characters that Python treats as white space; `\s` differs.
const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const SPACES = new RegExp(`${SPACE}+`, "u");
const OUTER_SPACES = new RegExp(`^${SPACE}+|${SPACE}+$`, "gu");
const PIECES = { // a word with its leading space, digits, or other characters
  undefined: / ?[\p{L}\p{M}]+| ?\p{N}+| ?[^ \p{L}\p{M}\p{N}]+/gu,
  byte_pairs: / ?(?:(?!\p{sc=Han})[\p{L}\p{M}])+| ?(?:(?!\p{sc=Han})\p{N})+|\p{sc=Han}+| ?[^ \p{L}\p{M}\p{N}]+/gu,
  characters: / ?(?:(?!\p{sc=Han})[\p{L}\p{M}])+| ?(?:(?!\p{sc=Han})\p{N})+|\p{sc=Han}| ?[^ \p{L}\p{M}\p{N}]+/gu,
};
const SIGNS = "、。，！？；：（）《》〈〉「」『』【】〔〕";
const NEEDLESS_SPACE = new RegExp(
  `(?<=[\\p{sc=Han}${SIGNS}]) (?=[\\p{sc=Han}${SIGNS}])|(?<=[${SIGNS}]) | (?=[${SIGNS}])`, "gu");

function normalize(sentence) {
  return sentence.split(SPACES).filter(Boolean).join(" ").normalize("NFC").replace(NEEDLESS_SPACE, "");
}

class BytePairs {
  constructor({ tokens, merges, chinese, source, target }) {
    if (String(tokens?.slice(0, 4)) !== String(SPECIAL) || !Array.isArray(merges)) {
      throw new Error("tokenizer.json isn't one that this course saved.");
    }
    Object.assign(this, { tokens, chinese, source, target });
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left}\0${right}`, rank]));
    this.pieceIds = new Map(); // most words occur many times
  }

  encode(sentence) {
    let text = normalize(sentence);
    if (!(this.chinese && /^\p{sc=Han}/u.test(text))) text = ` ${text}`; // treat the first word like all others
    return this.pieces(text).flatMap(piece => this.encodePiece(piece));
  }

  // Text that no pattern matches becomes pieces, too.
  pieces(text) {
    const pieces = [];
    let end = 0;
    for (const match of text.matchAll(PIECES[this.chinese])) {
      if (match.index > end) pieces.push(text.slice(end, match.index));
      pieces.push(match[0]);
      end = match.index + match[0].length;
    }
    return end < text.length ? [...pieces, text.slice(end)] : pieces;
  }

  // Start with single characters, and repeatedly apply the possible merge that was learned first, until none is left.
  encodePiece(piece) {
    if (this.pieceIds.has(piece)) return this.pieceIds.get(piece);
    let symbols = [...piece].flatMap(character => (this.ids.has(character) ? [character] : this.bytes(character)));
    for (;;) {
      let best = -1, lowest = Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const rank = this.ranks.get(`${symbols[i]}\0${symbols[i + 1]}`);
        if (rank < lowest) [best, lowest] = [i, rank];
      }
      if (best < 0) break;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
    }
    const ids = symbols.map(symbol => this.ids.get(symbol));
    this.pieceIds.set(piece, ids);
    return ids;
  }

  // A character that isn't in the alphabet is encoded as its UTF-8 bytes.
  bytes(character) {
    const hexadecimal = byte => byte.toString(16).toUpperCase().padStart(2, "0");
    return [...new TextEncoder().encode(character)].map(byte => `<0x${hexadecimal(byte)}>`);
  }

  // The text of each id. For consecutive bytes, the first one gets the characters, and the others get nothing.
  texts(ids) {
    const texts = ids.map(id => (id > UNK ? this.tokens[id] : ""));
    const isByte = id => id > UNK && /^<0x..>$/.test(this.tokens[id]);
    for (let start = 0; start < ids.length; start++) {
      if (!isByte(ids[start])) continue;
      let end = start;
      while (end < ids.length && isByte(ids[end])) end++;
      const bytes = Uint8Array.from(ids.slice(start, end), id => parseInt(this.tokens[id].slice(3, 5), 16));
      texts.fill("", start, end);
      try {
        texts[start] = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      } catch {
        texts.fill("\ufffd", start, end);
      }
      start = end - 1;
    }
    return texts;
  }

  // Whether a token is just a byte of a character that the model has never seen.
  isForeign(id) {
    return id === UNK || /^<0x..>$/.test(this.tokens[id]);
  }
}

export class Tokenizer {
  // `state` is tokenizer.json. A joint tokenizer has one vocabulary for both languages; a separate tokenizer has two.
  constructor(state) {
    if (state.kind === "spacy") {
      throw new Error("This model's tokenizer is spaCy's, which doesn't run in a browser. " +
                      "Use a model that was trained with --tokenizer bpe.");
    }
    const sides = { bpe: [state, state], separate_bpe: [state.source_side, state.target_side] }[state.kind];
    if (!sides) throw new Error("tokenizer.json isn't one that this course saved.");
    [this.sourceSide, this.targetSide] = sides.map(side => new BytePairs(side));
    this.source = this.sourceSide.source;
    this.target = this.sourceSide.target;
  }

  encodeSource(sentence) {
    return [...this.sourceSide.encode(sentence), EOS];
  }

  decode(ids) {
    return this.targetSide.texts(ids.filter(id => id > UNK)).join("").replace(OUTER_SPACES, "");
  }
}

// --------------------------------------------------------------------------------------------------------------- files

// The tensors of a safetensors file by name, `{shape, data}` with `data` in single precision. The file consists of
// the length of its JSON header (8 bytes), the header, and the numbers.
export function readSafetensors(buffer) {
  let header, start;
  try {
    start = 8 + Number(new DataView(buffer).getBigUint64(0, true));
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  } catch {
    throw new Error("weights.safetensors is damaged or isn't a safetensors file.");
  }
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] = [] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const convert = FLOATS[dtype];
    if (!convert) throw new Error(`weights.safetensors has ${name} as ${dtype}, which this page can't read.`);
    if (start + to > buffer.byteLength) throw new Error("weights.safetensors is incomplete.");
    tensors[name] = { shape, data: convert(buffer.slice(start + from, start + to)) };
  }
  return tensors;
}

// The value of each of the 65,536 half-precision numbers: a sign, 5 exponent bits, and 10 fraction bits.
const HALVES = Float32Array.from({ length: 1 << 16 }, (_, half) => {
  const sign = half >> 15 ? -1 : 1, exponent = (half >> 10) & 31, fraction = (half & 1023) / 1024;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
});

const FLOATS = {
  F64: bytes => Float32Array.from(new Float64Array(bytes)),
  F32: bytes => new Float32Array(bytes),
  BF16: bytes => new Float32Array(Uint32Array.from(new Uint16Array(bytes), half => half << 16).buffer),
  F16: bytes => Float32Array.from(new Uint16Array(bytes), half => HALVES[half]),
};

// Load a model and its tokenizer from the three files in a folder: two as parsed JSON and one as an ArrayBuffer.
export function loadModel(config, tokenizerState, weights) {
  const tokenizer = new Tokenizer(tokenizerState);
  for (const side of ["source", "target"]) {
    const size = tokenizer[`${side}Side`].tokens.length, expected = config[`${side}_vocab`];
    if (size !== expected) {
      throw new Error(`tokenizer.json has ${size} ${side} tokens, but config.json says ${expected}. ` +
                      "Take both files from the same run.");
    }
  }
  return { model: new Transformer(config, readSafetensors(weights)), tokenizer };
}
