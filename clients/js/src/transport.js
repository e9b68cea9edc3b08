/**
 * The client's interface to a connection; there is one kind for browsers and one for Node.
 *
 * Owns: the interface, and nothing that runs.
 */

/**
 * @typedef {object} SocketOptions
 * @property {string | null} token The token, for an endpoint that needs one.
 * @property {number} messageBytesMax Maximum size of a received message, in bytes.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[] | undefined} ca Node only.
 * @property {boolean} lines Whether to offer lines, for endpoints that support them (SPEC section 1.6).
 * @property {AbortSignal} signal Ends the attempt to connect, but not an open connection.
 * @property {(socket: Socket, text: string) => void} onMessage Called when a message, or a line of a message, has
 *   arrived. Never called after the client gave up or cut the connection.
 * @property {(socket: Socket) => void} onOver Called once, in the turn in which the client finds that the connection is
 *   gone.
 */

/**
 * One connection whose handshake is done.
 * @typedef {object} Socket
 * @property {boolean} takesMore Whether the connection is open and accepts more data.
 * @property {boolean} isOver
 * @property {number} heardMs When the endpoint last sent something, as of `Date.now()`.
 * @property {number | null} closeCode The endpoint's close code, if it gave one.
 * @property {string} why Why the connection ended, in words.
 * @property {(texts: readonly string[]) => void} write Send text messages, in one write if possible. If both sides use
 *   lines, the texts have no line feed, and share messages with everything else written at that moment.
 * @property {(signal: AbortSignal) => Promise<void>} drained Wait until the connection accepts more data, or has ended.
 * @property {boolean} canPause
 * @property {() => void} pause Stop reading for now.
 * @property {() => void} goOn Read again.
 * @property {() => void} probe Check that the connection is alive, after a command got no reply. Cut the connection if
 *   nothing arrives within `PROBE_MS`.
 * @property {(why: string) => void} giveUp Close the connection, because the endpoint violates the protocol.
 * @property {() => void} abort Cut the connection.
 * @property {() => Promise<void>} end Do the closing handshake, for at most `CLOSE_MS_MAX`.
 */

/**
 * Opens a connection. Rejects with `Unreachable`, or with the signal's reason.
 * @typedef {(url: string, options: SocketOptions) => Promise<Socket>} Connect
 */

/** The longest silence of a probed connection, in milliseconds. */
export const PROBE_MS = 10_000;

/** Time that an endpoint has to answer a close, in milliseconds. Then the client cuts the connection. */
export const CLOSE_MS_MAX = 2_000;
