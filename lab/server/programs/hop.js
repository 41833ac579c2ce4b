// One of a chain of small HTTP services: it does something, asks the next, answers.
const dns = require("dns");
const fs = require("fs");
const http = require("http");

const [addr, port, ...rest] = process.argv.slice(2);
const are = { every: 1 };
for (let n = 0; n < rest.length; n += 2) are[rest[n].slice(2)] = rest[n + 1];
const number = (name) => Number(are[name] || 0);
const agent = new http.Agent({ keepAlive: true, maxSockets: 512 });
let count = 0;

function tariff(us) {
  const end = process.hrtime.bigint() + BigInt(us) * 1000n;
  let total = 0;
  while (process.hrtime.bigint() < end) for (let n = 0; n < 5000; n++) total = (total * 31 + n) % 1000003;
  return total;
}

function awaitSupplier() {
  return new Promise((done) => setTimeout(done, number("sleep-us") / 1000));
}

function askNext() {
  return new Promise((done) => {
    const [host, at] = are.next.split(":");
    const timeout = number("timeout-ms") || 10000;
    const req = http.get({ host, port: at, agent, timeout }, (res) => {
      res.resume();
      res.on("end", () => done(res.statusCode));
    });
    req.on("timeout", () => req.destroy());
    req.on("error", () => done(502));
  });
}

async function answer(req, res) {
  let status = 200;
  try {
    if (++count % Number(are.every) === 0) {
      if (number("sleep-us")) await awaitSupplier();
      if (number("spin-us")) tariff(number("spin-us"));
      if (are.lookup) await dns.promises.lookup(are.lookup);
    }
    if (are.read) await fs.promises.readFile(are.read);
    if (number("log")) fs.writeSync(1, "x".repeat(number("log")) + "\n");
    if (are.next) status = await askNext();
  } catch (problem) {
    status = 500;
  }
  res.writeHead(status, { "Content-Length": 3 });
  res.end(status < 400 ? "ok\n" : "no\n");
}

const server = http.createServer(answer);
server.keepAliveTimeout = 60000;
server.listen({ host: addr, port: Number(port), backlog: number("backlog") || 1024 });
