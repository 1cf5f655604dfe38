// The view of one device: how it is, what happened, its last values, and the options of its registrations.

import { drawActions } from "./actions.js";
import { by, h, icon, put, reicon, set } from "./dom.js";
import { attemptsOf, circuitOf, inFull, named, rhythm, shown, sinceOf, WORDS } from "./overview.js";
import { bars, curve, drawBars, drawSparkline, sparkline, timeline } from "./pictures.js";
import { ago, clock, counted, local, span, until } from "./time.js";
import { traceTable } from "./trace.js";

const RANGES = [[300, "5 min"], [3600, "1 h"], [86400, "24 h"]];
const HAPPENED = 40; // lines of the list of what happened
const MANY = { reading: "readings from here on", skipped: "polls left out from here on: the circuit is open" };

export class DeviceView {
	constructor(model) {
		this.model = model;
		this.name = null;
		this.range = 300;
		this.box = by("view-device");
		addEventListener("resize", () => this.name && this.draw());
	}

	/** Show a device. */
	show(name) {
		this.name = name;
		this.registrations = this.drawn = this.explained = null;
		const every = this.model.devices.get(name)?.main?.interval ?? 10;
		this.range = every > 600 ? 86400 : every > 30 ? 3600 : 300;
		this.build();
		this.draw();
	}

