// Serves and calls HTTP/2 under node's TLS, and says what it did and when.
//
//	node h2node.mjs serve CERTIFICATE KEY
//	node h2node.mjs call PORT CONNECTIONS AT-ONCE TURNS
//
// The server prints its port. Either end prints a line for each stream that is over: the port of
// the caller, its number, ns (CLOCK_MONOTONIC) at which node told of the request, at which it was
// told to answer (the caller: at which node told of the answer) and at which it ended, and
// METHOD/path:status. What is asked for is /WHAT?ms=DELAY: get, missing (404), big (300,000
// bytes), many (ten pieces, nine of them each time the delay has passed), hang (nothing: the caller resets
// it after the delay).
import http2 from 'node:http2';
import fs from 'node:fs';

const now = () => process.hrtime.bigint();
const after = ms => new Promise(resolve => setTimeout(resolve, ms));
const lines = [];
const print = () => process.stdout.write(lines.splice(0).join(''));
const over = x => lines.push(`${x.port} ${x.id} ${x.asked} ${x.answered} ${now()} ${x.what} ${x.first}\n`);
const { constants } = http2;

function serve(cert, key) {
	const server = http2.createSecureServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) });
	server.on('sessionError', () => {});
	server.on('stream', async (stream, headers) => {
		const asked = now();
		const url = new URL(headers[':path'], 'https://localhost');
		const ms = Number(url.searchParams.get('ms'));
		const x = { port: stream.session.socket.remotePort, id: stream.id, first: asked, asked, answered: 0n, what: '' };
		const status = { '/missing': 404 }[url.pathname] ?? 200;
		stream.on('error', () => {});
		stream.on('close', () => {
			x.what = `${headers[':method']}${url.pathname}:${stream.rstCode === constants.NGHTTP2_NO_ERROR ? status : 'caller'}`;
			over(x);
		});
		if (url.pathname === '/hang')
			return;
		await after(ms);
		x.answered = now();
		stream.respond({ ':status': status });
		if (url.pathname === '/many') {
			for (let i = 0; i < 9; i++) {
				await after(ms);
				stream.write('piece');
			}
			stream.end('piece');
		} else {
			stream.end(url.pathname === '/big' ? Buffer.alloc(300_000) : 'ok');
		}
	});
	server.listen(0, '127.0.0.1', () => console.log(server.address().port));
	setInterval(print, 10);
}

function ask(session, what, ms) {
	return new Promise(resolve => {
		const stream = session.request({ ':path': `/${what}?ms=${ms}` });
		const x = { port: session.socket.localPort, id: 0, first: now(), asked: 0n, answered: 0n, what: '' };
		let status;
		x.asked = x.first;
		stream.on('response', headers => {
			x.answered = now();
			status = headers[':status'];
		});
		stream.on('error', () => {});
		stream.on('close', () => {
			x.id = stream.id;
			x.what = `GET/${what}:${status ?? 'caller'}`;
			over(x);
			resolve();
		});
		stream.resume();
		if (what === 'hang')
			setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), ms);
	});
}

async function call(port, connections, atOnce, turns) {
	const all = [];
	for (let c = 0; c < connections; c++) {
		const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
		await new Promise(resolve => session.on('connect', resolve));
		all.push((async () => {
			for (let i = 0; i < 6; i++)
				await ask(session, 'get', 0);
			const workers = [];
			for (let i = 0; i < atOnce; i++) {
				workers.push((async () => {
					for (let turn = 0; turn < turns; turn++)
						await ask(session, ['get', 'get', 'missing', 'big', 'many', 'get', 'hang'][(i + turn) % 7], 3 + 2 * (i % 16) + turn);
				})());
			}
			await Promise.all(workers);
			session.close();
		})());
	}
	await Promise.all(all);
	print();
}

const [how, ...args] = process.argv.slice(2);
if (how === 'serve')
	serve(...args);
else
	await call(...args.map(Number));
