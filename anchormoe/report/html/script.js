"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  // ---- small helpers ------------------------------------------------------------------------------------------------
  // All text from the data enters the page by textContent, so that a name such as <script> is shown and never run.
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick") node.addEventListener("click", value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  function svg(tag, attributes = {}, text = null) {
    const node = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  }
  async function unpack(id) {
    const bytes = Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }
  function download(name, type, text) {
    const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  function csvField(value) {
    if (value === null || value === undefined) return "";
    // A spreadsheet would run text that begins like a formula.
    const text = typeof value === "string" && /^[=+@\t\r]/.test(value) ? "'" + value : String(value);
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }
  const csv = (lines) => lines.map((line) => line.map(csvField).join(",")).join("\n") + "\n";
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = el("textarea", { readonly: "" });
      area.value = text;
      ($("cell").open ? $("cell") : document.body).append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say("Copied to the clipboard.");
  }
  function say(message) { $("status").textContent = ""; setTimeout(() => { $("status").textContent = message; }, 30); }

  // ---- numbers ------------------------------------------------------------------------------------------------------
  function summarise(values) {
    const numbers = values.filter((value) => value !== null && Number.isFinite(value));
    if (!numbers.length) return null;
    const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
    if (numbers.length === 1) return { mean, se: null, sd: null, n: 1 };
    const sd = Math.sqrt(numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (numbers.length - 1));
    return { mean, sd, se: sd / Math.sqrt(numbers.length), n: numbers.length };
  }
  function number(value, decimals) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value !== 0 && (decimals > 5 || Math.abs(value) < 0.001)) return value.toExponential(2);
    return value.toFixed(decimals);
  }
  function plusMinus(summary, least) {
    if (!summary) return "–";
    const { mean, se } = summary;
    if (se === null || se <= 1e-9 * Math.abs(mean)) return number(mean, least);
    let decimals = least;
    if (se < 2 * 10 ** -least) decimals = 1 - Math.floor(Math.log10(se));
    if (decimals > 5) {
      const digits = Math.max(decimals + Math.floor(Math.log10(Math.abs(mean) || se)), 1);
      return `${mean.toExponential(Math.min(digits, 20))} ± ${se.toExponential(1)}`;
    }
    return `${mean.toFixed(decimals)} ± ${se.toFixed(decimals)}`;
  }
  // Ranks from 1, the lowest first; equal values share the mean of their ranks.
  function ranks(values) {
    const order = values.map((value, place) => [value, place]).sort((a, b) => a[0] - b[0]);
    const result = new Array(values.length);
    for (let first = 0; first < order.length; ) {
      let last = first;
      while (last + 1 < order.length && order[last + 1][0] === order[first][0]) last++;
      for (let k = first; k <= last; k++) result[order[k][1]] = (first + last) / 2 + 1;
      first = last + 1;
    }
    return result;
  }

  // ---- state: what is open and chosen stands in the address ------------------------------------------------------------
  const DEFAULTS = {
    metric: "nll_y", unit: "y", only: "", q: "", sort: "", dataset: "", method: "", ablation: "", protocol: "", rq: "",
    rsort: "", csort: "", asort: "", aq: "", show: "", open: "", om: "",
  };
  let state = { ...DEFAULTS };
  let data, column, figures, metricOf;
  function readAddress() {
    const hash = location.hash.slice(1);
    state = { ...DEFAULTS };
    if (!hash.includes("=")) return;
    for (const [key, value] of new URLSearchParams(hash)) if (key in DEFAULTS) state[key] = value;
  }
  function writeAddress() {
    const chosen = Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]);
    const hash = new URLSearchParams(chosen).toString();
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
  }
  function set(changes) {
    Object.assign(state, changes);
    writeAddress();
    render();
  }

  // ---- rows and runs ---------------------------------------------------------------------------------------------------
  const keyOf = (run) => [run.experiment, run.dataset, run.method, run.ablation, run.protocol, run.anchor, run.seed, run.config_hash].join("/");
  const heading = (method) => data.headings[method] ?? method;
  function values(run, metric, unit) {
    const mine = column(metric), scale = column("scale_y");
    return run.rows.map((row) => {
      if (metric === "nll_y" && (unit === "z" || (unit === "mixed" && run.method === "anchormoe"))) return column("nll_z")?.[row] ?? null;
      const value = mine?.[row] ?? null;
      if (unit === "z" && (metric === "crps_y" || metric === "rmse_y")) return value === null || !scale?.[row] ? null : value / scale[row];
      return value;
    });
  }
  const hasUnits = (metric) => ["nll_y", "crps_y", "rmse_y"].includes(metric);
  function unitName(metric, unit) {
    if (!hasUnits(metric)) return "";
    if (unit === "z") return "z-scored target";
    return unit === "mixed" && metric === "nll_y" ? "units mixed as in the paper" : "original units";
  }

  // ---- a table that can be sorted, searched and saved ---------------------------------------------------------------------
  // columns: {label, text: left-aligned}; rows: {cells: [{text, sort, node, best}], find: text to search in}
  function drawTable(place, sortKey, { caption, columns, rows, fallback }) {
    const [wanted, direction] = (state[sortKey] || fallback).split(":");
    const index = Math.min(Number(wanted), columns.length - 1), sign = direction === "down" ? -1 : 1;
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [a.cells[index].sort, b.cells[index].sort];
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return sign * (typeof x === "string" ? x.localeCompare(String(y)) : x - y);
    });
    const head = el("tr", {}, ...columns.map((item, number) => {
      const active = number === index;
      const turn = active && sign === 1 ? "down" : "up";
      return el("th", { scope: "col", class: item.text ? "text" : null, "aria-sort": active ? (sign === 1 ? "ascending" : "descending") : null },
        el("button", { type: "button", onclick: () => set({ [sortKey]: `${number}:${turn}` }) }, item.label));
    }));
    const body = sorted.map((row) => el("tr", {}, ...row.cells.map((cell, number) =>
      number === 0
        ? el("th", { scope: "row" }, cell.node ?? cell.text)
        : el("td", { class: [columns[number].wrap ? "wrap" : columns[number].text ? "text" : "", cell.best ? "best" : ""].join(" ").trim() || null }, cell.node ?? cell.text))));
    const focused = document.activeElement?.closest?.("th")?.cellIndex;
    const inside = focused !== undefined && place.contains(document.activeElement);
    const table = el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body));
    place.replaceChildren(rows.length ? table : el("p", { class: "empty" }, "Nothing matches these filters."));
    if (inside && rows.length) head.children[focused]?.querySelector("button")?.focus();
    place.lines = [columns.map((item) => item.label), ...sorted.map((row) => row.cells.map((cell) => cell.csv ?? cell.text))];
  }
  function opener(text, label, run, metric, extra) {
    return el("button", { type: "button", class: "cell", "aria-label": label, onclick: () => openRun(run, metric) }, text, extra ?? null);
  }
  // The mean, and below it in small letters what stands behind ±.
  function stacked(text) {
    const [mean, rest] = text.split(" ± ");
    return rest === undefined ? text : el("span", {}, mean, el("br"), el("small", {}, `± ${rest}`));
  }

  // ---- the comparison ------------------------------------------------------------------------------------------------------
  function averageRanks(metric, unit, datasets) {
    const { methods, runs } = data.compared;
    const complete = methods.filter((method) => datasets.every((name) => {
      const run = data.runs[runs[method]?.[name]];
      return run && values(run, metric, unit).filter((value) => value !== null).length === data.num_splits;
    }));
    const perDataset = datasets.map((name) => ranks(complete.map((method) => summarise(values(data.runs[runs[method][name]], metric, unit)).mean)));
    const average = {}, single = {};
    complete.forEach((method, k) => {
      single[method] = Object.fromEntries(datasets.map((name, d) => [name, perDataset[d][k]]));
      average[method] = perDataset.reduce((sum, list) => sum + list[k], 0) / datasets.length;
    });
    const order = [...complete].sort((a, b) => average[a] - average[b]);
    return { average, single, place: Object.fromEntries(order.map((method, k) => [method, k + 1])) };
  }
  function drawComparison() {
    const metric = metricOf(state.metric), { methods, runs } = data.compared;
    const datasets = state.only ? [state.only] : data.compared.datasets;
    const unit = state.unit;
    const ranked = metric.lower === true;
    const now = ranked ? averageRanks(metric.name, unit, datasets) : null;
    const before = ranked && unit !== "y" ? averageRanks(metric.name, "y", datasets) : null;
    const search = state.q.toLowerCase();
    const shown = methods.filter((method) => `${method} ${heading(method)}`.toLowerCase().includes(search));
    const changed = [];
    const rows = shown.map((method) => {
      const cells = [{ text: heading(method), sort: heading(method).toLowerCase() }];
      if (ranked) {
        const rank = now.average[method];
        const moved = before && rank !== undefined ? before.place[method] - now.place[method] : 0;
        if (moved) changed.push([heading(method), moved]);
        const arrow = moved ? el("span", { class: "moved " + (moved > 0 ? "up" : "down") }, ` ${moved > 0 ? "▲" : "▼"}${Math.abs(moved)}`,
          el("span", { class: "visually-hidden" }, ` places ${moved > 0 ? "up" : "down"}`)) : null;
        cells.push({ text: rank === undefined ? "–" : rank.toFixed(1), sort: rank ?? null,
          node: el("span", {}, rank === undefined ? "–" : rank.toFixed(1), arrow ?? "") });
      }
      for (const name of datasets) {
        const run = data.runs[runs[method]?.[name]];
        const summary = run ? summarise(values(run, metric.name, unit)) : null;
        if (!summary) { cells.push({ text: "–", sort: null }); continue; }
        const text = plusMinus(summary, metric.decimals) + (summary.n < data.num_splits ? ` (${summary.n})` : "");
        const rank = now?.single[method]?.[name];
        cells.push({ text, sort: summary.mean, best: rank === 1, csv: summary.mean,
          node: opener(stacked(text), `${heading(method)} on ${name}: ${text}${rank ? `, rank ${rank}` : ""}. Open its splits.`, run, metric.name) });
      }
      return { cells };
    });
    const columns = [{ label: "method", text: true }, ...(ranked ? [{ label: "average rank" }] : []), ...datasets.map((label) => ({ label }))];
    const inUnit = unitName(metric.name, unit);
    drawTable($("comparison-table"), "sort", {
      caption: `${metric.title.replace(" in original units", "")}${inUnit ? ", " + inUnit : ""}: mean ± standard error over the splits. Click a cell for its splits.`,
      columns, rows, fallback: ranked ? "1:up" : "0:up",
    });
    const note = $("unit-note");
    if (!hasUnits(metric.name)) note.textContent = "This metric has no unit to switch.";
    else if (unit === "y") note.textContent = "All methods in original units.";
    else if (unit === "mixed" && metric.name !== "nll_y") note.textContent = "The paper mixes units in its NLL tables only.";
    else if (!changed.length) note.textContent = "The order of the methods is the same as in original units: dividing every target by one number changes no ranking.";
    else note.textContent = "Against original units: " + changed.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 4)
      .map(([name, moved]) => `${name} ${moved > 0 ? "gains" : "loses"} ${Math.abs(moved)} place${Math.abs(moved) === 1 ? "" : "s"}`).join(", ")
      + (changed.length > 4 ? ` and ${changed.length - 4} more move.` : ".");
  }

  // ---- published cells ---------------------------------------------------------------------------------------------------------
  function drawCheck() {
    if (!data.paper) return;
    const rows = data.check.map((cell) => {
      const run = data.runs[cell.run], metric = metricOf(cell.metric);
      const published = data.published.find((entry) => entry.dataset === cell.dataset && entry.ablation === cell.ablation && entry.method !== "ngboost_authors");
      const theirs = published ? summarise(published[cell.metric]) : null;
      const ours = run ? summarise(values(run, cell.metric, "y")) : null;
      const label = `${cell.dataset}, ${cell.ablation}, ${metric.label}: ours ${plusMinus(ours, 4)}, published ${plusMinus(theirs, 4)}, ${cell.verdict}. Open its splits.`;
      return { cells: [
        { text: cell.dataset, sort: cell.dataset },
        { text: cell.ablation, sort: cell.ablation },
        { text: cell.metric === "nll_z" ? "NLL (z)" : metric.label, sort: metric.label },
        { text: plusMinus(theirs, 4), sort: theirs?.mean ?? null },
        { text: plusMinus(ours, 4), sort: ours?.mean ?? null, node: run ? opener(plusMinus(ours, 4), label, run, cell.metric) : null },
        { text: cell.in_ses === null ? "–" : (cell.in_ses > 0 ? "+" : "") + cell.in_ses.toFixed(2), sort: cell.in_ses === null ? null : Math.abs(cell.in_ses) },
        { text: cell.verdict, sort: cell.verdict, node: el("span", { class: "verdict " + cell.verdict }, cell.verdict) },
        { text: cell.note, sort: cell.note || "~" },
      ] };
    });
    drawTable($("check-table"), "csort", {
      caption: "protocol=published, mean ± standard error over 20 splits; difference in published standard errors.",
      columns: [{ label: "dataset", text: true }, { label: "run", text: true }, { label: "metric", text: true }, { label: "published" }, { label: "ours" },
        { label: "difference" }, { label: "verdict", text: true }, { label: "note", text: true, wrap: true }],
      rows, fallback: "5:down",
    });
  }

  // ---- every run ------------------------------------------------------------------------------------------------------------------
  const RUN_METRICS = ["nll_y", "crps_y", "rmse_y", "coverage_90", "fit_seconds"];
  function drawRuns() {
    const metrics = RUN_METRICS.filter((name) => column(name)).map(metricOf);
    const search = state.rq.toLowerCase();
    const shown = data.runs.filter((run) => ["dataset", "method", "ablation", "protocol"].every((key) => !state[key] || String(run[key]) === state[key])
      && Object.values({ ...run, rows: "", heading: heading(run.method) }).join(" ").toLowerCase().includes(search));
    const rows = shown.map((run) => ({ cells: [
      { text: run.dataset, sort: run.dataset, csv: run.dataset, node: opener(run.dataset, `${heading(run.method)} on ${run.dataset}, ${run.ablation}, protocol ${run.protocol}. Open its splits.`, run, "nll_y") },
      { text: heading(run.method), sort: heading(run.method).toLowerCase() },
      { text: String(run.ablation), sort: String(run.ablation) },
      { text: String(run.protocol), sort: String(run.protocol) },
      { text: String(run.anchor ?? "–"), sort: String(run.anchor) },
      { text: String(run.seed), sort: run.seed },
      { text: String(run.splits.length), sort: run.splits.length },
      ...metrics.map((metric) => {
        const unit = hasUnits(metric.name) && state.unit === "z" ? "z" : "y";
        const summary = summarise(values(run, metric.name, unit));
        return { text: plusMinus(summary, metric.decimals), sort: summary?.mean ?? null, csv: summary?.mean ?? "" };
      }),
      { text: String(run.experiment), sort: String(run.experiment) },
    ], run, metrics }));
    const place = $("runs-table");
    drawTable(place, "rsort", {
      caption: `${rows.length} of ${data.runs.length} runs, means over their splits${state.unit === "z" ? ", z-scored target" : ", original units"}. Click anywhere in a line for its splits.`,
      columns: [{ label: "dataset", text: true }, { label: "method", text: true }, { label: "ablation", text: true }, { label: "protocol", text: true },
        { label: "anchor", text: true }, { label: "seed" }, { label: "splits" }, ...metrics.map((metric) => ({ label: metric.label })), { label: "experiment", text: true }],
      rows, fallback: "0:up",
    });
    const buttons = place.querySelectorAll("tbody tr");
    buttons.forEach((line) => line.addEventListener("click", (event) => {
      if (event.target.closest("button")) return;
      const metric = metrics[(event.target.closest("td")?.cellIndex ?? 0) - 7];
      const button = line.querySelector("button");
      button.click();
      if (metric) set({ om: metric.name });
    }));
  }

  // ---- one run: its splits, beside the published ones -------------------------------------------------------------------------------
  function openRun(run, metric) { set({ open: keyOf(run), om: metric === "nll_y" && state.unit === "z" ? "nll_z" : metric }); }
  function publishedOf(run) {
    return data.paper ? data.published.find((entry) => entry.dataset === run.dataset && entry.method === run.method && entry.ablation === run.ablation
      && (entry.protocol === run.protocol || run.ablation === "full") && run.seed === 1) : undefined;
  }
  function publishedValues(run, metric) {
    const entry = publishedOf(run);
    if (!entry) return null;
    const list = metric === "nll_y" ? entry.nll_z : entry[metric];
    if (!list) return null;
    const scale = column("scale_y");
    return run.splits.map((split, k) => {
      const value = list[split - 1] ?? null;
      if (metric !== "nll_y" || value === null) return value;
      return scale?.[run.rows[k]] ? value + Math.log(scale[run.rows[k]]) : null;
    });
  }
  function drawCell() {
    const dialog = $("cell");
    const run = state.open ? data.runs.find((item) => keyOf(item) === state.open) : null;
    if (!run) { if (dialog.open) dialog.close(); return; }
    const measured = data.metrics.filter((item) => values(run, item.name, "y").some((value) => value !== null)); // older rows lack newer metrics
    const metric = measured.find((item) => item.name === state.om) ?? measured[0] ?? data.metrics[0];
    const ours = values(run, metric.name, "y"), theirs = publishedValues(run, metric.name);
    $("cell-title").textContent = `${heading(run.method)} on ${run.dataset}`;
    $("cell-metric").replaceChildren(...measured.map((item) =>
      el("option", { value: item.name, selected: item.name === metric.name ? "" : null }, item.unit ? `${item.label} (${item.unit})` : item.label)));
    $("cell-metric").value = metric.name;
    const summary = summarise(ours), other = theirs ? summarise(theirs) : null;
    $("cell-summary").textContent = `${metric.title}: ours ${plusMinus(summary, metric.decimals)}`
      + (summary?.sd ? `, SD ${number(summary.sd, 4)}` : "") + (other ? `; published ${plusMinus(other, metric.decimals)}` : "")
      + (theirs ? "" : data.paper ? ". Nothing was published split by split for this run in this metric." : ".")
      + (theirs && run.protocol !== "published" ? " The published run is protocol=published." : "");
    $("cell-chart").replaceChildren(...(measured.length ? [chart(run, metric, ours, theirs)] : []));
    const head = ["split", "ours", ...(theirs ? ["published", "difference"] : [])];
    const lines = run.splits.map((split, k) => [split, ours[k], ...(theirs ? [theirs[k], theirs[k] === null || ours[k] === null ? null : ours[k] - theirs[k]] : [])]);
    const place = $("cell-splits");
    const show = (value) => value === null ? "–" : Math.abs(value) < 0.001 && value !== 0 ? value.toExponential(3) : value.toFixed(4);
    place.replaceChildren(el("table", {}, el("caption", { class: "visually-hidden" }, `${metric.title}, split by split`),
      el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...lines.map(([split, ...rest]) => el("tr", {}, el("th", { scope: "row" }, String(split)), ...rest.map((value) => el("td", {}, show(value))))))));
    place.lines = [head, ...lines];
    place.fileName = `${run.dataset}_${run.method}_${run.ablation}_${run.protocol}_${metric.name}`;
    const first = run.rows[0];
    const distinct = (name) => [...new Set(run.rows.map((row) => column(name)?.[row]).filter((value) => value !== null && value !== undefined))];
    const versions = distinct("versions").map((text) => { try { return Object.entries(JSON.parse(text)).map((pair) => pair.join(" ")).join(", "); } catch { return text; } });
    const facts = [
      ["configuration", `ablation ${run.ablation}, protocol ${run.protocol}, anchor ${run.anchor ?? "–"}, model ${run.model ?? "–"}, seed ${run.seed}, variant ${run.variant ?? "–"}`],
      ["configuration hash", run.config_hash], ["experiment", run.experiment],
      ["data", `${column("num_rows")?.[first] ?? "–"} rows, ${column("num_features")?.[first] ?? "–"} features, SHA-256 ${distinct("data_sha256").join(", ") || "–"}`],
      ["commit", distinct("code_version").join(", ") + (distinct("code_dirty").some((flag) => flag === true || flag === "true") ? " (with uncommitted changes)" : "")],
      ["versions", versions.join(" | ") || "–"], ["machine", `${distinct("cpu").join(", ") || "–"}, threads ${distinct("threads").join(", ") || "–"}`],
    ];
    $("cell-facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value ?? "–"))]));
    $("cell-command").textContent = run.command ?? "";
    $("cell-rerun").hidden = !run.command;
    $("cell-no-rerun").hidden = Boolean(run.command);
    if (!dialog.open) dialog.showModal();
  }
  function chart(run, metric, ours, theirs) {
    const width = 420, height = 250, left = 52, bottom = 40, top = 12, right = 8;
    const all = [...ours, ...(theirs ?? [])].filter((value) => value !== null);
    let low = Math.min(...all), high = Math.max(...all);
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const pad = 0.06 * (high - low);
    const x = (split) => left + (split - 0.5) / data.num_splits * (width - left - right);
    const y = (value) => top + (high + pad - value) / (high - low + 2 * pad) * (height - top - bottom);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${metric.title} of every split${theirs ? ", ours and published" : ""}; the same numbers are in the table` });
    for (let k = 0; k <= 4; k++) {
      const value = low + k / 4 * (high - low);
      picture.append(svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--grid,#d0d7de)", "stroke-width": 0.8 }),
        svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", "font-size": 11, fill: "var(--ink,#1f2328)" }, Math.abs(value) < 0.001 && value ? value.toExponential(1) : value.toPrecision(3)));
    }
    run.splits.forEach((split, k) => {
      if (ours[k] === null) return;
      if (split === 1 || split % 5 === 0) picture.append(svg("text", { x: x(split), y: height - 24, "text-anchor": "middle", "font-size": 11, fill: "var(--ink,#1f2328)" }, split));
      if (theirs && theirs[k] !== null) {
        picture.append(svg("line", { x1: x(split), x2: x(split), y1: y(ours[k]), y2: y(theirs[k]), stroke: "var(--muted,#59636e)" }),
          svg("rect", { x: x(split) - 4.5, y: y(theirs[k]) - 4.5, width: 9, height: 9, fill: "none", stroke: "var(--ink,#1f2328)", "stroke-width": 1.4 }));
      }
      picture.append(svg("circle", { cx: x(split), cy: y(ours[k]), r: 3.4, fill: "var(--blue,#0072b2)" }));
    });
    picture.append(svg("text", { x: left, y: height - 6, "font-size": 11, fill: "var(--muted,#59636e)" }, theirs ? "split · circles: ours, squares: published" : "split"));
    return picture;
  }

  // ---- figures of a dataset ----------------------------------------------------------------------------------------------------------
  let shownFigures = null;
  function drawFigures() {
    const names = Object.keys(figures);
    const name = names.includes(state.show) ? state.show : names[0];
    if (name === undefined || name === shownFigures) return;
    shownFigures = name;
    $("figures-dataset").value = name;
    $("dataset-figures").replaceChildren(...figures[name].map((item) => {
      const picture = el("div", { class: "picture" });
      picture.innerHTML = item.svg; // drawn by us; every text in it is escaped
      const figure = el("figure", { "data-name": item.name }, el("div", { class: "head" }, el("h3", {}, item.title)), picture, el("figcaption", {}, item.caption));
      addSaver(figure);
      return figure;
    }));
  }
  function addSaver(figure) {
    const title = figure.querySelector("h3").textContent;
    figure.querySelector(".head").append(el("button", { type: "button", class: "small", "aria-label": `Download as SVG: ${title}`, onclick: () => {
      const drawn = figure.querySelector("svg").outerHTML.replace(/var\(--[a-z]+,\s*(#[0-9a-f]+)\)/g, "$1");
      download(figure.dataset.name.replaceAll("/", "_") + ".svg", "image/svg+xml", drawn);
    } }, "SVG"));
  }

  // ---- the audit, which is in the page already ------------------------------------------------------------------------------------------
  function drawAudit() {
    const table = $("audit-table")?.querySelector("table");
    if (!table) return;
    const [wanted, direction] = (state.asort || "0:up").split(":"), sign = direction === "down" ? -1 : 1;
    const lines = [...table.tBodies[0].rows];
    const text = (line) => line.cells[Number(wanted)]?.textContent.trim() ?? "";
    lines.sort((a, b) => sign * (wanted === "0" ? Number(text(a)) - Number(text(b)) : text(a).localeCompare(text(b))));
    table.tBodies[0].append(...lines);
    let shown = 0;
    for (const line of lines) {
      line.hidden = !line.textContent.toLowerCase().includes(state.aq.toLowerCase());
      shown += line.hidden ? 0 : 1;
    }
    [...table.tHead.rows[0].cells].forEach((cell, number) => {
      if (number === Number(wanted)) cell.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
    $("audit-count").textContent = `${shown} of ${lines.length} findings`;
    $("audit-table").lines = [table.tHead.rows[0], ...lines].map((line) => [...line.cells].map((cell) => cell.textContent.trim()));
  }

  // ---- everything together -----------------------------------------------------------------------------------------------------------------
  const CONTROLS = { metric: "metric", only: "only-dataset", q: "search", dataset: "run-dataset", method: "run-method", ablation: "run-ablation",
    protocol: "run-protocol", rq: "run-search", aq: "audit-search" };
  function render() {
    for (const [key, id] of Object.entries(CONTROLS)) if ($(id) && $(id).value !== state[key]) $(id).value = state[key];
    for (const radio of document.querySelectorAll("input[name=unit]")) radio.checked = radio.value === state.unit;
    drawComparison();
    drawCheck();
    drawRuns();
    drawAudit();
    drawFigures();
    drawCell();
  }
  function options(id, names, label) {
    if ($(id)) $(id).replaceChildren(el("option", { value: "" }, "all"), ...names.map((name) => el("option", { value: name }, label ? label(name) : name)));
  }
  function allRows() {
    const names = Object.keys(data.columns), columns = names.map((name) => column(name));
    return [names, ...columns[0].map((_, row) => columns.map((list) => list[row]))];
  }
  function wire() {
    for (const [key, id] of Object.entries(CONTROLS)) $(id)?.addEventListener("input", (event) => set({ [key]: event.target.value, ...(key === "metric" ? { sort: "" } : {}) }));
    for (const radio of document.querySelectorAll("input[name=unit]")) radio.addEventListener("change", () => set({ unit: radio.value }));
    $("figures-dataset")?.addEventListener("input", (event) => set({ show: event.target.value }));
    $("cell-metric").addEventListener("input", (event) => set({ om: event.target.value }));
    $("cell").addEventListener("close", () => { if (state.open) set({ open: "", om: "" }); });
    $("cell").addEventListener("click", (event) => { if (event.target === $("cell")) $("cell").close(); });
    $("cell-close").addEventListener("click", () => $("cell").close());
    $("copy-command").addEventListener("click", () => copy($("cell-command").textContent));
    $("copy-link").addEventListener("click", () => copy(location.href));
    for (const button of document.querySelectorAll("button[data-csv]")) button.addEventListener("click", () => {
      const place = $(button.dataset.csv);
      download((place.fileName ?? button.dataset.csv.replace("-table", "")) + ".csv", "text/csv", csv(place.lines));
    });
    $("all-rows").addEventListener("click", () => download("rows.csv", "text/csv", csv(allRows())));
    for (const button of document.querySelectorAll("#audit-table thead button")) button.addEventListener("click", () => {
      const number = button.closest("th").cellIndex;
      set({ asort: `${number}:${state.asort === `${number}:up` || (!state.asort && number === 0) ? "down" : "up"}` });
    });
    $("theme").addEventListener("click", () => {
      const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      document.documentElement.dataset.theme = dark ? "light" : "dark";
    });
    addEventListener("hashchange", () => { if (location.hash.includes("=") || !location.hash) { readAddress(); render(); } });
    document.querySelectorAll("main figure[data-name]").forEach(addSaver);
  }
  async function start() {
    if (typeof DecompressionStream === "undefined") { $("status").textContent = "This browser is too old for the tables: it cannot unpack them."; return; }
    [data, figures] = await Promise.all([unpack("data"), unpack("pictures")]);
    const cache = {};
    column = (name) => {
      const stored = data.columns[name];
      if (!stored) return null;
      return (cache[name] ??= stored.values ?? stored.codes.map((code) => stored.names[code]));
    };
    metricOf = (name) => data.metrics.find((metric) => metric.name === name) ?? data.metrics[0];
    $("metric").replaceChildren(...data.metrics.filter((metric) => metric.name !== "nll_z" && column(metric.name)).map((metric) => el("option", { value: metric.name }, metric.label)));
    options("only-dataset", data.compared.datasets);
    for (const key of ["dataset", "method", "ablation", "protocol"])
      options("run-" + key, [...new Set(data.runs.map((run) => String(run[key])))], key === "method" ? heading : null);
    $("figures-dataset")?.replaceChildren(...Object.keys(figures).map((name) => el("option", { value: name }, name)));
    wire();
    readAddress();
    render();
    document.documentElement.dataset.ready = "yes";
    if (location.hash && !location.hash.includes("=")) $(location.hash.slice(1))?.scrollIntoView();
  }
  start();
})();
