"use strict";
// The page works without this: everything it shows stands in the document. It adds stepping, details, copying and filtering.
// Texts of traces and targets only ever become text nodes and attributes.
(() => {
  // Long names may break after an underscore.
  const soft = (text) => String(text).split(/(?<=_)(?=\w)/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
  const make = (tag, kind, text) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) soft(text).forEach((part) => node.append(part));
    return node;
  };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Theme: that of the system until the reader chooses.
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Custody pictures.
  const list = (title, items) => {
    const part = make("div");
    part.append(make("h4", "", title));
    const ul = make("ul");
    items.forEach((item) => ul.append(item));
    part.append(ul);
    return part;
  };
  const line = (name, more) => {
    const li = make("li");
    li.append(make("strong", "", name), " ", more);
    return li;
  };
  const describe = (moment, falls) => {
    const parts = [];
    const what = make("div", "what");
    what.append(`${moment.title[0].toUpperCase()}${moment.title.slice(1)}: `, make("code", "", moment.call));
    if (moment.breach) what.append(make("p", "alarm", `⚠ breaks the contract: ${moment.breach}`));
    if (moment.falls) what.append(make("p", "alarm", `✗ ${falls}`));
    parts.push(what);
    parts.push(list("what the call changed", moment.changes.length ? moment.changes.map((c) => make("li", "", c)) : [make("li", "", "nothing that is observed")]));
    if (moment.requests.length) parts.push(list("requests", moment.requests.map((r) => line(r.name, `${r.status}${r.facts ? `, ${r.facts}` : ""}`))));
    if (moment.blocks.length) {
      const rows = moment.blocks.map((b) => {
        const li = make("li");
        li.append(make("strong", b.subject ? "alarm" : "", b.name), " ");
        b.owners.forEach((o) => li.append(make("span", `bar owner ${o.kind}`, o.text)));
        return li;
      });
      parts.push(list("blocks", rows));
    }
    return parts;
  };
  all(".picture").forEach((picture) => {
    const data = JSON.parse(picture.parentElement.querySelector('script[type="application/json"]').textContent);
    const count = data.moments.length;
    const lanes = picture.querySelector(".lanes");
    const shade = picture.querySelector(".shade.now");
    const state = picture.querySelector(".state");
    const tools = picture.querySelector(".bar-tools");
    const calls = all(".call", picture);
    let at = count;
    const show = (wanted, scroll) => {
      at = Math.min(count, Math.max(1, wanted));
      picture.dataset.at = at;
      shade.style.gridColumn = String(at + 1);
      calls.forEach((call, i) => (i + 1 === at ? call.setAttribute("aria-current", "step") : call.removeAttribute("aria-current")));
      picture.querySelector(".at").textContent = data.moments[at - 1].title;
      picture.querySelector('[data-go="first"]').disabled = picture.querySelector('[data-go="back"]').disabled = at === 1;
      picture.querySelector('[data-go="last"]').disabled = picture.querySelector('[data-go="on"]').disabled = at === count;
      state.replaceChildren(...describe(data.moments[at - 1], data.falls));
      if (scroll) {
        const call = calls[at - 1];
        const label = picture.querySelector(".corner").offsetWidth;
        const left = call.offsetLeft - label, right = call.offsetLeft + call.offsetWidth - lanes.clientWidth;
        if (lanes.scrollLeft > left) lanes.scrollLeft = left;
        else if (lanes.scrollLeft < right) lanes.scrollLeft = right;
      }
    };
    const go = { first: () => 1, back: () => at - 1, on: () => at + 1, last: () => count };
    const keys = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last" };
    picture.addEventListener("keydown", (event) => {
      const way = keys[event.key];
      if (!way || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      show(go[way](), true);
    });
    tools.addEventListener("click", (event) => {
      const way = event.target.closest("[data-go]");
      if (way) show(go[way.dataset.go](), true);
    });
    calls.forEach((call) => call.addEventListener("click", () => show(Number(call.dataset.step), true)));
    tools.hidden = state.hidden = shade.hidden = false;
    show(count, false);
    const box = picture.closest("details.defect");
    if (box) box.addEventListener("toggle", () => show(at, true));
    else show(at, true);
  });

  // Details of whatever is pointed at.
  const tip = document.getElementById("tip");
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  };
  document.addEventListener("pointermove", (event) => {
    const over = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = !over;
    if (!over) return;
    if (tip.textContent !== over.dataset.tip) tip.textContent = over.dataset.tip;
    place(event.clientX, event.clientY);
  });
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

  // Copying, also where the page was opened from a file.
  const copied = async (text, pre) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(pre);
      return document.execCommand("copy");
    }
  };
  all(".copy").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const pre = button.parentElement.querySelector("pre");
      const done = await copied(pre.textContent, pre);
      button.textContent = done ? "Copied" : "Selected: copy with the keyboard";
      setTimeout(() => { button.textContent = button.dataset.copy; }, 2500);
    });
  });

  // Long tables of verdicts.
  const filter = document.getElementById("filter");
  if (filter) {
    filter.hidden = false;
    const [words, worst] = all("input", filter);
    const apply = () => {
      const wanted = words.value.trim().toLowerCase();
      let shown = 0, rows = 0;
      all("details.verdicts").forEach((section) => {
        let here = 0;
        all("tbody tr", section).forEach((row) => {
          const fits = (!worst.checked || row.dataset.outcome !== "holds") && row.querySelector("th").textContent.toLowerCase().includes(wanted);
          row.hidden = !fits;
          here += fits;
          rows += 1;
        });
        section.hidden = here === 0;
        if (here && (wanted || worst.checked)) section.open = true;
        shown += here;
      });
      filter.querySelector("output").textContent = shown === rows ? "" : `${shown} of ${rows}`;
    };
    words.addEventListener("input", apply);
    worst.addEventListener("change", apply);
  }

  // A link to a known defect opens its box.
  const reveal = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    const box = target && target.closest("details.defect");
    if (box) { box.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Lifecycle diagrams: the arrows of one state, or one arrow.
  all(".diagram").forEach((diagram) => {
    const mark = (near) => {
      diagram.classList.toggle("focus", near !== null);
      all("[data-edge]", diagram).forEach((part) => part.classList.toggle("near", near !== null && near(part.dataset.edge)));
    };
    const edges = all("g.edge", diagram);
    const of = (node) => new Set(edges.filter((e) => e.dataset.from === node || e.dataset.to === node).map((e) => e.dataset.edge));
    const enter = (event) => {
      const node = event.target.closest("[data-node]"), edge = event.target.closest("[data-edge]");
      if (node) { const near = of(node.dataset.node); mark((e) => near.has(e)); }
      else if (edge) mark((e) => e === edge.dataset.edge);
      else mark(null);
    };
    diagram.addEventListener("pointerover", enter);
    diagram.addEventListener("focusin", enter);
    diagram.addEventListener("pointerleave", () => mark(null));
    diagram.addEventListener("focusout", () => mark(null));
  });
})();
