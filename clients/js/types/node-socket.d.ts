/**
 * A WebSocket in Node, built on `node:http` and `node:https`. Node 20 has no WebSocket, and the WebSocket of later
 * versions accepts neither headers nor authorities.
 *
 * Owns: one connection from start to end: handshake, keepalive, close. Must never: know what a message means, connect
 * again, or reveal a token.
 */
import type { Socket, SocketOptions } from "./transport.js";
/** @type {Connect} */
export declare function connect(url: string, options: SocketOptions): Promise<Socket>;
