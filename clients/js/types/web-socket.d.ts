/**
 * A connection that uses a browser's `WebSocket`.
 *
 * Owns: one connection from start to end. Must never: know what a message means, connect again, or reveal a token.
 *
 * A page cannot set a header, so the token goes into the query (SPEC section 1.5). A page also cannot see why a
 * handshake was refused, read more slowly, cut a connection immediately, or see pings, which the browser answers.
 */
import type { Socket, SocketOptions } from "./transport.js";
/** @type {Connect} */
export declare function connect(url: string, options: SocketOptions): Promise<Socket>;
