// The first view: how the app is doing, and all its devices.

import { by, h, icon, put, reicon, set } from "./dom.js";
import { STATUSES } from "./model.js";
import { bars, drawBars, drawSparkline, sparkline } from "./pictures.js";
import { Rows } from "./rows.js";
import { ago, clock, counted, parse, size, span, until } from "./time.js";

export const WORDS = {
	held: "held", circuit_open: "circuit open", error: "error", stale: "stale", deferred: "deferred",
	isolated: "isolated", starting: "starting", ok: "ok", disabled: "disabled",
};

/** How often a registration is polled, in a few words. */
export function rhythm(registration) {
	if (registration?.interval) return `every ${span(registration.interval, true)}`;
	if (registration?.schedule) return `at ${registration.schedule}`;
	return { source: "pushes its readings", event: "sends events", command: "takes commands" }[registration?.kind] ?? "";
}

/** The address of a device's own view. */
export const hrefOf = (name) => `#/device/${encodeURIComponent(name)}`;

/** A value of a field as people read it, with its unit: with the decimals that are declared, else with two, or with three
 * digits of what is small. */
export function shown(value, terms = {}) {
	if (typeof value === "number") return terms.unit ? `${digits(value, terms)} ${terms.unit}` : digits(value, terms);
	if (typeof value === "boolean") return value ? "yes" : "no";
	if (value == null) return "–";
	if (Array.isArray(value)) return value.length ? value.map((each) => shown(each)).join(typeof value[0] === "object" ? "\n" : ", ") : "none";
	if (typeof value === "object") return Object.entries(value).map(([name, each]) => `${words(name)} ${shown(each)}`).join(", ");
	return value;
}

/** The name of a field for people: the one that is declared, or its own. */
export const named = (name, terms) => terms?.name ?? words(name);

const words = (name) => name.replaceAll("_", " ");

function digits(value, { precision }) {
	if (precision != null) return value.toFixed(precision);
	return String(Number(Math.abs(value) < 1 ? value.toPrecision(3) : value.toFixed(2)));
}

/** A value in full, and what its field is. */
export function inFull(value, terms = {}) {
	const text = typeof value === "number" ? [String(value), terms.unit].filter(Boolean).join(" ") : shown(value);
	return terms.device_class ? `${text} (${words(terms.device_class)})` : text;
}

/** What a device's circuit does, with the time that is left. */
export function circuitOf(device, now) {
	const runtime = device.runtime;
	if (!runtime || (device.main && device.main.circuit_breaker == null && runtime.circuit === "closed")) return "–";
	if (runtime.circuit !== "open") return runtime.circuit.replace("_", " ");
	const opens = device.opensUntil(now);
	return opens == null ? "open" : opens <= now ? "open, probing" : `open, ${span(Math.ceil((opens - now) / 1000))}`;
}

/** The calls of the poll under way, or of the last one. */
export function attemptsOf(device) {
	const calls = device.runtime?.attempts, retry = device.main?.retry;
	if (!calls || !device.error) return "–";
	return typeof retry === "number" && retry > 0 ? `${calls} of ${retry + 1}` : String(calls);
}

/** The first field that is a number; else the first one. */
function mainField(device) {
	for (const name of device.series.keys()) return name;
	for (const name in device.fields) return name;
	return null;
}

