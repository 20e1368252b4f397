// A proxy that cuts connections at random bytes.
import net from "node:net";

// startProxy forwards connections to a server, and resets each after a random number of bytes,
// `least` to `most`, often a few. `most` must be more than any event has. The proxy has the port of
// the server at another address of this machine, so that the server knows its name. Of four
// connections in a row one has the most, so that no request runs out of time by chance.
export async function startProxy(port) {
  const result = { url: `http://127.0.0.2:${port}`, cuts: 0, least: 30, most: 200_000, close: () => listener.close() };
  let short = 0; // connections since the last that had the most
  const listener = net.createServer((client) => {
    const upstream = net.connect(port, "127.0.0.1");
    short = (short + 1) % 4;
    let budget = short === 0 ? result.most : Math.round(result.least * (result.most / result.least) ** Math.random());
    client.on("error", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    client.pipe(upstream);
    upstream.on("end", () => client.end());
    upstream.on("data", (data) => {
      if (data.length <= budget) {
        budget -= data.length;
        client.write(data);
        return;
      }
      result.cuts++;
      client.write(data.subarray(0, budget), () => client.resetAndDestroy());
      upstream.destroy();
    });
  });
  await new Promise((resolve) => listener.listen(port, "127.0.0.2", resolve));
  return result;
}
