"use strict";
(() => {
  const root = document.documentElement;
  const all = (what, inside = document) => [...inside.querySelectorAll(what)];
  const hidden = new Set();
  const views = [];
  root.classList.add("scripted");

  // Whoever reads by night may say so; some browsers keep nothing for pages from disk.
  const kept = (store, name, value) => {
    try {
      if (value === undefined) return window[store].getItem("understudy-" + name);
      window[store].setItem("understudy-" + name, value);
    } catch { /* nothing is kept */ }
    return null;
  };
  const theme = kept("localStorage", "theme");
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  const toggleTheme = () => {
    const night = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (night ? "dark" : "light")) === "dark" ? "light" : "dark";
    kept("localStorage", "theme", root.dataset.theme);
  };

  // Methods are hidden and shown everywhere at once.
  const refresh = () => {
    const off = [...hidden];
    const seeds = root.classList.contains("show-seeds");
    for (const view of views) view.signal("off", off).signal("seeds", seeds).runAsync();
  };
  const toggleMethod = (method) => {
    if (!hidden.delete(method)) hidden.add(method);
    for (const chip of all(`[data-method="${method}"]`)) chip.setAttribute("aria-pressed", String(!hidden.has(method)));
    for (const group of all(`.chart .m${method}`)) group.classList.toggle("off", hidden.has(method));
    refresh();
  };
  const switches = {
    all: () => {
      const methods = new Set(all("[data-method]").map((chip) => Number(chip.dataset.method)));
      const off = hidden.size < methods.size;
      for (const method of methods) if (hidden.has(method) !== off) toggleMethod(method);
    },
    theme: toggleTheme,
    seeds: () => { root.classList.toggle("show-seeds"); refresh(); },
    axis: () => { for (const figure of all("[data-axis]")) figure.classList.toggle("away"); draw(); },
  };
  for (const chip of all("[data-method]")) chip.addEventListener("click", () => toggleMethod(Number(chip.dataset.method)));
  for (const button of all("[data-switch]")) {
    button.addEventListener("click", () => { switches[button.dataset.switch](); button.classList.toggle("on"); });
  }

  // Tables are sorted by what a cell says, or by the number it was told to stand for.
  const worth = (row, place) => {
    const cell = row.cells[place];
    const told = cell.dataset.sort ?? cell.querySelector("[data-sort]")?.dataset.sort ?? cell.textContent.trim();
    const value = Number(told.replace("−", "-").replaceAll(",", ""));
    return told === "" || Number.isNaN(value) ? told : value;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const sort = (head, up) => {
    const body = head.closest("table").tBodies[0];
    for (const other of all("th[aria-sort]", head.parentElement)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [worth(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => (up || typeof a !== typeof b ? 1 : -1) * compare(a, b)); // what is no number comes last
    body.append(...rows.map(([, row]) => row));
  };
  for (const button of all("thead button")) {
    const head = button.closest("th");
    button.addEventListener("click", () => sort(head, head.getAttribute("aria-sort") !== "ascending"));
  }

  // Where one is on the page.
  const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      for (const link of links.values()) link.classList.remove("here");
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const place of all("section[id], header[id]")) seen.observe(place);

  // Charts that answer to the pointer, each drawn when it is first seen; without the library the drawings stay.
  const stored = document.getElementById("charts");
  const charts = stored ? JSON.parse(stored.textContent) : [];
  const DASHES = [[1, 0], [6, 3], [2, 3], [8, 3, 2, 3]];
  const points = (line) => line.x.map((x, i) => ({
    x, y: line.y[i], low: line.low ? line.low[i] : null, high: line.high ? line.high[i] : null, m: line.m, method: line.name,
  }));
  const seedPoints = (line) => (line.seeds || []).flatMap((ys, s) => line.x.map((x, i) => ({ x, y: ys[i], m: line.m, s })).filter((at) => at.y !== null));
  const spec = (panel, height) => {
    const methods = [...new Set(panel.lines.map((line) => line.m))];
    const color = { field: "m", type: "nominal", legend: null, scale: { domain: methods, range: methods.map((m) => `var(--c${m % 8})`) } };
    const dash = { field: "m", type: "nominal", legend: null, scale: { domain: methods, range: methods.map((m) => DASHES[Math.floor(m / 8) % 4]) } };
    const thousands = panel.lines.some((line) => line.x.some((x) => Math.abs(x) >= 1e4));
    const x = { field: "x", type: "quantitative", title: panel.x, scale: { zero: false, nice: false }, axis: { grid: false, labelFlush: false, labelSeparation: 10, labelOverlap: true, labelExpr: `replace(format(datum.value, '${thousands ? "~s" : ",~g"}'), '-', '−')`, tickCount: 6 } };
    const domain = panel.limits ? { domain: panel.limits } : {};
    const y = { field: "y", type: "quantitative", title: null, scale: { zero: false, ...domain, ...(panel.log ? { type: "log" } : {}) } };
    const shown = "indexof(off, datum.m) < 0";
    const own = panel.log ? " && datum.y > 0" : "";
    // Written out, because Vega-Lite's own tooltips of what is nearest have no texts.
    const near = "(datum.datum || datum)";
    const told = (rows) => `{${rows.map(([title, value]) => `${JSON.stringify(title)}: ${value}`).join(", ")}}`;
    const shortly = (field) => `format(${near}.${field}, '.5~g')`;
    const facts = [["method", `${near}.method`], [panel.x, `format(${near}.x, ',')`], [panel.y, shortly("y")]];
    const limits = [["from", shortly("low")], ["to", shortly("high")]];
    const tooltip = { value: { expr: `isValid(${near}.low) ? ${told([...facts, ...limits])} : ${told(facts)}` } };
    const banded = panel.lines.some((line) => line.low);
    const rows = { name: "rows" };
    const layer = [];
    if (banded) {
      layer.push({
        data: rows, transform: [{ filter: `${shown} && isValid(datum.low)${panel.log ? " && datum.low > 0" : ""}` }],
        mark: { type: "area", opacity: panel.crowded ? 0.07 : 0.15 }, encoding: { x, y: { ...y, field: "low" }, y2: { field: "high" }, color },
      });
    }
    if (panel.lines.some((line) => line.seeds)) {
      layer.push({
        data: { name: "seeds" }, transform: [{ filter: `seeds && ${shown}${own}` }],
        mark: { type: "line", strokeWidth: 0.8, opacity: 0.6 }, encoding: { x, y, color, detail: { field: "s", type: "nominal" } },
      });
    }
    const zoom = matchMedia("(pointer: fine)").matches
      ? [{ name: "zoom", select: { type: "interval", zoom: "wheel![event.shiftKey]" }, bind: "scales" }] : [];
    layer.push({
      data: rows, transform: [{ filter: shown + own }], params: zoom,
      mark: { type: "line", strokeWidth: 1.9, strokeJoin: "round", invalid: "break-paths-show-domains", clip: zoom.length > 0 },
      encoding: { x, y, color, strokeDash: dash },
    });
    layer.push({
      data: rows, transform: [{ filter: `${shown} && isValid(datum.y)${own}` }],
      params: [{ name: "near", select: { type: "point", on: "pointerover", clear: "pointerout", nearest: true } }],
      mark: { type: "point", filled: true, size: 46 },
      encoding: {
        x, y, color, opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
        tooltip,
      },
    });
    const one = { values: [{}] };
    for (const [name, value, m] of panel.levels) {
      const at = { y: { datum: value, type: "quantitative" } };
      const ink = m < 0 ? "var(--quiet)" : `var(--c${m % 8})`;
      layer.push({ data: one, mark: { type: "rule", strokeDash: [5, 4], color: ink, strokeWidth: 1.2, tooltip: `${name}: ${value}` }, encoding: at });
      const written = { type: "text", text: name, align: "right", dy: -6, fontSize: 11, x: "width" };
      const halo = { ...written, color: "var(--card)", stroke: "var(--card)", strokeWidth: 3.5, strokeJoin: "round" };
      for (const mark of panel.named ? [halo, { ...written, color: "var(--quiet)" }] : []) layer.push({ data: one, mark, encoding: at });
    }
    return {
      width: "container", height, background: null, autosize: { type: "fit-x", contains: "padding" },
      padding: { left: 2, right: 18, top: 6, bottom: 2 },
      datasets: { rows: panel.lines.flatMap(points), seeds: panel.lines.flatMap(seedPoints) },
      params: [{ name: "off", value: [...hidden] }, { name: "seeds", value: root.classList.contains("show-seeds") }],
      layer,
      config: {
        font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
        axis: {
          labelColor: "var(--quiet)", titleColor: "var(--quiet)", labelFontSize: 11.5, titleFontSize: 11.5, titleFontWeight: 400,
          gridColor: "var(--grid)", domain: false, ticks: false, labelPadding: 7, tickCount: 5, titleAnchor: "end", titlePadding: 6,
        },
      },
    };
  };
  const render = async (place) => {
    const panel = charts[Number(place.dataset.chart)];
    const figure = place.closest("figure");
    figure.classList.add("alive"); // so that it has a width
    try {
      const options = { mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, logLevel: 1, tooltip: { disableDefaultStyle: true } };
      const { view } = await window.vegaEmbed(place, spec(panel, Number(place.dataset.height)), options);
      views.push(view);
      figure.dataset.drawn = "yes";
    } catch (error) {
      figure.classList.remove("alive");
      console.error(error);
    }
  };
  const waiting = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      waiting.unobserve(entry.target);
      render(entry.target.querySelector(".live"));
    }
  }, { rootMargin: "300px" });
  const draw = () => {
    if (!window.vegaEmbed || !charts.length) return;
    for (const place of all(".live:not([data-asked])")) {
      const figure = place.closest("figure");
      if (figure.classList.contains("away")) continue;
      place.dataset.asked = "yes";
      waiting.observe(figure);
    }
  };

  // A page that is watched reads itself again, and looks afterwards as it did before.
  const fold = (one) => one.closest("details")?.querySelector("summary").firstChild.textContent;
  const folds = () => all("details").map((one) => [`${one.closest("section").id} ${fold(one)}`, one]);
  const heads = () => all("thead th").map((one) => [`${one.closest("[role]").getAttribute("aria-label")} ${fold(one)} ${one.textContent}`, one]);
  const landmarks = () => all("header, section, h3, summary, figure");
  const remember = () => {
    const at = landmarks().findIndex((one) => one.getBoundingClientRect().bottom > 60);
    const state = {
      hidden: all('.chip[data-method][aria-pressed="false"]').map((chip) => chip.textContent),
      on: all(".switch.on").map((one) => one.dataset.switch),
      sorted: heads().filter(([, head]) => head.ariaSort).map(([name, head]) => [name, head.ariaSort === "ascending"]),
      open: folds().map(([name, one]) => [name, one.open]),
      at: at < 0 ? null : [at, landmarks()[at].getBoundingClientRect().top],
    };
    kept("sessionStorage", location.pathname, JSON.stringify(state));
  };
  const recall = (state) => {
    const folded = new Map(state.open), sorted = new Map(state.sorted), off = new Set(state.hidden);
    for (const [name, one] of folds()) one.open = folded.get(name) ?? one.open;
    for (const [name, head] of heads()) if (sorted.has(name)) sort(head, sorted.get(name));
    const methods = all(".chip[data-method]").filter((chip) => off.has(chip.textContent)).map((chip) => Number(chip.dataset.method));
    new Set(methods).forEach(toggleMethod);
    for (const name of new Set(state.on)) if (!["theme", "all"].includes(name)) document.querySelector(`[data-switch="${name}"]`)?.click();
    const place = state.at && landmarks()[state.at[0]];
    if (place) scrollBy({ top: place.getBoundingClientRect().top - state.at[1], behavior: "instant" });
  };
  if (root.dataset.reload) {
    history.scrollRestoration = "manual";
    const state = kept("sessionStorage", location.pathname);
    if (state) recall(JSON.parse(state));
    addEventListener("pagehide", remember);
    const busy = () => document.hidden || !getSelection().isCollapsed || all("video").some((film) => !film.paused);
    setInterval(() => { if (!busy()) location.reload(); }, 1000 * Number(root.dataset.reload));
  }
  draw();
})();
