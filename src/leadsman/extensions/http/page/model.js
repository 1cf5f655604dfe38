// What the page has of the app: taken from the introspection document, and kept current by events between documents.
// Times are milliseconds since 1970, by the clock of the app.

import { counted, parse, span } from "./time.js";

const POINTS = 60; // values of a field, and outcomes of polls, that are kept
const MARKS = 600; // marks in the timeline of a device
const FIELDS = 24; // fields of a device
const ROWS = 4096; // rows of the trace: as many as the app keeps

/** The order of trouble: what needs a person most comes first. */
export const STATUSES = ["held", "circuit_open", "error", "stale", "deferred", "isolated", "starting", "ok", "disabled"];
export const TROUBLE = new Set(["held", "circuit_open", "error", "stale"]);

const GAVE_UP = {
	count: "no retries left", filtered: "not an error to retry", "next-poll": "left to the next poll", budget: "the budget is used up",
	time: "the time is up", probe: "the probe failed", tokens: "the adapter has no retries left", never: "no retries", fault: "the policy itself failed",
};

/** The reason of a row in words. */
export const inWords = (reason) => GAVE_UP[reason] ?? reason.replaceAll("_", " ");

class Device {
	constructor(name) {
		this.name = name;
		this.job = false;
		this.registrations = [];
		this.heard = 0; // the number of its last event
		this.why = null; // why it is silent
		this.ledger = null; // what became of each slot of its schedule, and its gaps
		this.main = null; // the registration that is polled, or the first one
		this.runtime = null; // null: it is not enabled, or the app does not run
		this.fields = null; // the last values
		this.terms = {}; // what is declared of them: unit, device_class, precision
		this.readAt = null;
		this.series = new Map(); // field -> [{at, value}], numbers only
		this.outcomes = []; // ok, retried, failed, skipped, missed, deferred; the newest is the last
		this.tries = 0; // calls of the poll under way that failed
		this.marks = []; // [{at, kind, text, …}], oldest first
	}

	/** Its name for people. */
	get title() {
		return this.registrations.find((each) => each.title)?.title ?? this.name;
	}

	get status() {
		return this.runtime ? this.runtime.status : "disabled";
	}

	/** When it is polled next. Between two documents, polls come at a fixed rate. */
	next(now) {
		const runtime = this.runtime;
		if (!runtime || runtime.held || runtime.circuit === "isolated") return null;
		const retry = runtime.poll_under_way && parse(runtime.poll_under_way.next_call_at);
		if (retry) return retry;
		const due = parse(runtime.next_poll_at), every = this.main?.interval;
		if (due == null || due >= now || !every) return due;
		return due + Math.ceil((now - due) / (every * 1000)) * every * 1000;
	}

	/** When its circuit admits a poll again: the next poll, if it is open. */
	opensUntil(now) {
		return this.runtime?.circuit === "open" ? this.next(now) : null;
	}

	/** Since when it gives no reading; null if it does. */
	get since() {
		return parse(this.runtime?.failing_since);
	}

	/** The error of an outage, or of the calls that failed in the poll under way. */
	get error() {
		return this.runtime?.last_error ?? this.runtime?.poll_under_way?.last_error ?? null;
	}

	mark(at, kind, text, more) {
		const marks = this.marks;
		for (let i = marks.length - 1; i >= 0 && marks[i].at > at - 60; i--)
			if (marks[i].kind === kind && marks[i].state === more?.state && marks[i].at < at + 60) return; // reported twice
		const mark = { at, kind, text, ...more };
		let place = marks.length;
		while (place > 0 && (marks[place - 1].at > at || (marks[place - 1].at === at && after(marks[place - 1], mark)))) place--;
		marks.splice(place, 0, mark);
		if (marks.length > MARKS) marks.shift();
	}

	outcome(kind) {
		this.outcomes.push(kind);
		if (this.outcomes.length > POINTS) this.outcomes.shift();
	}

