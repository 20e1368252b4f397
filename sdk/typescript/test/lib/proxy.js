// A proxy that cuts connections at random bytes.
import net from "node:net";

const most = 200_000; // bytes before a cut: more than any event has

// startProxy forwards connections to a server, and resets each after a random number of bytes:
// often a few. It has the port of the server at another address of this machine, so that the
// server knows its name.
export async function startProxy(port) {
  const result = { url: `http://127.0.0.2:${port}`, cuts: 0, close: () => listener.close() };
  const listener = net.createServer((client) => {
    const upstream = net.connect(port, "127.0.0.1");
    let budget = Math.round(most ** (0.3 + 0.7 * Math.random()));
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
