/**
 * A WebSocket in Node, on `node:http` and `node:https`: Node 20 has none of its own, and that of later versions takes
 * neither headers nor authorities.
 *
 * Owns: one connection from being made to being over: handshake, keepalive, how it ends. Must never: know what a message
 * means, connect again, or say a token.
 */
import type { Socket, SocketOptions } from "./transport.js";
/** @type {Connect} */
export declare function connect(url: string, options: SocketOptions): Promise<Socket>;
