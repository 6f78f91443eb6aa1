// Λ and its 95 % interval again, on the reader's machine, from every stored answer: the formulas of
// the method page and the bootstrap of crlbench.stats, with the same generator and the same draws.
(function () {
  "use strict";
  const crlbench = (window.crlbench = window.crlbench || {});
  const TOLERANCE = 1e-6;
  const PAUSE_AFTER_MS = 40;
  const TWO_32 = 4294967296;
  const MOST_DF = 1e6;
  const MOST_TERMS = 10000;

  // PCG64, XSL RR 128/64, as numpy has it; its multiplier in 16-bit parts, the lowest first.
  const MULTIPLIER = [0xf645, 0x9fcc, 0xdf64, 0x4385, 0x5da4, 0x1fc6, 0xed05, 0x2360];

  class Generator {
    /** @param stream {state, inc}: 32 hexadecimal digits each. */
    constructor(stream) {
      this.state = limbs(stream.state);
      this.inc = limbs(stream.inc);
      this.spare = -1;
    }

    /** Fills an array with whole numbers below a bound, as Generator.integers does (Lemire). */
    integers(out, bound) {
      if (bound === 1) {
        out.fill(0);
        return;
      }
      const [m0, m1, m2, m3, m4, m5, m6, m7] = MULTIPLIER;
      const [i0, i1, i2, i3] = this.inc;
      let [a, b, c, d] = this.state;
      let spare = this.spare;
      const refused = (TWO_32 - bound) % bound;
      for (let at = 0; at < out.length;) {
        let word;
        if (spare >= 0) {
          word = spare;
          spare = -1;
        } else {
          // state * multiplier + inc: 32-bit parts times 16-bit parts, whole numbers below 2^53.
          let carry = a * m0 + i0;
          let high = Math.floor(carry / 65536);
          const r0 = carry - high * 65536;
          carry = high + a * m1;
          high = Math.floor(carry / 65536);
          const r1 = carry - high * 65536;
          carry = high + a * m2 + b * m0 + i1;
          high = Math.floor(carry / 65536);
          const r2 = carry - high * 65536;
          carry = high + a * m3 + b * m1;
          high = Math.floor(carry / 65536);
          const r3 = carry - high * 65536;
          carry = high + a * m4 + b * m2 + c * m0 + i2;
          high = Math.floor(carry / 65536);
          const r4 = carry - high * 65536;
          carry = high + a * m5 + b * m3 + c * m1;
          high = Math.floor(carry / 65536);
          const r5 = carry - high * 65536;
          carry = high + a * m6 + b * m4 + c * m2 + d * m0 + i3;
          high = Math.floor(carry / 65536);
          const r6 = carry - high * 65536;
          carry = high + a * m7 + b * m5 + c * m3 + d * m1;
          const r7 = carry - Math.floor(carry / 65536) * 65536;
          a = r1 * 65536 + r0;
          b = r3 * 65536 + r2;
          c = r5 * 65536 + r4;
          d = r7 * 65536 + r6;
          const low = a ^ c;
          const top = b ^ d;
          const turn = d >>> 26;
          const near = turn & 32 ? top : low;
          const far = turn & 32 ? low : top;
          const by = turn & 31;
          word = (by ? (near >>> by) | (far << (32 - by)) : near) >>> 0;
          spare = (by ? (far >>> by) | (near << (32 - by)) : far) >>> 0;
        }
        const product = word * bound;
        const value = Math.floor(product / TWO_32);
        if (product - value * TWO_32 >= refused) {
          out[at] = value;
          at += 1;
        }
      }
      this.state = [a, b, c, d];
      this.spare = spare;
    }
  }

  /** 128 bits as four numbers of 32, the lowest first. */
  function limbs(hex) {
    return [24, 16, 8, 0].map((start) => parseInt(hex.slice(start, start + 8), 16));
  }

  /** Scores of a stored vector: packed bits, or floats. */
  function scores(text, kind, length) {
    const raw = atob(text);
    const bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
    if (kind === "bits") {
      if (bytes.length !== Math.ceil(length / 8)) throw new Error("a vector is cut short");
      return Float64Array.from({ length }, (_, i) => (bytes[i >> 3] >> (7 - (i & 7))) & 1);
    }
    const floats = new (kind === "f32" ? Float32Array : Float64Array)(bytes.buffer);
    if (floats.length !== length) throw new Error("a vector is cut short");
    return Float64Array.from(floats);
  }

  function mean(values) {
    let total = 0;
    for (const value of values) total += value;
    return total / values.length;
  }

  function variance(values) {
    const middle = mean(values);
    let total = 0;
    for (const value of values) total += (value - middle) * (value - middle);
    return total / values.length;
  }

  /** What each item adds to L and to H in one run, in u, and Λ of the run. */
  function measured(run, task) {
    const unit = (score) => (score - task.floor) / (task.ceiling - task.floor);
    const items = task.items;
    const rows = scores(run.curve, task.kind, run.measured * items);
    const draws = scores(run.start, task.kind, run.draws * items);
    const weights = new Float64Array(run.x.length);
    for (let t = 0; t + 1 < run.x.length; t++) {
      const step = (run.x[t + 1] - run.x[t]) / (2 * task.budget);
      weights[t] += step;
      weights[t + 1] += step;
    }
    const head = new Float64Array(items);
    for (let d = 0; d < draws.length; d++) head[d % items] += draws[d] / run.draws;
    const learned = new Float64Array(items);
    for (let t = 0; t < run.measured; t++) {
      for (let i = 0; i < items; i++) learned[i] += weights[t] * unit(rows[t * items + i]);
    }
    let after = 0;
    for (let t = run.measured; t < run.x.length; t++) after += weights[t];
    const fallen = unit(mean(head)) < 0;
    for (let i = 0; i < items; i++) {
      head[i] = unit(head[i]);
      learned[i] += (fallen ? after * head[i] : 0) - head[i];
    }
    return { head, learned, lam: captured(mean(learned), mean(head)) };
  }

  /** A change in u as a share of the head-room, which counts as 0.2 at least. */
  function captured(change, start) {
    return change / Math.max(1 - start, 0.2);
  }

  /** Mean without the lowest and the highest quarter, of n values of which a copy is sorted. */
  function trimmed(values, n, spare) {
    for (let i = 0; i < n; i++) {
      const value = values[i];
      let j = i;
      for (; j > 0 && spare[j - 1] > value; j--) spare[j] = spare[j - 1];
      spare[j] = value;
    }
    const cut = Math.floor(n / 4);
    let total = 0;
    for (let i = cut; i < n - cut; i++) total += spare[i];
    return total / (n - 2 * cut);
  }

  /** Replicates of Λ of one task: seeds and items drawn, seeds alone, items alone. */
  function* replicates(task, count) {
    const runs = task.runs.map((run) => measured(run, task));
    const n = runs.length;
    const items = task.items;
    const same = runs.every((run) => run.head.every((value, i) => value === runs[0].head[i]));
    const heads = same ? 1 : n;
    const width = n + heads;
    const columns = new Float64Array(items * width);
    for (let i = 0; i < items; i++) {
      for (let s = 0; s < n; s++) columns[i * width + s] = runs[s].learned[i] / items;
      for (let s = 0; s < heads; s++) columns[i * width + n + s] = runs[s].head[i] / items;
    }
    const lams = Float64Array.from(runs, (run) => run.lam);
    const spare = new Float64Array(n);
    const found = { n, location: trimmed(lams, n, spare) };
    for (const name of ["drawn", "seeds", "items"]) found[name] = new Float64Array(count);

    const ofItems = new Generator(task.streams.items);
    const ofSeeds = new Generator(task.streams.seeds);
    const drawnItems = new Uint32Array(items);
    const drawnSeeds = new Uint32Array(n);
    const times = new Uint32Array(items);
    const totals = new Float64Array(width);
    const own = new Float64Array(n);
    const picked = new Float64Array(n);
    for (let r = 0; r < count; r++) {
      ofItems.integers(drawnItems, items);
      ofSeeds.integers(drawnSeeds, n);
      times.fill(0);
      for (let i = 0; i < items; i++) times[drawnItems[i]] += 1;
      totals.fill(0);
      for (let i = 0; i < items; i++) {
        const weight = times[i];
        if (weight === 0) continue;
        const base = i * width;
        for (let k = 0; k < width; k++) totals[k] += weight * columns[base + k];
      }
      for (let s = 0; s < n; s++) own[s] = captured(totals[s], totals[same ? n : n + s]);
      found.items[r] = trimmed(own, n, spare);
      for (let s = 0; s < n; s++) picked[s] = own[drawnSeeds[s]];
      found.drawn[r] = trimmed(picked, n, spare);
      for (let s = 0; s < n; s++) picked[s] = lams[drawnSeeds[s]];
      found.seeds[r] = trimmed(picked, n, spare);
      if (r % 100 === 99) yield (r + 1) / count;
    }
    return found;
  }

  /** Mean over tasks of one kind of replicates. */
  function overTasks(parts, name) {
    const whole = new Float64Array(parts[0][name].length);
    for (const part of parts) {
      for (let r = 0; r < whole.length; r++) whole[r] += part[name][r] / parts.length;
    }
    return whole;
  }

  /** Variance of the mean over tasks as drawn, of seeds with the noise of answers, and of items. */
  function varianceParts(parts) {
    const [total, seeds, both] = ["drawn", "seeds", "items"].map((name) => variance(overTasks(parts, name)));
    const noise = Math.max(0, total - seeds - both);
    return { total, seeds, items: Math.max(0, both - noise) };
  }

  /** Replicates moved towards the value until the noise of single completions counts once. */
  function noiseOnce(value, parts) {
    const whole = overTasks(parts, "drawn");
    const { total, seeds, items } = varianceParts(parts);
    if (!(total > 0)) return whole;
    const scale = Math.sqrt(Math.min(1, (seeds + items) / total));
    return whole.map((replicate) => value + scale * (replicate - value));
  }

  /** Student's interval, from the variances of seeds and items (Welch and Satterthwaite). */
  function students(value, parts, level) {
    const { items } = varianceParts(parts);
    let total = items;
    let wobble = 0;
    for (const part of parts) {
      const share = (variance(part.seeds) * part.n) / (part.n - 1) / parts.length ** 2;
      total += share;
      wobble += share ** 2 / (part.n - 1);
    }
    const df = wobble > 0 ? Math.min(MOST_DF, total ** 2 / wobble) : MOST_DF;
    const half = studentQuantile(0.5 + level / 2, df) * Math.sqrt(total);
    return [value - half, value + half];
  }

  /** The expanded percentile interval (Hesterberg 2015). */
  function expanded(whole, sizes, level) {
    const least = Math.min(...sizes);
    const df = sizes.reduce((total, n) => total + n - 1, 0);
    const t = studentQuantile(0.5 + level / 2, df);
    const tail = normalTail(t * Math.sqrt(least / (least - 1)));
    const ordered = whole.slice().sort();
    return [tail, 1 - tail].map((share) => {
      const position = share * (ordered.length - 1);
      const below = Math.floor(position);
      const above = Math.min(below + 1, ordered.length - 1);
      return ordered[below] + (position - below) * (ordered[above] - ordered[below]);
    });
  }

  /** Probability that a standard normal number is above x >= 0 (Marsaglia 2004). */
  function normalTail(x) {
    let term = x;
    let total = x;
    for (let k = 3; total !== total + term; k += 2) {
      term *= (x * x) / k;
      total += term;
    }
    return 0.5 - (total * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
  }

  function studentQuantile(p, df) {
    let low = 0;
    let high = 1;
    while (studentCdf(high, df) < p) high *= 2;
    for (let step = 0; step < 200; step++) {
      const middle = 0.5 * (low + high);
      if (studentCdf(middle, df) < p) low = middle;
      else high = middle;
    }
    return 0.5 * (low + high);
  }

  /** Of t >= 0, for whole and broken degrees of freedom (Abramowitz & Stegun 26.7.1). */
  function studentCdf(t, df) {
    return 1 - 0.5 * incompleteBeta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5);
  }

  /** The regularised incomplete beta function at x, with y = 1 - x (DLMF 8.17.22). */
  function incompleteBeta(x, y, a, b) {
    if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(y, x, b, a);
    const size = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(y);
    return Math.exp(size) / a / continuedFraction(x, a, b);
  }

  /** 1 + d1 / (1 + d2 / (1 + ...)), by the method of Lentz. */
  function continuedFraction(x, a, b) {
    let value = 1;
    let above = 1;
    let below = 0;
    for (let j = 1; j < MOST_TERMS; j++) {
      const m = j >> 1;
      const d = j % 2
        ? (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
        : (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      below = 1 / (1 + d * below);
      above = 1 + d / above;
      value *= above * below;
      if (Math.abs(above * below - 1) < 1e-15) break;
    }
    return value;
  }

  /** Of x > 0, by Stirling's series above 10 and the recurrence below. */
  function logGamma(x) {
    let shift = 0;
    let z = x;
    for (; z < 10; z++) shift += Math.log(z);
    const square = z * z;
    const series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square) / square) / square) / z;
    return (z - 0.5) * Math.log(z) - z + 0.5 * Math.log(2 * Math.PI) + series - shift;
  }

  /** Λ of an entry and its interval; yields the share that is done. */
  function* headline(data) {
    const parts = [];
    for (const task of data.tasks) {
      const steps = replicates(task, data.replicates);
      let step = steps.next();
      for (; !step.done; step = steps.next()) yield (parts.length + step.value) / data.tasks.length;
      parts.push(step.value);
    }
    const value = mean(parts.map((part) => part.location));
    const sizes = parts.map((part) => part.n);
    const enough = Math.min(...sizes) >= (sizes.length === 1 ? 5 : 3);
    const interval = () => data.rule === "variance"
      ? students(value, parts, data.level)
      : expanded(noiseOnce(value, parts), sizes, data.level);
    return { value, interval: enough ? interval() : null };
  }

  /** Runs a computation in turns with the page. */
  function inTurns(steps, progress) {
    return new Promise((resolve, reject) => {
      function turn() {
        const until = performance.now() + PAUSE_AFTER_MS;
        try {
          for (;;) {
            const step = steps.next();
            if (step.done) {
              resolve(step.value);
              return;
            }
            if (performance.now() > until) {
              progress(step.value);
              setTimeout(turn, 0);
              return;
            }
          }
        } catch (error) {
          reject(error);
        }
      }
      turn();
    });
  }

  /** Loads a data file by a script element: fetch() does not reach a disk. */
  crlbench.load =
    crlbench.load ||
    function (address) {
      return new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = address;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${address} cannot be loaded`));
        document.head.append(script);
      });
    };

  function words(found) {
    const value = `Λ = ${crlbench.number(found.value, crlbench.places(found.interval))}`;
    return found.interval ? `${value} ${crlbench.span(found.interval)}` : value;
  }

  /** Largest difference of two results; infinite where one has no interval. */
  function apart(a, b) {
    const all = (found) => [found.value, ...(found.interval || [])];
    const [left, right] = [all(a), all(b)];
    if (left.length !== right.length) return Infinity;
    return Math.max(...left.map((value, i) => Math.abs(value - right[i])));
  }

  function verdict(found, published) {
    const gap = apart(found, published);
    if (gap <= TOLERANCE) return "equal to six decimals";
    return Number.isFinite(gap) ? `NOT equal: apart by ${gap.toPrecision(2)}` : "NOT equal";
  }

  function amount(data) {
    const runs = data.tasks.flatMap((task) => task.runs.map((run) => [task, run]));
    const count = runs.reduce((n, [task, run]) => n + task.items * (run.measured + run.draws), 0);
    return `${runs.length} runs, ${count.toLocaleString("en")} stored scores`;
  }

  async function press(panel, button) {
    const bar = panel.querySelector("progress");
    const output = panel.querySelector("output");
    const numbers = (panel.dataset.interval || "").split(" ").filter(Boolean).map(Number);
    const published = {
      value: Number(panel.dataset.value),
      interval: numbers.length ? numbers : null,
    };
    button.disabled = true;
    bar.hidden = false;
    output.textContent = "";
    delete panel.dataset.outcome;
    try {
      const known = (crlbench.items = crlbench.items || {});
      const key = panel.dataset.key;
      if (!known[key]) await crlbench.load(panel.dataset.recompute);
      const began = performance.now();
      const found = await inTurns(headline(known[key]), (share) => (bar.value = share));
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      const outcome = verdict(found, published);
      panel.dataset.outcome = outcome.startsWith("equal") ? "equal" : "different";
      panel.dataset.found = JSON.stringify(found);
      output.textContent =
        `Recomputed here in ${seconds} s (${amount(known[key])}): ${words(found)}; ` +
        `published: ${words(published)} — ${outcome}.`;
    } catch (error) {
      panel.dataset.outcome = "failed";
      output.textContent = `Could not be recomputed: ${error.message}.`;
    }
    bar.hidden = true;
    button.disabled = false;
  }

  /** Makes the buttons of a part of the page work. */
  crlbench.recompute = function (scope) {
    scope.querySelectorAll("[data-recompute]").forEach((panel) => {
      const button = panel.querySelector("button");
      button.addEventListener("click", () => press(panel, button));
    });
  };
  crlbench.recompute(document);
})();
