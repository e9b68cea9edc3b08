/**
 * What the client asks of a connection; there is one kind for browsers and one for Node.
 *
 * Owns: the interface, and nothing that runs.
 */
export type SocketOptions = {
    /**
     * For an endpoint that wants one.
     */
    token: string | null;
    /**
     * Of a message that is received.
     */
    messageBytesMax: number;
    /**
     * Node only.
     */
    ca: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
    /**
     * Speak in lines where the endpoint does (SPEC section 1.6).
     */
    lines: boolean;
    /**
     * Ends the attempt to connect, and only that.
     */
    signal: AbortSignal;
    /**
     * A message came, or a line of one. Never called
     * once the connection was given up or cut.
     */
    onMessage: (socket: Socket, text: string) => void;
    /**
     * Called once, in the same turn in which the connection is found to be gone.
     */
    onOver: (socket: Socket) => void;
};
export type Socket = {
    /**
     * It is open, and what has been written is not waiting for the endpoint to read.
     */
    takesMore: boolean;
    isOver: boolean;
    /**
     * When the endpoint was heard of last, as of `Date.now()`.
     */
    heardMs: number;
    /**
     * What the endpoint closed with, if it did.
     */
    closeCode: number | null;
    /**
     * What ended it, in words.
     */
    why: string;
    /**
     * Send text messages, in one write where that is possible. Where
     * both sides speak in lines they have no line feed, and share messages with what else is written at that moment.
     */
    write: (texts: readonly string[]) => void;
    /**
     * Until it takes more, or is over.
     */
    drained: (signal: AbortSignal) => Promise<void>;
    canPause: boolean;
    /**
     * Read no more for now.
     */
    pause: () => void;
    /**
     * Read again.
     */
    goOn: () => void;
    /**
     * Is it alive? A command has waited in vain. It is cut if nothing comes within `PROBE_MS`.
     */
    probe: () => void;
    /**
     * The endpoint does not speak our protocol.
     */
    giveUp: (why: string) => void;
    /**
     * Cut it.
     */
    abort: () => void;
    /**
     * The closing handshake, or what comes of it in `CLOSE_MS_MAX`.
     */
    end: () => Promise<void>;
};
export type Connect = (url: string, options: SocketOptions) => Promise<Socket>;
/**
 * @typedef {object} SocketOptions
 * @property {string | null} token For an endpoint that wants one.
 * @property {number} messageBytesMax Of a message that is received.
 * @property {string | Uint8Array | readonly (string | Uint8Array)[] | undefined} ca Node only.
 * @property {boolean} lines Speak in lines where the endpoint does (SPEC section 1.6).
 * @property {AbortSignal} signal Ends the attempt to connect, and only that.
 * @property {(socket: Socket, text: string) => void} onMessage A message came, or a line of one. Never called
 *   once the connection was given up or cut.
 * @property {(socket: Socket) => void} onOver Called once, in the same turn in which the connection is found to be gone.
 */
/**
 * One connection whose handshake is done.
 * @typedef {object} Socket
 * @property {boolean} takesMore It is open, and what has been written is not waiting for the endpoint to read.
 * @property {boolean} isOver
 * @property {number} heardMs When the endpoint was heard of last, as of `Date.now()`.
 * @property {number | null} closeCode What the endpoint closed with, if it did.
 * @property {string} why What ended it, in words.
 * @property {(texts: readonly string[]) => void} write Send text messages, in one write where that is possible. Where
 *   both sides speak in lines they have no line feed, and share messages with what else is written at that moment.
 * @property {(signal: AbortSignal) => Promise<void>} drained Until it takes more, or is over.
 * @property {boolean} canPause
 * @property {() => void} pause Read no more for now.
 * @property {() => void} goOn Read again.
 * @property {() => void} probe Is it alive? A command has waited in vain. It is cut if nothing comes within `PROBE_MS`.
 * @property {(why: string) => void} giveUp The endpoint does not speak our protocol.
 * @property {() => void} abort Cut it.
 * @property {() => Promise<void>} end The closing handshake, or what comes of it in `CLOSE_MS_MAX`.
 */
/**
 * Makes a connection; rejects with `Unreachable`, or the signal's reason.
 * @typedef {(url: string, options: SocketOptions) => Promise<Socket>} Connect
 */
/** How long nothing may come over a connection that is probed, in milliseconds. */
export declare const PROBE_MS = 10000;
/** How long an endpoint may take to answer a close, in milliseconds; then the connection is cut. */
export declare const CLOSE_MS_MAX = 2000;