function row(model, name, tall) {
	const mark = icon("ok"), link = h("a", { href: hrefOf(name) }, name), word = h("span", { class: "word" });
	const beat = h("span", { class: "dim" }), spark = sparkline(), value = h("b"), field = h("span", { class: "dim" });
	const others = h("span", { class: "dim second" }), strip = bars(), circuit = h("span"), attempts = h("span");
	const next = h("span"), error = h("span", { class: "why" }), since = h("span", { class: "dim second" });
	const label = (text) => h("span", { class: "label", "aria-hidden": "true" }, text);
	const element = h(
		"div", { role: "row", class: "row" },
		h("span", { role: "rowheader", class: "c-device" }, mark, h("span", { class: "two" }, link, h("span", { class: "second" }, word, beat))),
		h("span", { role: "cell", class: "c-value" }, spark, h("span", { class: "two" }, h("span", { class: "first" }, value, " ", field), others)),
		h("span", { role: "cell", class: "c-outcomes" }, strip),
		h("span", { role: "cell", class: "c-circuit" }, label("Circuit"), circuit),
		h("span", { role: "cell", class: "c-attempts" }, label("Attempts"), attempts),
		h("span", { role: "cell", class: "c-next" }, label("Next poll"), next),
		h("span", { role: "cell", class: "c-error two" }, error, since),
	);
	element.draw = () => {
		const device = model.devices.get(name);
		if (!device) return;
		const now = model.now(), main = mainField(device), status = device.status, runtime = device.runtime;
		put(element, "data-status", status);
		reicon(mark, status);
		set(word, WORDS[status] ?? status);
		set(link, device.title);
		set(beat, [device.title === name ? "" : name, device.job ? "side job" : "", rhythm(device.main)].filter(Boolean).map((each) => ` · ${each}`).join(""));
		drawSparkline(spark, main && device.series.get(main));
		drawBars(strip, device.outcomes);
		const measured = main && device.fields?.[main];
		set(value, main ? shown(measured ?? "", device.terms[main]) : "");
		put(value, "title", measured == null ? null : inFull(measured, device.terms[main]));
		set(field, main ? named(main, device.terms[main]) : (device.job || runtime?.last_success_at ? "" : "no reading yet"));
		const read = device.readAt ?? Date.parse(runtime?.last_success_at ?? "");
		const rest = Object.entries(device.fields ?? {}).filter(([each]) => each !== main);
		const listed = (write) => rest.map(([each, text]) => `${named(each, device.terms[each])} ${write(text, device.terms[each])}`).join(", ");
		set(others, Number.isNaN(read) ? "" : [ago(read, now), listed(shown)].filter(Boolean).join(" · "));
		put(others, "title", rest.length ? listed(inFull) : null);
		set(circuit, circuitOf(device, now));
		put(circuit, "data-circuit", runtime?.circuit);
		set(attempts, attemptsOf(device));
		const due = device.next(now);
		set(next, due == null ? "–" : until(due, now));
		const text = device.error;
		put(element, "data-error", text && (tall(name) === 2 ? "long" : ""));
		set(error, text ?? "–");
		put(error, "title", text);
		set(since, text ? sinceOf(device, now) : "");
	};
	return element;
}

/** "since 14:02:11, 3 min, 4 failed polls"; or what the poll under way is doing. */
export function sinceOf(device, now) {
	const trying = device.runtime.poll_under_way;
	if (device.since == null) return trying ? `call ${trying.failed_calls} failed, again ${until(Date.parse(trying.next_call_at), now)}` : "";
	const polls = device.runtime.consecutive_failures;
	const failed = polls ? `, ${counted(polls, "failed poll")}` : "";
	return `since ${clock(device.since, now)}, ${span((now - device.since) / 1000)}${failed}`;
}

export class Overview {
	/** `remember` takes the names of devices that come into view. */
	constructor(model, remember) {
		this.model = model;
		this.status = "";
		this.words = "";
		this.sort = "trouble";
		this.order = -1;
		this.counts = "";
		this.chips = new Map();
		const tall = (name) => this.tall(name);
		this.rows = new Rows(by("rows"), (name) => (remember(name), row(model, name, tall)), tall);
		by("search").addEventListener("input", () => this.filter());
		by("order").addEventListener("change", () => {
			this.sort = by("order").value;
			this.arrange();
		});
		by("filter").addEventListener("submit", (event) => {
			event.preventDefault();
			this.rows.focus(0);
		});
	}

	filter() {
		this.words = by("search").value.trim().toLowerCase();
		this.arrange();
	}