	build() {
		const part = (title, ...children) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...children);
		this.mark = icon("ok");
		this.word = h("span", { class: "word" });
		this.lead = h("p", { class: "lead" });
		this.buttons = h("div", { class: "actions", role: "group", "aria-label": "Actions" });
		this.facts = h("dl", { class: "facts" });
		this.picture = h("div", { class: "picture" });
		this.story = h("ol", { class: "story", tabindex: "0", "aria-label": "What happened" });
		this.values = h("div");
		this.strip = bars();
		this.policy = h("ul", { class: "policy" });
		this.title = h("span");
		this.trace = traceTable(`Trace of ${this.name}`);
		this.health = h("div");
		this.gone = h("p", { class: "empty" }, "There is no such device in this app.");
		const ranges = h(
			"div", { class: "ranges", role: "group", "aria-label": "Time shown" },
			RANGES.map(([seconds, text]) =>
				h("button", { type: "button", class: "chip", "data-range": seconds, "aria-pressed": String(seconds === this.range), click: (event) => {
					this.range = seconds;
					for (const each of ranges.children) put(each, "aria-pressed", String(each === event.currentTarget));
					this.drawPicture();
				} }, text)),
		);
		const legend = h("p", { class: "legend", "aria-hidden": "true" }, [["reading", "read"], ["retried", "read after retries"], ["failed", "failed"], ["skipped", "left out"], ["call", "call failed"], ["gap", "no reading"]].map(([kind, text]) => h("span", { class: `key-${kind}` }, text)));
		this.counts = h("p");
		this.gaps = h("ol", { class: "story", tabindex: "0", "aria-label": "Gaps" });
		this.ledger = part("Ledger", this.counts, h("h3", {}, "Gaps"), this.gaps);
		this.cells = new Map();
		this.reason = h("p");
		this.link = h("p", { class: "dim" });
		this.evidence = h("ul", { class: "policy" });
		this.advice = h("span");
		this.why = part("Why nothing arrives", this.reason, this.link, this.evidence, h("p", {}, h("b", {}, "What to do: "), this.advice));
		this.why.classList.add("why");
		this.body = h(
			"div", { class: "device" },
			this.why,
			h("div", { class: "two-up" },
				part("Now", this.facts),
				part("Last values", this.values, h("p", { class: "strip" }, h("span", { class: "dim" }, "Last polls"), this.strip)),
			),
			h("section", { class: "card", "aria-label": "Timeline" }, h("div", { class: "bar" }, h("h2", {}, "Timeline"), ranges), this.picture, legend, h("h3", {}, "What happened"), this.story),
			this.ledger,
			part("How it is read", this.policy),
			part("Trace", this.trace.box),
			this.health,
		);
		const title = h("h1", { id: "device-title", tabindex: "-1" }, this.mark, this.title, this.word);
		this.box.replaceChildren(h("p", { class: "back" }, h("a", { href: "#/" }, icon("back"), "All devices")), h("div", { class: "bar" }, title, this.buttons), this.lead, this.gone, this.body);
	}

	draw() {
		const { model, name } = this, device = model.devices.get(name);
		this.gone.hidden = Boolean(device);
		this.body.hidden = !device;
		if (!device) return;
		const now = model.now(), status = device.status;
		put(this.box, "data-status", status);
		reicon(this.mark, status);
		set(this.title, device.title);
		put(this.title, "title", device.title === name ? null : name);
		set(this.word, WORDS[status] ?? status);
		drawActions(this.buttons, device, model.frozen != null);
		set(this.lead, device.since && device.why?.cause ? device.why.cause : leadOf(device, now));
		put(this.lead, "class", device.error ? "lead bad" : "lead");
		for (const each of [this.lead, this.reason]) put(each, "data-begins", /^\S+:\/\//.test(each.textContent) ? "address" : null);
		this.drawWhy(device, now);
		this.drawFacts(device, now);
		drawBars(this.strip, device.outcomes);
		this.drawValues(device, now);
		if (this.registrations !== device.registrations) {
			this.registrations = device.registrations;
			const options = this.registrations.flatMap((each) => Object.entries(each).filter(([, value]) => value != null));
			this.policy.replaceChildren(...options.map(([name, value]) => h("li", {}, `${named(name)}: ${shown(value)}`)));
		}
		this.drawLedger(device.ledger, now);
		this.drawPicture();
		this.drawStory(device);
		this.trace.draw(model.trace.filter((row) => row.handler === name));
	}

	/** The first link that passes no reading on. That of a device which works matters only if it is broken. */
	drawWhy({ why, status }, now) {
		this.why.hidden = !why || why.state === "ok" || (status === "ok" && why.state !== "broken" && why.link !== "result");
		if (this.why.hidden || this.explained === why) return;
		this.explained = why;
		set(this.reason, why.summary);
		const since = why.since ? `, since ${clock(Date.parse(why.since), now)}` : "";
		set(this.link, `${why.state === "broken" ? "First broken link" : "Silent on purpose"}: ${why.link}${since}`);
		this.evidence.replaceChildren(...why.evidence.map((each) => h("li", {}, local(each, now))));
		set(this.advice, here(why.advice));
	}

	drawFacts(device, now) {
		const runtime = device.runtime, next = device.next(now), counters = runtime?.counters;
		const facts = [
			["Polled", rhythm(device.main) || "–"],
			["Next poll", next == null ? "–" : `${until(next, now)}, at ${clock(next, now)}`],
			["Circuit", circuitOf(device, now)],
			["Attempts", attemptsOf(device)],
			["Last reading", runtime?.last_success_at ? `${clock(Date.parse(runtime.last_success_at), now)}, ${ago(Date.parse(runtime.last_success_at), now)}` : "never"],
			["It took", runtime?.last_duration == null ? "–" : span(runtime.last_duration, true)],
			["Polls", counters ? `${counters.polls.toLocaleString()}, ${counters.failed_polls.toLocaleString()} failed, ${counters.retried_polls.toLocaleString()} with retries` : "–"],
			["Calls", counters ? `${counters.calls.toLocaleString()}, ${counters.failed_calls.toLocaleString()} failed` : "–"],
			["Missed", runtime ? counted(runtime.missed_polls, "poll") : "–"],
			device.ledger?.availability != null && ["Available", `${Math.floor(device.ledger.availability * 100) / 100} % of ${counted(device.ledger.slots, "poll")} due`],
			runtime?.deferred_until && ["Pause until", `${clock(Date.parse(runtime.deferred_until), now)}${runtime.deferred_reason ? `: ${runtime.deferred_reason}` : ""}`],
			runtime?.restarts != null && ["Restarts", String(runtime.restarts)],
			runtime?.commands && ["Commands", `${runtime.commands.done} executed, ${runtime.commands.failed} of them failed, ${runtime.commands.refused} refused, ${runtime.commands.waiting} waiting`],
			runtime?.commands?.last_error && ["Last command", runtime.commands.last_error],
		];
		table(this.facts, facts.filter(Boolean));
	}

	/** The last values, each with its line. */
	drawValues(device, now) {
		const fields = Object.entries(device.fields ?? {});
		const names = fields.map(([name]) => name).join("\n");
		if (this.values.dataset.fields !== names || !this.values.firstChild) {
			this.values.dataset.fields = names;
			this.cells.clear();
			const rows = fields.map(([name]) => {
				const spark = sparkline(), value = h("td", { class: "number" }), kind = h("span", { class: "dim" }), label = h("span");
				const open = h("button", { type: "button", class: "plain", "aria-expanded": "false", click: () => this.open(name) }, spark);
				const picture = h("td", { class: "pic" }, open), large = h("td", { colspan: "3" });
				const unfolded = h("tr", { class: "curve", hidden: true }, large);
				this.cells.set(name, { spark, value, kind, label, open, large, unfolded });
				return [h("tr", {}, h("th", { scope: "row" }, label, kind), value, picture), unfolded];
			});
			this.when = h("p", { class: "dim" });
			const none = "No reading since this page was opened.";
			this.values.replaceChildren(fields.length ? h("table", { class: "values" }, h("tbody", {}, rows.flat())) : h("p", { class: "dim" }, none), this.when);
		}
		for (const [name, value] of fields) {
			const cell = this.cells.get(name), terms = device.terms[name], kind = terms?.device_class, points = device.series.get(name);
			set(cell.value, shown(value, terms));
			put(cell.value, "title", inFull(value, terms));
			put(cell.value, "class", typeof value === "object" && value ? "nested" : "number");
			set(cell.label, named(name, terms));
			put(cell.open, "aria-label", `Curve of ${named(name, terms)}`);
			set(cell.kind, kind && kind !== name ? ` ${kind.replaceAll("_", " ")}` : "");
			drawSparkline(cell.spark, points);
			cell.open.hidden = !(points?.length > 1);
			put(cell.open, "title", cell.open.hidden ? null : `${rangeOf(points, terms)}: open the curve`);
			if (cell.unfolded.hidden) continue;
			cell.large.replaceChildren(curve(points, (each) => shown(each, terms), Math.max(240, cell.large.clientWidth)));
		}
		set(this.when, device.readAt == null ? "" : `Read at ${clock(device.readAt, now)}, ${ago(device.readAt, now)}.`);
	}

	/** Open the curve of a field, or close it. */
	open(name) {
		const { open, unfolded } = this.cells.get(name);
		unfolded.hidden = !unfolded.hidden;
		put(open, "aria-expanded", String(!unfolded.hidden));
		this.draw();
	}

	/** What became of each slot of the schedule. */
	drawLedger(ledger, now) {
		this.ledger.hidden = !ledger;
		if (!ledger || this.drawn === ledger.at) return;
		this.drawn = ledger.at;
		set(this.counts, Object.entries(ledger.counts).map(([name, count]) => `${count.toLocaleString()} ${name.replaceAll("_", " ")}`).join(", "));
		this.gaps.replaceChildren(...ledger.gaps.slice(-10).reverse().map(({ since, until, seconds, cause, slots }) => {
			const lost = Object.values(slots).reduce((sum, count) => sum + count, 0), polls = lost ? `, ${counted(lost, cause === "dropped" ? "reading" : "poll")}` : "";
			return happened(now, Date.parse(since), `${span(seconds)}${until ? "" : " so far"}: ${cause.replaceAll("_", " ")}${polls}`);
		}));
		if (!ledger.gaps.length) this.gaps.append(h("li", {}, "none"));
	}

	drawPicture() {
		const device = this.model.devices.get(this.name), width = this.picture.clientWidth;
		if (device && width) this.picture.replaceChildren(timeline(device, this.model.now(), this.range * 1000, width));
	}

	/** The timeline in words: what the picture shows those who do not see it. Polls of the same kind in a row are counted. */
	drawStory(device) {
		const lines = [];
		const steps = stepsOf(device.marks);
		for (let i = device.marks.length - 1; i >= 0 && lines.length < HAPPENED; i--) {
			const mark = device.marks[i], many = MANY[mark.kind], last = lines.at(-1);
			if (mark.kind === "gap" || steps.has(mark)) continue;
			if (many && last?.[2] === mark.kind) {
				last[3]++;
				last[0] = mark.at;
				last[1] = `${last[3]} ${many}`;
			} else lines.push([mark.at, mark.text, mark.kind, 1]);
		}
		const text = lines.map((line) => line.join()).join();
		if (text === this.story.dataset.text) return;
		this.story.dataset.text = text;
		this.story.replaceChildren(...lines.map(([at, words, kind]) => happened(this.model.now(), at, words, kind)));
		if (!lines.length) this.story.replaceChildren(h("li", {}, "Nothing since this page was opened."));
	}

	tick() {
		if (this.name && !this.box.hidden) this.draw();
	}
}

