/**
 * The client's interface to a connection; there is one kind for browsers and one for Node.
 *
 * Owns: the interface, and nothing that runs.
 */

/**
 * @typedef {object} SocketOptions
 * @property {string | null} token For an endpoint that needs one.
 * @property {number} messageBytesMax The largest message that it accepts, in bytes.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[] | undefined} ca Node only.
 * @property {boolean} lines Offer lines, for endpoints that speak them (SPEC section 1.6).
 * @property {AbortSignal} signal Ends the attempt to connect, and only that.
 * @property {(socket: Socket, text: string) => void} onMessage A message, or a line of one, has arrived. Never called
 *   after the connection was given up or cut.
 * @property {(socket: Socket) => void} onOver Called once, in the turn in which the client finds that the connection is
 * gone.
 */

/**
 * One connection whose handshake is done.
 * @typedef {object} Socket
 * @property {boolean} takesMore It is open, and no written data waits for the endpoint to read it.
 * @property {boolean} isOver
 * @property {number} heardMs When the endpoint last sent something, as of `Date.now()`.
 * @property {number | null} closeCode The endpoint's close code, if it gave one.
 * @property {string} why The reason for its end, in words.
 * @property {(texts: readonly string[]) => void} write Send text messages, in one write if possible. If both sides
 *   speak in lines, they have no line feed, and share messages with everything else written at that moment.
 * @property {(signal: AbortSignal) => Promise<void>} drained Wait until it takes more, or is over.
 * @property {boolean} canPause
 * @property {() => void} pause Stop reading for now.
 * @property {() => void} goOn Read again.
 * @property {() => void} probe Check that it is alive, after a command got no reply. Cut it if nothing comes within
 *   `PROBE_MS`.
 * @property {(why: string) => void} giveUp Close it: the endpoint does not speak our protocol.
 * @property {() => void} abort Cut it.
 * @property {() => Promise<void>} end Do the closing handshake, for at most `CLOSE_MS_MAX`.
 */

/**
 * Makes a connection; rejects with `Unreachable`, or the signal's reason.
 * @typedef {(url: string, options: SocketOptions) => Promise<Socket>} Connect
 */

/** The longest silence of a probed connection, in milliseconds. */
export const PROBE_MS = 10_000;

/** Time that an endpoint has to answer a close, in milliseconds; then the client cuts the connection. */
export const CLOSE_MS_MAX = 2_000;