	/** Which devices, in which order. */
	arrange() {
		const { model, words, status } = this, now = model.now();
		const found = [];
		for (const device of model.devices.values()) {
			if (status && device.status !== status) continue;
			if (words && !matches(device, words)) continue;
			found.push(device);
		}
		const names = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
		if (this.sort === "trouble")
			found.sort((a, b) => STATUSES.indexOf(a.status) - STATUSES.indexOf(b.status) || names(a, b));
		else if (this.sort === "name") found.sort(names);
		else if (this.sort === "next") found.sort((a, b) => (a.next(now) ?? Infinity) - (b.next(now) ?? Infinity) || names(a, b));
		this.order = model.order;
		by("none").hidden = found.length > 0;
		put(by("table"), "aria-rowcount", String(found.length + 1));
		this.rows.arrange(found.map((device) => device.name));
	}

	/** Draw what has changed. */
	draw(changed) {
		if (this.order !== this.model.order || [...changed].some((name) => this.turned(name))) this.arrange();
		else this.rows.draw(changed);
		this.head();
	}

	/** How much higher the row of a device is than those without an error: 0, 1, or 2 for a long one. */
	tall(name) {
		const error = this.model.devices.get(name)?.error;
		return error == null ? 0 : error.length > this.rows.room ? 2 : 1;
	}

	/** Whether a row must become higher or lower. */
	turned(name) {
		const place = this.rows.places.get(name);
		return place !== undefined && this.rows.tops[place + 1] - this.rows.tops[place] !== this.rows.height(name);
	}

	tick() {
		this.head();
		this.rows.tick();
	}

	head() {
		const { model } = this, counts = new Map();
		for (const device of model.devices.values()) counts.set(device.status, (counts.get(device.status) ?? 0) + 1);
		const bad = model.troubled;
		const total = model.devices.size;
		const away = model.mqtt && !model.mqtt.connected, devices = counted(total, "device");
		const words = bad ? `${bad} of ${devices} ${bad === 1 ? "needs" : "need"} attention` : away ? devices : `${devices}, no trouble`;
		set(by("summary"), words + (away ? "; readings wait: the broker is away" : ""));
		put(by("summary"), "class", bad || away ? "bad" : "good");
		const text = JSON.stringify([...counts]) + total;
		if (text !== this.counts) {
			this.counts = text;
			this.chip("", "all", total);
			for (const status of STATUSES) this.chip(status, WORDS[status], counts.get(status) ?? 0);
		}
		drawFacts(model);
		drawNotices(model);
	}

	/** A button that shows the devices of one status only. */
	chip(status, word, count) {
		let chip = this.chips.get(status);
		if (!chip) {
			const number = h("b");
			chip = h("button", { type: "button", class: "chip", "aria-pressed": String(status === this.status) }, status ? icon(status) : null, h("span", {}, word), " ", number);
			chip.number = number;
			put(chip, "data-status", status || null);
			chip.addEventListener("click", () => {
				this.status = this.status === status ? "" : status;
				for (const [name, each] of this.chips) put(each, "aria-pressed", String(name === this.status));
				this.arrange();
			});
			this.chips.set(status, chip);
			by("chips").append(chip);
		}
		set(chip.number, count.toLocaleString());
		chip.hidden = !count && status !== this.status && status !== "";
	}
}

function matches(device, words) {
	if (`${device.title} ${device.name}`.toLowerCase().includes(words)) return true;
	if (device.error?.toLowerCase().includes(words)) return true;
	if (!device.fields) return false;
	return Object.entries(device.fields).some(([name, value]) => `${named(name, device.terms[name])} ${name} ${shown(value, device.terms[name])}`.toLowerCase().includes(words));
}

// The facts about the app

const tiles = new Map();
const SLOW = 0.05; // seconds by which the event loop may be late before it is worth a tile

function tile(key, name, value, more, state) {
	let found = tiles.get(key);
	if (!found) {
		const dd = h("dd"), small = h("dd", { class: "dim" });
		found = { box: h("div", {}, h("dt", {}, name), dd, small), dd, small };
		tiles.set(key, found);
		by("facts").append(found.box);
	}
	set(found.dd, value);
	set(found.small, more);
	put(found.small, "title", more);
	put(found.box, "data-state", state);
	return found.box;
}

/** How many messages wait, in memory or on disk. */
const waitingIn = ({ messages, on_disk }) => messages + (on_disk?.only ?? 0);