	values(at, fields) {
		this.fields = fields;
		this.readAt = at;
		for (const [name, value] of Object.entries(fields)) {
			if (typeof value !== "number") continue;
			let points = this.series.get(name);
			if (!points) {
				if (this.series.size >= FIELDS) continue;
				this.series.set(name, (points = []));
			}
			points.push({ at, value });
			if (points.length > POINTS) points.shift();
		}
	}
}

export class Model {
	constructor() {
		this.app = null;
		this.mqtt = null;
		this.brokerSince = null; // since when the broker is connected, or away, as far as this page saw it
		this.lag = null;
		this.adapters = [];
		this.devices = new Map();
		this.trace = [];
		this.began = new Map(); // when the outage of a device began, of which the trace has rows
		this.notices = new Map(); // faults of the app itself
		this.offset = 0; // the clock of the app, less that of this browser
		this.frozen = null; // the time at which the connection was lost
		this.changed = new Set(); // devices to be drawn again
		this.doubted = new Set(); // devices whose document must be asked for
		this.doubtful = false; // whether what is known of the app itself must be asked for
		this.order = 0; // changes whenever the list of devices may be in another order
		this.traced = false; // whether there may be new rows in the trace
		this.events = 0; // events of devices so far
	}

	/** The time by the clock of the app. Without a connection it stands still, like all that is shown. */
	now() {
		return this.frozen ?? Date.now() + this.offset;
	}

	/** How many devices are in trouble. */
	get troubled() {
		let count = 0;
		for (const { status } of this.devices.values()) count += TROUBLE.has(status);
		return count;
	}

	/** Take an introspection document, or some of its sections. `whole`: devices that are not in it are gone. `asked`: how
	 * many events there were when it was asked for. What a later one changed of a device stays. */
	take(document, whole, asked = Infinity) {
		const { app, mqtt, adapters, devices, jobs } = document;
		if (app) {
			this.app = { ...this.app, ...app };
			if (app.started_at && app.uptime != null) this.offset = parse(app.started_at) + app.uptime * 1000 - Date.now();
			this.notices.forEach((_, key) => key.startsWith("file ") && this.notices.delete(key));
			for (const [file, why] of Object.entries(app.state_files ?? {}))
				this.notices.set(`file ${file}`, { at: null, text: `${file} cannot be written: ${why}` });
		}
		if (mqtt) {
			if (this.mqtt && this.mqtt.connected !== mqtt.connected) this.brokerSince = this.now();
			this.mqtt = mqtt;
		}
		this.lag = app?.loop_lag ?? this.lag;
		if (adapters) this.adapters = adapters;
		if (whole && devices) {
			const known = new Set([...Object.keys(devices), ...Object.keys(jobs ?? {})]);
			for (const name of this.devices.keys()) if (!known.has(name)) this.devices.delete(name);
			this.order++;
		}
		for (const [section, job] of [[devices, false], [jobs, true]])
			for (const [name, found] of Object.entries(section ?? {}))
				if (!(this.devices.get(name)?.heard > asked) || this.doubted.has(name)) this.describe(name, found, job);
		for (const [name, found] of Object.entries(document.recent ?? {})) this.remember(name, found);
		for (const [section, kept] of [["ledger", "ledger"], ["fields", "terms"]])
			for (const [name, found] of Object.entries(document[section] ?? {})) {
				const device = this.devices.get(name);
				if (device) device[kept] = found;
				this.changed.add(name);
			}
	}

	describe(name, found, job) {
		let device = this.devices.get(name);
		if (!device) {
			this.devices.set(name, (device = new Device(name)));
			this.order++;
		}
		const before = device.status;
		device.job = job;
		device.registrations = found.registrations ?? device.registrations;
		device.main = device.registrations.find((each) => each.enabled && each.kind !== "command") ?? device.registrations[0];
		device.runtime = found.runtime ?? null;
		if (device.status !== before) this.order++;
		this.changed.add(name);
	}

