/**
 * Input for the program: notifications, gaps and positions, handed over in order. SPEC section 9.
 *
 * Owns: the queue, its limit, the iteration, and which handler is running. Must never: know a connection, hand over a
 * later item before the program has processed the earlier ones, or drop a notification without counting and reporting
 * it.
 */
import type { Credit } from "./credit.js";
import type { ClientOptions } from "./options.js";
import type { Notification } from "./queue.js";
import type { Mark, Recovery } from "./recovery.js";
export type Receiver = {
    /**
     * Returns the error that ended the client, or null.
     */
    ended: () => Error | null;
    /**
     * Returns whether the inbox must hand over nothing more, because the program closed
     * the client or a handler has failed.
     */
    isOver: () => boolean;
    /**
     * Call a handler. If the handler throws an error, the client ends.
     */
    tell: (call: () => void) => void;
    /**
     * Report that a handler has failed.
     */
    fail: (error: unknown) => void;
    /**
     * Resume reading, if reading has stopped.
     */
    goOn: () => void;
    /**
     * Yields the client's own topics. A topic can occur
     * twice.
     */
    topics: (signal: AbortSignal) => AsyncIterable<string>;
};
export type Handlers = Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">;
/** @import { Credit } from "./credit.js" */
/** @import { ClientOptions } from "./options.js" */
/** @import { Notification } from "./queue.js" */
/** @import { Lacking, Mark, Recovery } from "./recovery.js" */
/**
 * @typedef {object} Receiver What the client of the inbox provides.
 * @property {() => Error | null} ended Returns the error that ended the client, or null.
 * @property {() => boolean} isOver Returns whether the inbox must hand over nothing more, because the program closed
 *   the client or a handler has failed.
 * @property {(call: () => void) => void} tell Call a handler. If the handler throws an error, the client ends.
 * @property {(error: unknown) => void} fail Report that a handler has failed.
 * @property {() => void} goOn Resume reading, if reading has stopped.
 * @property {(signal: AbortSignal) => AsyncIterable<string>} topics Yields the client's own topics. A topic can occur
 *   twice.
 */
/** @typedef {Pick<ClientOptions, "onNotification" | "onDropped" | "onGap">} Handlers */
/** The inbox of one client. */
export declare class Inbox {
    #private;
    /** Number of notifications dropped because the queue was full. */
    dropped: number;
    /**
     * @param {Handlers & { queueMax: number, overflow: "drop_oldest" | "pause" }} options
     * @param {Recovery | null} recovery
     * @param {Credit | null} credit
     * @param {Receiver} receiver
     */
    constructor(options: Handlers & {
        queueMax: number;
        overflow: "drop_oldest" | "pause";
    }, recovery: Recovery | null, credit: Credit | null, receiver: Receiver);
    /** Number of waiting notifications. */
    get length(): number;
    /** Whether reading should stop for now. */
    get isFull(): boolean;
    /** Note that reading stops, so that no reply can arrive for which the inbox waits. */
    paused(): void;
    /** Note that the client has ended, and wake the iteration. */
    ended(): void;
    /** @param {Notification} notification */
    put(notification: Notification): void;
    /**
     * Report the mark's gap, or reach its position, when the program has processed everything before the mark.
     * @param {Omit<Mark, "after">} mark
     */
    mark(mark: Omit<Mark, "after">): void;
    /**
     * See `Client.notifications`.
     * @param {AbortSignal | undefined} signal
     * @returns {AsyncGenerator<Notification, void, void>}
     */
    notifications(signal: AbortSignal | undefined): AsyncGenerator<Notification, void, void>;
}
