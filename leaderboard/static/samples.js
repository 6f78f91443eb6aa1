// Every stored completion of an entry: what is picked, its address, and one page of it at a time.
// Texts are strangers': they reach the page as text alone.
(function () {
  "use strict";
  const crlbench = (window.crlbench = window.crlbench || {});
  const ROWS = 10;
  const CHARACTERS = 2000;
  const FIELDS = ["task", "run", "item", "before", "after", "show", "find"];
  const form = document.querySelector("[data-viewer]");
  const home = document.querySelector("[data-rows]");
  const list = home.querySelector("[data-samples]");
  const message = form.querySelector("[data-message]");
  const place = home.querySelector("[data-place]");
  const turner = home.querySelector("[data-turner]");
  const tasks = JSON.parse(form.dataset.viewer);
  const field = (name) => form.elements.namedItem(name);
  let page = 0;
  let asked = 0;

  // Small things ---------------------------------------------------------------------------------

  function element(tag, content, name) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...[content].flat());
    return made;
  }

  const grouped = (value) => value.toLocaleString("en");
  const right = (cell) => cell[0] >= 1;
  const taskNow = () => tasks.find((one) => one.task === field("task").value) || tasks[0];
  const runName = (run) => `${run.arm} ${run.seed}`;
  const runWords = (run) =>
    run.arm === "real" ? `seed ${run.seed}` : `${run.arm} control, seed ${run.seed}`;

  function offer(select, values, wanted) {
    select.replaceChildren();
    values.forEach(([value, label]) => {
      const option = element("option", label);
      option.value = value;
      select.append(option);
    });
    const known = values.some(([value]) => value === wanted);
    select.value = known ? wanted : values[0][0];
  }

  /** Loads a script of this site once. */
  const loading = new Map();
  function load(address) {
    if (!loading.has(address)) {
      loading.set(address, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = form.dataset.root + address;
        script.onload = resolve;
        script.onerror = () => {
          loading.delete(address);
          reject(new Error(`${address} cannot be loaded`));
        };
        document.head.append(script);
      }));
    }
    return loading.get(address);
  }

  // The address ----------------------------------------------------------------------------------

  function write() {
    const next = new URLSearchParams();
    FIELDS.forEach((name) => {
      if (field(name).value) next.set(name, field(name).value);
    });
    if (page) next.set("page", page + 1);
    history.replaceState(null, "", `#${next}`);
  }

  function restore() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    offer(field("task"), tasks.map((one) => [one.task, one.task]), wanted.get("task"));
    offerRuns(wanted.get("run"));
    ["before", "after", "show"].forEach((name) => {
      const given = wanted.get(name) || "";
      const options = [...field(name).options].map((option) => option.value);
      field(name).value = options.includes(given) ? given : "";
    });
    field("find").value = wanted.get("find") || "";
    page = Math.max(0, (parseInt(wanted.get("page"), 10) || 1) - 1);
    show(wanted.get("item"));
  }

  function offerRuns(wanted) {
    const runs = taskNow().runs.map((run) => [runName(run), runWords(run)]);
    offer(field("run"), [...runs, ["all", "all of them"]], wanted);
  }

  // What is picked -------------------------------------------------------------------------------

  /** Rows of some runs of a task: the run, the item, and a cell of score and text for each moment. */
  async function rowsOf(task, chosen) {
    const wanted = new Set(chosen.map((run) => task.runs.indexOf(run)));
    const parts = [...new Set(chosen.flatMap((run) => run.parts))].map((part) => task.files[part]);
    await Promise.all(parts.map(([, address]) => load(address)));
    return parts.flatMap(([name]) => {
      const { items, rows } = crlbench.samples[name];
      return rows
        .filter(([number]) => wanted.has(number))
        .map(([number, item, ...cells]) => {
          const [uid, prompt, answer] = items[item];
          return { run: task.runs[number], uid, prompt, answer, cells };
        });
    });
  }

  /** The cells at both ends of a row; a run that failed has no end. */
  function endsOf(row) {
    const last = row.cells.length - 1;
    return { before: row.cells[0], after: last > 0 ? row.cells[last] : null };
  }

  function passes(row) {
    const ends = endsOf(row);
    const verdicts = ["before", "after"].every((side) => {
      const wanted = field(side).value;
      return !wanted || (ends[side] && right(ends[side]) === (wanted === "right"));
    });
    const text = field("find").value.toLowerCase();
    const texts = [row.uid, row.prompt, row.answer, ...row.cells.map((cell) => (cell ? cell[1] : ""))];
    return verdicts && (!text || texts.some((one) => one.toLowerCase().includes(text)));
  }

  // Showing --------------------------------------------------------------------------------------

  async function show(item) {
    asked += 1;
    const own = asked;
    const task = taskNow();
    const chosen = task.runs.filter((run) => [runName(run), "all"].includes(field("run").value));
    let rows;
    try {
      rows = await rowsOf(task, chosen);
    } catch (error) {
      message.textContent = `Not shown: ${error.message}.`;
      return;
    }
    if (own !== asked) return;
    const uids = [...new Set(rows.map((row) => row.uid))];
    offer(field("item"), [["", "all items"], ...uids.map((uid) => [uid, uid])], item);
    const order = new Map(uids.map((uid, number) => [uid, number]));
    const found = rows
      .filter((row) => !field("item").value || row.uid === field("item").value)
      .filter(passes)
      .sort((a, b) => order.get(a.uid) - order.get(b.uid));
    const pages = Math.max(1, Math.ceil(found.length / ROWS));
    page = Math.min(page, pages - 1);
    message.textContent = tell(rows.length, found);
    const shown = found.slice(page * ROWS, (page + 1) * ROWS);
    list.replaceChildren(...shown.map((row) => draw(row)));
    turner.hidden = pages === 1;
    place.textContent = `Page ${page + 1} of ${pages}`;
    const [back, next] = turner.querySelectorAll("button");
    back.disabled = page === 0;
    next.disabled = page === pages - 1;
    home.hidden = found.length === 0;
    home.dataset.found = found.length;
  }

  function tell(all, found) {
    const rights = (side) =>
      found.filter((row) => endsOf(row)[side] && right(endsOf(row)[side])).length;
    const of = found.length === all ? "" : ` of ${grouped(all)}`;
    const words = `${grouped(found.length)}${of} prompt${all === 1 ? "" : "s"}`;
    if (!found.length) return `${words}.`;
    return `${words}: ${grouped(rights("before"))} right before training, ${grouped(rights("after"))} after.`;
  }

  function draw(row) {
    const ask = element("div", [element("span", "Prompt", "tag"), text(row.prompt)], "ask");
    ask.append(element("span", "Expected", "tag"), text(row.answer));
    const last = row.cells.length - 1;
    const chosen = field("show").value;
    const sides = row.cells.map((cell, number) => {
      const end = last > 0 && number === last;
      const hidden = (chosen === "before" && number > 0) || (chosen === "after" && !end);
      return cell && !hidden ? side(row, cell, number) : null;
    });
    if (last === 0 && chosen !== "before") {
      const why = row.run.arm === "real" ? "the run failed" : "the run is a control";
      sides.push(element("div", element("span", `The final model was not asked: ${why}`, "tag")));
    }
    const head = element("h3", `${row.uid}, ${runWords(row.run)}`, "mark");
    const made = element("div", [head, ask, ...sides.filter(Boolean)], "sample stored");
    return made;
  }

  function side(row, cell, number) {
    const [score, completion] = cell;
    const x = row.run.moments[number];
    const tag = element("span", x ? `After ${grouped(x)} completions ` : "Before ", "tag");
    tag.append(element("b", `${right(cell) ? "✓ right" : "✗ wrong"}, score ${score.toFixed(2)}`));
    return element("div", [tag, text(completion)], right(cell) ? "right" : "wrong");
  }

  /** A text; a long one is cut until the reader asks for the rest. */
  function text(content) {
    const cut = content.length > CHARACTERS;
    const made = element("pre", (cut ? content.slice(0, CHARACTERS) : content) || "(empty)");
    if (!cut) return made;
    const more = element("button", `Show all ${grouped(content.length)} characters`, "quiet");
    more.type = "button";
    more.addEventListener("click", () => {
      made.textContent = content;
      made.tabIndex = -1;
      made.focus();
      more.remove();
    });
    return element("div", [made, more]);
  }

  // Events ---------------------------------------------------------------------------------------

  function changed(event) {
    if (event.target === field("task")) offerRuns(field("run").value);
    page = 0;
    show(field("item").value).then(write);
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", changed);
  field("find").addEventListener("input", changed);
  turner.addEventListener("click", (event) => {
    const step = Number(event.target.dataset.turn);
    if (!step) return;
    page += step;
    show(field("item").value).then(() => {
      write();
      home.scrollIntoView({ block: "start" });
    });
  });
  window.addEventListener("hashchange", restore);
  restore();
})();
