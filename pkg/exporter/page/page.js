// SPDX-License-Identifier: Apache-2.0

// Keeps the table of the page as subflows.json has it, and draws what the last readings had of each subflow.
"use strict";

const interval = 2000; // ms between two readings
const patience = 10000; // ms for one
const length = 60; // readings that a chart goes back
const width = 120, height = 24; // of a chart, in its own units
const svg = "http://www.w3.org/2000/svg";

const note = document.getElementById("note");
const body = document.getElementById("subflows");
const columns = Array.from(document.querySelectorAll("thead th"), (th) => ({
	title: th.textContent,
	chart: th.dataset.chart,
	number: th.classList.contains("number"),
}));
const rows = new Map(); // by the subflow's id

for (const tr of body.rows) {
	rows.set(tr.dataset.id, rowOf(tr));
}

// rowOf takes a row of the table, and adds its charts.
function rowOf(tr) {
	const row = { tr, cells: [], charts: [] };
	columns.forEach((column, i) => {
		const td = tr.cells[i] || tr.insertCell();
		td.classList.toggle("number", column.number);
		const text = document.createTextNode(td.textContent);
		td.replaceChildren(text);
		row.cells.push(text);
		if (column.chart) {
			row.charts.push(chartOf(td, column));
		}
	});
	return row;
}

function chartOf(td, column) {
	const image = document.createElementNS(svg, "svg");
	image.setAttribute("viewBox", `0 -1 ${width} ${height + 2}`);
	image.setAttribute("preserveAspectRatio", "none");
	image.setAttribute("role", "img");
	image.setAttribute("aria-label", `${column.title}, no history yet`);
	const line = image.appendChild(document.createElementNS(svg, "polyline"));
	td.append(image);
	return { of: column.chart, title: column.title, image, line, values: [] };
}

// draw adds a value, null for none, and draws all of them against the largest. The newest one is on the right.
function draw(chart, value) {
	chart.values.push(value);
	if (chart.values.length > length) {
		chart.values.shift();
	}
	const known = chart.values.filter((v) => v !== null);
	if (known.length === 0) {
		return;
	}
	const largest = Math.max(...known) || 1;
	const points = [];
	chart.values.forEach((v, i) => {
		if (v !== null) {
			const x = width - ((chart.values.length - 1 - i) * width) / (length - 1);
			points.push(`${x.toFixed(1)},${(height * (1 - v / largest)).toFixed(1)}`);
		}
	});
	chart.line.setAttribute("points", points.join(" "));
	chart.image.setAttribute("aria-label", `${chart.title}, the last ${chart.values.length} readings`);
}

function write(node, text) {
	if (node.data !== text) {
		node.data = text;
	}
}

function show(state) {
	if (note.textContent !== state.note) {
		note.textContent = state.note;
	}
	const gone = new Set(rows.keys());
	let after = null;
	for (const f of state.subflows) {
		let row = rows.get(f.id);
		if (!row) {
			const tr = document.createElement("tr");
			tr.dataset.id = f.id;
			row = rowOf(tr);
			rows.set(f.id, row);
		}
		gone.delete(f.id);
		row.cells.forEach((cell, i) => write(cell, f.cells[i]));
		row.charts.forEach((chart) => draw(chart, f[chart.of]));
		const next = after ? after.nextSibling : body.firstChild;
		if (next !== row.tr) {
			body.insertBefore(row.tr, next);
		}
		after = row.tr;
	}
	for (const id of gone) {
		rows.get(id).tr.remove();
		rows.delete(id);
	}
}

async function read() {
	try {
		const answer = await fetch("subflows.json", { signal: AbortSignal.timeout(patience) });
		if (!answer.ok) {
			throw new Error((await answer.text()).trim());
		}
		show(await answer.json());
		document.body.classList.remove("stale");
	} catch (err) {
		note.textContent = `No new figures: ${err.message}`;
		document.body.classList.add("stale");
	}
}

// One reading follows another, and none is made for a page that nobody sees.
async function run() {
	for (;;) {
		if (!document.hidden) {
			await read();
		}
		await new Promise((resolve) => setTimeout(resolve, interval));
	}
}

run();
