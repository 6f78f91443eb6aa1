// The page on which entries are compared: picks, their address, and what is shown of them. All
// numbers come from data/entries/; a pair in the other order is the stored one with other signs.
(function () {
  "use strict";
  const crlbench = window.crlbench;
  const { boards, entries, unequal } = crlbench.compare;
  const known = new Map(entries.map((entry) => [entry.key, entry]));
  const LETTERS = "abcdef";
  const PHONE = window.matchMedia("(max-width: 44rem)").matches;
  const AXES = [
    ["efficiency", "Sample efficiency", "Λ"],
    ["stability", "Stability", "Stab"],
    ["generalization", "Generalization", "Gen"],
  ];
  /** The symbol of an axis on the board of some entries: under protocol CRL-2 it is stated. */
  const signOf = (sides, axis, sign) => sides[0].axes[axis].sign || sign;
  const { number, places, span } = crlbench;
  const { SIGNS, grouped, name, tasksOf } = crlbench.words;
  const form = document.querySelector("[data-picker]");
  const slots = form.querySelector("[data-slots]");
  const add = form.querySelector("[data-add]");
  const over = form.querySelector("[data-x]");
  const message = form.querySelector("[data-message]");
  const result = document.querySelector("[data-result]");
  let shown = 0;
  let compared = [];

  // Small things ---------------------------------------------------------------------------------

  function element(tag, content, attributes) {
    const made = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...[content === undefined ? [] : content].flat());
    return made;
  }

  function fragment(...content) {
    const made = document.createDocumentFragment();
    made.append(...content);
    return made;
  }

  // The address ----------------------------------------------------------------------------------

  function read() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const picks = [...LETTERS].map((letter) => parameters.get(letter)).filter(Boolean);
    const x = parameters.get("x");
    return { picks, x: [...over.options].some((option) => option.value === x) ? x : "completions" };
  }

  function write() {
    const part = (text) => encodeURIComponent(text).replace(/%2F/g, "/").replace(/%40/g, "@");
    const parts = picked().map((key, i) => `${LETTERS[i]}=${part(key)}`);
    if (over.value !== "completions") parts.push(`x=${over.value}`);
    const address = parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
    history.replaceState(null, "", address);
  }

  function restore() {
    const { picks, x } = read();
    over.value = x;
    slots.replaceChildren();
    for (let i = 0; i < Math.max(2, picks.length); i++) slot(known.has(picks[i]) ? picks[i] : "");
    const unknown = picks.filter((key) => !known.has(key));
    show(unknown.length ? `Not on this site: ${unknown.join(", ")}.` : "");
  }

  // Picking --------------------------------------------------------------------------------------

  function picked() {
    return [...slots.querySelectorAll("select")].map((one) => one.value).filter(Boolean);
  }

  function slot(key) {
    const select = element("select", element("option", "choose an entry", { value: "" }));
    let group = null;
    entries.forEach((entry) => {
      const label = `${boards[entry.board].title}, ${entry.recipe} (${boards[entry.board].fingerprint})`;
      if (!group || group.label !== label) {
        group = element("optgroup", [], { label });
        select.append(group);
      }
      group.append(element("option", `${entry.display_name}, ${entry.recipe}`, { value: entry.key }));
    });
    select.value = key;
    const letter = element("b", "");
    const row = element("div", element("label", [letter, select]), { class: "slot" });
    const remove = element("button", "Remove", { type: "button", class: "quiet" });
    remove.addEventListener("click", () => {
      row.remove();
      changed();
      add.focus();
    });
    row.append(remove);
    slots.append(row);
    letters();
    return select;
  }

  function letters() {
    const rows = [...slots.children];
    rows.forEach((row, i) => {
      row.querySelector("b").textContent = LETTERS[i].toUpperCase();
      row.querySelector("select").setAttribute("aria-label", `Entry ${LETTERS[i].toUpperCase()}`);
      row.querySelector("button").hidden = rows.length <= 2;
      row
        .querySelector("button")
        .setAttribute("aria-label", `Remove entry ${LETTERS[i].toUpperCase()}`);
    });
    add.hidden = rows.length >= LETTERS.length;
  }

  function changed() {
    letters();
    write();
    show("");
  }

  // Showing --------------------------------------------------------------------------------------

  async function show(before) {
    shown += 1;
    const own = shown;
    const picks = picked();
    const say = (text) => (message.textContent = [before, text].filter(Boolean).join(" "));
    result.replaceChildren();
    delete result.dataset.state;
    if (picks.length < 2) {
      say("Pick two entries or more.");
      return;
    }
    if (new Set(picks).size < picks.length) {
      say("An entry is picked twice; it has no difference from itself.");
      return;
    }
    const sides = picks.map((key, i) => ({
      ...known.get(key),
      letter: LETTERS[i].toUpperCase(),
      i,
    }));
    label(sides);
    const others = sides.filter((side) => side.board !== sides[0].board);
    if (others.length) {
      say("These entries are not comparable: they were made under different conditions.");
      others.forEach((side) => result.append(refusal(sides[0], side)));
      result.dataset.state = "refused";
      return;
    }
    say("Loading …");
    try {
      crlbench.entries = crlbench.entries || {};
      const missing = sides.filter((side) => !crlbench.entries[side.key]);
      await Promise.all(missing.map((side) => crlbench.load(side.data)));
    } catch (error) {
      say(`${error.message}.`);
      return;
    }
    if (own !== shown) return;
    sides.forEach((side) => Object.assign(side, crlbench.entries[side.key]));
    say(`${sides.length} entries of ${boards[sides[0].board].title}.`);
    result.append(...opening(sides), ...reach(sides), learning(sides), verdicts(sides), arrivals(sides), headlines(sides));
    compared = sides;
    draw();
    result.dataset.state = "compared";
  }

  /** Names of entries: the model, with its recipe or its revision where these set them apart. */
  function label(sides) {
    const alike = new Set(sides.map((side) => side.recipe)).size === 1;
    const short = (side) => (alike ? side.display_name : `${side.display_name}, ${side.recipe}`);
    const count = (text) => sides.filter((side) => short(side) === text).length;
    sides.forEach((side) => (side.label = count(short(side)) > 1 ? side.name : short(side)));
  }

  /** Only what depends on the axis: what was recomputed stays. */
  function turn() {
    write();
    if (result.dataset.state !== "compared") return;
    renew("learning", learning(compared));
    renew("thresholds", arrivals(compared));
    draw();
  }

  /** A part of the result; on a phone the reader opens it. */
  function section(id, title, ...content) {
    const heading = element("h2", title, { id });
    if (!PHONE) return element("section", [heading, ...content], { "aria-labelledby": id });
    const parts = [element("summary", heading), element("div", content)];
    return element("section", element("details", parts, { class: "part" }), { "aria-labelledby": id });
  }

  /** Puts a part in place of the one before it, as open as that one. */
  function renew(id, made) {
    const before = result.querySelector(`#${id}`).closest("section");
    const [now, then] = [made, before].map((one) => one.querySelector("details.part"));
    if (now) now.open = then.open;
    before.replaceWith(made);
  }

  function refusal(first, other) {
    const { count, leaves } = differing(first.board, other.board);
    const text = (value) => (value === null ? "(absent)" : JSON.stringify(value));
    const rows = leaves.map(([leaf, ...values]) => [leaf, ...values.map(text)]);
    const title = `${name(first)} and ${name(other)}: ${count} conditions differ`;
    const columns = [
      "Condition",
      ...[first, other].map(name),
    ];
    const prints = [first, other].map((side) => boards[side.board].fingerprint);
    const parts = [
      element(
        "p",
        `Fingerprints ${prints.join(" and ")}: a difference could come from the conditions.`,
      ),
      crlbench.table(title, columns, rows),
    ];
    if (count > rows.length) {
      parts.push(element("p", `${count - rows.length} more differ.`, { class: "calm" }));
    }
    return section(`refused-${other.letter}`, title, ...parts);
  }

  /** The conditions in which two boards differ, which are stored for one order of them. */
  function differing(first, other) {
    const stored = (a, b) => (unequal[a] || {})[b];
    if (stored(first, other)) return stored(first, other);
    const { count, leaves } = stored(other, first) || { count: 0, leaves: [] };
    return { count, leaves: leaves.map(([leaf, a, b]) => [leaf, b, a]) };
  }

  function headlines(sides) {
    const rows = sides.map((side) => [
      element("a", name(side), { href: side.page }),
      ...AXES.map(([axis]) => {
        const score = side.axes[axis];
        return score.value === null
          ? element("span", "–", { title: score.reason })
          : fragment(`${number(score.value, places(score.interval))} `, element("span", span(score.interval), { class: "soft" }));
      }),
      String(side.axes.efficiency.n),
    ]);
    const columns = ["Entry", ...AXES.map(([axis, title, sign]) => `${title} ${signOf(sides, axis, sign)} [95 %]`), "Seeds"];
    const panels = sides.filter((side) => side.items).map(recomputation);
    const about = element(
      "p",
      "Λ of every entry can be computed again here, from the stored score of every completion of its runs.",
      { class: "note" },
    );
    const made = section(
      "headlines",
      "The entries",
      crlbench.table("Headlines", columns, rows),
      element("h3", "Check the numbers"),
      about,
      ...panels,
    );
    crlbench.recompute(made);
    return made;
  }

  /** As the macro of recompute.html.j2 writes it. */
  function recomputation(side) {
    const score = side.lam || side.axes.efficiency; // over all items, whatever ranks
    const panel = element("div", [], { class: "recompute" });
    Object.assign(panel.dataset, { recompute: side.items, key: side.key, value: score.value });
    if (score.interval) panel.dataset.interval = score.interval.join(" ");
    const bar = element("progress", [], {
      max: 1,
      value: 0,
      "aria-label": `Recomputing Λ of ${name(side)}`,
    });
    bar.hidden = true;
    panel.append(
      element("button", `Recompute Λ of ${name(side)} on this machine`, {
        type: "button",
        class: "quiet",
      }),
      bar,
      element("output", [], { "aria-live": "polite" }),
    );
    return panel;
  }

  // Verdicts -------------------------------------------------------------------------------------

  /** What two entries are to each other, as `crlbench compare` begins; what more are, a matrix. */
  function opening(sides) {
    if (sides.length > 2) return [matrices(sides)];
    const [first, second] = sides;
    const found = AXES.map(([axis, title]) => [difference(first, second, axis), title.toLowerCase()]);
    if (found.some(([pair]) => !pair)) return [];
    const clauses = found.map(([{ effect }, title]) => {
      if (!effect) return `no number on ${title}`;
      const value = number(effect.value, places(effect.interval), true);
      return effect.call === "preview" ? `${value} on ${title}` : `${effect.call} on ${title} (${value})`;
    });
    const preview = found.some(([{ effect }]) => effect && effect.call === "preview");
    const begin = preview
      ? `A preview, not a verdict. ${name(second)} minus ${name(first)}`
      : `${name(second)} against ${name(first)}`;
    const text = `${begin}: ${clauses.join("; ")}.`;
    return [element("p", text, { class: "lead", "data-opening": "" })];
  }

  /** That a verdict on checkpoints says nothing of their designs, where there are several of each. */
  function reach(sides) {
    const { designs } = sides.find((side) => side.designs) || {};
    if (!designs) return [];
    const link = element("a", "Designs compared over all their checkpoints", { href: designs });
    const text = "Each entry is one pretraining, so a verdict says nothing of its design. ";
    return [element("p", [text, link, "."], { class: "note", "data-reach": "" })];
  }

  /** Every entry against every other: a row minus a column. */
  function matrices(sides) {
    const columns = ["Row against column", ...sides.map(name)];
    const tables = AXES.map(([axis, title, sign]) => {
      const rows = sides.map((row) => [
        name(row),
        ...sides.map((column) => {
          if (row === column) return "–";
          const pair = difference(column, row, axis);
          if (!pair || !pair.effect) return "no number";
          return fragment(call(pair.effect), ` ${number(pair.effect.value, places(pair.effect.interval), true)}`);
        }),
      ]);
      const caption = `${title} ${signOf(sides, axis, sign)}: row minus column`;
      return crlbench.table(caption, columns, rows);
    });
    const made = section("matrix", "Who is better", ...tables);
    tables.forEach((table, i) => (table.dataset.matrix = AXES[i][0]));
    if (PHONE) made.firstElementChild.open = true;
    return made;
  }

  function pairs(sides) {
    return sides.flatMap((second, j) => sides.slice(0, j).map((first) => [first, second]));
  }

  /** The second minus the first on an axis; null where the build did not compare them. */
  function difference(first, second, axis) {
    const forward = first.pairs[second.name];
    if (forward) return forward[axis];
    const backward = second.pairs[first.name];
    return backward ? reversed(backward[axis]) : null;
  }

  function reversed(found) {
    const flip = (effect) =>
      effect && {
        ...effect,
        value: -effect.value,
        interval: flipped(effect.interval),
        inner: flipped(effect.inner),
        wider: flipped(effect.wider),
        call: { better: "worse", worse: "better" }[effect.call] || effect.call,
      };
    const tasks = Object.entries(found.tasks).map(([task, effect]) => [task, flip(effect)]);
    return { ...found, effect: flip(found.effect), tasks: Object.fromEntries(tasks) };
  }

  function flipped(ends) {
    return ends ? [-ends[1], -ends[0]] : ends;
  }

  function call(effect) {
    const sign = element("span", SIGNS[effect.call], { "aria-hidden": "true" });
    return element("span", [sign, ` ${effect.call}`], { class: `call ${effect.call}` });
  }

  const WIDER = "95 % with other tasks";
  const FALSE = "q";
  const RATE = 0.05;
  const COLUMNS = ["Pair", "Verdict", FALSE, "Difference", "95 %", "90 %", WIDER, "r", "Seeds", "To settle"];

  /** Benjamini and Yekutieli's q-values of p-values, as crlbench.stats.false_discovery has them. */
  function adjusted(p) {
    const order = p.map((_, i) => i).sort((a, b) => p[a] - p[b]);
    const harmonic = order.reduce((sum, _, i) => sum + 1 / (i + 1), 0);
    const q = [];
    let least = 1;
    for (let place = order.length; place > 0; place--) {
      least = Math.min(least, (p[order[place - 1]] * order.length * harmonic) / place);
      q[order[place - 1]] = least;
    }
    return q;
  }

  /** The q of every verdict that the page shows, and what stays in words. All pairs and axes are one
      family, and each has two hypotheses. Nothing under protocol CRL-1, whose pairs have no p. */
  function falseDiscovery(sides) {
    const shown = pairs(sides)
      .flatMap(([first, second]) =>
        AXES.map(([axis]) => [pairKey(first, second, axis), difference(first, second, axis)]),
      )
      .filter(([, pair]) => pair && pair.p);
    const q = adjusted(shown.flatMap(([, pair]) => pair.p));
    const rates = new Map();
    shown.forEach(([key, { effect }], i) => {
      if (effect.call === "equivalent") rates.set(key, q[2 * i + 1]);
      if (effect.call === "better" || effect.call === "worse") rates.set(key, q[2 * i]);
    });
    const stay = [...rates.values()].filter((rate) => rate <= RATE).length;
    const words = rates.size
      ? `q: the false-discovery rate at which a verdict still stays (Benjamini and Yekutieli, ${q.length} tests on this page). ${stay} of ${rates.size} verdicts stay at ${100 * RATE} %.`
      : "No pair has a verdict, so none can be a false discovery.";
    return { rates, words: shown.length ? words : "" };
  }

  const pairKey = (first, second, axis) => [first.key, second.key, axis].join(" ");

  function cells(label, effect, q) {
    return [
      label,
      call(effect),
      q === undefined ? "–" : q < 0.001 ? "< 0.001" : number(q),
      number(effect.value, places(effect.interval), true),
      span(effect.interval, true),
      span(effect.inner, true),
      span(effect.wider, true),
      number(effect.r, 2),
      String(effect.n),
      effect.more === null ? "–" : effect.more >= 200 ? "> 200 seeds" : `~${effect.more} seeds`,
    ];
  }

  /** Columns and rows of effects, without some columns. */
  function without(names, rows) {
    const own = (_, i) => !names.includes(COLUMNS[i]);
    return [COLUMNS.filter(own), rows.map((row) => row.filter(own))];
  }

  function verdicts(sides) {
    const margin = boards[sides[0].board].margin;
    const about = element(
      "p",
      `Each row is the first named minus the second, on the seeds both ran. Do not subtract the scores below; they may use different seeds. Equivalent: the 90 % interval lies inside ±${margin}, the shaded band. Else better or worse, where the 95 % interval leaves out 0; else undecided. r is the correlation of the paired seeds; to settle: how many more would likely decide it.`,
      { class: "note" },
    );
    const line = falseDiscovery(sides);
    if (line.words) about.append(` ${line.words}`);
    const all = pairs(sides);
    const absent = all.filter(([first, second]) => !difference(first, second, AXES[0][0]));
    const model = (side) => side.name.slice(0, -side.recipe.length - 1);
    const notices = absent.map(([first, second]) => {
      const both = first.recipe !== second.recipe && model(first) !== model(second);
      const why = both
        ? "Both the model and the recipe differ, so that a difference would belong to neither, and this build did not compare them."
        : "This build did not compare them, as the board has too many pairs.";
      const hint = [`${name(second)} against ${name(first)}: ${why} On your machine: `];
      hint.push(element("code", `crlbench compare ${first.name} ${second.name}`));
      return element("p", hint, { class: "calm", "data-absent": "" });
    });
    const parts =
      absent.length < all.length
        ? AXES.map(([axis, title, sign]) => axisVerdicts(sides, axis, title, signOf(sides, axis, sign), margin, line))
        : [];
    return section("verdicts", "Verdicts", about, ...notices, ...parts);
  }

  function axisVerdicts(sides, axis, title, sign, margin, line) {
    const found = pairs(sides).map(([first, second]) => ({
      label: `${name(second)} against ${name(first)}`,
      short: `${name(second)} − ${name(first)}`,
      pair: difference(first, second, axis),
      q: line.rates.get(pairKey(first, second, axis)),
    }));
    const made = element("section", element("h3", `${title} ${sign}`, { id: `axis-${axis}` }), {
      "aria-labelledby": `axis-${axis}`,
      "data-axis": axis,
    });
    found.forEach(({ label, pair }) => {
      if (pair && !pair.effect) {
        made.append(element("p", `${label}: ${pair.reason}`, { class: "calm" }));
      }
    });
    const effects = found.filter(({ pair }) => pair && pair.effect);
    effects.forEach(({ label, pair }) => {
      if (pair.left_out.length) {
        const tasks = pair.left_out.join(", ");
        const text = `${label}: without ${tasks}, where one of the two has no number.`;
        made.append(element("p", text, { class: "calm", "data-left-out": tasks }));
      }
    });
    if (!effects.length) return made;
    const rows = effects.map(({ label, pair, q }) => cells(label, pair.effect, q));
    const byTask = effects.flatMap(({ label, pair }) =>
      Object.entries(pair.tasks).map(([task, effect]) =>
        cells(`${label}, ${task}`, effect),
      ),
    );
    const figure = element("figure", [], { "data-figure": axis });
    charts.push([figure, crlbench.draw.effects(effects, title, sign, margin)]);
    const details = element("details", [
      element("summary", "Task by task"),
      crlbench.table(`${title}, task by task`, ...without([WIDER, FALSE], byTask)),
    ]);
    const shown = without(line.words ? [] : [FALSE], rows);
    made.append(figure, crlbench.table(`${title}: paired differences`, ...shown), details);
    return made;
  }

  let charts = [];

  /** Figures are drawn when they stand in the page and have a width. */
  function draw() {
    charts.forEach(([figure, chart]) => crlbench.chart(figure, chart));
    charts = [];
  }

  // Learning -------------------------------------------------------------------------------------

  function learning(sides) {
    const words = over.selectedOptions[0].textContent;
    const areas = element("figure", [], { "data-figure": "areas" });
    const curves = element("figure", [], { "data-figure": "curves" });
    charts.push(
      [areas, crlbench.draw.areas(sides)],
      [curves, crlbench.draw.curves(sides, over.value, words)],
    );
    const parts = [
      element("h3", "E = H + L"),
      element(
        "p",
        "The area under the curve: what the model brought along (H) and what learning added or took (L).",
        { class: "note" },
      ),
      areas,
      element("h3", `Learning curves over ${words}`),
      element(
        "p",
        "u: 0 at the floor of the task, 1 at its ceiling. Thin: every seed. Thick: their mean.",
        { class: "note" },
      ),
    ];
    if (over.value === "tokens") {
      parts.push(
        element(
          "p",
          "A token of one vocabulary is not a token of another: between families read bytes.",
          { class: "calm warn" },
        ),
      );
    }
    return section("learning", "Learning", ...parts, curves);
  }

  function arrivals(sides) {
    const words = over.selectedOptions[0].textContent;
    const rows = tasksOf(sides).flatMap((task) => {
      const some = sides.find((side) => side.tasks[task]);
      return some.tasks[task].arrivals[over.value].map(({ tau }, k) => [
        `${task}, u ≥ ${tau}`,
        ...sides.map((side) => {
          if (!side.tasks[task]) return "–";
          const { arrived, n, mean: spent } = side.tasks[task].arrivals[over.value][k];
          return `${arrived}/${n} · ${grouped(spent)}`;
        }),
      ]);
    });
    const about = element(
      "p",
      `How many seeds reach a threshold twice in a row, and the mean ${words} by then; a seed that never does counts with all that it spent.`,
      { class: "note" },
    );
    const columns = ["Task and threshold", ...sides.map(name)];
    return section(
      "thresholds",
      "Samples to threshold",
      about,
      crlbench.table(`Samples to threshold, in ${words}`, columns, rows),
    );
  }

  // ----------------------------------------------------------------------------------------------

  form.addEventListener("submit", (event) => event.preventDefault());
  slots.addEventListener("change", changed);
  over.addEventListener("change", turn);
  add.addEventListener("click", () => {
    slot("").focus();
    changed();
  });
  form.querySelector("[data-copy]").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      message.textContent = "Link copied.";
    } catch (error) {
      message.textContent = "The address bar has the link.";
    }
  });
  window.addEventListener("hashchange", restore);
  restore();
})();