/** The marks of a probe that failed, but for its failure: one line is enough for it. */
function stepsOf(marks) {
	const steps = new Set();
	let probe = null;
	for (const mark of marks) {
		if (mark.state === "half_open") probe = [mark];
		else if (probe && mark.kind === "call") probe.push(mark);
		else if (probe && mark.state === "open") probe.push(mark), (probe.failed = true);
		else if (probe) {
			if (probe.failed && mark.kind === "failed") probe.forEach((each) => steps.add(each));
			probe = null;
		}
	}
	return steps;
}

/** An advice with what this page has instead of a command line. */
const BUTTONS = { release: "Release", circuit: "Close circuit", poll: "Poll now" };
const here = (advice) =>
	advice.replace(/: leadsman (release|circuit|trace|poll) [^;]*/gs, (_, command) =>
		command === "trace" ? ", below" : `: press “${BUTTONS[command]}” above`);

/** The lowest and the highest of the values of a line, and since when. */
function rangeOf(points, terms) {
	const values = points.map(({ value }) => value);
	return `${shown(Math.min(...values), terms)} to ${shown(Math.max(...values), terms)} since ${clock(points[0].at)}`;
}

/** A line of a list of what happened. */
const happened = (now, at, words, kind) =>
	h("li", { "data-kind": kind }, h("time", { datetime: new Date(at).toISOString() }, clock(at, now)), " ", h("span", {}, words));

/** The rows of a list of facts. */
function table(dl, facts) {
	if (dl.children.length !== facts.length)
		dl.replaceChildren(...facts.map(() => h("div", {}, h("dt"), h("dd"))));
	facts.forEach(([name, value], i) => {
		set(dl.children[i].firstChild, name);
		set(dl.children[i].lastChild, value);
	});
}

/** How the device is, in one sentence. */
function leadOf(device, now) {
	const runtime = device.runtime;
	if (!runtime) return "It is disabled, or the app does not run it.";
	const trying = runtime.poll_under_way;
	if (trying) {
		const next = Date.parse(trying.next_call_at), again = next > now ? `; it is called again ${until(next, now)}` : "";
		return `${counted(trying.failed_calls, "call")} of this poll failed: ${trying.last_error}${again}.`;
	}
	if (device.error) return `No reading ${sinceOf(device, now)}: ${device.error}`;
	if (runtime.held) return "It is on hold: it is not polled until somebody releases it.";
	if (runtime.circuit === "isolated") return "A person isolated its circuit: it is not polled until somebody closes the circuit.";
	if (runtime.status === "stale") return "Its last reading is too old, though nothing failed.";
	if (runtime.status === "starting") return "It has not been read yet.";
	return "";
}
