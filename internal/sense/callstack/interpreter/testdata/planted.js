// planted.js MODE SECONDS: as planted.c.
const cell = new Int32Array(new SharedArrayBuffer(4));
function burn_most() { let s = 0; for (let i = 0; i < 3e6; i++) s += i % 7; return s; }
function burn_some() { let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; return s; }
function wait_on_db() { Atomics.wait(cell, 0, 0, 20); }
function handle_request(mode) {
	if (mode === "wait") {
		const began = process.hrtime.bigint();
		wait_on_db();
		require("fs").writeSync(1, `${process.hrtime.bigint() - began}\n`);
	} else {
		burn_most();
		burn_some();
	}
}
const end = Date.now() + 1000 * Number(process.argv[3]);
while (Date.now() < end) handle_request(process.argv[2]);