const AGE = 7 * 86400; // seconds that a reading waits at most, unless the settings set another time

/** What still fits into the outbox while the broker is away, and for how long, if readings go on coming as they did. The
 * bytes are those in memory; what waits on disk only is as large. */
export function roomOf(outbox) {
	const { messages, bytes, oldest, on_disk } = outbox;
	if (!on_disk?.room || !messages) return size(bytes);
	const left = oldest > 5 ? on_disk.room / ((bytes / messages) * waitingIn(outbox) / oldest) : null;
	return `room for ${size(on_disk.room)} more${left ? `, ${left > AGE ? "over 7 d" : `about ${span(left)}`}` : ""}`;
}

function drawFacts(model) {
	const { app, mqtt, adapters } = model, now = model.now();
	if (mqtt) {
		const begin = parse(mqtt.away_since) ?? model.brokerSince;
		const since = begin && !mqtt.connected ? ` for ${span((now - begin) / 1000)}` : "";
		const session = `MQTT ${mqtt.protocol} · ${mqtt.broker} · connection ${mqtt.connects}`;
		const why = mqtt.connected || !mqtt.last_error ? session : mqtt.last_error;
		tile("broker", "Broker", mqtt.connected ? "connected" : `away${since}`, why, mqtt.connected ? "good" : "bad");
		const { bytes, oldest, dropped, delivered } = mqtt.outbox, messages = waitingIn(mqtt.outbox);
		const age = oldest == null ? "" : `oldest ${span(oldest)}`;
		const lost = dropped ? counted(dropped, "dropped", "dropped") : "";
		const limit = mqtt.limited_by ? "slowed by the broker" : "";
		const state = dropped ? "bad" : messages > 100 || mqtt.limited_by || (messages && !mqtt.connected) ? "warn" : "good";
		tile("outbox", "Outbox", counted(messages, "waiting", "waiting"), [mqtt.connected ? size(bytes) : roomOf(mqtt.outbox), age, lost, limit, `${delivered.toLocaleString()} delivered`].filter(Boolean).join(" · "), state);
	}
	const slow = model.lag > SLOW;
	if (slow || tiles.has("lag")) tile("lag", "Event loop", `late by ${span(model.lag, true)}`, "a handler blocks it, or the machine is too slow", model.lag > 0.25 ? "bad" : "warn").hidden = !slow;
	if (adapters.length) {
		const shut = adapters.filter((each) => !each.open);
		const names = shut.length ? shut.map((each) => `${each.adapter}: ${each.error ?? "closed"}`).join("; ") : adapters.map((each) => each.adapter).join(", ");
		tile("adapters", "Adapters", `${adapters.length - shut.length} of ${adapters.length} open`, names, shut.length ? "bad" : "good");
	}
	if (app?.nodes?.length) {
		const able = app.nodes.filter((each) => ["active", "standby", "taking_over"].includes(each.state)).length;
		const names = app.nodes.map((each) => `${each.node} ${each.state.replace("_", " ")}`).join(", ");
		tile("nodes", "Nodes", `${able} of ${app.nodes.length} take part`, names, able < 2 ? "warn" : "good");
	}
	if (app) tile("uptime", "Running", app.started_at ? span((now - Date.parse(app.started_at)) / 1000) : "–", `${app.version === "0" ? "" : `version ${app.version} · `}leadsman ${app.leadsman} · Python ${app.python}`, null);
}

let noticed = "";

function drawNotices(model) {
	const text = JSON.stringify([...model.notices.values()]);
	if (text === noticed) return;
	noticed = text;
	by("notices").replaceChildren(
		...[...model.notices].map(([key, notice]) => {
			const shut = h("button", { type: "button", class: "plain", "aria-label": "Dismiss this notice", click: () => {
				model.notices.delete(key);
				drawNotices(model);
			} }, "×");
			return h("p", { class: "notice" }, icon("error"), h("span", {}, notice.at ? `${clock(notice.at, model.now())} ` : "", notice.text), shut);
		}),
	);
}
