(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const $ = (id) => document.getElementById(id);
  const run = JSON.parse($("run").textContent);

  // Theme: the system's, or one that was chosen. Storage may be forbidden to a file; then the choice lasts as long as the page.
  const themes = ["system", "light", "dark"];
  const store = {
    get() { try { return localStorage.getItem("pipefix-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("pipefix-theme", value); } catch { return; } },
  };
  const paint = (theme) => {
    if (theme === "system") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", theme);
    $("theme").textContent = "Theme: " + theme;
  };
  const asked = new URLSearchParams(location.search).get("theme") || store.get();
  let theme = themes.includes(asked) ? asked : "system";
  paint(theme);
  $("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    store.set(theme);
    paint(theme);
  });

  // Printing opens everything that is folded, and folds it again afterwards.
  let folded = [];
  const unfold = () => { folded = [...document.querySelectorAll("details:not([open])")]; folded.forEach((one) => { one.open = true; }); };
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));
  $("print").addEventListener("click", () => window.print());

  if ($("save")) $("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(run, null, 1) + "\n"], { type: "application/json" }));
    link.download = "run.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // Commands to the clipboard; where there is none (an old browser, a sandbox), the command is selected for the keyboard.
  const select = (node) => { const range = document.createRange(); range.selectNodeContents(node); const chosen = getSelection(); chosen.removeAllRanges(); chosen.addRange(range); };
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let said = "Copied";
    try { await navigator.clipboard.writeText(code.textContent); } catch { select(code); said = document.execCommand("copy") ? "Copied" : "Selected"; }
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  }));

  // Tables that sort by the head that is selected: figures from large to small first, words from A to Z.
  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const key = (row) => row.cells[column].dataset.sort;
      const rows = [...table.tBodies[0].rows];
      const numeric = rows.every((row) => key(row) !== "" && isFinite(key(row)));
      const was = head.getAttribute("aria-sort");
      const up = was === "none" ? !numeric : was === "descending";
      rows.sort((a, b) => (numeric ? key(a) - key(b) : key(a).localeCompare(key(b))) * (up ? 1 : -1));
      heads.forEach((one) => one.setAttribute("aria-sort", one === head ? (up ? "ascending" : "descending") : "none"));
      table.tBodies[0].append(...rows);
    }));
  });

  const seconds = (value) => {
    const [unit, scale] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]].find(([, size]) => value >= size * 0.9995) || ["ns", 1e-9];
    const size = value / scale;
    return value === 0 ? "0 s" : (size >= 99.95 ? size.toFixed(0) : size >= 9.995 ? size.toFixed(1) : size.toFixed(2)) + " " + unit;
  };

  // The timeline: zoomed by dragging, by the buttons or by + and -, read by pointing or by the arrow keys.
  const plot = document.querySelector("svg.timeline[tabindex]");
  if (plot) {
    const clean = (value) => (typeof value === "number" && isFinite(value) && value > 0 ? value : 0);
    const wait = run.waits.wait_s.map(clean);
    const step = wait.map((_, index) => clean((run.waits.step_s || [])[index]));
    const at = run.waits.at_s || [];
    const [waits, steps, cursor] = [plot.querySelector(".t-wait"), plot.querySelector(".t-step"), plot.querySelector(".cursor")];
    const band = document.createElementNS(plot.namespaceURI, "rect");
    band.setAttribute("class", "band");
    band.setAttribute("height", "100");
    plot.append(band);
    let first = 0, last = wait.length, chosen = null, from = null;

    const draw = () => {
      const count = last - first, size = Math.max(1, Math.ceil(count / 400)), columns = [];
      for (let start = first; start < last; start += size) {
        let most = start;
        for (let index = start; index < Math.min(start + size, last); index++) if (wait[index] > wait[most]) most = index;
        columns.push(most);
      }
      const top = Math.max(...columns.map((index) => wait[index] + step[index])) || 1;
      const width = 1000 / columns.length * (columns.length < 150 ? 0.82 : 1);
      let below = "", above = "";
      columns.forEach((index, number) => {
        const x = (1000 * number / columns.length).toFixed(2), y = 100 - 100 * wait[index] / top, high = 100 * step[index] / top, w = width.toFixed(2);
        below += `M${x} 100h${w}V${y.toFixed(2)}h-${w}z`;
        if (high > 0) above += `M${x} ${y.toFixed(2)}h${w}v-${high.toFixed(2)}h-${w}z`;
      });
      waits.setAttribute("d", below);
      steps.setAttribute("d", above);
      $("t-top").textContent = seconds(top);
      $("t-first").textContent = "batch " + (first + 1).toLocaleString("en");
      $("t-last").textContent = "batch " + last.toLocaleString("en");
      read(chosen);
    };
    const read = (index) => {
      chosen = index;
      if (index === null || index < first || index >= last) { cursor.style.visibility = "hidden"; return; }
      const x = 1000 * (index + 0.5 - first) / (last - first);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.style.visibility = "visible";
      const when = isFinite(at[index]) && at[index] !== null ? ` at ${seconds(at[index])}` : "";
      $("t-read").textContent = `Batch ${(index + 1).toLocaleString("en")}${when}: waited ${seconds(wait[index])}` + (step[index] ? `, step ${seconds(step[index])}` : "");
    };
    const show = (low, high) => {
      first = Math.max(0, Math.min(low, wait.length - 1));
      last = Math.min(wait.length, Math.max(high, first + Math.min(4, wait.length)));
      first = Math.max(0, Math.min(first, last - Math.min(4, wait.length)));
      draw();
    };
    const zoom = (factor) => {
      const middle = chosen !== null && chosen >= first && chosen < last ? chosen : (first + last) / 2, half = (last - first) * factor / 2;
      show(Math.round(middle - half), Math.round(middle + half));
    };
    const place = (event) => { const box = plot.getBoundingClientRect(); return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1); };
    const index = (part) => Math.min(last - 1, first + Math.floor(part * (last - first)));
    plot.addEventListener("pointerdown", (event) => { from = place(event); plot.setPointerCapture(event.pointerId); });
    plot.addEventListener("pointermove", (event) => {
      const part = place(event);
      read(index(part));
      if (from === null) return;
      band.setAttribute("x", 1000 * Math.min(from, part));
      band.setAttribute("width", 1000 * Math.abs(part - from));
    });
    plot.addEventListener("pointerup", (event) => {
      const part = place(event), begun = from;
      from = null;
      band.setAttribute("width", 0);
      if (begun !== null && Math.abs(part - begun) > 0.01) show(index(Math.min(begun, part)), index(Math.max(begun, part)) + 1);
    });
    plot.addEventListener("pointercancel", () => { from = null; band.setAttribute("width", 0); });
    plot.addEventListener("dblclick", () => show(0, wait.length));
    plot.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
      if (event.key in moves) {
        const next = Math.min(wait.length - 1, Math.max(0, (chosen === null ? first - 1 : chosen) + moves[event.key]));
        if (next < first || next >= last) show(next - Math.floor((last - first) / 2), next + Math.ceil((last - first) / 2));
        read(next);
      } else if (event.key === "+" || event.key === "=") zoom(0.5);
      else if (event.key === "-") zoom(2);
      else if (event.key === "Home" || event.key === "Escape") show(0, wait.length);
      else return;
      event.preventDefault();
    });
    $("zoom-in").addEventListener("click", () => zoom(0.5));
    $("zoom-out").addEventListener("click", () => zoom(2));
    $("zoom-all").addEventListener("click", () => show(0, wait.length));
  }
})();