	/** Take what the app remembers of a device: its last reading, the last values of some fields, and outcomes. */
	remember(name, { at, fields, series, outcomes }) {
		const device = this.devices.get(name);
		if (!device) return;
		if (device.outcomes.length < outcomes.words.length) device.outcomes = outcomes.words;
		outcomes.words.forEach((word, i) => device.mark(outcomes.at[i] * 1000, ...PAST[word]));
		for (const [field, { at: times, values }] of Object.entries(series))
			if ((device.series.get(field)?.length ?? 0) < values.length)
				device.series.set(field, values.map((value, i) => ({ at: times[i] * 1000, value })));
		if (at != null && (device.readAt ?? 0) < at * 1000) Object.assign(device, { fields, readAt: at * 1000 });
		this.changed.add(name);
	}

	/** Take rows of the trace, which are in order. */
	rows(rows) {
		const last = this.trace.at(-1)?.number ?? 0;
		const fresh = rows.filter((row) => row.number > last);
		this.trace.push(...fresh);
		if (this.trace.length > ROWS) this.trace.splice(0, this.trace.length - ROWS);
		for (const row of fresh) {
			const device = this.devices.get(row.handler), mark = markOf(row, this.began.get(row.handler));
			if (row.reason === "recovered") this.began.delete(row.handler);
			else if (row.error_type && !this.began.has(row.handler)) this.began.set(row.handler, parse(row.at));
			if (device && mark) {
				device.mark(parse(row.at), ...mark);
				this.changed.add(row.handler);
			}
		}
		return fresh.length;
	}

	/** The app has begun anew: its counters and numbers begin again. */
	forget() {
		this.trace = [];
		this.began.clear();
		this.notices.clear();
	}

	/** Take an event. A reading has all that it changes; after any other event of a device its document is asked for, so
	 * that what a device is like is decided in one place. */
	event(data) {
		const { type, device: name } = data, at = parse(data.at);
		if (type === "beat") return this.take(data, false);
		if (type === "reset") return; // everything is asked for anyway after a connection
		this.traced ||= TRACED.has(type);
		if (name == null) {
			if (NOTICES[type]) this.notice(...NOTICES[type](data), at);
			else if (type === "state_written") this.notices.delete(`file ${data.file}`);
			this.doubtful = true;
			return;
		}
		const device = this.devices.get(name);
		if (!device?.runtime) return;
		this.changed.add(name);
		device.heard = ++this.events;
		if (type === "reading") return device.values(at, data.fields);
		if (type === "reading_taken") return this.reading(device, data, at);
		this.doubted.add(name);
		if (type === "attempt_failed" && data.requested) return;
		if (type === "attempt_failed") device.tries = data.attempt;
		else if (type === "poll_failed") device.tries = 0;
		if (OUTCOMES[type]) device.outcome(OUTCOMES[type]);
		if (STORY[type]) device.mark(at, ...STORY[type](data, at));
	}

	reading(device, data, at) {
		const runtime = device.runtime, { tries, since } = device;
		if (runtime.status !== "ok") {
			this.doubted.add(device.name);
			this.traced = true;
		}
		if (since) device.mark(since, "gap", `no reading for ${span((at - since) / 1000)}`, { until: at });
		device.mark(at, tries ? "retried" : "reading", tries ? `read after ${counted(tries, "failed call")}` : "read");
		device.outcome(tries ? "retried" : "ok");
		device.tries = 0;
		runtime.counters.polls++;
		runtime.counters.calls++;
		Object.assign(runtime, {
			failing_since: null, last_error: null, poll_under_way: null, consecutive_failures: 0,
			last_success_at: new Date(at).toISOString(), last_duration: data.duration ?? runtime.last_duration,
		});
	}

	notice(key, text, at) {
		this.notices.set(key, { at, text });
		if (this.notices.size > 20) this.notices.delete(this.notices.keys().next().value);
	}
}

const TRACED = new Set([
	"attempt_failed", "poll_failed", "circuit_moved", "circuit_requested", "device_held", "device_released", "adapter_failed",
	"adapter_reopened",
]);

const PAST = { ok: ["reading", "read"], failed: ["failed", "the poll failed"], skipped: ["skipped", "left out"], missed: ["missed", "missed"], deferred: ["skipped", "deferred"] };

