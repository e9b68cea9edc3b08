/** What a program in TypeScript may write, and what it may not: checked by tsc, never run. */

import { Client, ClosedForGood, ProtocolError } from "ingeborg-client";
import type { Bounds, ClientOptions, Gap, History, Next, Notification, Rule, Subscription } from "ingeborg-client";

const options: ClientOptions = {
  listen: true,
  overflow: "pause",
  lines: true,
  until: null,
  bounds: "screen",
  window: 100,
  onEnded: (found: Subscription[], count: number) => console.log(found[0]?.filter, count),
  recover: { key: "position" },
  onGap: async ({ topics }: Gap) => console.log(topics?.length),
  onNotification: (key, broadcast, { mid, kept, skipped }) => console.log(key, broadcast, mid?.length, kept === true, skipped + 1),
  token: async () => "a.b.c",
  onDropped: (notification: Notification, dropped: number) => console.log(notification.key, dropped),
};
const client: Client = await Client.open(["ws://127.0.0.1:9000"], "ann", { ...options, signal: AbortSignal.timeout(1000) });
await client.subscribe(["a", "b"] as const, { timeoutMs: 60_000 });
const duplicate: boolean | undefined = await client.publish("a", { any: ["value", null] }, { ack: true, timestamp: 1 });
await client.subscribe("a", { until: "disconnect", ttlS: 60, signal: AbortSignal.timeout(1000) });
await client.subscribe("a", { until: null });
await client.subscribe("a", { filter: { price: [{ numeric: ["<", 5] }] }, replace: true, ttlS: 60, timeoutMs: 1000 });
await client.unsubscribe("a", { filter: { price: [7] } });
await client.publishMany(new Map([["a", 1]]), { dedup: false });
await client.publish("a", 1, { dedup: "retry", keepS: 60 });
await client.publishMany([["a", 1]], { keepS: 60 });
await client.publish("a", 1, { item: "AAPL", weight: 0.5 });
const bounds: Bounds = [{ topic: "a", staleness_ms: 50 }, { prefix: "", numerical: null, deliver: "latest" }];
await client.setBounds(bounds, { timeoutMs: 1000 });
const inForce: Rule | undefined = client.bounds[0];
console.log(inForce?.interval_ms?.toFixed());
const position: string | null = client.position;
if (position !== null) await client.subscribe("a", { since: position });
await client.subscribe("a", { last: 10, until: "disconnect" });
const page: History = await client.history("a", { last: 10, filter: { price: [7] }, signal: AbortSignal.timeout(1000) });
if (page.mid !== null) (await client.history("a", { since: page.mid, limit: 10 })).publications.at(client.repeats)?.mid.length;
new Client("ws://127.0.0.1:9000", "ann", { recover: true });
new Client("ws://127.0.0.1:9000", "ann", { recover: "a position" });
for await (const { topic, filter, until: end } of client.subscriptions({ limit: 10 })) {
  await client.subscribe(topic, { filter, until: end });
}
const until: number = (await client.revoke({ jti: "t", expiresAt: 7 }, { timeoutMs: 5 })).expiresAt;
until.toFixed();
for await (const row of client.subscribers("room/1", { limit: 10 })) row.clientId.at(Number(row.online && row.filtered));
for await (const { key, broadcast } of client) key?.toUpperCase() ?? broadcast.anything;
const ended: Error | null = await client.closed;
if (ended instanceof ClosedForGood) ended.closeCode.toFixed();
if (ended instanceof ProtocolError) {
  const next: Next = ended.next;
  console.log(next, ended.code, ended.info, ended.extra, duplicate);
}

// @ts-expect-error: no such preset
await client.setBounds("lively");
// @ts-expect-error: rules have the protocol's names
await client.setBounds([{ prefix: "", stalenessMs: 50 }]);
// @ts-expect-error: a broadcast is about no item
await client.broadcast(1, { item: "AAPL" });
// @ts-expect-error: an object is no client id
new Client("ws://127.0.0.1:9000", {});
// @ts-expect-error: no such option
new Client("ws://127.0.0.1:9000", "ann", { lisen: true });
// @ts-expect-error: no such end
await client.subscribe("a", { until: "plain" });
// @ts-expect-error: a filter is an object
await client.subscribe("a", { filter: "price < 5" });
// @ts-expect-error: a broadcast is never kept
await client.broadcast(1, { keepS: 60 });
// @ts-expect-error: a key of localStorage has a name
new Client("ws://127.0.0.1:9000", "ann", { recover: { kez: "position" } });
// @ts-expect-error: topics are strings
await client.subscribe([1]);
// @ts-expect-error: read only
client.dropped = 0;
