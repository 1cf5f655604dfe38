// The connection to the app: documents by fetch, events by a stream that is read here rather than by EventSource, since
// that can neither send a token nor notice that nothing comes any more.

import { keep, kept } from "./dom.js";

const SILENCE = 15000; // milliseconds without a byte after which the connection is lost; the app sends one every 5 s
const WAITS = [500, 1000, 2000, 4000, 8000]; // milliseconds before the next attempt

let token = kept("token", "sessionStorage");

/** The server has answered with an error: `status` is its number, the message explains it. */
export class Refused extends Error {
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

export function useToken(text) {
	token = text;
	keep("token", text, "sessionStorage");
}

async function ask(path, options = {}) {
	const headers = { ...options.headers };
	if (token) headers.Authorization = `Bearer ${token}`;
	const answer = await fetch(path, { cache: "no-store", ...options, headers });
	if (answer.ok) return answer;
	let why = `${answer.status} ${answer.statusText}`;
	try {
		const body = await answer.json();
		why = body.detail ?? why;
	} catch {
		// The number must do.
	}
	throw new Refused(answer.status, String(why));
}

const MAX_REQUESTS = 3; // questions at a time: the app refuses a large one while four answers are under way
let under = 0;
const waiting = [];

/** A document. */
export async function get(path) {
	while (under >= MAX_REQUESTS) await new Promise((turn) => waiting.push(turn));
	under++;
	try {
		return await (await ask(path, { signal: AbortSignal.timeout(15000) })).json();
	} finally {
		under--;
		waiting.shift()?.();
	}
}

/** Some sections about some devices. */
export function sections(wanted, names) {
	const query = names.map((name) => `&devices=${encodeURIComponent(name)}`).join("");
	return get(`introspect?sections=${wanted}${query}`);
}

/** Ask the app to do something. */
export async function post(path, body) {
	const headers = { "Content-Type": "application/json" };
	const signal = AbortSignal.timeout(70000);
	return (await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

/** The events of the app, without end. `load` fetches what the events build upon, and drops it if its argument returns true;
 * `state` takes "live", "lost" with the time of the next attempt and the error of the app, and "locked" with the token that
 * is wrong, or null. */
export class Live {
	constructor(load, event, state) {
		this.load = load;
		this.event = event;
		this.state = state;
		this.last = null; // the id of the last event
		this.attempts = 0;
		this.wake = null;
		this.heard = 0;
	}

	async run() {
		for (;;) {
			const tried = token;
			let why = "";
			try {
				await this.listen();
			} catch (error) {
				if (error.status) why = error.message;
				if (error.status === 401) {
					why = tried ? "the token is wrong" : "it wants a token";
					this.state("locked", tried);
				}
			}
			const wait = WAITS[Math.min(this.attempts++, WAITS.length - 1)];
			this.state("lost", Date.now() + wait, why);
			await new Promise((resolve) => {
				this.wake = resolve;
				setTimeout(resolve, wait);
			});
		}
	}

	/** Try at once. */
	hurry() {
		this.attempts = 0;
		this.wake?.();
	}

	/** Read events until the stream ends or falls silent. Events that come while the documents are fetched wait. */
	async listen() {
		const abort = new AbortController();
		const headers = { Accept: "text/event-stream" };
		if (this.last != null) headers["Last-Event-ID"] = this.last;
		const slow = setTimeout(() => abort.abort(), 15000);
		const answer = await ask("events", { headers, signal: abort.signal });
		clearTimeout(slow);
		this.heard = Date.now();
		const watch = setInterval(() => Date.now() - this.heard > SILENCE && abort.abort(), 1000);
		const waiting = [];
		let ready = false, over = false;
		const take = (id, data) => {
			if (!ready) return void waiting.push([id, data]);
			if (id != null) this.last = id;
			this.event(data);
		};
		try {
			const reading = this.read(answer.body, take);
			const loading = this.load(() => over).then(() => {
				if (over) return; // the stream ended meanwhile
				ready = true;
				for (const each of waiting) take(...each);
				this.attempts = 0;
				this.state("live");
			});
			await Promise.race([reading, loading.then(() => reading)]);
		} finally {
			over = true;
			clearInterval(watch);
			abort.abort();
		}
	}

	/** Take a stream of events apart. */
	async read(body, take) {
		const lines = body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "", id = null, data = [];
		for (;;) {
			const { value, done } = await lines.read();
			if (done) return;
			this.heard = Date.now();
			const parts = (rest + value).split(/\r\n|\n/);
			rest = parts.pop();
			for (const line of parts) {
				if (line === "") {
					if (data.length) take(id, JSON.parse(data.join("\n")));
					data = [];
				} else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
				else if (line.startsWith("id:")) id = line.slice(3).trim();
			}
		}
	}
}