const OUTCOMES = { poll_failed: "failed", poll_skipped: "skipped", poll_missed: "missed", poll_deferred: "deferred" };

/** Events as marks in the timeline of their device. */
const STORY = {
	attempt_failed: (data) => called(data.attempt, errorOf(data), data.delay),
	poll_failed: (data) => ["failed", `the poll failed: ${errorOf(data)}`],
	poll_skipped: () => ["skipped", "a poll was left out: the circuit is open"],
	poll_missed: ({ polls }) => ["missed", `${counted(polls, "poll")} missed`],
	poll_deferred: ({ seconds }, at) => paused(seconds, at),
	device_held: ({ by }) => ["held", by ? `put on hold by ${by}` : "on hold"],
	device_released: ({ by }) => ["released", by ? `released by ${by}` : "released"],
	circuit_moved: ({ state }) => ["circuit", `circuit ${state.replace("_", " ")}`, { state }],
	circuit_requested: ({ by, action }) => ["asked", `${by || "somebody"} asked to ${action} the circuit`],
};

const called = (attempt, error, delay, why = "") => [
	"call", `call ${attempt} failed: ${error}${delay == null ? why : `; again after ${span(delay, true)}`}`,
];
const paused = (seconds, at) => [
	"deferred", `the device asked for a pause of ${span(seconds)}`, { until: at + seconds * 1000 },
];

/** The steps of a probe that fails, in their order: a circuit lets it through, its call fails, the circuit opens again, and
 * the poll has failed. Events and rows of the trace come by two ways, so those of one millisecond may come in another one.
 * Null for all other marks, which stay in the order in which they came. */
const step = ({ kind, state }) =>
	state === "half_open" ? 0 : kind === "call" ? 1 : state === "open" ? 2 : kind === "failed" ? 3 : null;
const after = (one, other) => step(one) !== null && step(other) !== null && step(one) > step(other);

/** Events as notices about the app: a key, so that one replaces another, and a text. */
const NOTICES = {
	message_refused: ({ topic, reason }) => [`topic ${topic}`, `The broker refused ${topic}: ${reason}`],
	message_failed: (data) => [`handler of ${data.topic_filter}`, `The handler of ${data.topic_filter} failed: ${errorOf(data)}`],
	subscription_failed: (data) => [`filter ${data.topic_filter}`, `The broker refused to subscribe to ${data.topic_filter}: ${data.reason}`],
	state_failed: (data) => [`file ${data.file}`, `${data.file} cannot be written: ${errorOf(data)}`],
	app_fault: (data) => [`fault ${data.where}`, `A fault of the app, in ${data.where}: ${errorOf(data)}`],
};

/** A row of the trace as a mark in the timeline of its device, whose outage `began` then; null if it has no place there. */
function markOf(row, began = null) {
	const error = errorOf(row);
	const circuit = /^circuit (closed|open|half_open|isolated|disabled)$/.exec(row.reason);
	if (circuit) return ["circuit", row.reason.replace("_", " "), { state: circuit[1] }];
	if (row.reason === "recovered") {
		const text = began ? `recovered after ${span((parse(row.at) - began) / 1000)}` : "recovered";
		return ["recovered", text, { since: began }];
	}
	if (row.reason === "deferred") return paused(row.delay, parse(row.at));
	if (row.reason === "held") return ["held", row.by ? `put on hold by ${row.by}` : "on hold"];
	if (row.reason === "released") return ["released", row.by ? `released by ${row.by}` : "released"];
	if (row.reason === "failed") return ["failed", `the poll failed: ${error}`];
	if (row.attempt == null) return row.by ? ["asked", `${row.by} ${row.reason}`] : null;
	return called(row.attempt, error, row.delay, `; not again: ${inWords(row.reason)}`);
}

/** The error of an event, or of a row of the trace, as text. */
function errorOf({ error_type, error_message }) {
	return error_message ? `${error_type}: ${error_message}` : error_type ?? "";
}
